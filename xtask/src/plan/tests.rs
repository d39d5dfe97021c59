//! A plan for each shape of cluster, from facts that are written down here.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use camino::Utf8Path;
use torchlift::preflight::fatbin::{GpuContent, RegionGroup};
use torchlift::preflight::fit::{Device, Isa};
use torchlift_schema::host::{CoreFacts, CpuFacts, Gpu, SystemFacts, Vendor};
use torchlift_schema::{Accelerator, Finding, HostFacts};

use super::{CpuCode, Inputs, Planned, TargetTools, plan};
use crate::cargo::ConfigFacts;
use crate::cluster::{self, Cluster, Host, LibtorchChoice, Source};
use crate::container::{ContainerFacts, Engine, Mount};
use crate::facts::{KnownHost, KnownHosts, Origin};
use crate::libtorch::auto::{Chosen, Gpus, Machine, Refusal, Refused};
use crate::libtorch::{Variant, VariantFacts};
use crate::report::build::render_plan;
use crate::toolchain::{Env, RustcFacts};
use crate::workspace::{LockFacts, PackageFacts, WorkspaceFacts};

struct World {
    cluster: Cluster,
    workspace: WorkspaceFacts,
    rustc: RustcFacts,
    config: ConfigFacts,
    variants: BTreeMap<usize, Result<Variant, Finding>>,
    choices: BTreeMap<usize, Chosen>,
    known_hosts: KnownHosts,
    tools: BTreeMap<String, TargetTools>,
    containers: BTreeMap<usize, Result<ContainerFacts, Finding>>,
    cpu_codes: BTreeMap<usize, CpuCode>,
    is_shared: bool,
    foreign: BTreeSet<String>,
    env: Env,
    pin: Option<String>,
}

fn world(toml: &str) -> World {
    let text = format!("schema = 1\n[job.train]\n{toml}");
    let source = Source { name: "cluster.toml", text: &text };
    let reading = cluster::parse(Utf8Path::new("/w/my project/cluster.toml"), source, None, &|_| None);
    let cluster = reading.into_result().expect("the cluster of a test is right").cluster;
    let chosen = |kind: &cluster::Kind| match &kind.libtorch {
        LibtorchChoice::Variant(id) => {
            let cuda = id.as_str().contains("cu1").then(|| Accelerator::Cuda("12.8".to_owned()));
            Some(Ok(variant(id.as_str(), cuda.unwrap_or(Accelerator::Cpu))))
        }
        _ => None,
    };
    let variants = cluster.kinds.iter().enumerate().filter_map(|(index, kind)| Some((index, chosen(kind)?))).collect();
    let given = |(target, toolchain): (&String, &cluster::Toolchain)| {
        (target.clone(), TargetTools { toolchain: Some(toolchain.clone()), ..TargetTools::default() })
    };
    let tools = cluster.toolchains.iter().map(given).collect();
    World {
        cluster,
        workspace: WorkspaceFacts {
            root: "/w/my project".into(),
            target_directory: "/w/my project/target".into(),
            packages: vec![PackageFacts {
                name: "trainer".to_owned(),
                folder: "/w/my project".into(),
                bins: vec!["train".to_owned()],
                examples: Vec::new(),
                default_run: None,
                features: vec!["cuda".to_owned(), "default".to_owned()],
            }],
            default_packages: vec!["trainer".to_owned()],
            profiles: vec!["quick".to_owned()],
            lock: None,
        },
        rustc: RustcFacts {
            verbose_version: "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu".to_owned(),
            host: "x86_64-unknown-linux-gnu".to_owned(),
        },
        config: ConfigFacts::default(),
        variants,
        choices: BTreeMap::new(),
        known_hosts: KnownHosts::default(),
        tools,
        containers: BTreeMap::new(),
        cpu_codes: BTreeMap::new(),
        is_shared: true,
        foreign: BTreeSet::new(),
        env: Env::new(),
        pin: None,
    }
}

