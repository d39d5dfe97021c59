//! The rules for single values, once for the schema (as a pattern) and once for the reader (as a predicate).
//!
//! A test holds each pattern against its predicate. Patterns are ECMA-262 regular expressions, anchored, without flags.
//! What the rules are applied to is in [`crate::validity`].

/// The largest size in bytes that is written: 2^53 - 1, the last that every JSON reader holds exactly.
pub(crate) const MAX_SIZE: u64 = 9_007_199_254_740_991;

/// The last signal of Linux.
pub(crate) const MAX_SIGNAL: i32 = 64;

/// A relative path below its base: segments joined by `/`, none empty, `.` or `..`, no NUL.
pub(crate) const RELATIVE_PATH: &str = r"^(?!\.{1,2}(/|$))[^/\x00]+(/(?!\.{1,2}(/|$))[^/\x00]+)*$";

/// The same, or empty.
pub(crate) const RELATIVE_PATH_OR_EMPTY: &str = r"^((?!\.{1,2}(/|$))[^/\x00]+(/(?!\.{1,2}(/|$))[^/\x00]+)*)?$";

/// Absolute folders joined by `:`, or empty.
pub(crate) const LIBRARY_PATH: &str = r"^(/[^:;$\x00]*(:/[^:;$\x00]*)*)?$";

/// A DNS label: 1 to 63 letters, digits and dashes, no dash at either end.
pub(crate) const HOST: &str = r"^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$";

/// A host's label in a plain map, whose other writers put fewer bounds on it: it has to be usable as a file name.
pub(crate) const HOST_LABEL: &str = r"^(?!\.{1,2}$)[^/\x00-\x1f\x7f]{1,253}$";

/// SHA-256 in lower-case hex.
pub(crate) const SHA256: &str = "^[0-9a-f]{64}$";

/// Bytes in lower-case hex.
pub(crate) const HEX_BYTES: &str = "^([0-9a-f]{2})+$";

/// A key in lower-case hex.
pub(crate) const HEX: &str = "^[0-9a-f]+$";

/// A target triple, such as `x86_64-unknown-linux-gnu`.
pub(crate) const TARGET: &str = r"^[A-Za-z0-9_.]+(-[A-Za-z0-9_.]+)+$";

/// Two or more numbers joined by dots, such as `2.31`.
pub(crate) const SYMBOL_VERSION: &str = r"^[0-9]+(\.[0-9]+)+$";

/// The version of a GPU toolkit, such as `12.8`; empty where it is not known.
pub(crate) const TOOLKIT_VERSION: &str = r"^([0-9]+(\.[0-9]+)*)?$";

/// A CPU level: `x86-64-v1` and so on, `armv8-a`, `armv8.2-a` and so on.
pub(crate) const CPU_LEVEL: &str = r"^(x86-64-v[1-9]|armv[0-9]+(\.[0-9]+)?-a)$";

/// A file's name: one segment of a path.
pub(crate) const FILE_NAME: &str = r"^(?!\.{1,2}$)[^/\x00]+$";

/// A finding's code.
pub(crate) const CODE: &str = "^[a-z0-9]+(-[a-z0-9]+)*$";

/// A text with at least one character and no NUL.
pub(crate) const TEXT: &str = r"^[^\x00]+$";

/// A text without a NUL; may be empty.
pub(crate) const NO_NUL: &str = r"^[^\x00]*$";

/// A time in UTC, as in RFC 3339 with a `Z`: `2026-11-30T14:23:05Z`.
pub(crate) const STAMP: &str =
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?Z$";

/// A place on the PCI bus: domain, bus, device, function.
pub(crate) const PCI_ADDRESS: &str = r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$";

/// A variant id: `<family>/<name>`.
pub(crate) const VARIANT_ID: &str = r"^[A-Za-z0-9_+][A-Za-z0-9._+-]*/[A-Za-z0-9_+][A-Za-z0-9._+-]*$";

/// A compute capability, such as `8.6`.
pub(crate) const CAPABILITY: &str = r"^[1-9][0-9]?\.[0-9]$";

/// A CUDA architecture, such as `sm_90a`.
pub(crate) const CUDA_ARCH: &str = "^sm_[1-9][0-9]{1,2}[af]?$";

/// An AMD target, such as `gfx90a:sramecc+:xnack-` or `gfx9-4-generic`.
pub(crate) const GFX_TARGET: &str = r"^gfx[1-9][0-9]?([0-9a-f]{2}|(-[0-9a-f])?-generic)(:sramecc[+-])?(:xnack[+-])?$";

/// A toolkit's version of two numbers, such as `12.8`.
pub(crate) const TOOLKIT: &str = r"^(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$";

