//! The page of the doctor names every look, and no other.

use std::collections::BTreeSet;
use std::path::Path;

/// Looks that are rows of `torchlift probe`, whose names are its own.
const OF_PROBE: [&str; 11] =
    ["system", "cpu", "cores", "memory", "libc", "loader", "limits", "nvidia", "amd", "gpus", "gpu-0"];
/// What stands before the name of a look.
const MARKERS: [&str; 6] =
    ["Check::right(", "Check::doubtful(", "Check::wrong(", "Check::unchecked(", "room(", "folder("];

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_page_names_every_look_and_no_other() {
    let page = fs_err::read_to_string(root().join("docs/doctor.md")).unwrap();
    let documented: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .flat_map(|(names, _)| names.split(", "))
        .filter_map(|name| Some(name.strip_prefix('`')?.strip_suffix('`')?.to_owned()))
        .filter(|name| {
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-+".contains(&byte))
        })
        .collect();
    let mut made: BTreeSet<String> = OF_PROBE.iter().map(|name| (*name).to_owned()).collect();
    for entry in fs_err::read_dir(root().join("xtask/src/doctor")).unwrap() {
        let text = fs_err::read_to_string(entry.unwrap().path()).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for after in MARKERS.iter().flat_map(|marker| text.split(marker).skip(1)) {
            let name = after.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            made.extend(name.map(str::to_owned));
        }
    }
    let missing: Vec<_> = made.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&made).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:?}; made by nothing: {unknown:?}");
    assert!(made.len() > 35, "{made:?}");
}