fn variant(id: &str, accelerator: Accelerator) -> Variant {
    let gpu = matches!(accelerator, Accelerator::Cuda(_)).then_some("libtorch_cuda.so");
    let libraries = ["libc10.so", "libtorch.so", "libtorch_cpu.so"].into_iter().chain(gpu).map(str::to_owned).collect();
    Variant {
        id: id.parse().ok(),
        root: format!("/store/{id}").into(),
        facts: VariantFacts {
            version: "2.9.0+cu128".to_owned(),
            accelerator,
            cpu_arch: "x86_64".to_owned(),
            is_cxx11_abi: true,
            abi_digest: format!("digest of {id}"),
            libraries,
            gpu_code: gpu.map(|name| (name.to_owned(), code_for(&["sm_61", "sm_90", "sm_120"]))).into_iter().collect(),
            glibc: Some("2.28".to_owned()),
            size: 1_000_000_000,
        },
    }
}

fn code_for(codes: &[&str]) -> GpuContent {
    let codes = codes.iter().map(|code| code.parse().unwrap()).collect();
    GpuContent { regions: vec![RegionGroup { codes, count: 397 }], ..GpuContent::default() }
}

/// Hosts of whose cards only `gpus` says something.
fn machines(cluster: &Cluster) -> BTreeMap<usize, Vec<Machine>> {
    let mut machines: BTreeMap<usize, Vec<Machine>> = BTreeMap::new();
    for host in &cluster.hosts {
        let gpus = cluster.kinds[host.kind].gpus.iter();
        let devices: Vec<_> = gpus.map(|gpu| Device::stated(Isa::Cuda(gpu.parse().unwrap()))).collect();
        let unknown = Machine::unknown(&host.name, false);
        let machine = if devices.is_empty() { unknown } else { Machine { gpus: Gpus::Known(devices), ..unknown } };
        machines.entry(host.kind).or_default().push(machine);
    }
    machines
}

impl World {
    fn plan(&self) -> Planned {
        let hosts: Vec<&Host> = self.cluster.hosts.iter().collect();
        plan(&Inputs {
            cluster: &self.cluster,
            job: &self.cluster.jobs[0],
            hosts: &hosts,
            workspace: &self.workspace,
            rustc: &self.rustc,
            config: &self.config,
            variants: &self.variants,
            choices: &self.choices,
            machines: &machines(&self.cluster),
            known_hosts: &self.known_hosts,
            tools: &self.tools,
            containers: &self.containers,
            cpu_codes: &self.cpu_codes,
            is_shared: self.is_shared,
            jobs: None,
            foreign_paths: &self.foreign,
            torch_pin: self.pin.as_deref(),
            invocation: "cargo xtask",
            env: &self.env,
            cargo: &OsString::from("cargo"),
            builds_dir: "/w/my project/target/torchlift/builds".into(),
            locked: true,
            offline: false,
        })
    }

    fn keys(&self) -> Vec<String> {
        let plan = self.plan().plan.expect("there is a plan");
        plan.builds.iter().map(|build| build.key.to_string()).collect()
    }

    fn codes(&self) -> Vec<String> {
        self.plan().findings.into_iter().map(|finding| finding.code).collect()
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.into(), value.into());
    }
}

const TWO_KINDS: &str = r#"
[kind.gpu]
libtorch = "precompiled/cu128"
features = ["cuda"]
gpus = ["12.0", "6.1"]
[kind.cpu]
libtorch = "precompiled/cpu-2.9.0"
default_features = false
[[host]]
name = "gpu-[1-2]"
kind = "gpu"
path = "/w/my project"
reach = "local"
[[host]]
name = "small"
kind = "cpu"
path = "/w/my project"
reach = "local"
"#;

const ONE_HOST: &str =
    "[kind.k]\nlibtorch = \"precompiled/cu128\"\n[[host]]\nname = \"a\"\npath = \"/w/my project\"\nreach = \"local\"\n";

#[test]
fn the_plan_says_what_would_be_run_and_where_it_would_go() {
    let planned = world(TWO_KINDS).plan();
    assert_eq!(planned.findings, []);
    let plan = planned.plan.unwrap();
    insta::assert_snapshot!("plan_for_people", render_plan(&plan));
    let json = serde_json::to_value(&plan).unwrap();
    let text = serde_json::to_string_pretty(&json["builds"][1]).unwrap();
    insta::assert_snapshot!("build_for_programs", text);
}

