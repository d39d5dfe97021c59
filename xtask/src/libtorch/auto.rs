//! `libtorch = "auto"`: of the variants that are there, the one that fits the hosts of a kind best, and why.
//!
//! Pure: from what the hosts have and what the variants are to one of them with its reason in words, or to what each of
//! them lacks. Owns the order of preference. What runs where is [`torchlift::preflight::fit`]'s to say; must not look for
//! variants, and must not get one.

mod machine;
mod refusal;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::fmt::Write as _;

use torchlift::preflight::elf::Version;
use torchlift::preflight::fatbin::GpuContent;
use torchlift::preflight::fit::{LibraryCode, Role};
use torchlift_schema::Accelerator;
use torchlift_schema::gpu::ToolkitVersion;

pub use machine::{Gpus, Libc, Machine, archs};
pub use refusal::{Refusal, Refused};

use super::event::human_size;
use super::inspect::public_version;
use machine::Served;

/// What a libtorch has to do.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// The torch version, without a local part; none takes any.
    pub version: Option<&'a str>,
    /// As in a target triple.
    pub cpu_arch: &'a str,
    /// The hosts of the kind: all of them have to be served.
    pub machines: &'a [Machine],
}

/// A variant that may be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// How it is called: its id, or its folder.
    pub name: String,
    /// Torch version.
    pub version: String,
    /// What it computes on.
    pub accelerator: Accelerator,
    /// As in a target triple.
    pub cpu_arch: String,
    /// GPU code by library; those without any are left out.
    pub gpu_code: Vec<(String, GpuContent)>,
    /// The newest glibc that one of its libraries needs; none where that was not read.
    pub glibc: Option<Version>,
    /// Bytes of all its libraries.
    pub size: u64,
}

impl Candidate {
    /// The toolkit that made its GPU code; none for CPUs and where it is not known.
    pub fn toolkit(&self) -> Option<ToolkitVersion> {
        match &self.accelerator {
            Accelerator::Cuda(version) | Accelerator::Rocm(version) => version.parse().ok(),
            _ => None,
        }
    }

    /// Its libraries as fit looks at them.
    pub fn libraries(&self) -> Vec<LibraryCode<'_>> {
        let toolkit = self.toolkit();
        let library = |(name, content)| LibraryCode { name, role: Role::of_library(name, true), content, toolkit };
        self.gpu_code.iter().map(|(name, content): &(String, GpuContent)| library((name.as_str(), content))).collect()
    }
}

/// The variant to take.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Chosen {
    /// Its place in the list of candidates.
    #[serde(skip)]
    pub index: usize,
    /// Why, as a fragment for people.
    pub reason: String,
    /// The others of the wanted version and CPU that were not, with what they lack; those that would do are not among them.
    pub refused: Vec<Refused>,
}

/// No variant does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoneFits {
    /// What the hosts have, one line each.
    pub machines: Vec<String>,
    /// Every candidate with why it is refused, in their order.
    pub refused: Vec<Refused>,
}

/// Chooses.
///
/// # Errors
/// With what every host has and why every candidate is refused, when none does.
pub fn choose(wish: &Wish<'_>, candidates: &[Candidate]) -> Result<Chosen, NoneFits> {
    let mut fitting = Vec::new();
    let mut refused = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        match judge(wish, candidate) {
            Ok(rank) => fitting.push((rank, index)),
            Err(reasons) => refused.push(Refused { variant: candidate.name.clone(), reasons }),
        }
    }
    fitting.sort_by_key(|(rank, index)| (Reverse(rank.clone()), *index));
    let Some((best, index)) = fitting.first() else {
        return Err(NoneFits { machines: wish.machines.iter().map(ToString::to_string).collect(), refused });
    };
    let next = fitting.get(1).map(|(rank, index)| (rank, &candidates[*index]));
    let reason =
        reason(wish, best, &candidates[*index], next, Numbers { fitting: fitting.len(), all: candidates.len() });
    // That a variant of another version or CPU was not taken surprises nobody once another one was.
    refused.retain(|refused| !refused.reasons.iter().any(Refusal::is_of_another_kind));
    Ok(Chosen { index: *index, reason, refused })
}

/// What makes one variant better than another: the greater is the better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// How the cards are served, by the one that is served worst.
    served: Served,
    /// Where both vendors' cards are there, NVIDIA's go first: beside one, AMD's is mostly the processor's own.
    is_cuda: bool,
    /// The toolkit; none sorts before any.
    toolkit: Option<ToolkitVersion>,
    /// Bytes.
    size: Reverse<u64>,
}

