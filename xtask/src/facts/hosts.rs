//! What is known of each host: from `cluster.facts.json`, and for this machine by asking it.
//!
//! Owns where a host's facts come from, how old they may be without a word, and which of its cards are chosen.
//! A host of which nothing is known has none: what needs them says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::clock;
use torchlift::commands::probe::of_this_machine;
use torchlift::plan::days_since;
use torchlift::preflight::Runner;
use torchlift::preflight::host::saved;
use torchlift_schema::gpu::Capability;
use torchlift_schema::host::{Gpu, Vendor};
use torchlift_schema::{Accelerator, ClusterFacts, Finding, HostFacts, Place};

use crate::cluster::{Cluster, Device, Host, Reach};
use crate::commands::Context;
use crate::toolchain::Env;

/// Days after which saved facts are told to be old: drivers and distributions are updated some times a year.
pub const OLD_DAYS: u64 = 90;
/// How far a host's clock may run before this machine's without a word: what keeps clocks together keeps them much closer, and a
/// host that nothing keeps is minutes off.
const CLOCKS_APART: Duration = Duration::from_secs(60 * 60);
/// Hosts with old facts that are named; more are counted.
const MOST_NAMED: usize = 8;

/// From where a host's facts are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From this file, read on the host that many days ago; none where the clocks do not agree.
    Saved {
        /// The file.
        file: Utf8PathBuf,
        /// Whole days since they were read.
        age_days: Option<u64>,
    },
    /// Read just now: it is this machine.
    Probed,
}

/// A host's facts, and which of its cards are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHost {
    /// The facts.
    pub facts: HostFacts,
    /// From where they are.
    pub origin: Origin,
    /// The cards that `devices` chooses, of either maker, in its order; all of them where it names none.
    chosen: Vec<Gpu>,
}

impl KnownHost {
    /// These facts, with the cards that `devices` chooses.
    pub fn new(facts: HostFacts, origin: Origin, devices: &[Device]) -> Self {
        let chosen = choose(&facts, devices);
        Self { facts, origin, chosen }
    }

    /// The chosen cards of either maker.
    pub fn cards(&self) -> impl Iterator<Item = &Gpu> {
        self.chosen.iter()
    }

    /// The chosen cards that a libtorch computes on: NVIDIA's for CUDA, AMD's for ROCm, none for CPUs.
    pub fn cards_for(&self, accelerator: &Accelerator) -> Vec<&Gpu> {
        let vendor = vendor(accelerator);
        self.chosen.iter().filter(|gpu| Some(gpu.vendor) == vendor).collect()
    }
}

/// Whether programs of another CPU are run on this machine for it.
fn is_emulated(cluster: &Cluster, host: &Host) -> bool {
    matches!(Runner::of(cluster.runner_of(host), |_| None), Runner::Qemu { .. })
}

/// Whose cards a libtorch computes on.
fn vendor(accelerator: &Accelerator) -> Option<Vendor> {
    match accelerator {
        Accelerator::Cuda(_) => Some(Vendor::Nvidia),
        Accelerator::Rocm(_) => Some(Vendor::Amd),
        _ => None,
    }
}

/// What is known of the hosts of a cluster.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    by_name: BTreeMap<String, KnownHost>,
}

