//! The tools for each target that is built for: those of `[toolchain]`, completed by the usual cross compilers, and what
//! their rustc says.

use std::collections::{BTreeMap, BTreeSet};

use camino::Utf8Path;

use crate::cluster::{Cluster, Toolchain};
use crate::plan::TargetTools;
use crate::toolchain::{Env, RustcFacts, Tools, is_on_path};

/// The tools of every target among those of the kinds of these indices; of this machine's own only where a toolchain is
/// given for it.
pub(super) fn by_target(
    cluster: &Cluster,
    kinds: impl Iterator<Item = usize>,
    rustc: &RustcFacts,
    folder: &Utf8Path,
    Tools { env, run, .. }: Tools<'_>,
) -> BTreeMap<String, TargetTools> {
    // What a container has is asked inside of it.
    let targets = kinds.filter_map(|index| cluster.kinds.get(index)).filter(|kind| kind.container.is_none());
    let targets: BTreeSet<&String> = targets.map(|kind| kind.target.as_ref().unwrap_or(&rustc.host)).collect();
    let asked = targets.into_iter().filter_map(|target| {
        let given = cluster.toolchains.get(target);
        if given.is_none() && *target == rustc.host {
            return None;
        }
        let mut toolchain = given.cloned().unwrap_or_default();
        // Zig brings compilers and linker along.
        let is_detected = *target != rustc.host && !toolchain.is_zig() && detect(&mut toolchain, target, env);
        let lacks_sysroot = toolchain.sysroot.as_ref().is_some_and(|folder| !Utf8Path::new(folder).is_dir());
        let env = of_rustc(&toolchain, env);
        // A rustc that says nothing is told by the cargo that calls it.
        let rustc = toolchain.rustc.is_some().then(|| RustcFacts::ask(&env, folder, run).ok()).flatten();
        let has_std = RustcFacts::has_std(&env, folder, target, run);
        let toolchain = (given.is_some() || is_detected).then_some(toolchain);
        Some((target.clone(), TargetTools { toolchain, rustc, has_std, lacks_sysroot }))
    });
    asked.collect()
}

/// The environment in which the rustc of a toolchain is asked.
pub(super) fn of_rustc(toolchain: &Toolchain, env: &Env) -> Env {
    let mut env = env.clone();
    if let Some(rustc) = &toolchain.rustc {
        env.insert("RUSTC".into(), rustc.into());
    }
    env
}

/// Takes the cross compilers that are called as distributions call them for what nobody gave; whether the linker is one.
fn detect(toolchain: &mut Toolchain, target: &str, env: &Env) -> bool {
    let Some(prefix) = gnu_prefix(target) else { return false };
    let find = |tool: &str| {
        let name = format!("{prefix}-{tool}");
        is_on_path(&name, env).then_some(name)
    };
    let needs_linker = toolchain.linker.is_none();
    for (tool, slot) in [
        ("gcc", &mut toolchain.linker),
        ("gcc", &mut toolchain.cc),
        ("g++", &mut toolchain.cxx),
        ("ar", &mut toolchain.ar),
    ] {
        if slot.is_none() {
            *slot = find(tool);
        }
    }
    needs_linker && toolchain.linker.is_some()
}

/// `aarch64-linux-gnu` for `aarch64-unknown-linux-gnu`.
fn gnu_prefix(target: &str) -> Option<String> {
    match target.split('-').collect::<Vec<_>>().as_slice() {
        [arch, _, "linux", environment] => Some(format!("{arch}-linux-{environment}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_compilers_are_found_by_their_usual_names_and_what_is_given_stays() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        for name in ["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"] {
            fs_err::write(folder.join(name), "").unwrap();
        }
        let env: Env = [("PATH".into(), format!("/nowhere:{folder}").into())].into();
        let mut toolchain = Toolchain { cxx: Some("mine".to_owned()), ..Toolchain::default() };
        assert!(detect(&mut toolchain, "aarch64-unknown-linux-gnu", &env));
        let found = [&toolchain.linker, &toolchain.cc, &toolchain.cxx, &toolchain.ar].map(|tool| tool.as_deref());
        assert_eq!(found, [Some("aarch64-linux-gnu-gcc"), Some("aarch64-linux-gnu-gcc"), Some("mine"), None]);
        let mut other = Toolchain::default();
        assert!(!detect(&mut other, "riscv64gc-unknown-linux-gnu", &env) && !detect(&mut other, "wasm32-wasip1", &env));
        assert_eq!(other, Toolchain::default());
    }
}
