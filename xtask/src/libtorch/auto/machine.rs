//! One host of a kind, as far as choosing a libtorch is about it.

use std::collections::BTreeSet;
use std::fmt;

use torchlift::preflight::elf::Version;
use torchlift::preflight::fit::{self, Card, Device, Driver, Isa, Level};
use torchlift_schema::gpu::Capability;
use torchlift_schema::{Accelerator, Place};

use super::{Candidate, Refusal};

/// The GPUs of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// These are chosen; empty: it has none.
    Known(Vec<Device>),
    /// Nobody looked, and the cluster file does not say.
    Unknown {
        /// Whether a variant for NVIDIA's GPUs is the likelier one.
        prefers_cuda: bool,
    },
}

/// The C library of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Libc {
    /// The GNU C library, of this version.
    Glibc(Version),
    /// musl.
    Musl,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its name in the cluster file.
    pub name: String,
    /// Its GPUs.
    pub gpus: Gpus,
    /// NVIDIA's driver; none where nothing is known of it.
    pub driver: Option<Driver>,
    /// `HSA_OVERRIDE_GFX_VERSION` as its ranks have it.
    pub gfx_override: Option<String>,
    /// Its C library; none where that is not known.
    pub libc: Option<Libc>,
}

/// How a host is served by a variant that would do; the greater is the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Served {
    /// The variant is for GPUs, and the host has none: it computes on its CPU.
    Idle,
    /// What GPUs the host has is not known.
    Unknown,
    /// The same, and the variant is of the likelier sort.
    Preferred,
    /// Its GPUs compile the code first.
    Ptx,
    /// As it is.
    Native,
}

impl Served {
    /// What the next best does, behind its name.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::Idle => "has code for GPUs that are not there",
            Self::Unknown => "suits this machine less",
            Self::Preferred => "suits what this machine has",
            Self::Ptx => "has PTX alone for a card, which is compiled on first use",
            Self::Native => "runs natively",
        }
    }
}

impl Machine {
    /// A host of which only its name is known.
    pub fn unknown(name: impl Into<String>, prefers_cuda: bool) -> Self {
        Self { name: name.into(), gpus: Gpus::Unknown { prefers_cuda }, driver: None, gfx_override: None, libc: None }
    }

