//! What fuzzing begins with: one of each form that real linkers and compilers make.
//!
//! Written into the corpus when the fuzzer starts, with the writer that the tests of the reader have, so that no binary
//! files have to be kept beside the sources and grow old there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::made::{ARCH, Entry, FAMILY, LZ4, ZSTD, bundle, compressed, joined, region};
use crate::{IN_REGION, SECTIONS, STRIPPED};

/// Index of each kind of section in [`SECTIONS`].
const CUDA: u8 = 0;
const CUDA_RELOCATABLE: u8 = 1;
const HIP: u8 = 2;

/// Writes the seeds into the folder that libFuzzer keeps its corpus in: the first of its arguments that is a folder.
/// A run on single files, such as one that repeats a crash, has none.
pub fn write() {
    let folder = env::args_os().skip(1).map(PathBuf::from).find(|path| path.is_dir());
    let Some(folder) = folder else { return };
    for (name, choice, content) in seeds() {
        assert!(usize::from(choice & 0x3f) < SECTIONS.len());
        // Each also as what is to be searched for.
        for (form, choice) in [("named", choice), ("searched", choice | STRIPPED)] {
            let file: &Path = &folder.join(format!("seed-{name}-{form}"));
            fs::write(file, [&[choice][..], &content].concat())
                .unwrap_or_else(|error| panic!("cannot write `{}`: {error}", file.display()));
        }
    }
}

/// Name, first byte, and what follows it.
fn seeds() -> Vec<(&'static str, u8, Vec<u8>)> {
    let several = [
        Entry::sass(75, 0),
        Entry::sass(90, ARCH),
        Entry::sass(100, FAMILY | ZSTD),
        Entry { options: Some("-arch=sm_120"), name: Some("kernel.cu"), ..Entry::sass(120, LZ4) },
        Entry::ptx(90, 0, (8, 0)),
    ];
    let targets = compact_bundle(&[
        ("host-x86_64-unknown-linux-gnu-", b""),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", b"code"),
        ("hipv4-amdgcn-amd-amdhsa--gfx11-generic", b"code"),
    ]);
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(&targets).expect("memory takes all");
    let zlib = zlib.finish().expect("memory takes all");
    let zstd = zstd::encode_all(targets.as_slice(), 3).expect("memory takes all");
    let packed = |version, method, packed: &[u8]| compressed(version, method, packed, targets.len());
    let regions = [region(&several), vec![0; 24], region(&several[..2])].concat();
    vec![
        ("regions", CUDA, regions.clone()),
        ("relocatable", CUDA_RELOCATABLE, regions),
        ("entries", CUDA | IN_REGION, several.iter().flat_map(Entry::bytes).collect()),
        ("joined", CUDA | IN_REGION, joined(&several)),
        ("ptx", CUDA, region(&several[4..])),
        ("bundles", HIP, [targets.clone(), vec![0; 24], targets.clone()].concat()),
        ("zlib-1", HIP, packed(1, 0, &zlib)),
        ("zlib-2", HIP, packed(2, 0, &zlib)),
        ("zstd-1", HIP, [packed(1, 1, &zstd), packed(1, 1, &zstd)].concat()),
        ("zstd-2", HIP, packed(2, 1, &zstd)),
        ("zstd-3", HIP, packed(3, 1, &zstd)),
    ]
}

/// A bundle whose code lies within its list: pages of padding, as real ones have, would only be more bytes to change.
fn compact_bundle(targets: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = bundle(targets);
    let mut at = 32;
    for (name, _) in targets {
        bytes[at..at + 8].fill(0);
        at += 24 + name.len();
    }
    bytes.truncate(at);
    bytes
}
