//! What of a cluster cannot be built or run as written: a finding each, all of them before anything is built.
//!
//! Pure. What this version does not do is refused by name here; nothing that a file says is passed over in silence.

use std::collections::BTreeSet;

use torchlift::preflight::code;
use torchlift_schema::gpu::{Capability, CudaArch};
use torchlift_schema::host::Gpu;
use torchlift_schema::{Finding, Place};

use super::{BuildPlan, Inputs, container, cpu, fit};
use crate::cluster::{Files, Host, Kind, LibtorchChoice, Reach, Toolchain};
use crate::env_vars::LIBTORCH_BYPASS_VERSION_CHECK;
use crate::libtorch::Variant;
use crate::workspace::{Program, offer};

/// Findings of a plan that may be accepted: a build can be tried all the same, and is verified afterwards.
pub const ACCEPTABLE: &[&str] = &[
    "libtorch-not-chosen",
    "libtorch-other-version",
    "container-compiler-missing",
    "cpu-native",
    code::CXX_ABI_DIFFERS,
    code::CXX_LIBRARY_DIFFERS,
    code::CPU_LACKS,
    code::GPU_CODE_MISSING,
    code::DRIVER_TOO_OLD,
    code::GFX_OVERRIDE,
];

/// What chooses between the two forms of `std::string`, for GCC and Clang alike.
const CXX11_ABI: &str = "-D_GLIBCXX_USE_CXX11_ABI=";

/// The profiles that cargo always has.
const BUILT_IN: [&str; 4] = ["dev", "release", "test", "bench"];
/// Profiles with which `cargo rustc` builds tests, or only looks.
const NO_PROGRAM: [&str; 3] = ["test", "bench", "check"];

/// Whether something holds for a host.
type IsSo = fn(&Host) -> bool;

/// Ways to reach a host that are not there yet.
const NOT_REACHED: [(&str, IsSo); 3] = [
    ("ssh", |host| matches!(host.reach, Reach::Ssh(_))),
    ("agent", |host| matches!(host.reach, Reach::Agent(_))),
    ("slurm", |host| host.reach == Reach::Slurm),
];

/// Names of hosts that one finding has; the rest is counted.
const MOST_NAMED: usize = 8;

/// Findings about the chosen hosts.
pub(super) fn hosts(inputs: &Inputs<'_>, findings: &mut Vec<Finding>) {
    not_reached(inputs, findings);
    inputs.hosts.iter().for_each(|host| beyond_stated(inputs, host, findings));
    for host in inputs.hosts.iter().filter(|host| host.reach == Reach::Local) {
        let place = |key: &str| inputs.cluster.or_file(host.places.at(key)).on(&host.name);
        devices(inputs, host, findings);
        if inputs.foreign_paths.contains(&host.name) {
            let path = &host.path;
            findings.push(
                Finding::error(
                    "path-not-the-workspace",
                    place("path"),
                    format!("`{path}` is not the workspace `{}`, where its binary will be", inputs.workspace.root),
                )
                .remedy("for a host that is reached by `local`, `path` is the workspace"),
            );
        }
    }
}

/// One finding for each way to reach or to provide hosts that is not there yet: hosts often share it.
fn not_reached(inputs: &Inputs<'_>, findings: &mut Vec<Finding>) {
    let mut refuse = |code: &str, key: &str, what: &str, remedy: &str, is_so: IsSo| {
        let hosts: Vec<&Host> = inputs.hosts.iter().copied().filter(|host| is_so(host)).collect();
        let Some(first) = hosts.first() else { return };
        let mut place = inputs.cluster.or_file(first.places.at(key));
        if hosts.len() == 1 {
            place = place.on(&first.name);
        }
        let message = format!("{what} is not there yet: {}", named(&hosts));
        findings.push(Finding::error(code, place, message).remedy(remedy));
    };
    for (reach, is_so) in NOT_REACHED {
        let remedy = "this version reaches hosts with `reach = \"local\"`; leave others out with `--exclude`";
        refuse("reach-not-yet", "reach", &format!("reach `{reach}`"), remedy, is_so);
    }
    let remedy = "this version runs from the workspace itself: leave `files` out";
    refuse("files-not-yet", "files", "`files = \"push\"`", remedy, |host| {
        host.reach == Reach::Local && host.files == Files::Push
    });
}

/// `host `a``, `hosts `a`, `b``, and of many the first few.
fn named(hosts: &[&Host]) -> String {
    let list: Vec<String> = hosts.iter().take(MOST_NAMED).map(|host| format!("`{}`", host.name)).collect();
    let more = hosts.len() - list.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} {}{more}", if hosts.len() == 1 { "host" } else { "hosts" }, list.join(", "))
}

