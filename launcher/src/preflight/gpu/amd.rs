//! AMD's cards, as the kernel's compute driver (KFD) lists them.

use nix::unistd::{AccessFlags, access};
use torchlift_schema::gpu::{GfxProcessor, GfxTarget};
use torchlift_schema::host::{AmdDriver, Gpu, MOST_BYTES, Vendor};
use torchlift_schema::{Finding, Place};

use crate::preflight::code;
use crate::preflight::host::{Problems, Roots};

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
const MODULE: &str = "/sys/module/amdgpu";
const DEVICE: &str = "/dev/kfd";
const ROCM: &str = "/opt/rocm/.info/version";
/// Kinds of a memory bank that are a card's own: visible to the CPU, and not.
const OWN_MEMORY: [u64; 2] = [1, 2];

/// Whether AMD's driver is at work, be it for a screen alone.
pub(super) fn is_loaded(roots: &Roots) -> bool {
    roots.has(MODULE)
}

/// Reads the driver and the cards, in the driver's order, which is that of `HIP_VISIBLE_DEVICES`.
pub(super) fn read(roots: &Roots, problems: &mut Problems) -> (Option<AmdDriver>, Vec<Gpu>) {
    if !roots.has(NODES) {
        return (None, Vec::new());
    }
    let mut numbers: Vec<u32> = roots.names(NODES).iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let mut cards = Vec::new();
    for number in numbers {
        let path = format!("{NODES}/{number}/properties");
        match roots.text(&path) {
            Ok(text) => cards.extend(card(roots, number, &text, u32::try_from(cards.len()).unwrap_or(u32::MAX))),
            Err(error) => unreadable(problems, format!("a card of AMD's driver cannot be asked: {error}"), CGROUP),
        }
    }
    // A driver without a card is that of a screen.
    if cards.is_empty() {
        return (None, cards);
    }
    let device = roots.path(DEVICE);
    if let Err(error) = access(&device, AccessFlags::R_OK | AccessFlags::W_OK) {
        unreadable(
            problems,
            format!("this user cannot use `{DEVICE}`, through which AMD's cards compute: {error}"),
            GROUP,
        );
    }
    for card in cards.iter().filter(|card| card.gfx.is_none()) {
        let message = format!("the kernel does not say which instructions AMD's card {} has", card.index);
        unreadable(problems, message, "use a kernel from 5.14 on, or AMD's own driver");
    }
    let mut driver = AmdDriver::default();
    driver.from.push(NODES.to_owned());
    let mut line = |path: &str| roots.line(path).inspect(|_| driver.from.push(path.to_owned()));
    let version = line(&format!("{MODULE}/version"));
    let rocm =
        line(ROCM).map(|text| text.split('-').next().unwrap_or_default().to_owned()).filter(|text| !text.is_empty());
    (driver.version, driver.rocm) = (version, rocm);
    (Some(driver), cards)
}

const CGROUP: &str = "let the container have the card: `--device=/dev/kfd --device=/dev/dri`";
const GROUP: &str = "add the user to the groups `render` and `video`, or let the container have the device";

fn unreadable(problems: &mut Problems, message: String, remedy: &str) {
    problems.list.push(Finding::error(code::GPU_UNREADABLE, Place::default().key("gpus"), message).remedy(remedy));
}

fn card(roots: &Roots, node: u32, properties: &str, index: u32) -> Option<Gpu> {
    let value = |key: &str| number(properties, key);
    // A node without SIMD units is a CPU.
    value("simd_count").filter(|count| *count > 0)?;
    let mut card = Gpu::new(Vendor::Amd, index);
    card.gfx = value("gfx_target_version").and_then(target);
    card.pci = value("location_id").map(|location| {
        let domain = value("domain").unwrap_or(0);
        format!("{domain:04x}:{:02x}:{:02x}.{}", location >> 8 & 0xff, location >> 3 & 0x1f, location & 7)
    });
    // As ROCm's tools write it; 0 where a card has none.
    card.uuid = value("unique_id").filter(|id| *id > 0).map(|id| format!("GPU-{id:016x}"));
    card.memory = memory(roots, node);
    card.name = name(roots, node, card.pci.as_deref());
    card.from.push(format!("{NODES}/{node}"));
    Some(card)
}

/// `90010` is 9, 0, 10: gfx90a.
fn target(version: u64) -> Option<GfxTarget> {
    let part = |value: u64| u8::try_from(value).ok();
    let (major, minor, stepping) = (part(version / 10_000)?, part(version / 100 % 100)?, part(version % 100)?);
    let is_known = major > 0 && major < 100 && minor < 16 && stepping < 16;
    is_known.then(|| GfxTarget::any(GfxProcessor::Exact { major, minor, stepping }))
}

fn memory(roots: &Roots, node: u32) -> Option<u64> {
    let folder = format!("{NODES}/{node}/mem_banks");
    let banks = roots.names(&folder).into_iter().filter_map(|bank| {
        let text = roots.text(format!("{folder}/{bank}/properties")).ok()?;
        let is_own = number(&text, "heap_type").is_some_and(|kind| OWN_MEMORY.contains(&kind));
        is_own.then(|| number(&text, "size_in_bytes")).flatten()
    });
    let total = banks.fold(0_u64, u64::saturating_add);
    (total > 0).then(|| total.min(MOST_BYTES))
}

/// The name of the product where the card has one in its memory, else that of the chip.
fn name(roots: &Roots, node: u32, pci: Option<&str>) -> Option<String> {
    let product = pci.and_then(|pci| roots.line(format!("/sys/bus/pci/devices/{pci}/product_name")));
    product.or_else(|| roots.line(format!("{NODES}/{node}/name")))
}

fn number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_number_of_a_target_has_two_decimal_digits_a_part() {
        let shown = |version| target(version).map(String::from);
        for (version, name) in [
            (90_010, "gfx90a"),
            (90_402, "gfx942"),
            (90_006, "gfx906"),
            (100_300, "gfx1030"),
            (110_000, "gfx1100"),
            (120_001, "gfx1201"),
        ] {
            assert_eq!(shown(version).as_deref(), Some(name));
        }
        for none in [0, 99, 90_099, 91_600, 1_000_000, u64::MAX] {
            assert_eq!(shown(none), None, "{none}");
        }
    }
}