#[test]
fn ten_hosts_of_two_kinds_are_two_cargo_runs() {
    let hosts = TWO_KINDS.replace("gpu-[1-2]", "gpu-[01-09]");
    let plan = world(&hosts).plan().plan.unwrap();
    assert_eq!((plan.builds.len(), plan.hosts.len()), (2, 10));
    assert_eq!(plan.builds[0].hosts.len(), 9);
}

#[test]
fn kinds_that_are_built_alike_share_one_run() {
    let alike = TWO_KINDS
        .replace("default_features = false", "features = [\"cuda\"]\ngpus = [\"6.1\", \"12.0\"]")
        .replace("cpu-2.9.0", "cu128");
    let plan = world(&alike).plan().plan.unwrap();
    assert_eq!(plan.builds.len(), 1);
    assert_eq!(plan.builds[0].kinds, ["gpu", "cpu"]);
    assert_eq!(plan.builds[0].hosts, ["gpu-1", "gpu-2", "small"]);
    let places: Vec<_> = plan.hosts.iter().map(|host| host.bin.as_str()).collect();
    assert_eq!(places[2], "target/cluster/small/precompiled-cu128/release/train");
}

#[test]
fn everything_that_a_build_depends_on_changes_the_key() {
    type Change = fn(&mut World);
    let changes: &[(&str, Change)] = &[
        ("target", |world| world.cluster.kinds[0].target = Some("aarch64-unknown-linux-gnu".to_owned())),
        ("profile", |world| world.cluster.jobs[0].profile = "dev".to_owned()),
        ("package", |world| world.workspace.packages[0].name = "other".to_owned()),
        ("program", |world| world.workspace.packages[0].bins = vec!["other".to_owned()]),
        ("features", |world| world.cluster.kinds[0].features.push("cuda".to_owned())),
        ("default features", |world| world.cluster.kinds[0].default_features = false),
        ("rustc", |world| world.rustc.verbose_version.push('x')),
        ("kind rustflags", |world| world.cluster.kinds[0].rustflags.push("-g".to_owned())),
        ("own rustflags", |world| world.set("RUSTFLAGS", "-g")),
        ("configuration", |world| world.config.text.push('x')),
        ("linker", |world| world.set("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", "clang")),
        ("CC", |world| world.set("CC", "clang")),
        ("CXXFLAGS", |world| world.set("CXXFLAGS_x86_64_unknown_linux_gnu", "-O1")),
        ("AR", |world| world.set("AR", "llvm-ar")),
        ("TORCH_", |world| world.set("TORCH_CUDA_VERSION", "cu128")),
        ("CUDA_", |world| world.set("CUDA_HOME", "/opt/cuda")),
        ("ROCM_", |world| world.set("ROCM_PATH", "/opt/rocm")),
        ("LIBTORCH_", |world| world.set("LIBTORCH_BYPASS_VERSION_CHECK", "1")),
        ("build_env", |world| drop(world.cluster.kinds[0].build_env.insert("MY".to_owned(), "1".to_owned()))),
        ("gpus", |world| world.cluster.kinds[0].gpus = vec!["9.0".to_owned()]),
        ("libtorch", |world| {
            drop(world.variants.insert(0, Ok(variant("precompiled/cu129", Accelerator::Cuda("12.9".to_owned())))))
        }),
    ];
    let mut keys = vec![world(ONE_HOST).keys()];
    for (what, change) in changes {
        let mut changed = world(ONE_HOST);
        change(&mut changed);
        let key = changed.keys();
        assert!(!keys.contains(&key), "{what}");
        keys.push(key);
    }
}

