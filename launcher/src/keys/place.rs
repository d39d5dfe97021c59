//! Where keys lie: the folder of one user, and what is in it.
//!
//! ```text
//! keys/                  with an authority            keys/                 carried to a host
//!   keys.json            what there is                  keys.json
//!   authority/ID.pem     private key and certificate    identity.pem        private key and certificate
//!   trust.pem            authorities that are trusted   trust.pem
//!   revoked.pem          what they have taken back      revoked.pem
//!   host/NAME/           each a folder as on the right
//!   client/NAME/
//! ```
//!
//! Owns these names. Touches no disk.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::role::{Role, RoleKind};
use crate::env_vars;

/// What there is.
pub const INDEX: &str = "keys.json";
/// A private key and the certificates that go with it: one file, so that they are always of one issue.
pub const IDENTITY: &str = "identity.pem";
/// The certificates of the authorities that are trusted.
pub const TRUST: &str = "trust.pem";
/// A list of revoked certificates for each of those authorities.
pub const REVOKED: &str = "revoked.pem";
/// The folder of the authorities' private keys.
pub const AUTHORITY: &str = "authority";
/// The lock of those who change something.
#[cfg(feature = "net")]
pub(crate) const LOCK: &str = ".lock";

/// The folder of keys that an environment means: `$XDG_CONFIG_HOME/torchlift/keys`, else `~/.config/torchlift/keys`; none
/// where neither variable is an absolute path.
pub fn default_folder(env: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
    // A relative one is passed over, as the XDG specification asks.
    let absolute = |name: &str| env.get(OsStr::new(name)).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute(env_vars::XDG_CONFIG_HOME).or_else(|| Some(absolute(env_vars::HOME)?.join(".config")))?;
    Some(config.join("torchlift/keys"))
}

/// Where the authority's private key and certificate are.
pub(crate) fn authority(folder: &Path, id: &str) -> PathBuf {
    folder.join(AUTHORITY).join(format!("{id}.pem"))
}

/// The folder of what was issued for a role; what is in it can be carried.
pub fn issued(folder: &Path, role: &Role) -> PathBuf {
    of_kind(folder, role.kind()).join(role.name())
}

/// The folder of all that was issued for a kind of roles.
pub(crate) fn of_kind(folder: &Path, kind: RoleKind) -> PathBuf {
    folder.join(kind.word())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Option<PathBuf> {
        default_folder(&pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    #[test]
    fn the_folder_follows_xdg_and_then_home() {
        assert_eq!(of(&[("XDG_CONFIG_HOME", "/c ö"), ("HOME", "/h")]), Some("/c ö/torchlift/keys".into()));
        assert_eq!(of(&[("HOME", "/h")]), Some("/h/.config/torchlift/keys".into()));
        assert_eq!(of(&[("XDG_CONFIG_HOME", "c"), ("HOME", "/h")]), Some("/h/.config/torchlift/keys".into()));
        assert_eq!(of(&[("XDG_CONFIG_HOME", "")]), None);
    }
}
