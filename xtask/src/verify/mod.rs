//! Each host's binary held against its host: what the loader would really choose, and every check with who made it.
//!
//! Purpose: one path for `build`, which verifies what it is about to publish, and for `verify`, which verifies what lies
//! there. Nothing is run. Owns which checks there are; what each of them knows is [`torchlift::preflight`]'s. Must not write
//! anything, and tells all findings of all hosts at once.

mod by_name;
pub mod check;
mod fit;
mod host;
mod made;
mod run;
mod sight;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::clock::Clock;
use torchlift::preflight::verify::{ArtifactQuestion, InspectError, Inspection, inspect_artifact, not_startable};
use torchlift::preflight::{DigestCache, HostLibraries, LibraryPath, code};
use torchlift_schema::{Envelope, Finding, Place};

use crate::cluster::Accept;
use crate::facts::{HostGpus, KnownHost, Origin};
use crate::plan::HostBuild;
use check::Check;
use fit::GpuCode;
pub use made::Made;
pub use sight::Sight;

/// A host's binary, and all that is known of the host. Owned, since it is looked at in a thread that may be left alone.
#[derive(Clone, Debug)]
pub struct Built {
    /// How it is run there.
    pub host: HostBuild,
    /// The file that has its bytes now.
    pub file: Utf8PathBuf,
    /// Where that is going to lie, which is how people know it.
    pub place: Utf8PathBuf,
    /// What is the same for hosts that have the same bytes.
    pub bytes: String,
    /// The folder that it runs in.
    pub cwd: Utf8PathBuf,
    /// The level that its code asks of a CPU.
    pub cpu_level: Option<String>,
    /// What its build was told to keep to.
    pub made: Made,
    /// What it has to be, when that was written down before.
    pub envelope: Option<Envelope>,
    /// Of the host.
    pub known: Knowledge,
}

/// What is known of a host.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    /// From where its system can be looked at.
    pub sight: Sight,
    /// Its facts, and from where they are.
    pub facts: Option<KnownHost>,
    /// Its cards, and the code of its libtorch.
    pub gpus: Option<HostGpus>,
}

impl Knowledge {
    /// Of a host of the cluster file that is seen like this.
    pub fn of(sight: Sight, facts: Option<&KnownHost>, gpus: Option<&HostGpus>) -> Self {
        // What this machine says of itself holds for no system behind a runner.
        let holds = |known: &&KnownHost| known.origin != Origin::Probed || sight.is_this_machine();
        let facts = facts.filter(holds).cloned();
        Self { sight, facts, gpus: gpus.cloned() }
    }

    /// From where its facts are, in words.
    fn source(&self) -> String {
        match self.facts.as_ref().map(|known| &known.origin) {
            Some(Origin::Saved { file, age_days: Some(days) }) => match days {
                0 => format!("`{file}`, of today"),
                1 => format!("`{file}`, 1 day old"),
                days => format!("`{file}`, {days} days old"),
            },
            Some(Origin::Saved { file, age_days: None }) => format!("`{file}`, of a time to come"),
            Some(Origin::Probed) => "as this machine says".to_owned(),
            None => "nothing is known of it".to_owned(),
        }
    }
}

/// What is verified together: the hosts of one run.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// In the plan's order.
    pub hosts: Vec<Built>,
    /// Findings that are accepted.
    pub accept: Vec<Accept>,
    /// What the plan has told.
    pub told: Vec<Finding>,
}

/// What was found of one host.
#[derive(Clone, Debug)]
pub struct Looked {
    /// What its loader would do; none for a program that cannot be read.
    pub inspection: Option<Arc<Inspection>>,
    /// Every check.
    pub checks: Vec<Check>,
    /// What is wrong or doubtful; what was accepted is a warning.
    pub findings: Vec<Finding>,
}

/// What was found of all of them.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// In the order of the question.
    pub hosts: Vec<Looked>,
    /// Checks of the run as a whole.
    pub run: Vec<Check>,
    /// What is wrong with the run as a whole.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Verified {
    /// All findings: those of the hosts, then those of the run.
    pub fn findings(&self) -> Vec<Finding> {
        self.hosts.iter().flat_map(|host| &host.findings).chain(&self.findings).cloned().collect()
    }
}

/// What came of looking at a binary; a finding where it cannot be looked at.
type Seen = Result<Arc<Inspection>, Box<Finding>>;