/// How good a candidate is, or all that keeps it from being any good.
fn judge(wish: &Wish<'_>, candidate: &Candidate) -> Result<Rank, Vec<Refusal>> {
    let mut reasons = Vec::new();
    if let Some(wanted) = wish.version.filter(|wanted| *wanted != public_version(&candidate.version)) {
        reasons.push(Refusal::Version { found: candidate.version.clone(), wanted: wanted.to_owned() });
    }
    if candidate.cpu_arch != wish.cpu_arch {
        reasons.push(Refusal::Arch { found: candidate.cpu_arch.clone(), wanted: wish.cpu_arch.to_owned() });
    }
    if !reasons.is_empty() {
        // Whether its GPU code would do says nothing then.
        return Err(reasons);
    }
    let mut everywhere = Vec::new();
    for machine in wish.machines {
        match machine.served_by(candidate) {
            Ok(here) => everywhere.push(here),
            Err(found) => reasons.extend(found.into_iter().filter(|new| !reasons.contains(new)).collect::<Vec<_>>()),
        }
    }
    if reasons.is_empty() {
        // A host without a GPU says nothing of how those with one are served.
        let with_gpu = everywhere.iter().filter(|here| **here != Served::Idle).min();
        let served = with_gpu.or(everywhere.first()).copied().unwrap_or(Served::Native);
        let is_cuda = matches!(candidate.accelerator, Accelerator::Cuda(_)) && served >= Served::Ptx;
        Ok(Rank { served, is_cuda, toolkit: candidate.toolkit(), size: Reverse(candidate.size) })
    } else {
        Err(reasons)
    }
}

/// How many variants there are.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    fitting: usize,
    all: usize,
}

/// Why the best is taken, and not the next.
fn reason(wish: &Wish<'_>, best: &Rank, chosen: &Candidate, next: Option<(&Rank, &Candidate)>, of: Numbers) -> String {
    let fitting = of.fitting;
    let cards = machine::cards(wish.machines, &chosen.accelerator);
    let mut text = match best.served {
        Served::Native if cards.is_empty() => "no GPU is there to serve".to_owned(),
        Served::Native => format!("runs natively on {cards}"),
        Served::Ptx => format!("runs on {cards}, from PTX that is compiled on first use"),
        Served::Preferred => "what GPUs the hosts have is not known, and this suits what this machine has".to_owned(),
        Served::Unknown => "what GPUs the hosts have is not known".to_owned(),
        Served::Idle => "no GPU is there to serve, and no variant is for CPUs alone".to_owned(),
    };
    let is_cuda = matches!(chosen.accelerator, Accelerator::Cuda(_));
    if is_cuda && wish.machines.iter().any(Machine::has_cards_of_unknown_driver) {
        text.push_str(" (the driver is not known)");
    }
    let Some((other, next)) = next else {
        if of.all > 1 {
            text.push_str("; no other one does");
        }
        return text;
    };
    let than = format!("`{}`", next.name);
    let _ = if best.served != other.served {
        write!(text, "; the next, {than}, {}", other.served.in_words())
    } else if best.is_cuda != other.is_cuda {
        write!(text, "; the next, {than}, is for the other vendor's cards")
    } else if best.toolkit != other.toolkit {
        let (own, theirs) = (toolkit(chosen), toolkit(next));
        write!(text, "; of {fitting} that do it has the newest toolkit ({own}; the next, {than}, has {theirs})")
    } else if best.size != other.size {
        let (own, theirs) = (human_size(chosen.size), human_size(next.size));
        write!(text, "; of {fitting} that do alike it is the smallest ({own}; the next, {than}, has {theirs})")
    } else {
        write!(text, "; {than} does as well, and is found after it")
    };
    text
}

fn toolkit(candidate: &Candidate) -> String {
    match &candidate.accelerator {
        Accelerator::Cuda(version) if !version.is_empty() => format!("CUDA {version}"),
        Accelerator::Rocm(version) if !version.is_empty() => format!("ROCm {version}"),
        Accelerator::Cuda(_) => "CUDA".to_owned(),
        Accelerator::Rocm(_) => "ROCm".to_owned(),
        _ => "none".to_owned(),
    }
}
