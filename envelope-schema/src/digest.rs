//! The canonical text of an envelope and its SHA-256.
//!
//! The canonical text is the envelope's JSON value without the top-level `self_sha256`, written so that every language gets
//! the same bytes:
//!
//! - UTF-8; no white space between tokens; no newline at the end;
//! - the keys of each object sorted by their UTF-8 bytes (which is the order of their code points);
//! - whole numbers in decimal, without a leading zero or plus; a number with a fraction or an exponent is an error;
//! - in strings, `"` and `\` behind a backslash; U+0008, U+0009, U+000A, U+000C, U+000D as `\b`, `\t`, `\n`, `\f`, `\r`;
//!   other characters below U+0020 as `\u00` and two lower-case hex digits; every other character as itself.
//!
//! It is over the raw value, not over the types of this crate, so that keys of a newer revision are in it too.
//! In Python: `json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)`.

use sha2::{Digest as _, Sha256};

use crate::error::EnvelopeError;
use crate::tree::{self, Node};

/// The key that the canonical text leaves out at the top level.
pub(crate) const SELF_KEY: &str = "self_sha256";

/// SHA-256 of the canonical text, in lower-case hex.
pub(crate) fn of(node: &Node) -> Result<String, EnvelopeError> {
    let text = canonical(node)?;
    Ok(Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The canonical text; fails on a number that is not whole, with its path.
pub(crate) fn canonical(node: &Node) -> Result<String, EnvelopeError> {
    let mut out = String::new();
    push(node, &mut out, "", true)?;
    Ok(out)
}

fn push(node: &Node, out: &mut String, path: &str, is_top: bool) -> Result<(), EnvelopeError> {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Node::Number(number) if number.is_f64() => return Err(EnvelopeError::NotWhole { path: path.to_owned() }),
        Node::Number(number) => out.push_str(&number.to_string()),
        Node::Text(text) => push_text(text, out),
        Node::List(list) => {
            out.push('[');
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let mut path = path.to_owned();
                tree::push_index(&mut path, index);
                push(element, out, &path, false)?;
            }
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            let kept = members.iter().filter(|(key, _)| !(is_top && key.as_str() == SELF_KEY));
            for (index, (key, value)) in kept.enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push_text(key, out);
                out.push(':');
                let mut path = path.to_owned();
                tree::push_key(&mut path, key);
                push(value, out, &path, false)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn push_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(text: &str) -> String {
        canonical(&Node::parse(text).expect("parses")).expect("has whole numbers only")
    }

    #[test]
    fn keys_are_sorted_and_white_space_is_gone() {
        assert_eq!(
            of_text(" { \"b\" : [ 1 , {\"y\":2,\"x\":-1} ],\n\"a\": null }"),
            r#"{"a":null,"b":[1,{"x":-1,"y":2}]}"#
        );
    }

    #[test]
    fn only_the_top_level_digest_is_left_out() {
        assert_eq!(of_text(r#"{"self_sha256":"a","x":{"self_sha256":"b"}}"#), r#"{"x":{"self_sha256":"b"}}"#);
    }

    #[test]
    fn escapes_are_one_for_each_character() {
        assert_eq!(
            of_text(r#"["\u0022\u005c\u0008\u0009\u000a\u000c\u000d\u0000\u001F\u007f\/\u00e9\ud83d\ude00"]"#),
            "[\"\\\"\\\\\\b\\t\\n\\f\\r\\u0000\\u001f\u{7f}/é😀\"]"
        );
    }

    #[test]
    fn keys_are_ordered_by_code_point_and_not_by_utf16() {
        // U+FF5E sorts before U+1F600 here and behind it in UTF-16.
        assert_eq!(of_text("{\"😀\":1,\"～\":2}"), "{\"～\":2,\"😀\":1}");
    }

    #[test]
    fn a_number_that_is_not_whole_is_named() {
        for number in ["1.0", "1e3", "-0", "18446744073709551616"] {
            let node = Node::parse(&format!("{{\"a\":[{number}]}}")).expect("parses");
            assert_eq!(canonical(&node), Err(EnvelopeError::NotWhole { path: "a[0]".to_owned() }), "{number}");
        }
    }
}
