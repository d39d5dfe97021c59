//! Cards of a host, and the drivers that serve them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gpu::{Capability, GfxTarget, ToolkitVersion};
use crate::rule;

/// The NVIDIA driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct NvidiaDriver {
    /// The kernel's part, such as `550.54.14`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::SYMBOL_VERSION))]
    pub version: Option<String>,
    /// The newest CUDA that it serves without a compatibility package, such as `12.4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<ToolkitVersion>,
    /// Compatibility packages (`cuda-compat`) that were found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compat: Vec<CudaCompat>,
    /// Whether this is a Tegra, whose driver comes with its board support and not with a version of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_tegra: bool,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

/// A `libcuda` for a newer CUDA than the driver's own, which a program uses when its folder is in the library path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct CudaCompat {
    /// Its folder.
    #[schemars(regex(pattern = rule::TEXT))]
    pub folder: String,
    /// The driver that it stands for, such as `550.54.14`.
    #[schemars(regex(pattern = rule::SYMBOL_VERSION))]
    pub driver: String,
    /// Whether the loader of the environment that this was read in would take it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_loaded: bool,
}

impl CudaCompat {
    /// A package in this folder.
    pub fn new(folder: impl Into<String>, driver: impl Into<String>, is_loaded: bool) -> Self {
        Self { folder: folder.into(), driver: driver.into(), is_loaded }
    }
}

/// The AMD driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct AmdDriver {
    /// The kernel module's version, such as `6.8.5`; the one that comes with the kernel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub version: Option<String>,
    /// The ROCm that is installed, such as `6.3.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub rocm: Option<String>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

/// Who made a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
}

/// One card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Gpu {
    /// Who made it.
    pub vendor: Vendor,
    /// Its index among its vendor's cards, as `devices` and `*_VISIBLE_DEVICES` count: NVIDIA's in PCI order.
    #[schemars(range(max = u32::MAX))]
    pub index: u32,
    /// What it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub name: Option<String>,
    /// An NVIDIA card's compute capability, such as `8.6`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<Capability>,
    /// An AMD card's instruction set, such as `gfx90a`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gfx: Option<GfxTarget>,
    /// Its memory in bytes; on a Tegra, the memory that it shares with the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = rule::MAX_SIZE))]
    pub memory: Option<u64>,
    /// Its UUID as the vendor's tools write it: `GPU-…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub uuid: Option<String>,
    /// Its place on the bus, such as `0000:65:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::PCI_ADDRESS))]
    pub pci: Option<String>,
    /// Whether it is divided (MIG); none where that is not known or it cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
    /// Where it was read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = rule::TEXT)))]
    pub from: Vec<String>,
}

impl Gpu {
    /// A card of which nothing else is known.
    pub fn new(vendor: Vendor, index: u32) -> Self {
        Self {
            vendor,
            index,
            name: None,
            capability: None,
            gfx: None,
            memory: None,
            uuid: None,
            pci: None,
            mig: None,
            from: Vec::new(),
        }
    }
}

/// How a card is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Mig {
    /// Whether it is: a program then sees its parts and not the card.
    pub enabled: bool,
    /// Its parts, in the driver's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<MigDevice>,
}

impl Mig {
    /// A card in this mode, with these parts.
    pub fn new(enabled: bool, devices: Vec<MigDevice>) -> Self {
        Self { enabled, devices }
    }
}

/// One part of a divided card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct MigDevice {
    /// Its UUID: `MIG-…`.
    #[schemars(regex(pattern = rule::TEXT))]
    pub uuid: String,
    /// What it calls itself, such as `1g.10gb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = rule::TEXT))]
    pub name: Option<String>,
    /// Its memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = rule::MAX_SIZE))]
    pub memory: Option<u64>,
}

impl MigDevice {
    /// A part.
    pub fn new(uuid: impl Into<String>, name: Option<String>, memory: Option<u64>) -> Self {
        Self { uuid: uuid.into(), name, memory }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_false(value: &bool) -> bool {
    !value
}
