//! Putting a libtorch that is on this machine into the store: a folder, an archive, a wheel.
//!
//! Owns what such a thing may be and which id it gets. What it is, its files say: one of another version or for another
//! CPU is another variant, and is taken as such. Must not print, and never changes what it was given.

use std::collections::BTreeSet;
use std::io::Read as _;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::gpu::CudaArch;
use torchlift_schema::{Finding, Place, VariantId, exit_code};

use super::arch::{self, ArchFile, Making};
use super::archive::{Archive, ArchiveError, Packing, file_digest, regular, unpack_tar};
use super::cut::{self, Cut, Extent};
use super::event::{FetchEvent, Listener, human_size};
use super::inspect::{InspectError, inspect, peek};
use super::record::Source;
use super::stage::{self, Made, Stage, StageError};
use super::store::{built_id, fetched_id};
use super::tool::free_space;
use super::tree::{self, Manner, TreeError};
use super::wheel::{FileName, Wheel};
use super::{Places, Variant, VariantFacts};
use crate::error::CommandError;

/// What to add.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// A folder, an archive or a wheel.
    pub path: &'a Utf8Path,
    /// Further wheels whose libraries belong to it.
    pub with: &'a [Utf8PathBuf],
    /// Folders with further libraries, of which those that are needed are taken.
    pub libraries: &'a [Utf8PathBuf],
    /// The id; none takes what the facts say.
    pub id: Option<&'a VariantId>,
    /// What the archive's digest has to be, lower-case hex.
    pub sha256: Option<&'a str>,
    /// How it was made; none believes its own `.arch`.
    pub making: Option<Making>,
}

/// A variant that is in the store now.
#[derive(Clone, Debug)]
pub struct Added {
    /// The variant.
    pub variant: Variant,
    /// Whether the store had the same already.
    pub was_there: bool,
    /// What is doubtful about it.
    pub warnings: Vec<Finding>,
}

