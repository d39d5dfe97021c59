//! A card, as far as fit is about it.

use std::fmt;

use torchlift_schema::gpu::{Capability, GfxTarget};

/// What a card computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// One of NVIDIA's.
    Cuda(Capability),
    /// One of AMD's.
    Gfx(GfxTarget),
}

/// Which card it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Card {
    /// One that was found on the host.
    Found {
        /// Its index in the order in which `devices` counts.
        index: u32,
        /// Its UUID, where the driver states one.
        uuid: Option<String>,
        /// What it calls itself.
        name: Option<String>,
    },
    /// One that the cluster file states with `gpus`; no card of the host was looked at.
    Stated,
}

/// A card and what it computes with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Which one.
    pub card: Card,
    /// What it computes with.
    pub isa: Isa,
}

impl Device {
    /// A card that `gpus` of a kind states.
    pub fn stated(isa: Isa) -> Self {
        Self { card: Card::Stated, isa }
    }

    /// A card that was found on the host.
    pub fn found(index: u32, name: Option<&str>, uuid: Option<&str>, isa: Isa) -> Self {
        let card = Card::Found { index, uuid: uuid.map(str::to_owned), name: name.map(str::to_owned) };
        Self { card, isa }
    }

    /// Whether one of NVIDIA's.
    pub fn is_cuda(&self) -> bool {
        matches!(self.isa, Isa::Cuda(_))
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(capability) => write!(f, "capability {capability}"),
            Self::Gfx(target) => write!(f, "{target}"),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.card {
            Card::Stated => write!(f, "a GPU of {} (as `gpus` states)", self.isa),
            Card::Found { index, uuid, name } => {
                write!(f, "GPU {index} (")?;
                for text in [name, uuid].into_iter().flatten() {
                    write!(f, "`{text}`, ")?;
                }
                write!(f, "{})", self.isa)
            }
        }
    }
}
