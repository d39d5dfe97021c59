//! `[toolchain."triple"]` and `[slurm]`.

use camino::Utf8Path;

use super::code;
use super::expand::Expander;
use super::fields::{Fields, Text};
use super::keys;
use super::kind::is_target;
use super::model::{Slurm, Toolchain};
use super::node::Node;

/// Reads the toolchain of one target; `folder` is what relative programs start from.
pub(super) fn read(
    triple: Text<'_>,
    node: &Node,
    folder: &Utf8Path,
    expander: &Expander<'_>,
) -> Option<(String, Toolchain)> {
    let fields = Fields::new(node, keys::TOOLCHAIN, expander.findings)?;
    let is_triple = is_target(triple, &fields);
    let program = |key: &str| fields.text(key).and_then(|text| program(text, folder, expander));
    let toolchain = Toolchain {
        cargo: program("cargo"),
        rustc: program("rustc"),
        linker: program("linker"),
        cc: program("cc"),
        cxx: program("cxx"),
        ar: program("ar"),
        sysroot: fields.text("sysroot").and_then(|text| sysroot(text, folder, expander)),
        glibc: fields.text("glibc").filter(|text| is_glibc(*text, &fields)).map(|text| text.value.to_owned()),
        runner: fields.words("runner"),
    };
    is_triple.then(|| (triple.value.to_owned(), toolchain))
}

/// Reads `[slurm]`.
pub(super) fn slurm(node: &Node, expander: &Expander<'_>) -> Slurm {
    match Fields::new(node, keys::SLURM, expander.findings) {
        Some(fields) => Slurm { sbatch: fields.words("sbatch"), srun: fields.words("srun") },
        None => Slurm::default(),
    }
}

/// A program: a bare name for `PATH`, or a path; a relative path starts from the cluster file's folder.
fn program(text: Text<'_>, folder: &Utf8Path, expander: &Expander<'_>) -> Option<String> {
    let expanded = expander.here(text)?;
    if expanded.starts_with('-') {
        let message = format!("`{expanded}` is no program");
        expander.findings.error(code::BAD_VALUE, text.place, message, "write a program's name or path");
        return None;
    }
    let is_relative = expanded.contains('/') && !expanded.starts_with('/');
    Some(if is_relative { super::host::simplest(folder.join(&expanded).as_str()).into_string() } else { expanded })
}

fn sysroot(text: Text<'_>, folder: &Utf8Path, expander: &Expander<'_>) -> Option<String> {
    let expanded = expander.here(text)?;
    Some(super::host::simplest(folder.join(expanded).as_str()).into_string())
}

fn is_glibc(text: Text<'_>, fields: &Fields<'_>) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit());
    let is_version = text.value.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor));
    if !is_version {
        let message = format!("`{}` is no version of glibc", text.value);
        fields.findings.error(code::BAD_VALUE, text.place, message, "write one such as `2.28`");
    }
    is_version
}