/// What a look into the container of an old system gives.
fn container() -> ContainerFacts {
    let kind = &world(
        "[kind.k]\ncontainer = { engine = [\"podman\", \"--runtime=runc\"], image = \"old\" }\n\
                       [[host]]\nname = \"a\"\npath = \"/w/my project\"\n",
    )
    .cluster
    .kinds[0];
    ContainerFacts {
        engine: Engine::of(kind.container.as_ref().unwrap()),
        image: "old".to_owned(),
        id: "0123456789abcdef".to_owned(),
        options: vec!["--user=7:7".to_owned(), "--ulimit=nofile=1024:1024".to_owned()],
        search_path: "/t/bin:/usr/bin".to_owned(),
        cargo_home: "/home/u/.cargo".into(),
        cargo: "/t/bin/cargo".to_owned(),
        rustc: RustcFacts { verbose_version: "rustc 1.90.0".to_owned(), host: "x86_64-unknown-linux-gnu".to_owned() },
        has_std: true,
        toolchain: Some("/t".into()),
        glibc: Some("2.31".to_owned()),
        missing: Vec::new(),
        mounts: vec![Mount::writable("/w/my project"), Mount::read_only("/t")],
        has_sources: true,
    }
}

fn in_container(facts: ContainerFacts) -> World {
    let mut world = world(ONE_HOST);
    world.containers.insert(0, Ok(facts));
    world
}

#[test]
fn a_build_in_a_container_has_the_tools_of_its_image_and_none_of_this_machine() {
    let plan = in_container(container()).plan().plan.unwrap();
    let build = &plan.builds[0];
    assert_eq!(build.cargo, "/t/bin/cargo");
    assert_eq!(build.env["PATH"], "/t/bin:/usr/bin");
    assert_eq!(build.env["CARGO_HOME"], "/home/u/.cargo");
    let text = render_plan(&plan);
    let shown: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("  container")).take(5).collect();
    assert_eq!(
        shown,
        [
            "  container podman '--runtime=runc', image `old` (0123456789ab), with glibc 2.31",
            "  options   '--user=7:7' '--ulimit=nofile=1024:1024'",
            "  toolchain /t of this machine: the image has no cargo",
            "  mount     /w/my project",
            "  mount     /t (read only)",
        ]
    );
}

#[test]
fn the_key_of_a_build_in_a_container_is_made_of_the_image_and_not_of_this_machine() {
    let key = in_container(container()).keys();
    assert_ne!(key, world(ONE_HOST).keys());
    let mut other = in_container(container());
    other.rustc.verbose_version = "rustc 1.99.0".to_owned();
    for name in ["CC", "CXXFLAGS", "RUSTFLAGS", "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", "CUDA_HOME"] {
        other.set(name, "of this machine");
    }
    assert_eq!(other.keys(), key);
    let changes: [fn(&mut ContainerFacts); 3] = [
        |facts| facts.id = "fedc".to_owned(),
        |facts| facts.options.push("--env=X=1".to_owned()),
        |facts| facts.rustc.verbose_version = "rustc 1.91.0".to_owned(),
    ];
    for change in changes {
        let mut facts = container();
        change(&mut facts);
        assert_ne!(in_container(facts).keys(), key);
    }
}

#[test]
fn what_a_container_lacks_is_told_all_of_it_at_once() {
    let mut world = in_container(ContainerFacts { missing: vec!["c++".to_owned()], has_std: false, ..container() });
    world.cluster.kinds[0].target = Some("aarch64-unknown-linux-gnu".to_owned());
    world.variants.clear();
    assert_eq!(world.codes(), ["container-compiler-missing", "target-std-missing", "toolchain-missing"]);
    let linker = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER".to_owned();
    world.cluster.kinds[0].build_env.insert(linker, "aarch64-linux-gnu-gcc".to_owned());
    assert_eq!(world.codes(), ["container-compiler-missing", "target-std-missing"]);
}

#[test]
fn what_cargo_follows_by_itself_does_not_change_the_key() {
    let key = world(ONE_HOST).keys();
    let mut other = world(ONE_HOST);
    other.set("PATH", "/elsewhere");
    other.set("LIBTORCH", "/what/the/user/has");
    other.set("LIBTORCH_USE_PYTORCH", "1");
    other.set("CUDA_VISIBLE_DEVICES", "1");
    other.workspace.lock = Some(LockFacts { packages: 3, ..LockFacts::default() });
    let moved = variant("precompiled/cu128", Accelerator::Cuda("12.8".to_owned()));
    other.variants.insert(0, Ok(Variant { root: "/moved".into(), id: None, ..moved }));
    assert_eq!(other.keys(), key);
}

