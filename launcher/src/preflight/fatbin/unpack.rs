//! The beginning of what was compressed, and no more than that.

use std::io::Read;

use flate2::bufread::ZlibDecoder;
use zstd::stream::read::Decoder;

/// How it was compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

/// Binary logarithm of the bytes that zstd may have to look back: the most that it writes unless it is told otherwise, long
/// distance matching included. The room is reserved, and only what is unpacked is touched.
const MAX_WINDOW: u32 = 27;

/// At most `limit` bytes of what `packed` unpacks to; none when not even these can be had.
pub(super) fn unpack(method: Method, packed: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    let limit = limit as u64;
    match method {
        Method::Zlib => ZlibDecoder::new(packed).take(limit).read_to_end(&mut unpacked),
        Method::Zstd => {
            let mut decoder = Decoder::with_buffer(packed).ok()?.single_frame();
            decoder.window_log_max(MAX_WINDOW).ok()?;
            decoder.take(limit).read_to_end(&mut unpacked)
        }
    }
    .ok()?;
    Some(unpacked)
}
