//! The card of a Tegra (Jetson), which older systems have no library for: by the name of the chip in the device tree.

use torchlift_schema::gpu::Capability;
use torchlift_schema::host::{Gpu, NvidiaDriver, Vendor};

use crate::preflight::host::Roots;

const COMPATIBLE: &str = "/proc/device-tree/compatible";
const MODEL: &str = "/proc/device-tree/model";

/// The chips with a card that CUDA computes on, and its capability ("CUDA C++ Programming Guide", table of capabilities).
const CHIPS: [(&str, Capability); 5] = [
    ("nvidia,tegra210", Capability { major: 5, minor: 3 }),
    ("nvidia,tegra186", Capability { major: 6, minor: 2 }),
    ("nvidia,tegra194", Capability { major: 7, minor: 2 }),
    ("nvidia,tegra234", Capability { major: 8, minor: 7 }),
    ("nvidia,tegra264", Capability { major: 11, minor: 0 }),
];

/// The driver and the card, where this is a Tegra; `memory` is the machine's.
pub(super) fn read(roots: &Roots, memory: Option<u64>) -> Option<(NvidiaDriver, Gpu)> {
    let text = roots.text(COMPATIBLE).ok()?;
    // NUL-separated, from the board to the chip.
    let (_, capability) = text.split('\0').find_map(|name| CHIPS.into_iter().find(|(chip, _)| *chip == name))?;
    let mut driver = NvidiaDriver::default();
    driver.is_tegra = true;
    driver.from.push(COMPATIBLE.to_owned());
    let mut card = Gpu::new(Vendor::Nvidia, 0);
    card.name = roots.line(MODEL);
    card.capability = Some(capability);
    card.memory = memory;
    card.from.push(COMPATIBLE.to_owned());
    Some((driver, card))
}