#[test]
fn the_variables_that_lead_past_the_given_libtorch_are_taken_out() {
    let plan = world(ONE_HOST).plan().plan.unwrap();
    assert_eq!(
        plan.builds[0].env_unset,
        ["LIBTORCH_INCLUDE", "LIBTORCH_LIB", "LIBTORCH_STATIC", "LIBTORCH_USE_PYTORCH"]
    );
    let without = world("[[host]]\nname = \"a\"\npath = \"/w/my project\"\nreach = \"local\"\n").plan().plan.unwrap();
    assert_eq!(without.builds[0].env_unset, Vec::<String>::new());
    assert!(!without.builds[0].args.contains(&"--".to_owned()));
    assert_eq!(
        (without.hosts[0].bin.as_str(), without.hosts[0].ld_library_path.as_str()),
        ("target/cluster/a/none/release/train", "")
    );
}

#[test]
fn what_this_version_does_not_do_is_refused_by_name_all_of_it_at_once() {
    let toml = r#"
[kind.a]
target = "aarch64-unknown-linux-gnu"
[kind.b]
features = ["cudda"]
[kind.c]
target = "riscv64gc-unknown-linux-gnu"
build_on = "one"
[kind.unused]
target = "riscv64gc-unknown-linux-gnu"
build_on = "one"
[[host]]
name = "one"
kind = "a"
path = "/w/my project"
reach = { ssh = "me@one" }
[[host]]
name = "two"
kind = "b"
path = "/w/my project"
reach = "local"
files = "push"
[[host]]
name = "three"
kind = "c"
path = "/w/my project"
reach = { agent = "tls:three:7700" }
[toolchain."x86_64-unknown-linux-gnu"]
sysroot = "/s"
linker = "cc"
"#;
    assert_eq!(
        world(toml).codes(),
        [
            "reach-not-yet",
            "reach-not-yet",
            "files-not-yet",
            "toolchain-missing",
            "feature-unknown",
            "build-on-not-yet",
            "toolchain-missing"
        ]
    );
}

#[test]
fn a_way_that_is_not_there_yet_is_told_once_for_all_its_hosts() {
    let toml = "[[host]]\nname = \"far-[01-20]\"\npath = \"/p\"\nreach = { ssh = \"me@{name}\" }\n\
                [[host]]\nname = \"near\"\npath = \"/p\"\nreach = { ssh = \"near\" }\n\
                [[host]]\nname = \"a\"\npath = \"/p\"\nreach = { agent = \"tls:a:7700\" }\n";
    let findings = world(toml).plan().findings;
    let messages: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    let first = "`far-01`, `far-02`, `far-03`, `far-04`, `far-05`, `far-06`, `far-07`, `far-08`";
    assert_eq!(
        messages,
        [
            format!("reach `ssh` is not there yet: hosts {first} and 13 more"),
            "reach `agent` is not there yet: host `a`".to_owned()
        ]
    );
    assert_eq!((findings[0].place.line, findings[0].place.host.as_deref()), (Some(6), None));
    assert_eq!(findings[1].place.host.as_deref(), Some("a"));
}

#[test]
fn a_profile_that_cargo_does_not_have_is_told_with_those_that_it_has() {
    let with = |profile: &str| world(&format!("profile = \"{profile}\"\n{ONE_HOST}"));
    for good in ["dev", "release", "quick"] {
        assert_eq!(with(good).plan().findings, [], "{good}");
    }
    let findings = with("qick").plan().findings;
    let finding = &findings[0];
    assert_eq!((findings.len(), finding.code.as_str(), finding.place.line), (1, "profile-unknown", Some(3)));
    let remedy = finding.remedy.as_deref().unwrap();
    assert!(remedy.starts_with("did you mean `quick`?"), "{remedy}");
    let findings = with("zzz").plan().findings;
    let remedy = findings[0].remedy.as_deref().unwrap();
    for known in ["`dev`", "`quick`", "`release`", "[profile.zzz]"] {
        assert!(remedy.contains(known), "{remedy}");
    }
    for other in ["test", "bench", "check"] {
        assert_eq!(with(other).codes(), ["profile-without-program"], "{other}");
    }
}

