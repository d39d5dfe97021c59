//! Where libtorch variants, downloads and cached facts lie.
//!
//! Owns the rules for their defaults. Creates nothing: whoever writes makes the folder.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::env_vars;

/// The folders of one user on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `TORCHLIFT_HOME`: holds `libtorch/<id>`, shared by all of the user's projects.
    pub home: Utf8PathBuf,
    /// `TORCHLIFT_CACHE`: holds `downloads` and `facts`; may be deleted at any time.
    pub cache: Utf8PathBuf,
}

/// No folder can be told from the environment.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    /// Nothing names one.
    #[error("no folder for libtorch variants: `{variable}` is not set, and neither is `HOME`")]
    Unset {
        /// The variable that would name it.
        variable: &'static str,
    },
    /// The variable that counts cannot be used; another folder than the one that a person named would surprise them.
    #[error("no folder for libtorch variants: `{variable}` is not UTF-8")]
    NotUtf8 {
        /// The variable.
        variable: String,
    },
}

impl Places {
    /// Reads them from an environment: the variable itself, then its XDG folder, then the XDG default below `HOME`.
    ///
    /// # Errors
    /// When none of the three is set. An XDG variable that is relative is passed over, as its specification asks.
    pub fn from_env(env: &BTreeMap<OsString, OsString>) -> Result<Self, PlacesError> {
        Ok(Self {
            home: folder(env, env_vars::TORCHLIFT_HOME, env_vars::XDG_DATA_HOME, ".local/share")?,
            cache: folder(env, env_vars::TORCHLIFT_CACHE, env_vars::XDG_CACHE_HOME, ".cache")?,
        })
    }

    /// The store that all projects share.
    pub fn store(&self) -> Utf8PathBuf {
        self.home.join("libtorch")
    }

    /// Where downloaded archives are kept, so that a second fetch needs no network.
    pub fn downloads(&self) -> Utf8PathBuf {
        self.cache.join("downloads")
    }

    /// Where facts read from variants are kept.
    pub fn facts(&self) -> Utf8PathBuf {
        self.cache.join("facts")
    }
}

fn folder(
    env: &BTreeMap<OsString, OsString>,
    own: &'static str,
    xdg: &str,
    below_home: &str,
) -> Result<Utf8PathBuf, PlacesError> {
    let value = |name: &str| {
        let Some(text) = env.get(OsStr::new(name)).filter(|text| !text.is_empty()) else { return Ok(None) };
        let text = text.to_str().ok_or_else(|| PlacesError::NotUtf8 { variable: name.to_owned() })?;
        Ok(Some(Utf8PathBuf::from(text)))
    };
    let absolute = |path: &Utf8PathBuf| path.is_absolute();
    if let Some(path) = value(own)? {
        // A relative one would mean another folder in each working directory; it is anchored once, here.
        return Ok(camino::absolute_utf8(&path).unwrap_or(path));
    }
    if let Some(path) = value(xdg)?.filter(absolute) {
        return Ok(path.join("torchlift"));
    }
    match value(env_vars::HOME)?.filter(absolute) {
        Some(home) => Ok(home.join(Utf8Path::new(below_home)).join("torchlift")),
        None => Err(PlacesError::Unset { variable: own }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn the_own_variable_wins_over_xdg_and_home() {
        let places = Places::from_env(&env(&[
            ("TORCHLIFT_HOME", "/srv/über uns"),
            ("XDG_DATA_HOME", "/xdg"),
            ("XDG_CACHE_HOME", "/cache"),
            ("HOME", "/home/me"),
        ]))
        .unwrap();
        assert_eq!(places.store(), "/srv/über uns/libtorch");
        assert_eq!(places.downloads(), "/cache/torchlift/downloads");
    }

    #[test]
    fn a_relative_or_empty_xdg_folder_is_passed_over() {
        let places =
            Places::from_env(&env(&[("XDG_DATA_HOME", "data"), ("XDG_CACHE_HOME", ""), ("HOME", "/home/me")])).unwrap();
        assert_eq!(places.home, "/home/me/.local/share/torchlift");
        assert_eq!(places.cache, "/home/me/.cache/torchlift");
    }

    #[test]
    fn without_any_of_them_the_error_names_the_variable() {
        let error = Places::from_env(&env(&[])).unwrap_err();
        assert!(error.to_string().contains("`TORCHLIFT_HOME`"), "{error}");
    }

    #[test]
    fn a_folder_that_is_not_utf8_is_refused_and_not_passed_over() {
        use std::os::unix::ffi::OsStringExt as _;
        let mut env = env(&[("HOME", "/home/me")]);
        env.insert("TORCHLIFT_HOME".into(), OsString::from_vec(b"/srv/\xff".to_vec()));
        let error = Places::from_env(&env).unwrap_err();
        assert_eq!(error.to_string(), "no folder for libtorch variants: `TORCHLIFT_HOME` is not UTF-8");
    }
}
