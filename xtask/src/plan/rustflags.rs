//! How a kind's own rustflags join those that the user already has.
//!
//! Cargo takes flags from one source only: the environment, else `target.*`, else `build`. Flags given in a higher
//! source than the user's would silently drop the user's own, so that a kind's flags go into the very source that counts.

use std::ffi::OsStr;
use std::str::FromStr as _;

use cargo_metadata::cargo_platform::{Cfg, Platform};

use crate::cargo::ConfigFacts;
use crate::env_vars::{CARGO_ENCODED_RUSTFLAGS, RUSTFLAGS};
use crate::toolchain::Env;

/// What parts the flags in `CARGO_ENCODED_RUSTFLAGS`.
const UNIT_SEPARATOR: &str = "\u{1f}";

/// How a kind's flags are handed to cargo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Handover {
    /// Nothing to do.
    None,
    /// As the value of `CARGO_ENCODED_RUSTFLAGS`, the user's own flags in front.
    Encoded(String),
    /// As the argument of `--config`; cargo joins it with the files' lists.
    Config(String),
}

pub(super) fn handover(flags: &[String], env: &Env, config: &ConfigFacts, target: &str) -> Handover {
    if flags.is_empty() {
        return Handover::None;
    }
    if let Some(own) = of_environment(env) {
        let all: Vec<String> = own.into_iter().chain(flags.iter().cloned()).collect();
        return Handover::Encoded(all.join(UNIT_SEPARATOR));
    }
    let list = toml::Value::Array(flags.iter().cloned().map(toml::Value::String).collect());
    Handover::Config(if of_target(env, config, target).is_some() {
        format!("target.{target}.rustflags={list}")
    } else {
        format!("build.rustflags={list}")
    })
}

/// All flags that rustc gets for a kind: those of the one source that cargo takes, and the kind's own.
pub fn effective(flags: &[String], env: &Env, config: &ConfigFacts, target: &str) -> Vec<String> {
    let own = of_environment(env).or_else(|| of_target(env, config, target));
    // The variable adds to the list of the files, and stands in nothing's place.
    let of_build = || {
        let variable = text(env, "CARGO_BUILD_RUSTFLAGS").map(words).unwrap_or_default();
        config.build_rustflags.iter().cloned().chain(variable).collect()
    };
    own.unwrap_or_else(of_build).into_iter().chain(flags.iter().cloned()).collect()
}

fn text(env: &Env, name: &str) -> Option<String> {
    env.get(OsStr::new(name)).map(|value| value.to_string_lossy().into_owned())
}

fn words(text: impl AsRef<str>) -> Vec<String> {
    text.as_ref().split_whitespace().map(str::to_owned).collect()
}