#[test]
fn a_profile_of_cargos_configuration_or_of_the_environment_is_there_too() {
    let own = |change: fn(&mut World)| {
        let mut world = world(&format!("profile = \"my-own\"\n{ONE_HOST}"));
        change(&mut world);
        world.codes()
    };
    assert_eq!(own(|_| {}), ["profile-unknown"]);
    assert!(own(|world| world.config.profiles.push("my-own".to_owned())).is_empty());
    assert!(own(|world| world.config.has_include = true).is_empty(), "what an included file says is not known");
    assert!(own(|world| world.set("CARGO_PROFILE_MY_OWN_INHERITS", "dev")).is_empty());
}

#[test]
fn a_refusal_has_its_line_and_a_remedy() {
    let world =
        world("[kind.k]\nbuild_on = \"a\"\n[[host]]\nname = \"a\"\npath = \"/w/my project\"\nreach = \"local\"\n");
    let finding = &world.plan().findings[0];
    assert_eq!(finding.place.line, Some(4));
    assert!(finding.remedy.is_some());
}

#[test]
fn a_libtorch_that_does_not_fit_is_found_before_anything_is_built() {
    let mut other = world(TWO_KINDS);
    other.pin = Some("2.8.0".to_owned());
    if let Some(Ok(variant)) = other.variants.get_mut(&1) {
        variant.facts.cpu_arch = "aarch64".to_owned();
    }
    assert_eq!(other.codes(), ["libtorch-other-version", "libtorch-other-cpu", "libtorch-other-version"]);
}

#[test]
fn a_libtorch_without_code_for_a_card_of_a_host_is_an_error_before_anything_is_built() {
    let other = world(&TWO_KINDS.replace("\"12.0\", \"6.1\"", "\"12.0\", \"8.6\""));
    let findings = other.plan().findings;
    let told: Vec<_> = findings.iter().map(|finding| (finding.code.as_str(), finding.place.host.as_deref())).collect();
    assert_eq!(told, [("gpu-code-missing", Some("gpu-1")), ("gpu-code-missing", Some("gpu-2"))]);
    let finding = &findings[0];
    assert!(finding.is_error() && finding.message.contains("a GPU of capability 8.6"), "{}", finding.message);
    assert_eq!((finding.place.line, finding.place.key.as_deref()), (Some(5), Some("kind.gpu.libtorch")));
}

#[test]
fn what_auto_chose_stands_in_the_plan_with_its_reason() {
    let mut other = world(TWO_KINDS);
    let refused = Refused { variant: "precompiled/cu118".to_owned(), reasons: vec![Refusal::NoCode] };
    let reason = "runs natively on capability 6.1 and capability 12.0".to_owned();
    other.choices.insert(0, Chosen { index: 0, reason, refused: vec![refused] });
    let text = render_plan(&other.plan().plan.unwrap());
    assert!(
        text.contains(
            "\nlibtorch for kind gpu: precompiled/cu128\n  because   runs natively on capability 6.1 and capability 12.0\n  \
             not       `precompiled/cu118`: no code for GPUs was found in it\n"
        ),
        "{text}"
    );
}

#[test]
fn a_program_on_torch_sys_needs_a_kind_with_a_libtorch() {
    let mut other = world("[kind.k]\n[[host]]\nname = \"a\"\npath = \"/w/my project\"\nreach = \"local\"\n");
    other.workspace.lock =
        Some(LockFacts { packages: 2, torch_sys: vec![semver::Version::new(0, 22, 0)], ..LockFacts::default() });
    assert_eq!(other.codes(), ["libtorch-not-chosen"]);
}

#[test]
fn a_folder_that_the_loader_would_split_is_refused() {
    let mut other = world(ONE_HOST);
    if let Some(Ok(variant)) = other.variants.get_mut(&0) {
        variant.root = "/store/a;b".into();
    }
    assert_eq!(other.codes(), ["library-path-element"]);
}

