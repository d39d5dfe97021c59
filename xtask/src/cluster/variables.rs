//! `env`, `env_pass` and `build_env`: names, values, and the variables that are ours to set.

use std::collections::BTreeMap;

use torchlift::env_vars::{CARDS, NAME_REMEDY, TORCHRUN, is_name};

use super::code;
use super::fields::{Fields, Text, wrong_type};
use super::findings::Findings;
use super::node::Value;
use crate::env_vars;

/// Whose environment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The ranks'.
    Rank,
    /// Cargo's.
    Build,
}

/// What each build sets or unsets itself, with the key that is meant.
const BUILD: [(&str, &str); 12] = [
    (env_vars::LIBTORCH, "`libtorch` of the kind"),
    (env_vars::LIBTORCH_PATH, "`libtorch` of the kind"),
    (env_vars::LIBTORCH_LIB, "`libtorch` of the kind"),
    (env_vars::LIBTORCH_INCLUDE, "`libtorch` of the kind"),
    (env_vars::LIBTORCH_STATIC, "`libtorch` of the kind"),
    (env_vars::LIBTORCH_USE_PYTORCH, "`libtorch` of the kind"),
    (env_vars::LIBTORCH_CXX11_ABI, "`libtorch` of the kind: the ABI is read from it"),
    (env_vars::CUDA_COMPUTE_CAP, "`gpus` of the kind"),
    (env_vars::TORCH_CUDA_ARCH_LIST, "`gpus` of the kind"),
    (env_vars::RUSTFLAGS, "`rustflags` of the kind"),
    (env_vars::CARGO_ENCODED_RUSTFLAGS, "`rustflags` of the kind"),
    (env_vars::CARGO_TARGET_DIR, "`--builds-dir`"),
];

/// The variables of a table `key`; what is wrong is left out.
pub(super) fn map(fields: &Fields<'_>, key: &str, scope: Scope) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let Some(table) = fields.get(key).and_then(|node| Fields::any(node, fields.findings)) else { return variables };
    for (name, node) in table.entries() {
        let is_good = check_name(name, scope, fields.findings);
        match &node.value {
            Value::String(value) if value.contains('\0') => fields.findings.error(
                code::BAD_VARIABLE,
                &node.place,
                format!("the value of `{}` has a NUL, which no environment can hold", name.value),
                "take it out",
            ),
            Value::String(value) if is_good => {
                variables.insert(name.value.to_owned(), value.clone());
            }
            Value::String(_) => {}
            _ => wrong_type(node, "a string", fields.findings),
        }
    }
    variables
}

/// The names of a list of variables to pass on.
pub(super) fn names(fields: &Fields<'_>, key: &str) -> Vec<String> {
    let list = fields.texts(key).unwrap_or_default();
    fields.unique(&list);
    let good = list.into_iter().filter(|name| check_name(*name, Scope::Rank, fields.findings));
    good.map(|name| name.value.to_owned()).collect()
}

fn check_name(name: Text<'_>, scope: Scope, findings: &Findings) -> bool {
    if !is_name(name.value) {
        findings.error(
            code::BAD_VARIABLE,
            name.place,
            format!("`{}` cannot be a variable's name", super::name::shown(name.value)),
            NAME_REMEDY,
        );
        return false;
    }
    let Some(remedy) = reserved(name.value, scope) else { return true };
    findings.error(
        code::RESERVED_VARIABLE,
        name.place,
        format!("`{}` is set by torchlift, and cannot be set here", name.value),
        remedy,
    );
    false
}

/// What to do instead, when a variable is ours.
fn reserved(name: &str, scope: Scope) -> Option<String> {
    if name.starts_with("TORCHLIFT_") {
        return Some("leave it out: names that begin with `TORCHLIFT_` are torchlift's own".to_owned());
    }
    match scope {
        Scope::Rank if name == "MASTER_PORT" => Some("leave it out, or use `--master-port` of `launch`".to_owned()),
        Scope::Rank if TORCHRUN.contains(&name) => {
            Some("leave it out: each rank gets its own value, as under torchrun".to_owned())
        }
        Scope::Rank if CARDS.contains(&name) => {
            Some("choose cards with `devices` of the host: they are counted in PCI order".to_owned())
        }
        Scope::Build => BUILD.iter().find(|(ours, _)| *ours == name).map(|(_, key)| format!("use {key}")),
        Scope::Rank => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_of_torchrun_is_reserved_for_ranks() {
        for name in TORCHRUN {
            assert!(reserved(name, Scope::Rank).is_some(), "{name}");
        }
        assert!(reserved("NCCL_DEBUG", Scope::Rank).is_none());
        assert!(reserved("OMP_NUM_THREADS", Scope::Rank).is_none());
    }
}
