//! The list of an allocation's hosts, for programs that look for it in a file.
//!
//! Where `TORCH_ELASTIC_CUSTOM_HOSTNAMES_LIST_FILE` is set, the file that it names becomes `{"hostnames":["h0","h1"]}`, before any
//! process of the allocation starts. It is renamed in, so that nobody reads half of it; the published allocator truncated and
//! wrote it in place, and told nobody when that failed.

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

#[derive(Serialize)]
struct Hosts<'a> {
    hostnames: &'a [String],
}

/// Writes the file.
///
/// # Errors
/// When it cannot be written whole; the file is as it was then.
pub(crate) fn write(file: &Path, hosts: &[String]) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let text = serde_json::to_vec(&Hosts { hostnames: hosts })?;
    let mut beside = tempfile::Builder::new().prefix(".torchlift-hosts-").tempfile_in(folder)?;
    beside.write_all(&text)?;
    beside.as_file().sync_all()?;
    // As any other file that a program writes for others to read, not as a temporary one.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    beside.as_file().set_permissions(mode)?;
    beside.persist(file).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_published_form_and_replaces_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts ü.json");
        fs_err::write(&file, "a much longer text than the one that follows it").unwrap();
        write(&file, &["h0".to_owned(), "h\"1".to_owned()]).unwrap();
        assert_eq!(fs_err::read_to_string(&file).unwrap(), r#"{"hostnames":["h0","h\"1"]}"#);
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(write(&folder.path().join("no/such/folder/hosts"), &[]).is_err());
        let file = folder.path().join("hosts");
        fs_err::create_dir(&file).unwrap();
        assert!(write(&file, &[]).is_err());
        assert!(file.is_dir());
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1);
    }
}