    /// The capabilities of its cards of NVIDIA; none where they are not known.
    pub fn capabilities(&self) -> impl Iterator<Item = Capability> + '_ {
        self.devices().iter().filter_map(|device| match device.isa {
            Isa::Cuda(capability) => Some(capability),
            Isa::Gfx(_) => None,
        })
    }

    /// Whether it has cards of NVIDIA, and nothing is known of their driver.
    pub(super) fn has_cards_of_unknown_driver(&self) -> bool {
        self.driver.is_none() && self.capabilities().next().is_some()
    }

    /// What it has, in words, without its name: `GPU 0 (`NVIDIA H100`, capability 9.0), driver 550.54.14, glibc 2.36`.
    pub fn equipment(&self) -> impl fmt::Display + '_ {
        Equipment(self)
    }

    fn devices(&self) -> &[Device] {
        match &self.gpus {
            Gpus::Known(devices) => devices,
            Gpus::Unknown { .. } => &[],
        }
    }

    /// How a variant serves it, or all that is in the way.
    pub(super) fn served_by(&self, variant: &Candidate) -> Result<Served, Vec<Refusal>> {
        let mut reasons = Vec::new();
        match (&self.libc, &variant.glibc) {
            (Some(Libc::Musl), _) => reasons.push(Refusal::Musl { host: self.name.clone() }),
            (Some(Libc::Glibc(has)), Some(needs)) if has < needs => {
                let (has, needs) = (has.to_string(), needs.to_string());
                reasons.push(Refusal::Glibc { host: self.name.clone(), has, needs });
            }
            _ => {}
        }
        let is_cpu = variant.accelerator == Accelerator::Cpu;
        let served = match &self.gpus {
            Gpus::Unknown { prefers_cuda } => {
                let is_cuda = matches!(variant.accelerator, Accelerator::Cuda(_));
                let is_preferred = if *prefers_cuda { is_cuda } else { is_cpu };
                if is_preferred { Served::Preferred } else { Served::Unknown }
            }
            Gpus::Known(devices) if devices.is_empty() && is_cpu => Served::Native,
            Gpus::Known(devices) if devices.is_empty() => Served::Idle,
            Gpus::Known(devices) => match self.cards_served(variant, devices) {
                Ok(served) => served,
                Err(found) => {
                    reasons.extend(found);
                    Served::Idle
                }
            },
        };
        if reasons.is_empty() { Ok(served) } else { Err(reasons) }
    }

    /// How a variant serves the cards that this host has.
    fn cards_served(&self, variant: &Candidate, devices: &[Device]) -> Result<Served, Vec<Refusal>> {
        let (vendor, is_cuda) = match variant.accelerator {
            Accelerator::Cuda(_) => ("NVIDIA", true),
            Accelerator::Rocm(_) => ("AMD", false),
            _ => return Err(vec![Refusal::ForCpus { host: self.name.clone() }]),
        };
        let own: Vec<Device> = devices.iter().filter(|device| device.is_cuda() == is_cuda).cloned().collect();
        if own.is_empty() {
            return Err(vec![Refusal::NoCard { host: self.name.clone(), vendor }]);
        }
        let libraries = variant.libraries();
        if libraries.is_empty() {
            return Err(vec![Refusal::NoCode]);
        }
        let verdict = fit::check(&fit::Question {
            place: Place::host(&self.name),
            devices: &own,
            driver: self.driver.as_ref(),
            gfx_override: self.gfx_override.as_deref(),
            libraries: &libraries,
        });
        let errors = verdict.findings.iter().filter(|finding| finding.is_error());
        let reasons: Vec<Refusal> = errors
            .map(|finding| Refusal::Cards { host: self.name.clone(), message: finding.message.clone() })
            .collect();
        match (reasons.is_empty(), verdict.level()) {
            (true, Level::Native) => Ok(Served::Native),
            (true, Level::Ptx) => Ok(Served::Ptx),
            _ => Err(reasons),
        }
    }
}

/// The capabilities of the hosts' cards as `TORCH_CUDA_ARCH_LIST` takes them, such as `6.1;12.0`; empty where none of
/// NVIDIA's is known.
pub fn archs(machines: &[Machine]) -> String {
    let capabilities: BTreeSet<Capability> = machines.iter().flat_map(Machine::capabilities).collect();
    capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(";")
}

/// The cards of all hosts that this accelerator is for, each sort once: `capability 6.1 and capability 8.6`.
pub(super) fn cards(machines: &[Machine], accelerator: &Accelerator) -> String {
    let is_own = |isa: &Isa| match accelerator {
        Accelerator::Cuda(_) => matches!(isa, Isa::Cuda(_)),
        Accelerator::Rocm(_) => matches!(isa, Isa::Gfx(_)),
        _ => false,
    };
    let sorts: BTreeSet<Isa> =
        machines.iter().flat_map(Machine::devices).map(|device| device.isa).filter(is_own).collect();
    let texts: Vec<String> = sorts.iter().map(ToString::to_string).collect();
    texts.join(" and ")
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host `{}`: {}", self.name, self.equipment())
    }
}

/// What a host has, in words.
struct Equipment<'a>(&'a Machine);

impl fmt::Display for Equipment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(machine) = self;
        match &machine.gpus {
            Gpus::Unknown { .. } => f.write_str("its GPUs are not known")?,
            Gpus::Known(devices) if devices.is_empty() => f.write_str("no GPU")?,
            Gpus::Known(devices) if devices.iter().all(|device| device.card == Card::Stated) => {
                let texts: Vec<String> = devices.iter().map(|device| device.isa.to_string()).collect();
                write!(f, "GPUs of {} (as `gpus` states)", texts.join(", "))?;
            }
            Gpus::Known(devices) => {
                let texts: Vec<String> = devices.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(", "))?;
            }
        }
        if let Some(version) = machine.driver.as_ref().and_then(|driver| driver.version) {
            write!(f, ", driver {version}")?;
        }
        match &machine.libc {
            Some(Libc::Glibc(version)) => write!(f, ", glibc {version}"),
            Some(Libc::Musl) => f.write_str(", musl"),
            None => Ok(()),
        }
    }
}
