//! Little-endian numbers out of untrusted bytes. Both GPU formats have that order whatever the machine of the file.

/// `N` bytes from `at` on.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// The sum of an offset and lengths; none beyond what this machine can address.
pub(super) fn end(start: usize, lengths: &[u64]) -> Option<usize> {
    lengths.iter().try_fold(start, |sum, length| sum.checked_add(usize::try_from(*length).ok()?))
}

/// Where the first byte that is not zero stands in `bytes` from `at` on; none when there is none.
///
/// Linkers fill the room between two objects with zeros, of which there may be many: they are compared in blocks.
pub(super) fn after_zeros(bytes: &[u8], at: usize) -> Option<usize> {
    const BLOCK: usize = 64;
    let rest = bytes.get(at..)?;
    let blocks = rest.chunks_exact(BLOCK).take_while(|block| **block == [0; BLOCK]).count();
    let skipped = blocks * BLOCK;
    rest[skipped..].iter().position(|byte| *byte != 0).map(|offset| at + skipped + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_end_are_none_and_zeros_are_skipped_in_any_number() {
        assert_eq!(u32_at(&[1, 0, 0, 0], 0), Some(1));
        assert_eq!(u32_at(&[1, 0, 0, 0], 1), None);
        assert_eq!(u64_at(&[0; 8], usize::MAX), None);
        assert_eq!(end(8, &[u64::MAX, 8]), None);
        for zeros in [0, 1, 63, 64, 65, 200] {
            let mut bytes = vec![0; zeros];
            assert_eq!(after_zeros(&bytes, 0), None);
            bytes.extend([7, 0]);
            assert_eq!(after_zeros(&bytes, 0), Some(zeros));
            assert_eq!(after_zeros(&bytes, zeros + 1), None);
        }
        assert_eq!(after_zeros(&[1], 5), None);
    }
}
