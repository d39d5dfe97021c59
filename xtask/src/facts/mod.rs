//! Everything that a plan is made of, read side by side: cargo's and rustc's answers, the cluster file, the variants,
//! the state of the sources.
//!
//! Owns the order in which things can be read at once. Decides nothing: what is wrong with a cluster is said by
//! [`crate::cluster`] and [`crate::plan`], and collected here so that all of it is told together.

mod containers;
mod cpu;
mod hosts;
mod machines;
mod tools;
mod variant;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroUsize;
use std::thread;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::{Finding, Place, exit_code};

use crate::cargo::ConfigFacts;
use crate::cluster::{self, Accept, Cluster, Host, Job, LibtorchChoice, Reach};
use crate::commands::Context;
use crate::error::CommandError;
use crate::libtorch::auto::{Chosen, Machine};
use crate::libtorch::{Hold, Places, Stores, Variant, Wanted, wanted};
use crate::plan::{self, ACCEPTABLE, BuildPlan, Inputs, accept};
use crate::toolchain::{self, Env, Run, RustcFacts, Tools, output};
use crate::verify::{Knowledge, Sight};
use crate::workspace::{SourceId, WorkspaceFacts, source_id};

pub use hosts::{KnownHost, KnownHosts, OLD_DAYS, Origin};
pub use machines::HostGpus;

/// What a person chose on the command line, with paths as they were typed.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `--cluster`.
    pub cluster: Option<Utf8PathBuf>,
    /// `--manifest-path`.
    pub manifest_path: Option<Utf8PathBuf>,
    /// `--host`.
    pub hosts: Vec<String>,
    /// `--exclude`.
    pub exclude: Vec<String>,
    /// `--job`.
    pub job: Option<String>,
    /// `--libtorch`: instead of what every kind names.
    pub libtorch: Option<Utf8PathBuf>,
    /// `--builds-dir`.
    pub builds_dir: Option<Utf8PathBuf>,
    /// `--accept`.
    pub accept: Vec<Accept>,
    /// `--locked`.
    pub locked: bool,
    /// `--offline`.
    pub offline: bool,
    /// `--no-share`.
    pub no_share: bool,
    /// `--jobs`, for builds one after the other.
    pub jobs: Option<NonZeroUsize>,
}

/// Facts of a project and its cluster, and the plan that follows from them.
#[derive(Debug)]
pub struct Facts {
    /// The environment without what the outer cargo put there.
    pub env: Env,
    /// This machine's cargo.
    pub cargo: OsString,
    /// The workspace.
    pub workspace: WorkspaceFacts,
    /// The cluster.
    pub cluster: Cluster,
    /// The job.
    pub job: Job,
    /// The chosen hosts, in file order.
    pub hosts: Vec<Host>,
    /// What is known of each host of the cluster.
    pub known_hosts: KnownHosts,
    /// The cards of each chosen host and the code of its libtorch, by the name of the host.
    pub gpus: BTreeMap<String, HostGpus>,
    /// What would be built.
    pub plan: BuildPlan,
    /// Warnings, and findings that were accepted.
    pub warnings: Vec<Finding>,
    /// Findings that are accepted, of the file and of the command line.
    pub accept: Vec<Accept>,
    /// What a build now would be made of; none when it was not asked for.
    pub source: Option<SourceId>,
    /// Folders of this user; none where the environment names none.
    pub places: Option<Places>,
    /// Keeps the libtorches of the plan where they are for as long as this lives.
    pub holds: Vec<Hold>,
}

