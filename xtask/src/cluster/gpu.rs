//! GPU capabilities of a kind, and the cards of a host.

use torchlift_schema::gpu::{CudaArch, GfxProcessor, GfxTarget, GpuError};

use super::code;
use super::fields::{Fields, Text, wrong_type};
use super::model::Device;
use super::node::{Node, Value};

/// The highest index of a card that is believed.
const MOST_CARDS: i64 = 1024;

/// `gpus` in the form `9.0a`, each once; AMD's stay `gfx90a`.
pub(super) fn capabilities(fields: &Fields<'_>) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for node in fields.array("gpus", "an array of strings").unwrap_or_default() {
        // `6.1` without quotes is the usual slip, and plain enough to say what is meant.
        let meant = match &node.value {
            Value::Float(number) => Some(number.clone()),
            Value::Integer(Some(number)) if *number < 20 => Some(format!("{number}.0")),
            Value::Integer(Some(number)) => Some(format!("sm_{number}")),
            _ => None,
        };
        if let Some(meant) = meant {
            let message = format!("a capability must be a string, not {}", node.type_name());
            fields.findings.error(code::WRONG_TYPE, &node.place, message, format!("put it in quotes: `\"{meant}\"`"));
            continue;
        }
        let Some(text) = super::fields::text(node, fields.findings) else { continue };
        match capability(text.value) {
            Ok(capability) if list.contains(&capability) => {
                let message = format!("`{}` stands twice in this list", text.value);
                fields.findings.error(code::DUPLICATE_VALUE, text.place, message, "leave one of them out");
            }
            Ok(capability) => list.push(capability),
            Err(message) => fields.findings.error(
                code::BAD_CAPABILITY,
                text.place,
                message,
                "write it as `8.6`, `sm_86` or `9.0a`; an AMD card's as `gfx90a`",
            ),
        }
    }
    list
}

/// A card's capability in its usual form, or why it is none: a fragment for people.
pub(super) fn capability(text: &str) -> Result<String, String> {
    if text.starts_with("gfx") {
        return match text.parse::<GfxTarget>() {
            Ok(target) if matches!(target.processor, GfxProcessor::Generic { .. }) => {
                Err(format!("`{text}` is what code is compiled for, and no card"))
            }
            Ok(target) => Ok(target.to_string()),
            Err(error) => Err(error.to_string()),
        };
    }
    if text.strip_suffix("+PTX").is_some_and(|arch| arch.parse::<CudaArch>().is_ok()) {
        return Err(format!("`{text}` is what code is compiled for, and no card"));
    }
    match text.parse::<CudaArch>() {
        Ok(arch) => Ok(arch.dotted()),
        Err(ambiguous @ GpuError::Ambiguous { .. }) => Err(ambiguous.to_string()),
        Err(_) => Err(format!("`{text}` is no GPU capability")),
    }
}

/// `devices` of a host; empty: all.
pub(super) fn devices(fields: &Fields<'_>) -> Vec<Device> {
    let Some(items) = fields.array("devices", "an array of indices or UUIDs") else { return Vec::new() };
    if items.is_empty() {
        fields.findings.error(
            code::EMPTY_VALUE,
            fields.place_of("devices"),
            "`devices` is empty: it would be all cards, or none",
            "leave it out for all cards; `slots` says how many ranks there are",
        );
    }
    let mut devices: Vec<Device> = Vec::new();
    for node in items {
        let Some(device) = device(node, fields) else { continue };
        if devices.contains(&device) {
            let text = match &device {
                Device::Index(index) => index.to_string(),
                Device::Uuid(uuid) => uuid.clone(),
            };
            let message = format!("the card `{text}` stands twice");
            fields.findings.error(code::DUPLICATE_VALUE, &node.place, message, "leave one of them out");
        } else {
            devices.push(device);
        }
    }
    devices
}

fn device(node: &Node, fields: &Fields<'_>) -> Option<Device> {
    let remedy = "write an index such as `0`, or a UUID as `nvidia-smi -L` shows it";
    match &node.value {
        Value::Integer(Some(index)) if (0..MOST_CARDS).contains(index) => u32::try_from(*index).ok().map(Device::Index),
        Value::Integer(index) => {
            let text = index.map_or_else(|| "this number".to_owned(), |index| format!("`{index}`"));
            fields.findings.error(code::BAD_DEVICE, &node.place, format!("{text} is no card's index"), remedy);
            None
        }
        Value::String(_) => {
            let Text { value, place } = super::fields::text(node, fields.findings)?;
            let is_uuid = ["GPU-", "MIG-"].iter().any(|prefix| {
                value.strip_prefix(prefix).is_some_and(|id| {
                    let id = id.strip_prefix("GPU-").unwrap_or(id);
                    id.len() >= 8 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-' || b == b'/')
                })
            });
            if is_uuid {
                return Some(Device::Uuid(value.to_owned()));
            }
            let remedy = match value.parse::<u32>() {
                Ok(index) => format!("write {index} without quotes"),
                Err(_) => remedy.to_owned(),
            };
            let message = format!("`{value}` is neither an index nor a UUID");
            fields.findings.error(code::BAD_DEVICE, place, message, remedy);
            None
        }
        _ => {
            wrong_type(node, "an index or a UUID", fields.findings);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::capability;

    #[test]
    fn capabilities_have_one_form() {
        let read = |text| capability(text).unwrap();
        assert_eq!(read("6.1"), "6.1");
        assert_eq!(read("12.0"), "12.0");
        assert_eq!(read("9.0a"), "9.0a");
        assert_eq!(read("sm_61"), "6.1");
        assert_eq!(read("sm_120"), "12.0");
        assert_eq!(read("sm_90a"), "9.0a");
        assert_eq!(read("sm61"), "6.1");
        assert_eq!(read("61"), "6.1");
        assert_eq!(read("compute_90"), "9.0");
        assert_eq!(read("12.0f"), "12.0f");
        assert_eq!(read("gfx90a"), "gfx90a");
        assert_eq!(read("gfx1100"), "gfx1100");
        assert_eq!(read("gfx90a:xnack-"), "gfx90a:xnack-");
    }

    #[test]
    fn what_is_no_capability_is_refused() {
        let bad = ["", "6", "6.", ".1", "6.10", "six", "sm_", "sm_1", "06.1", "gfx", "gfxyz", "123.0", "sm_ä1"];
        for text in bad {
            assert!(capability(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_code_is_compiled_for_is_no_card() {
        for text in ["8.6+PTX", "gfx11-generic"] {
            assert!(capability(text).unwrap_err().contains("no card"), "{text}");
        }
    }

    #[test]
    fn a_number_that_is_mostly_meant_otherwise_is_asked_back() {
        assert_eq!(capability("12").unwrap_err(), "`12` may stand for 1.2 or for 12.0: write the dot");
    }
}