impl KnownHosts {
    /// What is known of the hosts of `cluster`, with what is wrong or old about the file that keeps it.
    ///
    /// `chosen` are the hosts that a command is about: only theirs is told. This machine is asked once, and only where one
    /// of the cluster's local hosts has no entry.
    pub fn read(cluster: &Cluster, chosen: &[&Host], context: &Context, env: &Env) -> (Self, Vec<Finding>) {
        let file = file(&cluster.file);
        let shown = file.strip_prefix(&context.cwd).unwrap_or(&file).to_owned();
        let (saved, mut findings) = match saved::read(file.as_std_path()) {
            Ok(saved) => (saved.unwrap_or_default(), Vec::new()),
            Err(error) => (ClusterFacts::default(), error.into_findings(shown.as_str())),
        };
        // A file that cannot be read is mended first: what this machine is would hide what it says.
        let is_asked = findings.is_empty();
        let here = OnceLock::new();
        let now = clock::wall();
        let mut known = Self::default();
        for host in &cluster.hosts {
            let found = match saved.hosts.get(&host.name) {
                Some(facts) => {
                    let age_days = age_days(&facts.read_at, now);
                    Some((facts.clone(), Origin::Saved { file: shown.clone(), age_days }))
                }
                // What is emulated here has not what this machine has.
                None if host.reach == Reach::Local && is_asked && !is_emulated(cluster, host) => {
                    let facts: &HostFacts = here.get_or_init(|| ask(cluster, context, env));
                    Some((facts.clone(), Origin::Probed))
                }
                None => None,
            };
            if let Some((facts, origin)) = found {
                known.by_name.insert(host.name.clone(), KnownHost::new(facts, origin, &host.devices));
            }
        }
        findings.extend(known.old(chosen, &shown));
        (known, findings)
    }

    /// What is known of one host; none where nothing is.
    pub fn get(&self, host: &str) -> Option<&KnownHost> {
        self.by_name.get(host)
    }

    /// Adds what is known of a host.
    pub fn insert(&mut self, host: impl Into<String>, known: KnownHost) {
        self.by_name.insert(host.into(), known);
    }

    /// The capabilities of NVIDIA's chosen cards of all hosts of a kind, sorted, each once; of those too that a command
    /// leaves out, so that a build does not change with `--host`.
    pub fn capabilities(&self, cluster: &Cluster, kind: usize) -> Vec<Capability> {
        let hosts = cluster.hosts.iter().filter(|host| host.kind == kind);
        let cards = hosts.filter_map(|host| self.get(&host.name)).flat_map(KnownHost::cards);
        let capabilities: BTreeSet<Capability> = cards.filter_map(|card| card.capability).collect();
        capabilities.into_iter().collect()
    }

    /// What `devices` of a host names that the host has not; for a libtorch that computes on cards.
    pub fn unknown_devices(&self, cluster: &Cluster, host: &Host, accelerator: &Accelerator) -> Vec<Finding> {
        let (Some(known), Some(vendor)) = (self.get(&host.name), vendor(accelerator)) else { return Vec::new() };
        let there: Vec<String> = known.facts.cards(vendor).map(named).collect();
        let is_missing = |device: &Device| matching(&known.facts, device).iter().all(|card| card.vendor != vendor);
        let missing = host.devices.iter().enumerate().filter(|(_, device)| is_missing(device));
        missing
            .map(|(at, device)| {
                let text = match device {
                    Device::Index(index) => index.to_string(),
                    Device::Uuid(uuid) => uuid.clone(),
                };
                let place = cluster.or_file(host.places.at(&format!("devices[{at}]"))).on(&host.name);
                let message = if is_unclear(&known.facts, device) {
                    format!("more than one card of host `{}` begins with `{text}`", host.name)
                } else {
                    format!("host `{}` has no card `{text}`", host.name)
                };
                let remedy = match (there.is_empty(), &known.origin) {
                    (false, _) => format!("its cards: {}", there.join(", ")),
                    (true, Origin::Probed) => "it has no card at all; `torchlift probe` says what is wrong".to_owned(),
                    (true, Origin::Saved { .. }) => format!(
                        "by its facts it has no card at all; read them anew there: `torchlift probe --save --host {}`",
                        host.name
                    ),
                };
                Finding::error("device-unknown", place, message).remedy(remedy)
            })
            .collect()
    }