impl Facts {
    /// Reads everything and plans.
    ///
    /// # Errors
    /// When cargo or rustc give no answer, or with every finding about the cluster and the plan.
    pub fn gather(choice: &Choice, context: &Context, wants_source: bool) -> Result<Self, CommandError> {
        let mut env = toolchain::inherited(context);
        if choice.offline {
            env.insert("CARGO_NET_OFFLINE".into(), "true".into());
        }
        let cargo = toolchain::cargo_program(context);
        let manifest = choice.manifest_path.as_ref().map(|file| context.cwd.join(file));
        let folder = manifest.as_deref().and_then(Utf8Path::parent).unwrap_or(&context.cwd).to_owned();
        let (workspace, rustc) = thread::scope(|scope| {
            let rustc = scope.spawn(|| RustcFacts::read(&env, &folder));
            let workspace = WorkspaceFacts::read(&cargo, &env, &context.cwd, manifest.as_deref());
            (workspace, join(rustc))
        });
        let workspace = workspace?;
        // The toolchain file that holds is the one that is found from where cargo will run.
        let rustc = if workspace.root == folder { rustc? } else { RustcFacts::read(&env, &workspace.root)? };
        let (overview, source) = thread::scope(|scope| {
            let source = wants_source.then(|| scope.spawn(|| source_id(&workspace.root, &env, &output)));
            // Cargo is asked for the whole graph only where there is a torch-sys in it.
            let wanted = scope.spawn(|| torch_pin(&cargo, &workspace, &env, &output));
            let tools = Tools { env: &env, cargo: &cargo, run: &output };
            let overview = Overview::read(choice, context, tools, &workspace, &rustc, wanted);
            (overview, source.map(join))
        });
        overview.into_facts(env, cargo, workspace, source)
    }

    /// Each chosen host's path by its name.
    pub fn paths(&self) -> BTreeMap<String, Utf8PathBuf> {
        self.hosts.iter().map(|host| (host.name.clone(), host.path.clone())).collect()
    }

    /// What is known of each chosen host by its name.
    pub fn knowledge(&self) -> BTreeMap<String, Knowledge> {
        let of = |host: &Host| {
            let variable = |name: &str| {
                let written = host.env.get(name).or_else(|| self.job.env.get(name)).cloned();
                written.or_else(|| self.env.get(OsStr::new(name))?.to_str().map(str::to_owned))
            };
            let sight = Sight::of(host, &self.cluster, variable);
            Knowledge::of(sight, self.known_hosts.get(&host.name), self.gpus.get(&host.name))
        };
        self.hosts.iter().map(|host| (host.name.clone(), of(host))).collect()
    }

    /// The file in which digests are remembered.
    pub fn digests(&self) -> Option<Utf8PathBuf> {
        self.places.as_ref().map(|places| places.cache.join("digests"))
    }
}

/// A thread's result; a panic goes on in the thread that waits.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The torch that the locked `torch-sys` pins; cargo is asked through `run`.
pub fn torch_pin(cargo: &OsStr, workspace: &WorkspaceFacts, env: &Env, run: Run<'_>) -> Option<Wanted> {
    let is_there = workspace.lock.as_ref().is_some_and(|lock| !lock.torch_sys.is_empty());
    is_there.then(|| wanted::ask(cargo, &workspace.root.join("Cargo.toml"), env, run)).flatten()
}

/// What can be read of a cluster once the workspace and rustc are known, and what would be planned for it, whatever is
/// wrong with either: a build stops at its findings, a doctor tells them with all the rest.
#[derive(Debug)]
pub struct Overview {
    /// The cluster file as a person would name it.
    pub file: Utf8PathBuf,
    /// What of it could be read.
    pub cluster: Cluster,
    /// Hosts and jobs that the command line names, or needs, and the file has not; nothing that follows is known then.
    pub unknown: Vec<Finding>,
    /// The job.
    pub job: Option<Job>,
    /// The chosen hosts, in file order.
    pub hosts: Vec<Host>,
    /// What is known of each host of the cluster.
    pub known_hosts: KnownHosts,
    /// What the chosen hosts have, by the index of their kind.
    pub machines: BTreeMap<usize, Vec<Machine>>,
    /// The libtorch of each kind that names one, by the kind's index.
    pub variants: BTreeMap<usize, Result<Variant, Finding>>,
    /// The torch that the program pins.
    pub wanted: Option<Wanted>,
    /// What would be built; none when the program or a libtorch is not known.
    pub plan: Option<BuildPlan>,
    /// Everything that was found, of the file, the facts and the plan.
    pub findings: Vec<Finding>,
    accept: Vec<Accept>,
    places: Option<Places>,
    holds: Vec<Hold>,
}