/// Looks at everything.
pub fn verify(question: &Question, digests: &mut DigestCache) -> Verified {
    let clock = Clock::start();
    let started = clock.now();
    let here = HostLibraries::of_this_host();
    // Hosts with the same bytes and the same path would load the same: one look serves them all.
    let mut seen: BTreeMap<(&str, &str, &Utf8Path, String), (Seen, &Built)> = BTreeMap::new();
    let mut gpu_code = GpuCode::default();
    let mut verified = Verified::default();
    for built in &question.hosts {
        if let Some(finding) = missing(built) {
            verified.hosts.push(host::unreadable(finding));
            continue;
        }
        let path = built.host.ld_library_path.as_str();
        let key = (built.bytes.as_str(), path, built.cwd.as_path(), built.known.sight.key());
        let (inspection, looked_at) = seen.entry(key).or_insert_with(|| (inspect(built, &here, digests), built));
        let looked = match inspection {
            Ok(inspection) => {
                let look = host::Look { built, looked_at, inspection, here: &here, question };
                look.checks(&mut gpu_code, digests)
            }
            Err(finding) => host::unreadable(named(finding, built, looked_at)),
        };
        verified.hosts.push(looked);
    }
    run::check(question, &mut verified);
    verified.elapsed = clock.now().since(started);
    verified
}

/// Why the binary is none, if its file alone says so.
fn missing(built: &Built) -> Option<Finding> {
    let place = Place::file(built.place.as_str()).on(&built.host.name);
    let finding = not_startable(built.file.as_std_path(), &place)?;
    Some(named(&finding, built, built))
}

/// The `lib` folder of the host's libtorch.
fn variant_lib(built: &Built) -> Option<Utf8PathBuf> {
    built.host.libtorch.as_ref().map(|libtorch| libtorch.root.join("lib"))
}

fn inspect(built: &Built, here: &HostLibraries, digests: &mut DigestCache) -> Seen {
    let variant_lib = variant_lib(built);
    let whole = LibraryPath::parse(built.host.ld_library_path.as_ref());
    let (library_path, system) = match built.known.sight.system(here) {
        Some(system) => (whole, Cow::Borrowed(system)),
        // What this machine has in the other folders says nothing of the host.
        None => {
            let of_variant =
                |folder: &&std::path::PathBuf| variant_lib.as_ref().is_some_and(|lib| *folder == lib.as_std_path());
            let facts = built.known.facts.as_ref().map(|known| &known.facts);
            let system = HostLibraries {
                arch: facts.map(|facts| facts.cpu.arch.clone()).unwrap_or_default(),
                hwcaps: facts.map(|facts| facts.loader.hwcaps.clone()).unwrap_or_default(),
                ..HostLibraries::default()
            };
            (LibraryPath::of(whole.elements().iter().filter(of_variant).cloned()), Cow::Owned(system))
        }
    };
    let question = ArtifactQuestion {
        binary: built.file.as_std_path(),
        library_path: &library_path,
        variant_lib: variant_lib.as_deref().map(|lib| -> &Path { lib.as_std_path() }),
        cwd: built.cwd.as_std_path(),
        is_elsewhere: !built.known.sight.is_seen(),
    };
    inspect_artifact(question, &system, digests).map(Arc::new).map_err(|error| Box::new(unusable(&error, built)))
}

fn unusable(error: &InspectError, built: &Built) -> Finding {
    let mut message = format!("the binary of host `{}` cannot be verified", built.host.name);
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    let place = Place::file(built.file.as_str()).on(&built.host.name);
    Finding::error(code::PROGRAM_UNUSABLE, place, message)
        .remedy("see that the program and its libraries are whole and can be read; then build again")
}

/// `` `a`, `b` and 3 more ``, when there are more than `most`.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let text = names.take(most).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// A finding with its host, and with the binary called by the place that people know.
fn named(finding: &Finding, built: &Built, looked_at: &Built) -> Finding {
    let rename = |text: &str| text.replace(looked_at.file.as_str(), built.place.as_str());
    let mut own = finding.clone();
    own.place.host = Some(built.host.name.clone());
    own.place.file = own.place.file.map(|file| rename(&file));
    own.message = rename(&own.message);
    own.remedy = own.remedy.map(|remedy| rename(&remedy));
    own
}
