//! From inputs to a plan: one cargo run per distinct key, one place per host.

use std::collections::BTreeMap;
use std::ffi::OsString;

use camino::Utf8Path;
use sha2::{Digest as _, Sha256};
use torchlift::preflight::digest::hex;
use torchlift_schema::gpu::CudaArch;
use torchlift_schema::{Accelerator, Finding};

use super::check;
use super::key::{self, BuildKey, KeyMaker};
use super::rustflags::{self, Handover};
use super::{
    Apart, Build, BuildLibtorch, BuildPlan, HostBuild, HostKnown, HostLibtorch, Inputs, KindChoice, PUBLISHED,
};
use crate::cluster::{Host, Kind, Toolchain};
use crate::container::{self, ContainerFacts};
use crate::env_vars::{
    CARGO_ENCODED_RUSTFLAGS, CUDA_COMPUTE_CAP, LIBTORCH_CXX11_ABI, LIBTORCH_PATHS, MISLEADING, TORCH_CUDA_ARCH_LIST,
};
use crate::facts::Origin;
use crate::libtorch::Variant;
use crate::workspace::{Program, resolve};

/// Libraries that register themselves when loaded, and that no symbol of a program asks for: the linker drops them
/// from a program unless it is told not to.
const SELF_REGISTERING: &[&str] = &["torch_cuda", "torch_hip"];

/// A plan and what is doubtful about it; the plan is only there when no error is among the findings, but for those
/// that an `accept` may turn into warnings.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan; none when the program or a libtorch is not known.
    pub plan: Option<BuildPlan>,
    /// All findings, errors and warnings.
    pub findings: Vec<Finding>,
}

/// Plans the build of a job for the chosen hosts.
pub fn plan(inputs: &Inputs<'_>) -> Planned {
    let file = inputs.cluster.file.as_str();
    let mut findings = Vec::new();
    let program = match resolve(inputs.job, inputs.workspace, file) {
        Ok(program) => Some(program),
        Err(finding) => {
            findings.push(*finding);
            None
        }
    };
    check::profile(inputs, &mut findings);
    check::hosts(inputs, &mut findings);
    check::kinds(inputs, program.as_ref(), &mut findings);
    let plan = program.and_then(|program| lay_out(inputs, program));
    if let Some(plan) = &plan {
        check::library_paths(plan, &mut findings);
    }
    Planned { plan, findings }
}

fn lay_out(inputs: &Inputs<'_>, program: Program) -> Option<BuildPlan> {
    let mut builds: Vec<Build> = Vec::new();
    let mut hosts = Vec::new();
    let mut by_kind: BTreeMap<usize, BuildKey> = BTreeMap::new();
    for host in inputs.hosts {
        let kind = inputs.cluster.kinds.get(host.kind)?;
        let variant = match inputs.variants.get(&host.kind) {
            None => None,
            Some(Ok(variant)) => Some(variant),
            // Already a finding.
            Some(Err(_)) => return None,
        };
        let key = match by_kind.get(&host.kind) {
            Some(key) => key.clone(),
            None => {
                let container = match inputs.containers.get(&host.kind) {
                    None => None,
                    Some(Ok(container)) => Some(container),
                    // Already a finding.
                    Some(Err(_)) => return None,
                };
                let build = one_build(inputs, host.kind, kind, variant, container, &program);
                let key = build.key.clone();
                match builds.iter_mut().find(|other| other.key == key) {
                    Some(other) => other.kinds.extend(build.kinds),
                    None => builds.push(build),
                }
                by_kind.insert(host.kind, key.clone());
                key
            }
        };
        if let Some(build) = builds.iter_mut().find(|build| build.key == key) {
            build.hosts.push(host.name.clone());
        }
        hosts.push(place(inputs, host, kind, variant, &program, key));
    }
    apart(&mut builds);
    Some(BuildPlan {
        job: inputs.job.name.clone(),
        workspace: inputs.workspace.root.clone(),
        program,
        profile: inputs.job.profile.clone(),
        builds,
        hosts,
        chosen: chosen(inputs),
    })
}

