//! `verify`: what `build` verifies at its end, for what lies in `target/cluster` now. Builds nothing, runs nothing, writes
//! nothing but what is remembered of digests.

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::preflight::{DigestCache, code};
use torchlift_schema::{Envelope, Finding, exit_code};

use super::Context;
use super::build::{Format, accepted};
use super::launch::old;
use crate::cluster::Accept;
use crate::error::CommandError;
use crate::facts::{Choice, Facts};
use crate::plan::HostBuild;
use crate::report::verify::{VerifyReport, render};
use crate::report::{print_data, print_json, print_warnings};
use crate::verify::{Built, Knowledge, Made, Question, verify};

/// The library by which a folder is known as a libtorch's.
const TORCH: &str = "libtorch_cpu.so";

/// Arguments of `verify`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct VerifyArgs {
    /// The cluster file [default: `cluster.toml` in the workspace's root]
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<Utf8PathBuf>,
    /// Only these hosts: names or ranges such as `node-[01-04]`
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// All hosts but these
    #[arg(long, value_name = "NAME")]
    pub exclude: Vec<String>,
    /// The job [default: the first of the cluster file]
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// The `Cargo.toml` of the project [default: found from the working directory upward]
    #[arg(long, value_name = "PATH")]
    pub manifest_path: Option<Utf8PathBuf>,
    /// Ask cargo without a network
    #[arg(long)]
    pub offline: bool,
    /// The builds were made with `--no-share`
    #[arg(long)]
    pub no_share: bool,
    /// Take this finding as a warning, on one host or on all
    #[arg(long, value_name = "CODE[@HOST]", value_parser = accepted)]
    pub accept: Vec<Accept>,
    /// How facts are printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

impl VerifyArgs {
    fn choice(&self) -> Choice {
        Choice {
            cluster: self.cluster.clone(),
            manifest_path: self.manifest_path.clone(),
            hosts: self.hosts.clone(),
            exclude: self.exclude.clone(),
            job: self.job.clone(),
            accept: self.accept.clone(),
            offline: self.offline,
            no_share: self.no_share,
            ..Choice::default()
        }
    }
}

/// Runs it.
pub fn run(args: &VerifyArgs, context: &Context) -> Result<u8, CommandError> {
    let facts = Facts::gather(&args.choice(), context, false)?;
    let knowledge = facts.knowledge();
    let times = old::times(&facts);
    let paths = facts.paths();
    let (mut hosts, mut old_ones, mut lost) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_forged = false;
    for host in &facts.plan.hosts {
        match old::of_host(&facts, host, &times) {
            Ok((envelope, warning)) => {
                old_ones.extend(warning.map(|finding| build_again(finding, context)));
                let path = paths.get(&host.name).unwrap_or(&facts.plan.workspace);
                let known = knowledge.get(&host.name).cloned().unwrap_or_default();
                hosts.push(built(host, &envelope, &facts, path, known));
            }
            Err(unusable) => {
                is_forged |= unusable.exit_code == exit_code::INTEGRITY;
                lost.extend(unusable.findings.into_iter().map(|finding| build_again(finding, context)));
            }
        }
    }
    let question = Question { hosts, accept: facts.accept.clone(), told: facts.warnings.clone() };
    let mut digests = match facts.digests() {
        Some(file) => DigestCache::open(file.as_std_path()),
        None => DigestCache::in_memory(),
    };
    let verified = verify(&question, &mut digests);
    // What is remembered only saves time.
    let _ = digests.save();

    let told: Vec<Finding> = facts.warnings.iter().chain(&old_ones).cloned().collect();
    let report = VerifyReport::new(&facts.plan.job, &question, &verified, &lost, &told);
    match args.format {
        Format::Text => print_data(&render(&report))?,
        Format::Json => print_json(&report)?,
    }
    let findings: Vec<Finding> = lost.iter().cloned().chain(verified.findings()).collect();
    let code = code::exit_code(&findings);
    let Some(code) = code.map(|code| if is_forged { exit_code::INTEGRITY } else { code }) else {
        print_warnings(&told);
        print_warnings(&findings);
        return Ok(exit_code::OK);
    };
    print_warnings(&told);
    let summary = format!("`{}` would not run on every host", facts.plan.program.name);
    Err(CommandError::findings(code, summary, findings))
}

/// The finding with what mends it here, and not in a launch.
fn build_again(finding: Finding, context: &Context) -> Finding {
    finding.remedy(format!("build again: `{} build`", context.invocation))
}

/// What is published for a host: as its envelope says, whatever a build now would make.
fn built(host: &HostBuild, envelope: &Envelope, facts: &Facts, path: &Utf8Path, mut known: Knowledge) -> Built {
    let mut host = host.clone();
    host.bin.clone_from(&envelope.bin);
    host.ld_library_path.clone_from(&envelope.ld_library_path);
    host.cwd_subpath.clone_from(&envelope.cwd_subpath);
    match (&envelope.libtorch, &mut host.libtorch) {
        (None, libtorch) => *libtorch = None,
        (Some(record), Some(libtorch)) => {
            let is_named = |root: &Utf8Path| {
                let lib = root.join("lib");
                envelope.ld_library_path.split(':').any(|folder| folder == lib.as_str())
            };
            // The cluster file names another libtorch by now: the one that the program was built with is held against it.
            if !is_named(&libtorch.root) {
                let folders = envelope.ld_library_path.split(':').map(Utf8Path::new);
                let own = folders.filter(|folder| folder.join(TORCH).is_file()).find_map(Utf8Path::parent);
                if let Some(own) = own {
                    own.clone_into(&mut libtorch.root);
                }
                // The code of the other one says nothing of it.
                known.gpus = None;
            }
            libtorch.variant.clone_from(&record.variant);
            libtorch.version.clone_from(&record.version);
            libtorch.accelerator = record.accelerator.clone();
        }
        (Some(_), None) => {}
    }
    let place = facts.plan.workspace.join(&host.bin);
    Built {
        file: place.clone(),
        place,
        bytes: envelope.artifact.sha256.clone(),
        cwd: path.join(&host.cwd_subpath),
        cpu_level: envelope.artifact.cpu_level.clone(),
        made: facts.plan.build_of(&host).map(Made::by).unwrap_or_default(),
        envelope: Some(envelope.clone()),
        known,
        host,
    }
}
