//! What is refused before anything is parsed: too many bytes, too deep, no UTF-8.
//!
//! Owns the bounds that keep memory and stack small whatever the file is. Must not allocate by the input's size.

use crate::error::EnvelopeError;

/// Bytes that an envelope, or a map of them, may have.
///
/// A map of 10,000 hosts has about 3 MB and an envelope with 100 libraries 20 kB; parsed, a hostile file of this size
/// takes some 100 MB.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Levels of objects and arrays that an envelope may have.
///
/// This version has 4. The parser below recurses once a level, and has its own bound at 128.
pub const MAX_DEPTH: usize = 64;

/// The text, when it is within the bounds of an envelope.
pub(crate) fn check(bytes: &[u8]) -> Result<&str, EnvelopeError> {
    within(bytes, MAX_BYTES)
}

/// The text, when it has at most `limit` bytes and is within the other bounds.
pub(crate) fn within(bytes: &[u8], limit: usize) -> Result<&str, EnvelopeError> {
    if bytes.len() > limit {
        return Err(EnvelopeError::TooLarge { size: bytes.len(), limit });
    }
    if bytes.starts_with(b"\xEF\xBB\xBF") || bytes.starts_with(b"\xFE\xFF") || bytes.starts_with(b"\xFF\xFE") {
        return Err(EnvelopeError::ByteOrderMark);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| EnvelopeError::NotUtf8 { offset: error.valid_up_to() })?;
    match too_deep_at(bytes) {
        Some(offset) => Err(EnvelopeError::TooDeep { limit: MAX_DEPTH, offset }),
        None => Ok(text),
    }
}

/// Offset of the first bracket outside of strings that opens a level beyond [`MAX_DEPTH`].
fn too_deep_at(bytes: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut is_text = false;
    let mut is_escaped = false;
    for (offset, byte) in bytes.iter().enumerate() {
        if is_text {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => is_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => is_text = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Some(offset);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Vec<u8> {
        [vec![b'['; levels], vec![b']'; levels]].concat()
    }

    #[test]
    fn the_deepest_allowed_text_passes_and_one_more_level_does_not() {
        assert!(check(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(check(&nested(MAX_DEPTH + 1)), Err(EnvelopeError::TooDeep { limit: MAX_DEPTH, offset: MAX_DEPTH }));
    }

    #[test]
    fn brackets_inside_of_strings_are_no_levels() {
        let text = format!(r#"{{"a":"\"{}"}}"#, "[".repeat(1000));
        assert!(check(text.as_bytes()).is_ok());
    }

    #[test]
    fn the_largest_allowed_text_passes_and_one_more_byte_does_not() {
        assert!(check(&vec![b' '; MAX_BYTES]).is_ok());
        assert!(matches!(check(&vec![b' '; MAX_BYTES + 1]), Err(EnvelopeError::TooLarge { .. })));
    }
}