    /// One warning for all hosts whose facts are old.
    fn old(&self, chosen: &[&Host], file: &Utf8Path) -> Option<Finding> {
        let old: Vec<(&str, Option<u64>)> = chosen
            .iter()
            .filter_map(|host| match &self.get(&host.name)?.origin {
                Origin::Saved { age_days, .. } if age_days.is_none_or(|days| days > OLD_DAYS) => {
                    Some((host.name.as_str(), *age_days))
                }
                _ => None,
            })
            .collect();
        let (first, _) = old.first()?;
        let ages = old.iter().take(MOST_NAMED).map(|(name, days)| match days {
            Some(days) => format!("`{name}` {days} days"),
            None => format!("`{name}` of a time to come"),
        });
        let mut list = ages.collect::<Vec<_>>().join(", ");
        if old.len() > MOST_NAMED {
            list.push_str(&format!(" and {} more", old.len() - MOST_NAMED));
        }
        let remedy = format!("read them anew on each host: `torchlift probe --save --host {first}`");
        let message = format!("facts of hosts are older than {OLD_DAYS} days: {list}");
        Some(Finding::warning("host-facts-old", Place::file(file.as_str()), message).remedy(remedy))
    }
}

/// A card in a remedy: `0 (`NVIDIA H100`, `GPU-…`)`.
fn named(card: &Gpu) -> String {
    let known: Vec<String> = [&card.name, &card.uuid].into_iter().flatten().map(|text| format!("`{text}`")).collect();
    if known.is_empty() { card.index.to_string() } else { format!("{} ({})", card.index, known.join(", ")) }
}

/// Whole days since a time stamp; none for one of a time to come.
fn age_days(stamp: &str, now: Duration) -> Option<u64> {
    days_since(stamp, now).or_else(|| days_since(stamp, now + CLOCKS_APART))
}

/// The facts of `cluster.toml` are in `cluster.facts.json`.
fn file(cluster: &Utf8Path) -> Utf8PathBuf {
    cluster.with_extension("facts.json")
}

/// Asks this machine, with the environment that ranks get.
fn ask(cluster: &Cluster, context: &Context, env: &Env) -> HostFacts {
    of_this_machine(env, context.cwd.as_std_path(), cluster.folder().as_std_path())
}

/// The cards that `devices` chooses, in its order and each once.
fn choose(facts: &HostFacts, devices: &[Device]) -> Vec<Gpu> {
    if devices.is_empty() {
        return facts.gpus.clone();
    }
    let mut chosen: Vec<Gpu> = Vec::new();
    for gpu in devices.iter().flat_map(|device| matching(facts, device)) {
        if !chosen.contains(gpu) {
            chosen.push(gpu.clone());
        }
    }
    chosen
}

/// The cards that one element of `devices` means.
///
/// An index is one among each maker's cards: whose count is known with the libtorch. A part of a divided card means the
/// card that it is of. A UUID may be cut short, as long as one card alone begins with it.
fn matching<'a>(facts: &'a HostFacts, device: &Device) -> Vec<&'a Gpu> {
    if is_unclear(facts, device) { Vec::new() } else { meant(facts, device).collect() }
}

/// Whether a UUID is cut so short that several cards begin with it.
fn is_unclear(facts: &HostFacts, device: &Device) -> bool {
    matches!(device, Device::Uuid(_)) && meant(facts, device).nth(1).is_some()
}

fn meant<'a>(facts: &'a HostFacts, device: &Device) -> impl Iterator<Item = &'a Gpu> {
    facts.gpus.iter().filter(move |gpu| match device {
        Device::Index(index) => gpu.index == *index,
        Device::Uuid(uuid) => {
            let mut uuids = gpu.uuid.iter().chain(gpu.mig.iter().flat_map(|mig| &mig.devices).map(|part| &part.uuid));
            uuids.any(|whole| whole.starts_with(uuid.as_str()))
        }
    })
}

#[cfg(test)]
mod tests {
    use torchlift_schema::host::{CoreFacts, CpuFacts, Mig, MigDevice, SystemFacts};

