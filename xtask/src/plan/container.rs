//! What of a kind's container keeps it from being built there.

use torchlift_schema::Finding;

use super::Inputs;
use super::check::kind_place;
use super::rustflags::target_variable;
use crate::cluster::Kind;
use crate::container::ContainerFacts;

/// Findings about a kind that is built in a container.
pub(super) fn kind(
    inputs: &Inputs<'_>,
    kind: &Kind,
    container: &Result<ContainerFacts, Finding>,
    findings: &mut Vec<Finding>,
) {
    let container = match container {
        Ok(container) => container,
        Err(finding) => return findings.push(finding.clone()),
    };
    let image = &container.image;
    let target = kind.target.as_ref().unwrap_or(&inputs.rustc.host);
    let mut refuse = |code: &str, message: String, remedy: &str| {
        findings.push(Finding::error(code, kind_place(inputs, kind, "container"), message).remedy(remedy));
    };
    if !container.missing.is_empty() {
        let list: Vec<String> = container.missing.iter().map(|tool| format!("`{tool}`")).collect();
        refuse(
            "container-compiler-missing",
            format!("`{image}` has no {}", list.join(" and no ")),
            "use an image with a C and a C++ compiler (Debian's `gcc` and `g++`), or name the image's own in `build_env` as `CXX`",
        );
    }
    if !container.has_std {
        refuse(
            "target-std-missing",
            format!("the rustc in `{image}` has no standard library for `{target}`"),
            &format!("`rustup target add {target}` where that rustc is from"),
        );
    }
    let linker = target_variable(target, "LINKER");
    if *target != container.rustc.host && !kind.build_env.contains_key(&linker) {
        refuse(
            "toolchain-missing",
            format!("`{target}` is not the target of the rustc in `{image}` (`{}`)", container.rustc.host),
            &format!("name the image's linker for it as `{linker}` in `build_env`"),
        );
    }
}
