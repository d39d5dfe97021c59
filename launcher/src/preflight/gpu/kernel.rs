//! What the kernel's part of NVIDIA's driver says in /proc: its version and its cards, without their capability.

use torchlift_schema::host::{Gpu, Mig, Vendor};

use super::{driver_version, pci_address};
use crate::preflight::host::{Roots, field};

/// The driver's folder.
pub(super) const FOLDER: &str = "/proc/driver/nvidia";
const VERSION: &str = "/proc/driver/nvidia/version";

/// The version of the kernel module; none where it is not loaded.
pub(super) fn version(roots: &Roots) -> Option<(String, &'static str)> {
    Some((version_of(&roots.text(VERSION).ok()?)?, VERSION))
}

/// The first word that is a version, in the line of the module: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14
/// Thu …`, or `… Open Kernel Module for x86_64  555.42.02  Release Build …`.
fn version_of(text: &str) -> Option<String> {
    let line = field(text, "NVRM version")?;
    line.split_whitespace().find_map(driver_version)
}

/// The cards that it lists, in PCI order; those that an administrator has excluded are none.
pub(crate) fn cards(roots: &Roots) -> Vec<Gpu> {
    let folder = format!("{FOLDER}/gpus");
    let mut cards: Vec<Gpu> = roots
        .names(&folder)
        .iter()
        .filter_map(|name| {
            let path = format!("{folder}/{name}/information");
            let text = roots.text(&path).unwrap_or_default();
            if field(&text, "GPU Excluded").is_some_and(|word| word.eq_ignore_ascii_case("yes")) {
                return None;
            }
            let mut card = Gpu::new(Vendor::Nvidia, 0);
            card.name = field(&text, "Model").filter(|name| is_known(name)).map(str::to_owned);
            card.uuid = field(&text, "GPU UUID").filter(|uuid| is_known(uuid)).map(str::to_owned);
            card.pci = field(&text, "Bus Location").and_then(pci_address).or_else(|| pci_address(name));
            card.mig = field(&text, "Device Minor").and_then(|minor| mig(roots, minor));
            card.from.push(path);
            Some(card)
        })
        .collect();
    cards.sort_by(|a, b| a.pci.cmp(&b.pci));
    for (index, card) in (0_u32..).zip(&mut cards) {
        card.index = index;
    }
    cards
}

/// A card that nobody has used since the start has question marks in its UUID.
fn is_known(text: &str) -> bool {
    !text.is_empty() && !text.contains('?') && text != "Unknown"
}

/// Whether the card of this minor number is divided: then it has instances, whose UUIDs the kernel does not tell.
fn mig(roots: &Roots, minor: &str) -> Option<Mig> {
    let folder = format!("{FOLDER}/capabilities/gpu{minor}/mig");
    let is_divided = roots.names(folder).iter().any(|name| name.starts_with("gi"));
    is_divided.then(|| Mig::new(true, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_of_either_kind_says_its_version() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
        assert_eq!(version_of(closed).as_deref(), Some("550.54.14"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)  Sun Jul 27 06:54:38 UTC 2025\n";
        assert_eq!(version_of(open).as_deref(), Some("580.65.06"));
        assert_eq!(version_of("NVRM version: none\n"), None);
        assert_eq!(version_of(""), None);
    }
}