    use super::*;

    fn facts(cards: &[(Vendor, u32, &str, &str)]) -> HostFacts {
        let (system, cores) = (SystemFacts::default(), CoreFacts::default());
        let mut facts = HostFacts::new("2026-01-01T00:00:00Z", "0.0.0", system, CpuFacts::new("x86_64"), cores);
        for (vendor, index, uuid, code) in cards {
            let mut card = Gpu::new(*vendor, *index);
            card.uuid = Some((*uuid).to_owned());
            match vendor {
                Vendor::Nvidia => card.capability = (*code).to_owned().try_into().ok(),
                Vendor::Amd => card.gfx = (*code).to_owned().try_into().ok(),
            }
            facts.gpus.push(card);
        }
        facts
    }

    fn cuda() -> Accelerator {
        Accelerator::Cuda("12.8".to_owned())
    }

    fn uuids(known: &KnownHost, accelerator: &Accelerator) -> Vec<String> {
        known.cards_for(accelerator).iter().map(|card| card.uuid.clone().unwrap()).collect()
    }

    const BOX: &[(Vendor, u32, &str, &str)] = &[
        (Vendor::Nvidia, 0, "GPU-aaaa1111", "12.0"),
        (Vendor::Nvidia, 1, "GPU-aaaa2222", "6.1"),
        (Vendor::Amd, 0, "GPU-bbbb3333", "gfx90a"),
    ];

    #[test]
    fn an_index_counts_the_cards_that_the_libtorch_computes_on() {
        let known = |devices: &[Device]| KnownHost::new(facts(BOX), Origin::Probed, devices);
        let rocm = Accelerator::Rocm("6.3".to_owned());
        assert_eq!(uuids(&known(&[]), &cuda()), ["GPU-aaaa1111", "GPU-aaaa2222"]);
        let first = known(&[Device::Index(0)]);
        assert_eq!(
            (uuids(&first, &cuda()), uuids(&first, &rocm)),
            (vec!["GPU-aaaa1111".to_owned()], vec!["GPU-bbbb3333".to_owned()])
        );
        assert_eq!(uuids(&known(&[Device::Index(1), Device::Index(0)]), &cuda()), ["GPU-aaaa2222", "GPU-aaaa1111"]);
        assert_eq!(uuids(&first, &Accelerator::Cpu), Vec::<String>::new());
    }

    #[test]
    fn a_uuid_may_be_cut_short_while_one_card_has_it_and_a_part_chooses_its_card() {
        let uuid = |text: &str| Device::Uuid(text.to_owned());
        let mut all = facts(BOX);
        all.gpus[1].mig = Some(Mig::new(true, vec![MigDevice::new("MIG-cccc4444", None, None)]));
        let known = |devices: &[Device]| KnownHost::new(all.clone(), Origin::Probed, devices);
        assert_eq!(uuids(&known(&[uuid("GPU-aaaa2")]), &cuda()), ["GPU-aaaa2222"]);
        assert_eq!(uuids(&known(&[uuid("MIG-cccc4444"), uuid("GPU-aaaa2222")]), &cuda()), ["GPU-aaaa2222"]);
        for wrong in ["GPU-aaaa", "GPU-ffff"] {
            assert_eq!(uuids(&known(&[uuid(wrong)]), &cuda()), Vec::<String>::new());
        }
    }

    #[test]
    fn a_clock_that_runs_a_little_before_ours_makes_no_facts_of_a_time_to_come() {
        // 2000-01-01T00:00:00Z.
        let now = Duration::from_secs(946_684_800);
        assert_eq!(age_days("1999-12-31T00:00:00Z", now), Some(1));
        assert_eq!(age_days("2000-01-01T00:59:59Z", now), Some(0));
        assert_eq!(age_days("2000-01-01T01:00:01Z", now), None);
        assert_eq!(age_days("no time", now), None);
    }
}