/// Why something was not added; the store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// An archive is refused.
    #[error("an archive is refused")]
    Archive(#[from] ArchiveError),
    /// A folder is refused, or what an archive holds.
    #[error("it is not taken")]
    Tree(#[from] TreeError),
    /// It is no libtorch.
    #[error("it is no libtorch that can be used")]
    Inspect(#[from] InspectError),
    /// The store does not take it.
    #[error("the store does not take it")]
    Stage(#[from] StageError),
    /// `--sha256` with a folder.
    #[error("`{path}` is a folder, which has no digest")]
    DigestOfFolder {
        /// The folder.
        path: Utf8PathBuf,
    },
    /// Its version cannot be part of an id.
    #[error("its version `{version}` cannot be part of a variant's id")]
    NoId {
        /// What its files say.
        version: String,
    },
}

/// What a path holds, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Folder,
    Zip,
    Tar(Packing),
}

/// Adds it to the user's store.
///
/// Several processes may call it at once: the others wait. Adding the same again finds it there.
///
/// # Errors
/// One variant for each thing that a person can mend; nothing of it is left in the store then.
pub fn add(request: &Request<'_>, places: &Places, listen: Listener<'_>) -> Result<Added, AddError> {
    let form = form(request.path)?;
    let mut sources = Vec::new();
    if form == Form::Folder {
        if request.sha256.is_some() {
            return Err(AddError::DigestOfFolder { path: request.path.to_owned() });
        }
        tree::look(request.path)?;
        // Said before a long copy, with the hint that a person needs who named the folder above or below.
        peek(request.path)?;
    } else {
        sources.push(digested(request.path, request.sha256, listen)?);
    }
    let store = places.store();
    let _lock = stage::lock(&store, listen)?;
    stage::sweep(&store)?;
    let stage = Stage::open(&store)?;
    let given = put(form, request, &stage, &mut sources, listen)?;
    tree::complete(&stage.root, request.libraries, listen)?;
    listen(FetchEvent::Note("reading what it is".to_owned()));
    let facts = inspect(&stage.root, None)?;
    let said = given.arch.as_ref();
    let making = request.making.unwrap_or(match said {
        Some(file) if file.is_compiled() => Making::Compiled,
        _ => Making::Precompiled,
    });
    let id = match request.id {
        Some(id) => id.clone(),
        None => default_id(&facts, making).ok_or_else(|| AddError::NoId { version: facts.version.clone() })?,
    };
    let mut warnings = given.warnings;
    if let Some(said) = said {
        let codes = arch::gpu_codes(&facts);
        warnings.extend(said.disagreements(&given.arch_root, None, &facts, codes.as_ref()));
    }
    warnings.extend(lacking(&stage.root, request.path));
    let made = Made { id: &id, facts: &facts, making, is_cut: false, sources };
    let published = stage.publish(made, listen)?;
    let facts = inspect(&published.root, Some(&places.facts()))?;
    let variant = Variant { id: Some(id), root: published.root, facts };
    Ok(Added { variant, was_there: published.was_there, warnings })
}

/// The id that a variant gets when nobody names one.
fn default_id(facts: &VariantFacts, making: Making) -> Option<VariantId> {
    let codes = arch::gpu_codes(facts).unwrap_or_default();
    let archs: BTreeSet<CudaArch> = codes.iter().filter_map(arch::sass).collect();
    match making {
        Making::Compiled if !archs.is_empty() => built_id(archs.into_iter(), &facts.version, &facts.cpu_arch),
        _ => fetched_id(&facts.accelerator, &facts.version, &facts.cpu_arch),
    }
}

/// What was told of what was put in.
struct Given {
    /// The `.arch` file that it came with, and the folder that it lay in.
    arch: Option<ArchFile>,
    arch_root: Utf8PathBuf,
    warnings: Vec<Finding>,
}

/// Puts what is to be added into the stage.
fn put(
    form: Form,
    request: &Request<'_>,
    stage: &Stage,
    sources: &mut Vec<Source>,
    listen: Listener<'_>,
) -> Result<Given, AddError> {
    let path = request.path;
    let root = match form {
        Form::Folder => {
            tree::take(path, &stage.root, Manner::Copy, listen)?;
            let size = super::tool::folder_size(&stage.root);
            sources.push(Source { file: path.to_string(), size, sha256: String::new(), origin: "folder".to_owned() });
            path.to_owned()
        }
        Form::Zip if is_wheel(path)? => {
            let missing = put_wheel(path, stage, listen)?;
            put_with(request, missing, stage, sources, listen)?;
            return Ok(Given { arch: None, arch_root: path.to_owned(), warnings: Vec::new() });
        }
        Form::Zip => {
            let mut archive = Archive::open(path)?;
            room(&stage.scratch, archive.files().map(|(_, size)| size).sum())?;
            cut::unpack_all(&mut archive, &stage.scratch, listen)?;
            put_unpacked(path, stage, listen)?
        }
        Form::Tar(packing) => {
            unpack_tar(path, packing, &stage.scratch, listen)?;
            put_unpacked(path, stage, listen)?
        }
    };
    put_with(request, cut::Missing::nothing(), stage, sources, listen)?;
    let mut warnings = Vec::new();
    let arch = ArchFile::read(&root).unwrap_or_else(|error| {
        let place = Place::file(path.as_str());
        let message = format!("its `.arch` cannot be read: {error}");
        warnings.push(
            Finding::warning("libtorch-arch-file", place, message).remedy("the libraries count; delete the `.arch`"),
        );
        None
    });
    // Its folder in the scratch is gone when somebody reads this.
    Ok(Given { arch, arch_root: path.to_owned(), warnings })
}

/// Takes what an archive held into the variant's place; gives the folder that it was in.
fn put_unpacked(archive: &Utf8Path, stage: &Stage, listen: Listener<'_>) -> Result<Utf8PathBuf, AddError> {
    let root = tree::locate(&stage.scratch, archive)?;
    tree::take(&root, &stage.root, Manner::Move, listen).map_err(|error| match error {
        // The folder that a person knows is the archive.
        TreeError::NotItsOwn { .. } => TreeError::NotItsOwn { root: archive.to_owned() },
        other => other,
    })?;
    Ok(root)
}

fn put_wheel(path: &Utf8Path, stage: &Stage, listen: Listener<'_>) -> Result<cut::Missing, AddError> {
    let mut wheel = Wheel::open(path)?;
    if !wheel.archive.has("torch/lib/libtorch_cpu.so") {
        return Err(TreeError::NoLibtorch { folder: path.to_owned() }.into());
    }
    let version = wheel.torch_version()?;
    let cpu_arch = wheel_arch(path);
    let mut cut = Cut { wheel: &mut wheel, extent: Extent::Whole, root: &stage.root, cpu_arch: &cpu_arch };
    room(&stage.root, cut.size())?;
    let missing = cut.unpack(listen)?;
    cut::write(&stage.root.join("build-version"), format!("{version}\n").as_bytes())?;
    Ok(missing)
}

/// Takes the libraries of further wheels.
fn put_with(
    request: &Request<'_>,
    mut missing: cut::Missing,
    stage: &Stage,
    sources: &mut Vec<Source>,
    listen: Listener<'_>,
) -> Result<(), AddError> {
    for path in request.with {
        sources.push(digested(path, None, listen)?);
        let mut wheel = Wheel::open(path)?;
        room(&stage.root, wheel.archive.files().map(|(_, size)| size).sum())?;
        listen(FetchEvent::Note(format!("taking the libraries of `{path}`")));
        missing.take_from(&mut wheel, Extent::Whole, &stage.root, &mut |_| {})?;
    }
    Ok(())
}

/// A warning for NVIDIA's libraries that are needed and are not there.
pub(crate) fn lacking(root: &Utf8Path, path: &Utf8Path) -> Option<Finding> {
    let lacking = cut::lacking(root);
    if lacking.is_empty() {
        return None;
    }
    let names: Vec<String> = lacking.iter().map(|name| format!("`{name}`")).collect();
    let message = format!("{} needed and not in it: every host must have them itself", join(&names));
    let remedy = "add it with the wheels that have them (`--with WHEEL`), or fetch the variant";
    Some(Finding::warning("libtorch-incomplete", Place::file(path.as_str()), message).remedy(remedy))
}

fn join(names: &[String]) -> String {
    match names.len() {
        0 => String::new(),
        1 => format!("{} is", names[0]),
        count if count > 6 => format!("{} and {} more are", names[..5].join(", "), count - 5),
        count => format!("{} and {} are", names[..count - 1].join(", "), names[count - 1]),
    }
}

fn form(path: &Utf8Path) -> Result<Form, ArchiveError> {
    let in_file = |source| ArchiveError::File { file: path.to_owned(), source };
    if fs_err::metadata(path).map_err(in_file)?.is_dir() {
        return Ok(Form::Folder);
    }
    regular(path)?;
    // A tar archive has its mark behind the name and the numbers of the first entry.
    let mut head = Vec::new();
    fs_err::File::open(path).map_err(in_file)?.take(512).read_to_end(&mut head).map_err(in_file)?;
    let has = |at: usize, mark: &[u8]| head.get(at..at + mark.len()) == Some(mark);
    match () {
        () if has(0, b"PK\x03\x04") || has(0, b"PK\x05\x06") => Ok(Form::Zip),
        () if has(0, b"\x1f\x8b") => Ok(Form::Tar(Packing::Gzip)),
        () if has(0, b"\x28\xb5\x2f\xfd") => Ok(Form::Tar(Packing::Zstd)),
        () if has(257, b"ustar") => Ok(Form::Tar(Packing::Plain)),
        () => Err(ArchiveError::Unknown { archive: path.to_owned() }),
    }
}

/// A wheel has its own lists in a folder beside the package's.
fn is_wheel(path: &Utf8Path) -> Result<bool, ArchiveError> {
    let archive = Archive::open(path)?;
    let is_list = |name: &str| name.ends_with(".dist-info/RECORD") && name.matches('/').count() == 1;
    Ok(archive.files().any(|(name, _)| is_list(name)))
}

/// The CPU architecture that a wheel's name says; this machine's where it says none.
fn wheel_arch(path: &Utf8Path) -> String {
    let name = path.file_name().and_then(FileName::parse);
    let is_for = |arch: &&&str| name.as_ref().is_some_and(|name| name.is_for(arch));
    ["x86_64", "aarch64"].iter().find(is_for).copied().unwrap_or(std::env::consts::ARCH).to_owned()
}

/// An archive as a source, held against the digest that was asked for.
fn digested(path: &Utf8Path, wanted: Option<&str>, listen: Listener<'_>) -> Result<Source, ArchiveError> {
    let size = regular(path)?.len();
    if size > 100_000_000 {
        listen(FetchEvent::Note(format!("checking `{path}` ({})", human_size(size))));
    }
    let sha256 = file_digest(path)?;
    match wanted {
        Some(expected) if expected != sha256 => {
            let expected = expected.to_owned();
            Err(ArchiveError::Unexpected { archive: path.to_owned(), expected, found: sha256 })
        }
        _ => Ok(Source {
            file: path.file_name().unwrap_or_default().to_owned(),
            size,
            sha256,
            origin: "added".to_owned(),
        }),
    }
}

fn room(folder: &Utf8Path, bytes: u64) -> Result<(), ArchiveError> {
    let needed = bytes.saturating_add(super::archive::SLACK);
    match free_space(folder) {
        Some(available) if available < needed => {
            Err(ArchiveError::Space { folder: folder.to_owned(), needed, available })
        }
        _ => Ok(()),
    }
}

impl AddError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Archive(error) => error.hint(),
            Self::Tree(error) => error.hint(),
            Self::Stage(error) => error.hint(),
            Self::Inspect(InspectError::Inside { parent, .. }) => Some(format!("name `{parent}`")),
            Self::Inspect(_) => {
                Some("name a folder that has `lib` and `include`, an archive of one, or a wheel".to_owned())
            }
            Self::DigestOfFolder { .. } => Some("leave `--sha256` out".to_owned()),
            Self::NoId { .. } => Some("give it one with `--name FAMILY/NAME`".to_owned()),
        }
    }

    /// The command's error: `what` is what was to be added.
    pub fn into_command(self, what: &Utf8Path) -> CommandError {
        let code = match &self {
            Self::Archive(ArchiveError::Unexpected { .. } | ArchiveError::Digest { .. }) => exit_code::INTEGRITY,
            Self::DigestOfFolder { .. } => exit_code::USAGE,
            _ => exit_code::BUILD,
        };
        let hint = self.hint();
        let failure = CommandError::new(code, format!("`{what}` was not added"));
        // The outer words only say whose error it is.
        let failure = match self {
            Self::Archive(error) => failure.because(error),
            Self::Tree(error) => failure.because(error),
            Self::Inspect(error) => failure.because(error),
            Self::Stage(error) => failure.because(error),
            other => failure.because(other),
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}