#[test]
fn a_toolchain_and_a_target_reach_cargo() {
    let toml = r#"
[kind.arm]
target = "aarch64-unknown-linux-gnu"
[[host]]
name = "a"
path = "/w/my project"
reach = "local"
[toolchain."aarch64-unknown-linux-gnu"]
linker = "aarch64-linux-gnu-gcc"
cxx = "aarch64-linux-gnu-g++"
"#;
    let planned = world(toml).plan();
    assert_eq!(planned.findings, []);
    let build = &planned.plan.unwrap().builds[0];
    assert!(build.args.windows(2).any(|pair| pair == ["--target", "aarch64-unknown-linux-gnu"]));
    let set: Vec<_> = build.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        set,
        [
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc",
            "CXX_aarch64_unknown_linux_gnu=aarch64-linux-gnu-g++"
        ]
    );
}

#[test]
fn the_tools_of_a_target_build_it_and_are_part_of_its_key() {
    let toml = "[kind.arm]\ntarget = \"aarch64-unknown-linux-gnu\"\n[[host]]\nname = \"a\"\npath = \"/w/my project\"\n\
                [toolchain.\"aarch64-unknown-linux-gnu\"]\ncargo = \"/opt/cargo\"\nrustc = \"/opt/rustc\"\n";
    let mut world = world(toml);
    let tools = |version: &str, has_std| TargetTools {
        toolchain: world.cluster.toolchains.get("aarch64-unknown-linux-gnu").cloned(),
        rustc: Some(RustcFacts { verbose_version: version.to_owned(), host: "x86_64-unknown-linux-gnu".to_owned() }),
        has_std: Some(has_std),
        lacks_sysroot: false,
    };
    let (one, other, bare) = (tools("rustc 1.96.0", true), tools("rustc 1.97.0", true), tools("rustc 1.96.0", false));
    let mut build = |tools: TargetTools| {
        world.tools.insert("aarch64-unknown-linux-gnu".to_owned(), tools);
        let planned = world.plan();
        let codes: Vec<String> = planned.findings.into_iter().map(|finding| finding.code).collect();
        (planned.plan.map(|mut plan| plan.builds.remove(0)), codes)
    };
    let (first, codes) = build(one);
    let first = first.unwrap();
    assert_eq!(codes, Vec::<String>::new());
    assert_eq!((first.cargo.to_str(), first.env["RUSTC"].as_str()), (Some("/opt/cargo"), "/opt/rustc"));
    assert_ne!(build(other).0.unwrap().key, first.key);
    assert_eq!(build(bare).1, ["target-std-missing"]);
}

/// A host with these cards, as its facts have them.
fn with_cards(cards: &[(u32, &str)], devices: &[cluster::Device]) -> KnownHost {
    let (system, cores) = (SystemFacts::default(), CoreFacts::default());
    let mut facts = HostFacts::new("2026-11-30T14:23:05Z", "0.0.0", system, CpuFacts::new("x86_64"), cores);
    facts.gpus = cards
        .iter()
        .map(|(index, capability)| {
            let mut card = Gpu::new(Vendor::Nvidia, *index);
            card.name = Some(format!("card of {capability}"));
            card.capability = Some((*capability).to_owned().try_into().expect("a capability"));
            card
        })
        .collect();
    KnownHost::new(facts, Origin::Probed, devices)
}

#[test]
fn gpus_that_a_kind_does_not_name_are_those_of_the_cards_of_all_its_hosts() {
    let two = "[kind.k]\nlibtorch = \"precompiled/cu128\"\n\
               [[host]]\nname = \"a\"\npath = \".\"\n[[host]]\nname = \"b\"\npath = \".\"\ndevices = [1]\n";
    let mut world = world(two);
    world.known_hosts.insert("a", with_cards(&[(0, "12.0")], &[]));
    world.known_hosts.insert("b", with_cards(&[(0, "5.2"), (1, "6.1")], &[cluster::Device::Index(1)]));
    let env = |world: &World| world.plan().plan.expect("there is a plan").builds[0].env.clone();
    let of_both = env(&world);
    assert_eq!((of_both["CUDA_COMPUTE_CAP"].as_str(), of_both["TORCH_CUDA_ARCH_LIST"].as_str()), ("61", "6.1;12.0"));
    world.cluster.kinds[0].gpus = vec!["9.0".to_owned()];
    assert_eq!(env(&world)["TORCH_CUDA_ARCH_LIST"], "9.0", "what the file names is what is built for");
    let mut unknown = self::world(two);
    assert!(!env(&unknown).contains_key("CUDA_COMPUTE_CAP"), "nothing is known, and nothing is said");
    // Hosts that are left out count all the same.
    unknown.known_hosts = world.known_hosts.clone();
    let all = unknown.keys();
    unknown.cluster.hosts.iter_mut().for_each(|host| host.slots = crate::cluster::Slots::Count(1));
    assert_eq!(unknown.keys(), all);
}