/// Says of each build but the first why it is not one with the nearest of those before it.
fn apart(builds: &mut [Build]) {
    for index in 1..builds.len() {
        let (before, rest) = builds.split_at_mut(index);
        let Some(build) = rest.first_mut() else { return };
        let differences = before.iter().map(|other| (build.parts.differences(&other.parts), &other.key));
        build.apart = differences.min_by_key(|(by, _)| by.len()).map(|(by, from)| Apart { from: from.clone(), by });
    }
}

/// What `auto` means for each kind.
fn chosen(inputs: &Inputs<'_>) -> Vec<KindChoice> {
    let choices = inputs.choices.iter().filter_map(|(index, choice)| {
        let kind = inputs.cluster.kinds.get(*index)?;
        let variant = inputs.variants.get(index)?.as_ref().ok()?;
        Some(KindChoice {
            kind: kind.name.clone(),
            variant: variant.name().to_owned(),
            reason: choice.reason.clone(),
            refused: choice.refused.clone(),
        })
    });
    choices.collect()
}

/// The cargo run of a kind; `hosts` is filled in by the caller.
fn one_build(
    inputs: &Inputs<'_>,
    index: usize,
    kind: &Kind,
    variant: Option<&Variant>,
    container: Option<&ContainerFacts>,
    program: &Program,
) -> Build {
    let target = kind.target.clone().unwrap_or_else(|| inputs.rustc.host.clone());
    // A container has its own tools, and of the caller's environment little is seen inside.
    let toolchain = inputs.toolchain(&target).filter(|_| container.is_none());
    let tools = inputs.tools.get(&target).filter(|_| container.is_none());
    let rustc = container.map(|container| &container.rustc).or(tools.and_then(|tools| tools.rustc.as_ref()));
    let rustc = rustc.unwrap_or(inputs.rustc);
    let inside = container.map(|_| container::passed(inputs.env));
    let own_env = inside.as_ref().unwrap_or(inputs.env);
    let mut features = kind.features.clone();
    features.sort();
    features.dedup();
    let archs = archs(inputs, index, kind);
    let (mut env, env_unset) = environment(inputs, kind, variant, toolchain, &target, &archs);
    let handover = rustflags::handover(&kind.rustflags, own_env, inputs.config, &target);
    if let Handover::Encoded(flags) = &handover {
        env.insert(CARGO_ENCODED_RUSTFLAGS.to_owned(), flags.clone());
    }
    let link_flags = link_flags(variant, toolchain);
    let is_zig = toolchain.is_some_and(Toolchain::is_zig);
    let glibc = toolchain.and_then(|toolchain| toolchain.glibc.clone());

    let (key, parts) = {
        let mut parts = KeyMaker::default();
        parts.add("target", target.as_bytes());
        // Others make what the system's glibc gives, whatever the floor is that it is held to.
        if let Some(glibc) = glibc.as_ref().filter(|_| is_zig) {
            parts.add("glibc", glibc.as_bytes());
        }
        parts.add("profile", inputs.job.profile.as_bytes());
        parts.add("package", program.package.as_bytes());
        parts.add(program.kind.word(), program.name.as_bytes());
        parts.add("features", features.join(",").as_bytes());
        parts.add("default features", kind.default_features.to_string().as_bytes());
        parts.add("rustc", rustc.verbose_version.as_bytes());
        if let Some(container) = container {
            parts.add("container image", container.id.as_bytes());
            parts.add("container options", container.options.join("\0").as_bytes());
        }
        parts.add("cargo configuration", inputs.config.text.as_bytes());
        parts.add("kind rustflags", kind.rustflags.join("\0").as_bytes());
        parts.add("link flags", link_flags.join("\0").as_bytes());
        if !inputs.is_shared {
            parts.add("kind, by `--no-share`", kind.name.as_bytes());
        }
        parts.add("libtorch's ABI digest", variant.map_or("", |variant| variant.facts.abi_digest.as_str()).as_bytes());
        // What the user's shell has for a variable that is set or unset here, cargo never sees.
        let mut whole = own_env.clone();
        whole.retain(|name, _| !env_unset.iter().any(|unset| name == unset.as_str()));
        if variant.is_some() {
            whole.retain(|name, _| !LIBTORCH_PATHS.iter().any(|path| name == path));
        }
        whole.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
        parts.add_env(&whole);
        // Those that compilers read are among the variables already.
        for (name, value) in kind.build_env.iter().filter(|(name, _)| !key::is_for_builds(name)) {
            parts.add(&format!("build_env {name}"), value.as_bytes());
        }
        parts.finish()
    };

    let dir = inputs.builds_dir.join(key.as_str());
    let libtorch = variant.map(|variant| BuildLibtorch {
        link: dir.join("libtorch"),
        root: variant.root.clone(),
        version: variant.facts.version.clone(),
        accelerator: variant.facts.accelerator.clone(),
    });
    if let Some(libtorch) = &libtorch {
        // The link lies in the folder that the key names, so that it is set once the key is known.
        for name in LIBTORCH_PATHS {
            env.insert(name.to_owned(), libtorch.link.to_string());
        }
    }
    if let Some(container) = container {
        env.insert("CARGO_HOME".to_owned(), container.cargo_home.to_string());
        env.insert("PATH".to_owned(), container.search_path.clone());
    }
    let arch = target.split('-').next().unwrap_or_default();
    let cpu_level = inputs.cpu_codes.get(&index).and_then(|code| code.level(arch)).map(str::to_owned);
    let asked = match (&glibc, is_zig) {
        (Some(glibc), true) => Some(format!("{target}.{glibc}")),
        // It links with the system's own linker where no target is given.
        (None, true) => Some(target.clone()),
        // With `--target` cargo builds in a folder of its own and keeps flags from build scripts: only where it is needed.
        _ => {
            let own = container.map_or(&inputs.rustc.host, |container| &container.rustc.host);
            Some(target.clone()).filter(|target| target != own || inputs.config.has_build_target)
        }
    };
    let args =
        arguments(inputs, program, kind, asked.as_deref(), &features, &handover, &dir, libtorch.as_ref(), &link_flags);
    let cargo = container
        .map(|container| &container.cargo)
        .or(toolchain.and_then(|toolchain| toolchain.cargo.as_ref()))
        .map_or(inputs.cargo.clone(), OsString::from);
    Build {
        key,
        kinds: Some(kind.name.clone()).filter(|name| !name.is_empty()).into_iter().collect(),
        hosts: Vec::new(),
        target,
        features,
        default_features: kind.default_features,
        libtorch,
        container: container.map(|container| container.place(&dir)),
        dir,
        cargo,
        args,
        env,
        env_unset,
        cpu_level,
        glibc,
        parts,
        apart: None,
    }
}

