//! What cargo's configuration files say that a build key depends on.
//!
//! Owns where the files lie. `cargo config get` would say it all, but is not stable. What cargo does with the entries is
//! cargo's own business: here they are only told apart.

use std::ffi::OsStr;

use camino::{Utf8Path, Utf8PathBuf};

use crate::toolchain::Env;

/// Facts of the configuration files, nearest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ConfigFacts {
    /// The `rustflags` of `[target.<selector>]` tables, by the selector.
    pub target_rustflags: Vec<(String, Vec<String>)>,
    /// `build.rustflags`.
    pub build_rustflags: Vec<String>,
    /// Whether a `build.target` is set, so that cargo would build for another machine unasked.
    pub has_build_target: bool,
    /// Names of the `[profile.<name>]` tables.
    pub profiles: Vec<String>,
    /// Whether a file includes others, which are not read here.
    pub has_include: bool,
    /// `[target]`, `[env]`, `build.rustflags` and `build.rustc*` of all files, in one canonical text.
    pub text: String,
}

impl ConfigFacts {
    /// Reads the files that cargo reads in `folder`. One that is no TOML is left to cargo, which names the line.
    pub fn read(folder: &Utf8Path, env: &Env) -> Self {
        let mut facts =
            Self { has_build_target: env.contains_key(OsStr::new("CARGO_BUILD_TARGET")), ..Self::default() };
        for file in config_files(folder, env) {
            let Ok(text) = crate::file::read_to_string(&file) else { continue };
            let Ok(table) = text.parse::<toml::Table>() else { continue };
            facts.add(&table);
        }
        facts
    }

    fn add(&mut self, table: &toml::Table) {
        let build = table.get("build").and_then(toml::Value::as_table);
        let target = table.get("target").and_then(toml::Value::as_table);
        for (selector, entries) in target.into_iter().flatten() {
            if let Some(list) = entries.get("rustflags") {
                self.target_rustflags.push((selector.clone(), flags(list)));
            }
        }
        // Cargo joins the lists of its files; those of the nearest come last.
        let further = build.and_then(|build| build.get("rustflags")).map(flags).unwrap_or_default();
        self.build_rustflags.splice(0..0, further);
        self.has_build_target |= build.is_some_and(|build| build.contains_key("target"));
        let profiles = table.get("profile").and_then(toml::Value::as_table);
        self.profiles.extend(profiles.into_iter().flat_map(|profiles| profiles.keys().cloned()));
        self.has_include |= table.contains_key("include");
        let mut kept = toml::Table::new();
        for name in ["target", "env"] {
            kept.extend(table.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        let for_builds = |name: &str| name.starts_with("rustc") || name == "rustflags";
        kept.extend(
            build
                .into_iter()
                .flatten()
                .filter(|(name, _)| for_builds(name))
                .map(|(name, value)| (format!("build.{name}"), value.clone())),
        );
        if !kept.is_empty() {
            self.text.push_str(&kept.to_string());
            self.text.push('\u{1e}');
        }
    }
}

/// A list of flags: an array, or one text with spaces between.
fn flags(list: &toml::Value) -> Vec<String> {
    match list {
        toml::Value::Array(list) => list.iter().filter_map(|flag| flag.as_str().map(str::to_owned)).collect(),
        other => other.as_str().unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
    }
}

/// `.cargo/config.toml` (or the older `.cargo/config`) of the folder and those above it, then that of `CARGO_HOME`.
pub(crate) fn config_files(folder: &Utf8Path, env: &Env) -> Vec<Utf8PathBuf> {
    let home = cargo_home(env);
    let mut folders: Vec<Utf8PathBuf> = folder.ancestors().map(|folder| folder.join(".cargo")).collect();
    folders.extend(home.filter(|home| !folders.contains(home)));
    let existing = |folder: &Utf8PathBuf| {
        ["config", "config.toml"].map(|name| folder.join(name)).into_iter().find(|file| file.is_file())
    };
    folders.iter().filter_map(existing).collect()
}

/// The folder that cargo keeps registries, checkouts and a person's configuration in.
pub(crate) fn cargo_home(env: &Env) -> Option<Utf8PathBuf> {
    let text = |name: &str| env.get(OsStr::new(name)).and_then(|value| value.to_str()).filter(|text| !text.is_empty());
    text("CARGO_HOME").map(Utf8PathBuf::from).or_else(|| Some(Utf8Path::new(text("HOME")?).join(".cargo")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_folder_those_above_and_of_cargos_home_count() {
        let temp = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(temp.path()).unwrap();
        for (file, text) in [
            ("a b/ü/.cargo/config.toml", "[target.'cfg(unix)']\nrustflags = ['-g']\n"),
            ("a b/.cargo/config", "[build]\ntarget = 'x'\nrustflags = ['-Copt-level=1']\njobs = 3\n"),
            ("home/config.toml", "[env]\nA = '1'\n[profile.quick]\ninherits = 'dev'\n[term]\ncolor = 'never'\n"),
            ("other/.cargo/config.toml", "[env]\nB = '1'\n"),
        ] {
            fs_err::create_dir_all(base.join(file).parent().unwrap()).unwrap();
            fs_err::write(base.join(file), text).unwrap();
        }
        let env: Env = [("CARGO_HOME".into(), base.join("home").into_string().into())].into();
        let facts = ConfigFacts::read(&base.join("a b/ü"), &env);
        assert_eq!(facts.target_rustflags, [("cfg(unix)".to_owned(), vec!["-g".to_owned()])]);
        assert_eq!(facts.build_rustflags, ["-Copt-level=1"]);
        assert!(facts.has_build_target && !facts.has_include);
        assert_eq!(facts.profiles, ["quick"]);
        assert_eq!(
            facts.text.replace('\u{1e}', "--\n"),
            "[target.\"cfg(unix)\"]\nrustflags = [\"-g\"]\n--\n\"build.rustflags\" = [\"-Copt-level=1\"]\n--\n[env]\nA = \"1\"\n--\n"
        );
    }

    #[test]
    fn a_file_that_is_no_toml_is_left_to_cargo() {
        let temp = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(temp.path()).unwrap();
        fs_err::create_dir_all(base.join(".cargo")).unwrap();
        fs_err::write(base.join(".cargo/config.toml"), "[build").unwrap();
        let env: Env = [("CARGO_HOME".into(), "/nowhere".into())].into();
        assert_eq!(ConfigFacts::read(base, &env).text, "");
    }
}