/// A finding when cargo has no profile of the job's name, or one that builds another thing than the program.
pub(super) fn profile(inputs: &Inputs<'_>, findings: &mut Vec<Finding>) {
    let wanted = inputs.job.profile.as_str();
    let place = || inputs.cluster.or_file(inputs.job.places.at("profile"));
    if NO_PROGRAM.contains(&wanted) {
        let message = format!("with the profile `{wanted}` cargo builds no program, but tests or nothing");
        findings.push(Finding::error("profile-without-program", place(), message).remedy("write `release` or `dev`"));
        return;
    }
    let known: BTreeSet<&str> = BUILT_IN
        .into_iter()
        .chain(inputs.workspace.profiles.iter().map(String::as_str))
        .chain(inputs.config.profiles.iter().map(String::as_str))
        .filter(|name| !NO_PROGRAM.contains(name))
        .collect();
    let variables = format!("CARGO_PROFILE_{}_", wanted.to_uppercase().replace('-', "_"));
    let is_in_env = inputs.env.keys().any(|name| name.to_string_lossy().starts_with(&variables));
    if known.contains(wanted) || is_in_env || inputs.config.has_include {
        return;
    }
    let known: Vec<&str> = known.into_iter().collect();
    let message = format!("there is no cargo profile `{wanted}` in the workspace `{}`", inputs.workspace.root);
    let remedy =
        format!("{}; add others as `[profile.{wanted}]` to its `Cargo.toml`", offer("profiles", wanted, &known));
    findings.push(Finding::error("profile-unknown", place(), message).remedy(remedy));
}

/// A card that `devices` names and the host has not.
fn devices(inputs: &Inputs<'_>, host: &Host, findings: &mut Vec<Finding>) {
    if let Some(Ok(variant)) = inputs.variants.get(&host.kind) {
        findings.extend(inputs.known_hosts.unknown_devices(inputs.cluster, host, &variant.facts.accelerator));
    }
}

/// Cards of NVIDIA that a host has by its facts, and that `gpus` of its kind says nothing of: the build is held against
/// `gpus` alone. An AMD card may be given out for another one, so that its facts contradict nothing.
fn beyond_stated(inputs: &Inputs<'_>, host: &Host, findings: &mut Vec<Finding>) {
    let Some((kind, known)) = inputs.cluster.kinds.get(host.kind).zip(inputs.known_hosts.get(&host.name)) else {
        return;
    };
    let stated: Vec<Capability> =
        kind.gpus.iter().filter_map(|text| Some(text.parse::<CudaArch>().ok()?.capability)).collect();
    // Code for an older card of the same major version runs.
    let is_stated = |card: &&Gpu| {
        let is_older = |of: &Capability, has: Capability| of.major == has.major && of.minor <= has.minor;
        card.capability.is_none_or(|has| stated.iter().any(|of| is_older(of, has)))
    };
    let beyond = known.cards().filter(|card| !is_stated(card)).filter_map(|card| {
        let name = card.name.as_ref().map(|name| format!(" (`{name}`)")).unwrap_or_default();
        Some(format!("card {}{name} is a {}", card.index, card.capability?))
    });
    let beyond: Vec<String> = beyond.collect();
    if stated.is_empty() || beyond.is_empty() {
        return;
    }
    let message = format!(
        "`gpus` has {}, and by the facts of host `{}` its {}",
        kind.gpus.join(", "),
        host.name,
        beyond.join(", ")
    );
    let remedy = format!(
        "add it to `gpus`, or leave `gpus` out: then the facts count; if these are wrong: `torchlift probe --save --host {}`",
        host.name
    );
    let place = kind_place(inputs, kind, "gpus").on(&host.name);
    findings.push(Finding::warning("gpus-differ", place, message).remedy(remedy));
}

/// Findings about the kinds that the chosen hosts are of.
pub(super) fn kinds(inputs: &Inputs<'_>, program: Option<&Program>, findings: &mut Vec<Finding>) {
    for (index, kind) in inputs.cluster.kinds.iter().enumerate() {
        if inputs.hosts.iter().all(|host| host.kind != index) {
            continue;
        }
        match inputs.containers.get(&index) {
            Some(container) => container::kind(inputs, kind, container, findings),
            None => not_there_yet(inputs, kind, findings),
        }
        features(inputs, kind, program, findings);
        libtorch(inputs, index, kind, findings);
        fit::kind(inputs, index, kind, findings);
        cpu::kind(inputs, index, kind, findings);
    }
}

