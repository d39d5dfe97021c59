//! `libtorch add`: a folder, an archive or a wheel of this machine, into the user's store.

use camino::Utf8PathBuf;
use torchlift_schema::{VariantId, exit_code};

use super::{Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::add::{Request, add};
use crate::report::fetch::FetchReport;
use crate::report::print_warnings;

/// Arguments of `libtorch add`.
#[derive(Debug, clap::Args)]
pub(super) struct AddArgs {
    /// A libtorch folder, the `torch` folder of an unpacked wheel, a wheel, or a zip or tar archive (gzip, zstd)
    #[arg(value_name = "DIR|ARCHIVE|WHEEL")]
    path: Utf8PathBuf,
    /// Its id in the store [default: what its files say, such as `precompiled/cu128-2.9.0`]
    #[arg(long, value_name = "FAMILY/NAME")]
    name: Option<VariantId>,
    /// A further wheel whose libraries belong to it, such as one of NVIDIA's; may be given again
    #[arg(long, value_name = "WHEEL")]
    with: Vec<Utf8PathBuf>,
    /// A folder with further libraries, such as a CUDA toolkit's `lib64`: those that are needed are taken; may be given again
    #[arg(long, value_name = "DIR")]
    libraries: Vec<Utf8PathBuf>,
    /// What the archive's digest has to be
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    sha256: Option<String>,
}

pub(super) fn run(args: &AddArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let cwd = &scene.context.cwd;
    let path = cwd.join(&args.path);
    let with: Vec<Utf8PathBuf> = args.with.iter().map(|path| cwd.join(path)).collect();
    let libraries: Vec<Utf8PathBuf> = args.libraries.iter().map(|path| cwd.join(path)).collect();
    let request = Request {
        path: &path,
        with: &with,
        libraries: &libraries,
        id: args.name.as_ref(),
        sha256: args.sha256.as_deref(),
        making: None,
    };
    let added = add(&request, &scene.places, &mut |event| report.hear(event))
        .map_err(|error| error.into_command(&args.path))?;
    print_warnings(&added.warnings);
    if let Some(id) = &added.variant.id {
        let was_there = if added.was_there { ", as it was before" } else { "" };
        note(&mut report, format!("`{id}` is in the store: torch {}{was_there}", added.variant.facts.version));
    }
    print_line(added.variant.root.as_str())?;
    Ok(exit_code::OK)
}

fn sha256(text: &str) -> Result<String, String> {
    let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| text.to_ascii_lowercase()).ok_or_else(|| "a SHA-256 has 64 hexadecimal digits".to_owned())
}