/// GPU code: `sm_90a`, `compute_90`, `compute_90@12.8`, or an AMD target.
pub(crate) const GPU_CODE: &str = r"^(sm_[1-9][0-9]{1,2}[af]?|compute_[1-9][0-9]{1,2}[af]?(@(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3}))?|gfx[1-9][0-9]?([0-9a-f]{2}|(-[0-9a-f])?-generic)(:sramecc[+-])?(:xnack[+-])?)$";

/// The key of an allocation: a segment of a URL and a file's name.
pub(crate) const ALLOC_KEY: &str = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$";

/// A text of the operating system: NUL begins a byte that is no UTF-8.
pub(crate) const OS_TEXT: &str = r"^[^\x00]*(\x00[89a-f][0-9a-f][^\x00]*)*$";

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether this can be the name of a host: a DNS label of 1 to 63 letters, digits and dashes, no dash at either end.
pub fn is_host(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

pub(crate) fn is_host_label(text: &str) -> bool {
    (1..=253).contains(&text.chars().count())
        && text != "."
        && text != ".."
        && !text.contains('/')
        && !text.bytes().any(|byte| byte.is_ascii_control())
}

pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && is_lower_hex(text)
}

pub(crate) fn is_hex_bytes(text: &str) -> bool {
    is_hex(text) && text.len().is_multiple_of(2)
}

pub(crate) fn is_hex(text: &str) -> bool {
    !text.is_empty() && is_lower_hex(text)
}

pub(crate) fn is_target(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
    };
    text.contains('-') && text.split('-').all(is_part)
}

pub(crate) fn is_symbol_version(text: &str) -> bool {
    text.contains('.') && text.split('.').all(is_digits)
}

pub(crate) fn is_toolkit_version(text: &str) -> bool {
    text.is_empty() || text.split('.').all(is_digits)
}

pub(crate) fn is_cpu_level(text: &str) -> bool {
    if let Some(level) = text.strip_prefix("x86-64-v") {
        return matches!(level.as_bytes(), [b'1'..=b'9']);
    }
    match text.strip_prefix("armv").and_then(|rest| rest.strip_suffix("-a")) {
        Some(version) => version.split('.').count() <= 2 && version.split('.').all(is_digits),
        None => false,
    }
}

pub(crate) fn is_file_name(text: &str) -> bool {
    is_text(text) && text != "." && text != ".." && !text.contains('/')
}

