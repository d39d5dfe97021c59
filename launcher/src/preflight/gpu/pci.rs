//! Cards by their place on the bus: what is plugged in, whatever its driver says.

use torchlift_schema::{Finding, Place};

use crate::preflight::code;
use crate::preflight::host::{Problems, Roots};

const DEVICES: &str = "/sys/bus/pci/devices";

/// An address in the form of the facts: lower case, with the domain's leading zeros beyond four digits left out, as the
/// kernel writes it. NVIDIA's library writes eight digits.
pub(in crate::preflight) fn address(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (domain, rest) = text.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let is_hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_address = is_hex(bus, 2) && is_hex(device, 2) && matches!(function.as_bytes(), [b'0'..=b'7']);
    is_address.then(|| format!("{domain:04x}:{bus}:{device}.{function}"))
}

/// Says which makers' cards are plugged in while no driver of theirs is at work.
pub(super) fn without_driver(roots: &Roots, has_nvidia: bool, has_amd: bool, problems: &mut Problems) {
    let makers = [
        ("0x10de", "NVIDIA", has_nvidia, "install NVIDIA's driver, or load it: `modprobe nvidia`"),
        ("0x1002", "AMD", has_amd, "load AMD's driver: `modprobe amdgpu`"),
    ];
    for (vendor, maker, has_driver, remedy) in makers {
        if has_driver {
            continue;
        }
        let cards: Vec<String> =
            roots.names(DEVICES).into_iter().filter(|device| is_card(roots, device, vendor)).collect();
        if cards.is_empty() {
            continue;
        }
        let list: Vec<String> = cards.iter().map(|card| format!("`{card}`")).collect();
        let (verb, noun) = if cards.len() == 1 { ("is", "card") } else { ("are", "cards") };
        let message =
            format!("{maker} {noun} {} {verb} plugged in, and no driver of theirs is at work", list.join(", "));
        problems
            .list
            .push(Finding::warning(code::GPU_WITHOUT_DRIVER, Place::default().key("gpus"), message).remedy(remedy));
    }
}

/// Display controllers (class 03) that compute: VGA and 3D, and AMD's accelerators, which call themselves processing
/// accelerators (class 12).
fn is_card(roots: &Roots, device: &str, vendor: &str) -> bool {
    let line = |name: &str| roots.line(format!("{DEVICES}/{device}/{name}")).unwrap_or_default();
    let class = line("class");
    line("vendor") == vendor && ["0x0300", "0x0302", "0x0380", "0x1200"].iter().any(|start| class.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_form() {
        for text in ["00000000:65:00.0", "0000:65:00.0", "0:65:00.0"] {
            assert_eq!(address(text).as_deref(), Some("0000:65:00.0"), "{text}");
        }
        assert_eq!(address("0000000A:E2:1F.7").as_deref(), Some("000a:e2:1f.7"));
        assert_eq!(address("00010000:01:00.0").as_deref(), Some("10000:01:00.0"));
        for wrong in ["", "65:00.0", "0000:65:00", "0000:65:00.8", "0000:6:00.0", "x:65:00.0"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }
}
