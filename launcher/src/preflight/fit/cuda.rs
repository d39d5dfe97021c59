//! What of NVIDIA's code runs on which of its cards.
//!
//! Sources: NVIDIA's *CUDA C++ Programming Guide*, "Binary Compatibility" and "PTX Compatibility" (machine code runs on
//! later cards of the same major version, never on earlier ones; PTX compiles for the same and later ones), and
//! "Family-Specific" and "Architecture-Specific Features" (`sm_100f` for 10.0 and 10.3, `sm_103f` for 10.3, `sm_120f` for
//! 12.0 and 12.1; `a` for one alone).
//!
//! **Tegra.** The guide says: "Binary compatibility is supported only for the desktop. It is not supported for Tegra. Also,
//! the binary compatibility between desktop and Tegra is not supported." So code for 8.0 does not run on an Orin (8.7),
//! and code for an Orin runs nowhere else, though both are 8.x. PyTorch has the same exceptions
//! (`DEVICE_REQUIREMENT` in `torch/cuda/__init__.py` from 2.10 on). PTX is not bound so: a Tegra's driver compiles it.

use torchlift_schema::gpu::{Capability, CudaArch, Specificity};

/// Capabilities of Tegra, whose machine code is its own: TX1, TX2, Xavier, Orin.
pub const TEGRA: [Capability; 4] = [capability(5, 3), capability(6, 2), capability(7, 2), capability(8, 7)];

/// What Thor was called before CUDA 13, and what it is called since: the same card, and the same code.
const RENAMED: (Capability, Capability) = (capability(10, 1), capability(11, 0));

const fn capability(major: u8, minor: u8) -> Capability {
    Capability { major, minor }
}

/// Whether a card runs this machine code as it is.
pub fn is_native(code: CudaArch, card: Capability) -> bool {
    let (made_for, card) = (today(code.capability), today(card));
    match code.specificity {
        Specificity::Arch => made_for == card,
        Specificity::Family => is_later_of_the_same_major(made_for, card),
        Specificity::Plain if TEGRA.contains(&made_for) || TEGRA.contains(&card) => made_for == card,
        Specificity::Plain => is_later_of_the_same_major(made_for, card),
    }
}

/// Whether a driver that is new enough compiles this PTX for a card.
pub fn is_compilable(code: CudaArch, card: Capability) -> bool {
    let (made_for, card) = (today(code.capability), today(card));
    match code.specificity {
        Specificity::Arch => made_for == card,
        Specificity::Family => is_later_of_the_same_major(made_for, card),
        Specificity::Plain => made_for <= card,
    }
}

fn is_later_of_the_same_major(made_for: Capability, card: Capability) -> bool {
    made_for.major == card.major && made_for.minor <= card.minor
}

fn today(capability: Capability) -> Capability {
    let (before, since) = RENAMED;
    if capability == before { since } else { capability }
}
