//! What it costs to learn which GPUs a large library has code for, from the start of a process to its end.
//!
//! The yardsticks are a plain read of the same bytes and NVIDIA's own `cuobjdump`, which lists the same entries.

use std::io::Read as _;
use std::process::{Command, Output};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::clock::Clock;
use torchlift_schema::exit_code;

use super::{Bound, Figure, median_ms, timed};
use crate::error::CommandError;
use crate::libtorch::Places;

/// Enough for a median.
const ROUNDS: usize = 9;
/// Bytes at a time of the plain read; larger ones are no faster.
const CHUNK: usize = 1 << 20;
/// What the tool says before its memory in KiB.
const MEMORY: &str = "private memory: ";

/// What is read, and with what else.
#[derive(Clone, Debug)]
pub struct Subject {
    /// A library with GPU code.
    pub library: Utf8PathBuf,
    /// NVIDIA's tool.
    pub cuobjdump: Option<Utf8PathBuf>,
}

impl Subject {
    /// Finds the largest `libtorch_cuda.so` in the store, and among what the tests with vendors' tools unpack into the
    /// cache, and `cuobjdump` there.
    pub fn find(places: &Places) -> Option<Self> {
        let tools = entries(&places.cache.join("tools"));
        let families = entries(&places.store());
        let trees =
            families.iter().flat_map(|family| entries(family)).chain(tools.iter().map(|tool| tool.join("torch")));
        let libraries = trees.map(|tree| tree.join("lib/libtorch_cuda.so"));
        let library = libraries.max_by_key(|file| fs_err::metadata(file).map_or(0, |metadata| metadata.len()))?;
        let cuobjdump = tools.iter().map(|tool| tool.join("nvidia/cu13/bin/cuobjdump")).find(|file| file.is_file());
        library.is_file().then_some(Self { library, cuobjdump })
    }

    /// The folder that the library lies in, and all files there.
    pub(super) fn libraries(&self) -> Result<(Utf8PathBuf, Vec<Utf8PathBuf>), CommandError> {
        let failed = |what: String| CommandError::new(exit_code::BUILD, what);
        let folder = self.library.parent().ok_or_else(|| failed(format!("`{}` has no folder", self.library)))?;
        let all =
            folder.read_dir_utf8().map_err(|error| failed(format!("`{folder}` cannot be read")).because(error))?;
        let files = all.flatten().map(|entry| entry.into_path()).filter(|file| file.is_file()).collect();
        Ok((folder.to_owned(), files))
    }
}

fn entries(folder: &Utf8Path) -> Vec<Utf8PathBuf> {
    folder.read_dir_utf8().map_or_else(|_| Vec::new(), |all| all.flatten().map(|entry| entry.into_path()).collect())
}

/// Measures `reader`, the built example `gpu_code`.
pub fn figures(reader: &Utf8Path, subject: &Subject) -> Result<Vec<Figure>, CommandError> {
    let library = &subject.library;
    let (mut ours, mut plain, mut memory) = (Vec::new(), Vec::new(), 0_u32);
    // The first read brings the file into memory.
    read_whole(library)?;
    for _ in 0..ROUNDS {
        let (output, taken) = timed(Command::new(reader).arg(library))?;
        memory = memory.max(private_kib(&output)?);
        ours.push(taken);
        plain.push(read_whole(library)?);
    }
    let name = format!("GPU code of libtorch_cuda.so ({:.1} GB), warm", gigabytes(size(library)));
    let figure = |yardstick| Figure {
        name: name.clone(),
        ours: median_ms(&ours),
        yardstick,
        unit: "ms",
        bound: Bound::Absolute(100.0),
    };
    let mut figures = vec![figure(Some(("plain read of the same bytes".into(), median_ms(&plain))))];
    if let Some(cuobjdump) = &subject.cuobjdump {
        let (_, taken) = timed(Command::new(cuobjdump).arg("--list-elf").arg(library))?;
        figures.push(figure(Some(("cuobjdump --list-elf, once".into(), median_ms(&[taken])))));
    }
    figures.push(Figure {
        name: "private memory of reading it".into(),
        ours: f64::from(memory) / 1024.0,
        yardstick: None,
        unit: "MiB",
        bound: Bound::Absolute(30.0),
    });
    Ok(figures)
}

fn private_kib(output: &Output) -> Result<u32, CommandError> {
    let said = String::from_utf8_lossy(&output.stderr);
    let number = said.split_once(MEMORY).and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    number.ok_or_else(|| CommandError::new(exit_code::BUILD, "the reader of GPU code did not say what memory it holds"))
}

/// Bytes of a file; 0 when it is not there.
pub(super) fn size(file: &Utf8Path) -> u64 {
    fs_err::metadata(file).map_or(0, |metadata| metadata.len())
}

/// Bytes in thousands of millions.
#[expect(clippy::cast_precision_loss, reason = "what has more than 9 PB is no libtorch")]
pub(super) fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// How long it takes to read a file from its beginning to its end.
pub(super) fn read_whole(file: &Utf8Path) -> Result<Duration, CommandError> {
    let cannot = |error| CommandError::new(exit_code::BUILD, format!("`{file}` cannot be read")).because(error);
    let mut buffer = vec![0; CHUNK];
    let clock = Clock::start();
    let start = clock.now();
    let mut opened = fs_err::File::open(file).map_err(cannot)?;
    while opened.read(&mut buffer).map_err(cannot)? > 0 {}
    Ok(clock.now().since(start))
}