impl Overview {
    /// Reads and plans. `wanted` is joined when it is needed, so that cargo answers meanwhile.
    pub fn read(
        choice: &Choice,
        context: &Context,
        tools: Tools<'_>,
        workspace: &WorkspaceFacts,
        rustc: &RustcFacts,
        wanted: thread::ScopedJoinHandle<'_, Option<Wanted>>,
    ) -> Self {
        let Tools { env, cargo, .. } = tools;
        let file = cluster_file(choice, context, workspace);
        let reading = cluster::read(&file, &context.cwd, &cluster::lookup(env));
        let mut cluster = reading.cluster;
        if let Some(given) = &choice.libtorch {
            let given = context.cwd.join(given);
            cluster.kinds.iter_mut().for_each(|kind| kind.libtorch = LibtorchChoice::Path(given.clone()));
        }
        let mut accepted = cluster.accept.clone();
        accepted.extend(choice.accept.iter().cloned());
        let mut overview = Self {
            file,
            cluster,
            unknown: Vec::new(),
            job: None,
            hosts: Vec::new(),
            known_hosts: KnownHosts::default(),
            machines: BTreeMap::new(),
            variants: BTreeMap::new(),
            wanted: None,
            plan: None,
            findings: reading.findings,
            accept: accepted,
            places: Places::from_env(env).ok(),
            holds: Vec::new(),
        };
        let chosen = overview.cluster.select(&choice.hosts, &choice.exclude);
        let job = overview.cluster.job(choice.job.as_deref());
        let (hosts, job) = match (chosen, job) {
            (Ok(chosen), Ok(job)) => (chosen.into_iter().cloned().collect::<Vec<_>>(), job.clone()),
            (chosen, job) => {
                let unknown = chosen.err().into_iter().flatten().chain(job.err().into_iter().flatten());
                overview.unknown = unknown.collect();
                overview.wanted = join(wanted);
                return overview;
            }
        };
        let chosen: Vec<&Host> = hosts.iter().collect();
        let config = ConfigFacts::read(&workspace.root, env);
        let (wanted, (known_hosts, of_hosts)) = thread::scope(|scope| {
            // This machine is asked while cargo answers.
            let known = scope.spawn(|| KnownHosts::read(&overview.cluster, &chosen, context, env));
            (join(wanted), join(known))
        });
        overview.findings.extend(of_hosts);
        let machines = machines::by_kind(&overview.cluster, &job, &chosen, &known_hosts, env);
        let variants = variant::resolve(&variant::Question {
            cluster: &overview.cluster,
            machines: &machines,
            workspace,
            rustc,
            wanted: wanted.as_ref(),
            places: overview.places.as_ref(),
            env,
            invocation: &context.invocation,
        });
        let containers = containers::by_kind(&containers::Question {
            cluster: &overview.cluster,
            kinds: machines.keys().copied().collect(),
            variants: &variants.by_kind,
            workspace,
            rustc,
            cargo,
            env,
            run: tools.run,
            cache: overview.places.as_ref().map(|places| places.cache.as_path()),
        });
        let target_tools = tools::by_target(&overview.cluster, machines.keys().copied(), rustc, &workspace.root, tools);
        let cpu_codes =
            cpu::by_kind(&overview.cluster, machines.keys().copied(), rustc, &workspace.root, tools, &config);
        let builds_dir = workspace.builds_dir(choice.builds_dir.as_deref(), &context.cwd);
        let planned = plan::plan(&Inputs {
            cluster: &overview.cluster,
            job: &job,
            hosts: &chosen,
            workspace,
            rustc,
            config: &config,
            variants: &variants.by_kind,
            choices: &variants.choices,
            machines: &machines,
            known_hosts: &known_hosts,
            cpu_codes: &cpu_codes,
            tools: &target_tools,
            containers: &containers,
            foreign_paths: &foreign_paths(&chosen, workspace),
            torch_pin: wanted.as_ref().map(|wanted| wanted.version.as_str()),
            invocation: &context.invocation,
            env,
            cargo,
            builds_dir,
            locked: choice.locked,
            offline: choice.offline,
            is_shared: !choice.no_share,
            jobs: choice.jobs,
        });
        let of_plan = accept(planned.findings, &overview.accept, |code| ACCEPTABLE.contains(&code));
        overview.findings.extend(of_plan);
        overview.findings.extend(variants.notes);
        Self {
            job: Some(job),
            hosts,
            known_hosts,
            machines,
            variants: variants.by_kind,
            wanted,
            plan: planned.plan,
            holds: variants.holds,
            ..overview
        }
    }

