//! The secret that a client shows where the connection itself proves nothing: on loopback TCP.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use fs_err::{File, OpenOptions};

/// Bytes of randomness in a token.
const BYTES: usize = 32;
/// Bytes that a token's file may have.
const MOST: u64 = 1024;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The file cannot be read or made.
    #[error("the token's file cannot be used")]
    File(#[from] io::Error),
    /// Others than its owner may read it.
    #[error("the token's file has mode {mode:04o}: others may read it")]
    Mode {
        /// The mode that it has.
        mode: u32,
    },
    /// It holds no token.
    #[error("the token's file holds no token: one line of at least {BYTES} printable characters without spaces")]
    Content,
}

/// The token in this file; a new one is made where there is no file.
pub(crate) fn read_or_make(file: &Path) -> Result<String, TokenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Ok(mut new) => {
            let token = make()?;
            let written = writeln!(new, "{token}").and_then(|()| new.sync_all());
            if let Err(error) = written {
                let _ = fs_err::remove_file(file);
                return Err(error.into());
            }
            Ok(token)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(file),
        Err(error) => Err(error.into()),
    }
}

/// The token in this file.
pub(crate) fn read(file: &Path) -> Result<String, TokenError> {
    let open = File::open(file)?;
    let mode = open.metadata()?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TokenError::Mode { mode });
    }
    let mut text = String::new();
    open.take(MOST).read_to_string(&mut text)?;
    let token = text.trim_end();
    let is_token = token.len() >= BYTES && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_token { Ok(token.to_owned()) } else { Err(TokenError::Content) }
}

fn make() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether two tokens are equal, in a time that does not say where they differ.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_made_once_for_its_owner_alone_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let token = read_or_make(&file).unwrap();
        assert_eq!(token.len(), 2 * BYTES);
        assert_eq!(fs_err::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(read_or_make(&file).unwrap(), token);
        assert_ne!(read_or_make(&folder.path().join("other")).unwrap(), token);
        assert!(
            is_same(&token, &token)
                && !is_same(&token, &token[1..])
                && !is_same(&token, &token.replace(&token[..1], "z"))
        );
    }

    #[test]
    fn a_token_that_others_may_read_or_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        read_or_make(&file).unwrap();
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(read_or_make(&file), Err(TokenError::Mode { mode: 0o640 })));
        fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "short", "with a space with a space with a space"] {
            fs_err::write(&file, text).unwrap();
            assert!(matches!(read(&file), Err(TokenError::Content)), "{text}");
        }
        assert!(matches!(read_or_make(&folder.path().join("no/folder")), Err(TokenError::File(_))));
    }
}
