//! Which features of a CPU the code of a kind uses, as rustc says for the flags that it is going to get.
//!
//! Rustc is asked only for a kind whose flags speak of the CPU: what the target itself has runs on every such machine.

use std::collections::BTreeMap;

use camino::Utf8Path;

use super::tools::of_rustc;
use crate::cargo::ConfigFacts;
use crate::cluster::Cluster;
use crate::container::passed;
use crate::plan::{CpuCode, rustflags};
use crate::toolchain::{RustcFacts, Tools};

/// What is asked for every kind of these indices.
pub(super) fn by_kind(
    cluster: &Cluster,
    kinds: impl Iterator<Item = usize>,
    rustc: &RustcFacts,
    folder: &Utf8Path,
    Tools { env, run, .. }: Tools<'_>,
    config: &ConfigFacts,
) -> BTreeMap<usize, CpuCode> {
    let mut asked: BTreeMap<(String, Vec<String>), CpuCode> = BTreeMap::new();
    let mut codes = BTreeMap::new();
    for index in kinds {
        let Some(kind) = cluster.kinds.get(index) else { continue };
        let target = kind.target.as_ref().unwrap_or(&rustc.host);
        let inside = kind.container.as_ref().map(|_| passed(env));
        let flags =
            about_the_cpu(&rustflags::effective(&kind.rustflags, inside.as_ref().unwrap_or(env), config, target));
        if flags.is_empty() {
            continue;
        }
        let rustc_env = cluster.toolchains.get(target).map_or_else(|| env.clone(), |given| of_rustc(given, env));
        let ask = || CpuCode {
            features: RustcFacts::features(&rustc_env, folder, target, &flags, run),
            flags: flags.clone(),
        };
        let code = asked.entry((target.clone(), flags.clone())).or_insert_with(ask);
        codes.insert(index, code.clone());
    }
    codes
}

/// The flags that choose a CPU or its features, each as one word.
fn about_the_cpu(flags: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut flags = flags.iter().map(String::as_str);
    while let Some(flag) = flags.next() {
        let value = match flag {
            "-C" | "--codegen" => flags.next().unwrap_or_default(),
            _ => flag.strip_prefix("-C").or_else(|| flag.strip_prefix("--codegen=")).unwrap_or_default(),
        };
        let Some((name, given)) = value.split_once('=') else { continue };
        // Rustc takes either line between the words.
        let name = name.replace('_', "-");
        if ["target-cpu", "target-feature"].contains(&name.as_str()) {
            found.push(format!("-C{name}={given}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_about_the_cpu_are_found_in_each_of_their_forms() {
        let flags = ["-C", "target-cpu=native", "-g", "-Ctarget-feature=+avx2", "--codegen", "opt-level=1", "-C"];
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        assert_eq!(about_the_cpu(&flags), ["-Ctarget-cpu=native", "-Ctarget-feature=+avx2"]);
        assert_eq!(about_the_cpu(&["--codegen=target-cpu=znver3".to_owned()]), ["-Ctarget-cpu=znver3"]);
        assert_eq!(about_the_cpu(&["-Ctarget_cpu=native".to_owned()]), ["-Ctarget-cpu=native"]);
        assert!(about_the_cpu(&["-Ctarget".to_owned(), "--cfg".to_owned()]).is_empty());
    }
}