    /// The facts of a build. `source` is what it would be made of, where that was asked for.
    ///
    /// # Errors
    /// With every finding, when one of them stops; when a source file could not be read.
    pub fn into_facts(
        self,
        env: Env,
        cargo: OsString,
        workspace: WorkspaceFacts,
        source: Option<io::Result<SourceId>>,
    ) -> Result<Facts, CommandError> {
        let is_stopped = self.findings.iter().any(Finding::is_error);
        // A name that the command line got wrong is a usage error, unless the file lost the host to an error of its own.
        if !self.unknown.is_empty() && !is_stopped {
            let summary = format!("`{}` has no such hosts or jobs", self.file);
            return Err(CommandError::findings(exit_code::USAGE, summary, self.unknown));
        }
        let (Some(plan), Some(job), false) = (self.plan, self.job, is_stopped) else {
            let summary = format!("`{}` cannot be built as it is; nothing was done", self.file);
            return Err(CommandError::findings(exit_code::CLUSTER_FILE, summary, self.findings));
        };
        let source = source.transpose().map_err(|error| {
            CommandError::new(exit_code::BUILD, "a source file cannot be read")
                .because(error)
                .hint("mend or remove what it names")
        })?;
        Ok(Facts {
            env,
            cargo,
            workspace,
            cluster: self.cluster,
            job,
            hosts: self.hosts,
            known_hosts: self.known_hosts,
            gpus: machines::with_variants(self.machines, &self.variants),
            plan,
            warnings: self.findings,
            accept: self.accept,
            source,
            places: self.places,
            holds: self.holds,
        })
    }
}

/// The file as a person would name it: relative where it lies in the working directory.
fn cluster_file(choice: &Choice, context: &Context, workspace: &WorkspaceFacts) -> Utf8PathBuf {
    match &choice.cluster {
        Some(file) => file.clone(),
        None if workspace.root == context.cwd => cluster::FILE_NAME.into(),
        None => workspace.root.join(cluster::FILE_NAME),
    }
}

/// Local hosts whose path is another folder than the workspace, by whatever names and links it is reached. A path that
/// is not there is a finding of the cluster file's own.
fn foreign_paths(hosts: &[&Host], workspace: &WorkspaceFacts) -> BTreeSet<String> {
    let real = |path: &Utf8Path| path.canonicalize_utf8().unwrap_or_else(|_| path.to_owned());
    let root = real(&workspace.root);
    hosts
        .iter()
        .filter(|host| host.reach == Reach::Local && host.path.exists() && real(&host.path) != root)
        .map(|host| host.name.clone())
        .collect()
}

/// The place of a kind's key, or the cluster file itself.
fn kind_place(cluster: &Cluster, kind: usize, key: &str) -> Place {
    cluster.or_file(cluster.kinds.get(kind).map(|kind| kind.places.at(key)).unwrap_or_default())
}

/// What is known of the libtorch of each kind.
#[derive(Debug, Default)]
struct Variants {
    by_kind: BTreeMap<usize, Result<Variant, Finding>>,
    /// Why those of `libtorch = "auto"` were chosen.
    choices: BTreeMap<usize, Chosen>,
    /// Libtorches that were passed over on the way to one.
    notes: Vec<Finding>,
    /// Each variant that was found, held.
    holds: Vec<Hold>,
}

/// The stores of a workspace; none where the environment names no folder for them.
fn stores(workspace: &WorkspaceFacts, places: Option<&Places>) -> Stores {
    match places {
        Some(places) => Stores::new(Some(&workspace.root), places),
        None => Stores { roots: vec![workspace.root.join("libtorch")] },
    }
}