/// What is set and what is unset, but for the path of the libtorch.
fn environment(
    inputs: &Inputs<'_>,
    kind: &Kind,
    variant: Option<&Variant>,
    toolchain: Option<&Toolchain>,
    target: &str,
    archs: &[CudaArch],
) -> (BTreeMap<String, String>, Vec<String>) {
    let mut env = BTreeMap::new();
    let mut set = |name: String, value: &str| {
        env.insert(name, value.to_owned());
    };
    let underscored = target.replace('-', "_");
    if let Some(toolchain) = toolchain {
        for (name, value) in [("CC", &toolchain.cc), ("CXX", &toolchain.cxx), ("AR", &toolchain.ar)] {
            if let Some(value) = value {
                set(format!("{name}_{underscored}"), value);
            }
        }
        if let Some(linker) = &toolchain.linker {
            set(rustflags::target_variable(target, "LINKER"), linker);
        }
        if let Some(rustc) = &toolchain.rustc {
            set("RUSTC".to_owned(), rustc);
        }
        if let Some(sysroot) = &toolchain.sysroot {
            for flags in ["CFLAGS", "CXXFLAGS"] {
                let name = format!("{flags}_{underscored}");
                set(name, &with_sysroot(inputs, flags, target, sysroot));
            }
        }
    }
    let Some(variant) = variant else {
        env.extend(kind.build_env.clone());
        return (env, Vec::new());
    };
    set(LIBTORCH_CXX11_ABI.to_owned(), if variant.facts.is_cxx11_abi { "1" } else { "0" });
    // Code for the oldest card runs on the newer ones too, the other way round it does not; the first variable takes one.
    if let (Accelerator::Cuda(_), Some(oldest)) = (&variant.facts.accelerator, archs.first()) {
        set(CUDA_COMPUTE_CAP.to_owned(), &format!("{}{}", oldest.capability.number(), oldest.specificity));
        let list: Vec<String> = archs.iter().map(|arch| arch.dotted()).collect();
        set(TORCH_CUDA_ARCH_LIST.to_owned(), &list.join(";"));
    }
    env.extend(kind.build_env.clone());
    (env, MISLEADING.iter().map(|name| (*name).to_owned()).collect())
}