#[test]
fn native_is_refused_for_a_host_that_is_not_this_machine_with_the_level_that_it_has() {
    let toml = "[kind.k]\nrustflags = [\"-Ctarget-cpu=native\"]\n\
                [[host]]\nname = \"a\"\npath = \"/w/my project\"\n[[host]]\nname = \"b\"\npath = \"/p\"\nreach = { ssh = \"b\" }\n";
    let mut world = world(toml);
    let features = Some(vec!["avx512f".to_owned()]);
    world.cpu_codes.insert(0, CpuCode { flags: vec!["-Ctarget-cpu=native".to_owned()], features });
    let mut host = with_cards(&[], &[]);
    host.facts.cpu.level = Some("x86-64-v3".to_owned());
    world.known_hosts.insert("b", host);
    let findings: Vec<_> =
        world.plan().findings.into_iter().filter(|finding| finding.code.starts_with("cpu")).collect();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!((findings[0].code.as_str(), findings[0].place.host.as_deref()), ("cpu-native", Some("b")));
    assert!(findings[0].remedy.as_ref().unwrap().ends_with("this one has `-Ctarget-cpu=x86-64-v3`"));
}

#[test]
fn the_other_form_of_std_string_is_told_before_anything_is_compiled() {
    let toml = "[kind.k]\nlibtorch = \"precompiled/cu128\"\nbuild_env = { CXXFLAGS = \"-D_GLIBCXX_USE_CXX11_ABI=0\" }\n\
                [[host]]\nname = \"a\"\npath = \".\"\n";
    let mut world = world(toml);
    assert_eq!(world.codes(), ["cxx-abi-differs"]);
    world.cluster.kinds[0].build_env.clear();
    world.set("CXXFLAGS", "-O2 -D_GLIBCXX_USE_CXX11_ABI=1 -D_GLIBCXX_USE_CXX11_ABI=0");
    let findings = world.plan().findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].message.contains("has the new form of `std::string`"), "{findings:?}");
    world.set("CXXFLAGS", "-D_GLIBCXX_USE_CXX11_ABI=1");
    assert!(world.codes().is_empty());
}

#[test]
fn a_card_that_a_host_has_not_is_a_finding_that_names_those_it_has() {
    let toml = "[kind.k]\nlibtorch = \"precompiled/cu128\"\n\
                [[host]]\nname = \"a\"\npath = \".\"\ndevices = [0, 4, \"GPU-12345678\"]\n";
    let mut world = world(toml);
    let devices = world.cluster.hosts[0].devices.clone();
    world.known_hosts.insert("a", with_cards(&[(0, "12.0"), (1, "6.1")], &devices));
    let findings = world.plan().findings;
    let messages: Vec<_> = findings.iter().map(|finding| (finding.code.as_str(), finding.message.as_str())).collect();
    let expected =
        [("device-unknown", "host `a` has no card `4`"), ("device-unknown", "host `a` has no card `GPU-12345678`")];
    assert_eq!(messages, expected);
    assert_eq!(findings[0].remedy.as_deref(), Some("its cards: 0 (`card of 12.0`), 1 (`card of 6.1`)"));
    assert_eq!(findings[0].place.line, Some(8));
    world.variants.insert(0, Ok(variant("precompiled/cpu-2.9.0", Accelerator::Cpu)));
    assert!(world.codes().is_empty(), "a libtorch for CPUs does not care");
}