fn not_there_yet(inputs: &Inputs<'_>, kind: &Kind, findings: &mut Vec<Finding>) {
    let mut refuse = |code: &str, key: &str, message: String, remedy: &str| {
        findings.push(Finding::error(code, kind_place(inputs, kind, key), message).remedy(remedy));
    };
    if let Some(host) = &kind.build_on {
        refuse(
            "build-on-not-yet",
            "build_on",
            format!(
                "building on another host (`{host}`) is not there yet: it needs `reach = {{ ssh = … }}`, which is not there either"
            ),
            "take `build_on` out: this version builds on this machine, or for an older system with `container`",
        );
    }
    let target = kind.target.as_ref().unwrap_or(&inputs.rustc.host);
    if inputs.tools.get(target).is_some_and(|tools| tools.has_std == Some(false)) {
        let rustc = inputs.toolchain(target).and_then(|toolchain| toolchain.rustc.as_deref()).unwrap_or("rustc");
        refuse(
            "target-std-missing",
            "target",
            format!("`{rustc}` has no standard library for `{target}`"),
            &format!("`rustup target add {target}`, or name a `rustc` that has one in `[toolchain.\"{target}\"]`"),
        );
    }
    match inputs.toolchain(target) {
        None if *target != inputs.rustc.host => refuse(
            "toolchain-missing",
            "target",
            format!(
                "`{target}` is not this machine's target (`{}`), and no toolchain is given for it",
                inputs.rustc.host
            ),
            &format!("add a `[toolchain.\"{target}\"]` with its `linker`, and `rustup target add {target}`"),
        ),
        None => {}
        Some(toolchain) => {
            let tools = inputs.tools.get(target);
            if let Some(folder) = toolchain.sysroot.as_ref().filter(|_| tools.is_some_and(|tools| tools.lacks_sysroot))
            {
                let place = toolchain_place(inputs, target, "sysroot");
                let message = format!("`{folder}`, the sysroot for `{target}`, is no folder");
                let remedy = "name the root of a system for that target, with its `usr/lib` and `usr/include`";
                findings.push(Finding::error("sysroot-missing", place, message).remedy(remedy));
            }
            zig(inputs, target, toolchain, kind, findings);
        }
    }
}

/// An error where Zig would link C++: its own C++ library is another one than that of libtorch.
fn zig(inputs: &Inputs<'_>, target: &str, toolchain: &Toolchain, kind: &Kind, findings: &mut Vec<Finding>) {
    if !toolchain.is_zig() {
        return;
    }
    let lock = inputs.workspace.lock.as_ref();
    let has_torch = lock.is_some_and(|lock| !lock.torch_sys.is_empty());
    let cxx = lock.into_iter().flat_map(|lock| &lock.cxx).next();
    let why = match (&kind.libtorch, cxx) {
        _ if has_torch => "the program depends on `torch-sys`, which compiles C++ against libtorch".to_owned(),
        (LibtorchChoice::None, None) => return,
        (LibtorchChoice::None, Some(package)) => format!("the workspace depends on `{package}`, which links C++"),
        (_, _) => "the kind has a `libtorch`, which is C++".to_owned(),
    };
    let message = format!(
        "`cargo-zigbuild` cannot build for `{target}` here: {why}; Zig links libc++, and libtorch is built with libstdc++"
    );
    let remedy = "take a GCC for the target (`linker`, `cc`, `cxx`; the usual ones are found by themselves) and the plain `cargo`, or build in a container of an older system";
    let place = toolchain_place(inputs, target, "cargo");
    findings.push(Finding::error(code::CXX_LIBRARY_DIFFERS, place, message).remedy(remedy));
}

fn toolchain_place(inputs: &Inputs<'_>, target: &str, key: &str) -> Place {
    Place::file(inputs.cluster.file.as_str()).key(format!("toolchain.\"{target}\".{key}"))
}

fn features(inputs: &Inputs<'_>, kind: &Kind, program: Option<&Program>, findings: &mut Vec<Finding>) {
    let Some(program) = program else { return };
    let package = inputs.workspace.packages.iter().find(|package| package.name == program.package);
    let Some(package) = package else { return };
    let known: Vec<&str> = package.features.iter().map(String::as_str).collect();
    // `dependency/feature` and `package/feature` are cargo's to judge.
    let is_known = |feature: &&String| feature.contains(['/', ':']) || known.contains(&feature.as_str());
    for feature in kind.features.iter().filter(|feature| !is_known(feature)) {
        let message = format!("package `{}` has no feature `{feature}`", package.name);
        let remedy = offer("features", feature, &known);
        let place = kind_place(inputs, kind, "features");
        findings.push(Finding::error("feature-unknown", place, message).remedy(remedy));
    }
}