/// The flags of a compiler for the target, and the sysroot. The build scripts of `cc` look at one variable alone, the most
/// special one that is set.
fn with_sysroot(inputs: &Inputs<'_>, flags: &str, target: &str, sysroot: &str) -> String {
    let names = [
        format!("{flags}_{target}"),
        format!("{flags}_{}", target.replace('-', "_")),
        format!("TARGET_{flags}"),
        flags.to_owned(),
    ];
    let given = names.iter().find_map(|name| inputs.env.get(std::ffi::OsStr::new(name)));
    let given = given.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{given} --sysroot={sysroot}").trim_start().to_owned()
}

/// What code for the kind's cards is compiled for, the oldest first: as `gpus` says, else as the facts of its hosts do, of
/// those too that are left out this time.
fn archs(inputs: &Inputs<'_>, index: usize, kind: &Kind) -> Vec<CudaArch> {
    let mut archs: Vec<CudaArch> = kind.gpus.iter().filter_map(|gpu| gpu.parse().ok()).collect();
    if kind.gpus.is_empty() {
        archs.extend(inputs.known_hosts.capabilities(inputs.cluster, index).into_iter().map(CudaArch::plain));
    }
    archs.sort_unstable();
    archs.dedup();
    archs
}

fn link_flags(variant: Option<&Variant>, toolchain: Option<&Toolchain>) -> Vec<String> {
    let sysroot = toolchain.and_then(|toolchain| toolchain.sysroot.as_ref());
    let mut flags: Vec<String> = sysroot.map(|folder| format!("-Clink-arg=--sysroot={folder}")).into_iter().collect();
    let Some(variant) = variant else { return flags };
    let of_gpus = SELF_REGISTERING
        .iter()
        .filter(|name| variant.facts.libraries.contains(&format!("lib{name}.so")))
        .map(|name| format!("-Clink-args=-Wl,--push-state,--no-as-needed -l{name} -Wl,--pop-state"));
    flags.extend(of_gpus);
    // Whether what the libraries need is there is found out after the build, for the host and not for this machine.
    flags.push("-Clink-args=-Wl,--allow-shlib-undefined".to_owned());
    // A linker for another CPU looks nowhere else for what the libraries need, and the wheels keep some of that beside them.
    let neighbours = variant.root.parent().map(|folder| folder.join("torch.libs")).filter(|folder| folder.is_dir());
    flags.extend(neighbours.map(|folder| format!("-Clink-args=-Wl,-rpath-link,{folder}")));
    flags
}

