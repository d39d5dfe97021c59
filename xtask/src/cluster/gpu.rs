//! GPU capabilities of a kind, and the cards of a host.

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
            Some(capability) if list.contains(&capability) => {
                let message = format!("`{}` stands twice in this list", text.value);
                fields.findings.error(code::DUPLICATE_VALUE, text.place, message, "leave one of them out");
            }
            Some(capability) => list.push(capability),
            None => fields.findings.error(
                code::BAD_CAPABILITY,
                text.place,
                format!("`{}` is no GPU capability", text.value),
                "write it as `8.6`, `sm_86` or `9.0a`; an AMD card's as `gfx90a`",
            ),
        }
    }
    list
}

/// A capability in its usual form; none: it is none.
pub(super) fn capability(text: &str) -> Option<String> {
    if let Some(isa) = text.strip_prefix("gfx") {
        let is_isa = (3..=6).contains(&isa.len()) && isa.bytes().all(|b| b.is_ascii_hexdigit());
        return is_isa.then(|| text.to_owned());
    }
    let is_number = |part: &str| !part.is_empty() && part.len() <= 2 && part.bytes().all(|b| b.is_ascii_digit());
    let without_suffix = text.strip_suffix(['a', 'f']).unwrap_or(text);
    let suffix = &text[without_suffix.len()..];
    let (major, minor) = match without_suffix.strip_prefix("sm_").or_else(|| without_suffix.strip_prefix("sm")) {
        // The last digit is the minor version: `sm_120` is 12.0.
        Some(digits) if digits.is_ascii() && digits.len() >= 2 => digits.split_at(digits.len() - 1),
        Some(_) => return None,
        None => without_suffix.split_once('.')?,
    };
    let is_capability = is_number(major) && is_number(minor) && minor.len() == 1 && !major.starts_with('0');
    is_capability.then(|| format!("{major}.{minor}{suffix}"))
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
        assert_eq!(read("gfx90a"), "gfx90a");
        assert_eq!(read("gfx1100"), "gfx1100");
    }

    #[test]
    fn what_is_no_capability_is_refused() {
        for bad in
            ["", "6", "6.", ".1", "6.10", "six", "sm_", "sm_1", "06.1", "8.6+PTX", "gfx", "gfxyz", "123.0", "sm_ä1"]
        {
            assert_eq!(capability(bad), None, "{bad}");
        }
    }
}