pub(crate) fn is_code(text: &str) -> bool {
    text.split('-').all(|part| !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9')))
}

pub(crate) fn is_text(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0')
}

pub(crate) fn has_no_nul(text: &str) -> bool {
    !text.contains('\0')
}

pub(crate) fn is_alloc_key(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(is_allowed) && !text.starts_with('.')
}

pub(crate) fn is_stamp(text: &str) -> bool {
    let number = |text: &str, wanted: usize, range: std::ops::RangeInclusive<u32>| {
        text.len() == wanted && is_digits(text) && text.parse().is_ok_and(|number| range.contains(&number))
    };
    let Some((date, time)) = text.strip_suffix('Z').and_then(|text| text.split_once('T')) else { return false };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let date: Vec<_> = date.split('-').collect();
    let time: Vec<_> = time.split(':').collect();
    let ([year, month, day], [hour, minute, second]) = (date.as_slice(), time.as_slice()) else { return false };
    is_digits(fraction)
        && number(year, 4, 0..=9999)
        && number(month, 2, 1..=12)
        && number(day, 2, 1..=31)
        && number(hour, 2, 0..=23)
        && number(minute, 2, 0..=59)
        && number(second, 2, 0..=60)
}

pub(crate) fn is_pci_address(text: &str) -> bool {
    let parts: Vec<_> = text.split(':').collect();
    let [domain, bus, rest] = parts.as_slice() else { return false };
    let Some((device, function)) = rest.split_once('.') else { return false };
    let is_hex =
        |text: &str, lengths: std::ops::RangeInclusive<usize>| lengths.contains(&text.len()) && is_lower_hex(text);
    is_hex(domain, 4..=8) && is_hex(bus, 2..=2) && is_hex(device, 2..=2) && matches!(function.as_bytes(), [b'0'..=b'7'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gpu::{Capability, CudaArch, GfxTarget, GpuCode, ToolkitVersion};
    use crate::launch::OsText;

    /// Texts near the rules: their own characters, in every order.
    fn near() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a/.:;$\\x00\\-]{0,8}",
            "[0-9a-fA-F]{0,3}|[0-9a-f]{63,65}|[0-9a-fG]{64}",
            "(x86-64-v|armv)?[0-9]{0,2}[.]?[0-9]{0,2}(-a)?",
            "-?[A-Za-z0-9-]{0,64}-?",
            "[a-z0-9A-Z-]{0,8}\\PC{0,2}",
            "[a-z_.+-]{0,3}/?[a-z_.+-]{0,3}/?",
            "[\\x00-\\x20\\x7f/.]{0,3}",
            ".{250,256}",
            "(sm_?|compute_)?[0-9]{0,4}[.]?[0-9]?[abf]?(@[0-9]{0,5}[.][0-9]{0,2})?",
            "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]([.][0-9]{0,2})?Z?",
            "[0-9a-g]{3,9}:[0-9a-g]{2}:[0-9A-g]{1,3}[.][0-9]",
            "gfx[0-9a-g]{0,5}(-[0-9a-g])?(-generic)?(:sramecc[+-]?)?(:xnack[+-]?)?",
            "[0-9]{0,5}[.][0-9]{0,5}([.][0-9])?",
            "[a-z._-]{0,2}[A-Z0-9._-]{62,64}",
            "[ab]?\\x00?[7-9e-g][0-9A-Ff]{0,2}\\x00?[89a][0-9]?",
        ]
    }

    fn is_relative_path(text: &str) -> bool {
        let run =
            crate::PerHostEnvelope { bin: text.to_owned(), ld_library_path: String::new(), cwd_subpath: String::new() };
        run.validate().is_empty()
    }

    fn is_relative_path_or_empty(text: &str) -> bool {
        let run = crate::PerHostEnvelope {
            bin: "a".to_owned(),
            ld_library_path: String::new(),
            cwd_subpath: text.to_owned(),
        };
        run.validate().is_empty()
    }

    fn is_library_path(text: &str) -> bool {
        let run = crate::PerHostEnvelope {
            bin: "a".to_owned(),
            ld_library_path: text.to_owned(),
            cwd_subpath: String::new(),
        };
        run.validate().is_empty()
    }

    fn is_variant_id(text: &str) -> bool {
        text.parse::<crate::VariantId>().is_ok()
    }

    fn is_text_of<T: TryFrom<String>>(text: &str) -> bool {
        T::try_from(text.to_owned()).is_ok()
    }

    type Rule = (&'static str, fn(&str) -> bool);

    const RULES: &[Rule] = &[
        (RELATIVE_PATH, is_relative_path),
        (RELATIVE_PATH_OR_EMPTY, is_relative_path_or_empty),
        (LIBRARY_PATH, is_library_path),
        (HOST, is_host),
        (HOST_LABEL, is_host_label),
        (SHA256, is_sha256),
        (HEX_BYTES, is_hex_bytes),
        (HEX, is_hex),
        (TARGET, is_target),
        (SYMBOL_VERSION, is_symbol_version),
        (TOOLKIT_VERSION, is_toolkit_version),
        (CPU_LEVEL, is_cpu_level),
        (FILE_NAME, is_file_name),
        (CODE, is_code),
        (TEXT, is_text),
        (NO_NUL, has_no_nul),
        (STAMP, is_stamp),
        (PCI_ADDRESS, is_pci_address),
        (VARIANT_ID, is_variant_id),
        (CAPABILITY, is_text_of::<Capability>),
        (CUDA_ARCH, is_text_of::<CudaArch>),
        (GFX_TARGET, is_text_of::<GfxTarget>),
        (TOOLKIT, is_text_of::<ToolkitVersion>),
        (GPU_CODE, is_text_of::<GpuCode>),
        (ALLOC_KEY, is_alloc_key),
        (OS_TEXT, is_text_of::<OsText>),
    ];

    #[test]
    fn every_pattern_is_held_against_its_predicate() {
        let patterns = include_str!("rule.rs").lines().filter(|line| line.contains(": &str =")).count();
        // One of these lines is the filter above.
        assert_eq!(patterns - 1, RULES.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn a_pattern_and_its_predicate_agree(text in near()) {
            thread_local! {
                static VALIDATORS: Vec<jsonschema::Validator> = RULES
                    .iter()
                    .map(|(pattern, _)| jsonschema::validator_for(&serde_json::json!({ "pattern": pattern })).unwrap())
                    .collect();
            }
            let value = serde_json::Value::from(text.clone());
            VALIDATORS.with(|validators| {
                for (validator, (pattern, holds)) in validators.iter().zip(RULES) {
                    prop_assert_eq!(holds(&text), validator.is_valid(&value), "{} and {:?}", pattern, text);
                }
                Ok(())
            })?;
        }
    }
}