#[expect(clippy::too_many_arguments, reason = "the parts of one command line, put together in one place")]
fn arguments(
    inputs: &Inputs<'_>,
    program: &Program,
    kind: &Kind,
    target: Option<&str>,
    features: &[String],
    handover: &Handover,
    dir: &Utf8Path,
    libtorch: Option<&BuildLibtorch>,
    link_flags: &[String],
) -> Vec<String> {
    let mut args: Vec<String> = ["rustc", "--package", &program.package, &format!("--{}", program.kind.word())]
        .into_iter()
        .chain([program.name.as_str(), "--profile", &inputs.job.profile])
        .map(str::to_owned)
        .collect();
    if let Some(target) = target {
        args.extend(["--target".to_owned(), target.to_owned()]);
    }
    if !features.is_empty() {
        args.extend(["--features".to_owned(), features.join(",")]);
    }
    if !kind.default_features {
        args.push("--no-default-features".to_owned());
    }
    if inputs.locked {
        args.push("--locked".to_owned());
    }
    if inputs.offline {
        args.push("--offline".to_owned());
    }
    if let Some(jobs) = inputs.jobs {
        args.extend(["--jobs".to_owned(), jobs.to_string()]);
    }
    if let Handover::Config(setting) = handover {
        args.extend(["--config".to_owned(), setting.clone()]);
    }
    args.push("--message-format=json-render-diagnostics".to_owned());
    args.extend(["--target-dir".to_owned(), dir.to_string()]);
    let search = libtorch.map(|libtorch| format!("-Lnative={}/lib", libtorch.link));
    if search.is_some() || !link_flags.is_empty() {
        args.push("--".to_owned());
        args.extend(search.into_iter().chain(link_flags.iter().cloned()));
    }
    args
}

fn place(
    inputs: &Inputs<'_>,
    host: &Host,
    kind: &Kind,
    variant: Option<&Variant>,
    program: &Program,
    build: BuildKey,
) -> HostBuild {
    let libtorch = variant.map(|variant| HostLibtorch {
        variant: variant.id.clone(),
        root: variant.root.clone(),
        version: variant.facts.version.clone(),
        accelerator: variant.facts.accelerator.clone(),
        archs: variant.facts.archs(),
    });
    let lib = variant.map(|variant| variant.root.join("lib").into_string());
    let folders: Vec<String> =
        host.library_path_before.iter().cloned().chain(lib).chain(host.library_path_after.iter().cloned()).collect();
    let slug = slug(libtorch.as_ref());
    HostBuild {
        name: host.name.clone(),
        kind: Some(kind.name.clone()).filter(|name| !name.is_empty()),
        build,
        bin: format!("{PUBLISHED}/{}/{slug}/{}/{}", host.name, inputs.job.profile, program.name),
        ld_library_path: folders.join(":"),
        cwd_subpath: inputs.job.cwd.clone(),
        libtorch,
        facts: known(inputs, host),
    }
}

/// What is known of a host, and from where.
fn known(inputs: &Inputs<'_>, host: &Host) -> Option<HostKnown> {
    let known = inputs.known_hosts.get(&host.name)?;
    let machine = inputs.machines.get(&host.kind)?.iter().find(|machine| machine.name == host.name)?;
    let (file, age_days) = match &known.origin {
        Origin::Saved { file, age_days } => (Some(file.clone()), *age_days),
        Origin::Probed => (None, None),
    };
    Some(HostKnown { has: machine.equipment().to_string(), file, age_days })
}

/// The folder name for a libtorch: a variant's own, `path-<digest>` for a tree outside the stores, `none` without one.
fn slug(libtorch: Option<&HostLibtorch>) -> String {
    match libtorch {
        None => "none".to_owned(),
        Some(HostLibtorch { variant: Some(id), .. }) => id.slug(),
        Some(HostLibtorch { root, .. }) => format!("path-{}", &hex(&Sha256::digest(root.as_str()))[..8]),
    }
}