/// The flags of the environment; none where it says nothing, which is not the same as an empty list.
fn of_environment(env: &Env) -> Option<Vec<String>> {
    let encoded = |text: String| {
        text.split(UNIT_SEPARATOR).filter(|flag| !flag.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    text(env, CARGO_ENCODED_RUSTFLAGS).map(encoded).or_else(|| text(env, RUSTFLAGS).map(words))
}

/// The variable that cargo reads as `target.<target>.<key>`.
pub(super) fn target_variable(target: &str, key: &str) -> String {
    format!("CARGO_TARGET_{}_{key}", target.to_uppercase().replace('-', "_"))
}

/// The flags of `target.*`; none where no table and no variable is for this target.
fn of_target(env: &Env, config: &ConfigFacts, target: &str) -> Option<Vec<String>> {
    let variable = target_variable(target, "RUSTFLAGS");
    let tables = config.target_rustflags.iter().filter(|(selector, _)| is_for(selector, target));
    let tables: Vec<&Vec<String>> = tables.map(|(_, flags)| flags).collect();
    let variable = text(env, &variable).map(words);
    (variable.is_some() || !tables.is_empty())
        .then(|| tables.into_iter().flatten().cloned().chain(variable.unwrap_or_default()).collect())
}

/// Whether `[target.<selector>]` is for `target`. Of a `cfg(…)` what follows from the triple is known, which is what
/// such tables ask for; rustc's remaining answers are about the CPU and need no table of their own.
fn is_for(selector: &str, target: &str) -> bool {
    let Ok(platform) = Platform::from_str(selector) else { return false };
    let mut parts = target.split('-');
    let arch = parts.next().unwrap_or_default();
    let os = if target.contains("linux") { "linux" } else { parts.next().unwrap_or_default() };
    let environment = target.rsplit('-').next().unwrap_or_default();
    let mut cfgs = vec![
        Cfg::from_str(&format!("target_arch=\"{arch}\"")),
        Cfg::from_str(&format!("target_os=\"{os}\"")),
        Cfg::from_str(&format!("target_env=\"{environment}\"")),
        Cfg::from_str("target_endian=\"little\""),
        Cfg::from_str("target_pointer_width=\"64\""),
    ];
    if os == "linux" {
        cfgs.extend([Cfg::from_str("unix"), Cfg::from_str("target_family=\"unix\"")]);
    }
    let cfgs: Vec<Cfg> = cfgs.into_iter().flatten().collect();
    platform.matches(target, &cfgs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "x86_64-unknown-linux-gnu";

    fn flags() -> Vec<String> {
        vec!["-Ctarget-cpu=haswell".to_owned()]
    }

    fn env(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn config(selectors: &[&str]) -> ConfigFacts {
        let target_rustflags =
            selectors.iter().map(|selector| ((*selector).to_owned(), vec!["-g".to_owned()])).collect();
        ConfigFacts { target_rustflags, ..ConfigFacts::default() }
    }

    #[test]
    fn flags_of_the_environment_keep_their_place_in_front() {
        for (name, value) in [
            ("RUSTFLAGS", " -Cdebuginfo=1  -Copt-level=2 "),
            ("CARGO_ENCODED_RUSTFLAGS", "-Cdebuginfo=1\u{1f}-Copt-level=2"),
        ] {
            let given = handover(&flags(), &env(&[(name, value)]), &config(&[TARGET]), TARGET);
            assert_eq!(
                given,
                Handover::Encoded("-Cdebuginfo=1\u{1f}-Copt-level=2\u{1f}-Ctarget-cpu=haswell".to_owned())
            );
        }
    }

    #[test]
    fn flags_join_the_table_that_cargo_will_look_at() {
        let given = |selectors: &[&str]| handover(&flags(), &env(&[]), &config(selectors), TARGET);
        let target = Handover::Config(format!("target.{TARGET}.rustflags=[\"-Ctarget-cpu=haswell\"]"));
        assert_eq!(given(&[TARGET]), target);
        assert_eq!(given(&["cfg(all(unix, target_arch = \"x86_64\"))"]), target);
        let build = Handover::Config("build.rustflags=[\"-Ctarget-cpu=haswell\"]".to_owned());
        assert_eq!(given(&[]), build);
        assert_eq!(given(&["cfg(windows)", "aarch64-unknown-linux-gnu", "cfg(target_os = \"macos\")"]), build);
    }

    #[test]
    fn the_flags_that_rustc_gets_are_those_of_the_source_that_cargo_takes_and_the_kinds() {
        let mut config = config(&["cfg(unix)", "cfg(windows)"]);
        config.build_rustflags = vec!["-O".to_owned()];
        let given =
            |pairs: &[(&str, &str)], config: &ConfigFacts| effective(&flags(), &env(pairs), config, TARGET).join(" ");
        assert_eq!(given(&[("RUSTFLAGS", "-v  -l")], &config), "-v -l -Ctarget-cpu=haswell");
        assert_eq!(given(&[("RUSTFLAGS", "")], &config), "-Ctarget-cpu=haswell");
        let variable = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS";
        assert_eq!(given(&[(variable, "-l")], &config), "-g -l -Ctarget-cpu=haswell");
        config.target_rustflags.clear();
        assert_eq!(given(&[], &config), "-O -Ctarget-cpu=haswell");
        assert_eq!(given(&[("CARGO_BUILD_RUSTFLAGS", "-l")], &config), "-O -l -Ctarget-cpu=haswell");
    }

    #[test]
    fn without_flags_nothing_is_handed_over() {
        assert_eq!(handover(&[], &env(&[("RUSTFLAGS", "-g")]), &config(&[]), TARGET), Handover::None);
    }
}