fn libtorch(inputs: &Inputs<'_>, index: usize, kind: &Kind, findings: &mut Vec<Finding>) {
    let place = || kind_place(inputs, kind, "libtorch");
    let torch_sys = inputs.workspace.lock.as_ref().map(|lock| lock.torch_sys.as_slice()).unwrap_or_default();
    let variant = match inputs.variants.get(&index) {
        Some(Ok(variant)) => variant,
        Some(Err(finding)) => return findings.push(finding.clone()),
        None => {
            if kind.libtorch == LibtorchChoice::None && !torch_sys.is_empty() {
                findings.push(
                    Finding::error("libtorch-not-chosen", place(), "the program depends on `torch-sys`, and the kind names no libtorch")
                        .remedy("write `libtorch = \"auto\"`, a variant such as `\"precompiled/cpu-2.9.0\"`, or an absolute path"),
                );
            }
            return;
        }
    };
    cxx_abi(inputs, kind, variant, findings);
    let target = kind.target.as_ref().unwrap_or(&inputs.rustc.host);
    let wanted_arch = target.split('-').next().unwrap_or_default();
    if variant.facts.cpu_arch != wanted_arch {
        findings.push(
            Finding::error(
                "libtorch-other-cpu",
                place(),
                format!(
                    "the libtorch in `{}` is for {}, and `{target}` needs one for {wanted_arch}",
                    variant.root, variant.facts.cpu_arch
                ),
            )
            .remedy(format!(
                "choose a variant for {wanted_arch}; `{} libtorch list` shows what there is",
                inputs.invocation
            )),
        );
    }
    let found = variant.facts.public_version();
    if let Some(wanted) = inputs.torch_pin.filter(|wanted| *wanted != found) {
        findings.push(
            Finding::error(
                "libtorch-other-version",
                place(),
                format!("the libtorch in `{}` is torch {found}, and the program's `torch-sys` pins {wanted}", variant.root),
            )
            .remedy(format!(
                "choose a variant of torch {wanted} (`{} libtorch fetch`), or accept `libtorch-other-version` and set `{LIBTORCH_BYPASS_VERSION_CHECK}` in `build_env`",
                inputs.invocation
            )),
        );
    }
}

/// An error for each variable that makes C++ with another form of `std::string` than the libtorch has.
fn cxx_abi(inputs: &Inputs<'_>, kind: &Kind, variant: &Variant, findings: &mut Vec<Finding>) {
    let of_kind = kind.build_env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let inherited =
        inputs.env.iter().filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())));
    let own = u8::from(variant.facts.is_cxx11_abi);
    for (name, value) in of_kind.chain(inherited.filter(|(name, _)| !kind.build_env.contains_key(name))) {
        // The last one on a command line counts.
        let asked = value.rsplit_once(CXX11_ABI).and_then(|(_, rest)| rest.get(..1));
        let is_other = asked.is_some_and(|asked| ["0", "1"].contains(&asked) && asked != own.to_string());
        if !is_other || !name.contains("CXXFLAGS") {
            continue;
        }
        let message = format!(
            "`{name}` is `{value}`, and the libtorch in `{}` has the {} form of `std::string`",
            variant.root,
            if variant.facts.is_cxx11_abi { "new" } else { "old" }
        );
        let remedy =
            format!("write `{CXX11_ABI}{own}` there, or leave it out: `torch-sys` is told which form is meant");
        let place = kind_place(inputs, kind, "build_env");
        findings.push(Finding::error(code::CXX_ABI_DIFFERS, place, message).remedy(remedy));
    }
}

/// Findings about elements that the loader would not read as one folder.
pub(super) fn library_paths(plan: &BuildPlan, findings: &mut Vec<Finding>) {
    for host in &plan.hosts {
        let root = host.libtorch.as_ref().map(|libtorch| libtorch.root.as_str());
        let bad_root = root.filter(|root| root.contains([':', ';', '$', '\0']));
        let mut elements = host.ld_library_path.split(':');
        let bad = bad_root.or_else(|| {
            let is_bad = |element: &&str| !element.starts_with('/') || element.contains([';', '$', '\0']);
            if host.ld_library_path.is_empty() { None } else { elements.find(is_bad) }
        });
        if let Some(bad) = bad {
            let message = format!("`{bad}` cannot stand in a library path");
            let remedy =
                "the loader wants absolute folders without `:`, `;` and `$` in their names; move it, or link to it";
            findings.push(Finding::error("library-path-element", Place::host(&host.name), message).remedy(remedy));
        }
    }
}

pub(super) fn kind_place(inputs: &Inputs<'_>, kind: &Kind, key: &str) -> Place {
    inputs.cluster.or_file(kind.places.at(key))
}
