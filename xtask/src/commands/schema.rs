//! `schema`: writes the JSON Schemas of the formats into Torchlift's own checkout, or checks that they are current.
//!
//! Owns which files are stale. The texts come from `torchlift_schema::schema`.

use camino::{Utf8Path, Utf8PathBuf};
use cargo_metadata::MetadataCommand;
use fs_err as fs;
use torchlift_schema::{Finding, Place, exit_code, schema};

use super::{CHECK_FAILED, Context};
use crate::error::CommandError;
use crate::file;
use crate::report::print_data;

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
pub struct SchemaArgs {
    /// Write nothing; name each file that is not current and fail
    #[arg(long)]
    check: bool,
}

/// Runs it.
pub fn run(args: &SchemaArgs, context: &Context) -> Result<u8, CommandError> {
    let folder = folder(context)?;
    let stale = stale(&folder)?;
    if args.check {
        return check(&folder, &stale, &context.invocation);
    }
    for change in &stale {
        let path = folder.join(&change.name);
        match &change.text {
            Some(text) => write(&path, text),
            None => fs::remove_file(&path).map_err(|error| failed("cannot remove an old schema", error)),
        }?;
        tell(&format!("{} {path}", if change.text.is_some() { "wrote" } else { "removed" }))?;
    }
    if stale.is_empty() {
        tell(&format!("the schemas in {folder} are current"))?;
    }
    Ok(exit_code::OK)
}

/// A file that is not as it should be.
struct Stale {
    name: String,
    /// What it should be; none for a schema that no type has any more.
    text: Option<String>,
    is_there: bool,
}

/// The folder of the schemas in the workspace that cargo finds from the working directory.
fn folder(context: &Context) -> Result<Utf8PathBuf, CommandError> {
    let elsewhere = || {
        CommandError::new(exit_code::USAGE, format!("`{} schema` works in Torchlift's own checkout only", context.invocation))
            .hint("change into a clone of Torchlift; the package `torchlift-schema` has the schemas of its version below `schema`")
    };
    let metadata = MetadataCommand::new()
        .current_dir(&context.cwd)
        .no_deps()
        .exec()
        .map_err(|error| elsewhere().because(error))?;
    let package = metadata.workspace_packages().into_iter().find(|package| package.name.as_str() == "torchlift-schema");
    match package.and_then(|package| package.manifest_path.parent()) {
        Some(root) => Ok(root.join("schema")),
        None => Err(elsewhere()),
    }
}

fn stale(folder: &Utf8Path) -> Result<Vec<Stale>, CommandError> {
    let wanted = schema::files();
    let mut stale = Vec::new();
    for (name, text) in &wanted {
        let there = match file::read_to_string(&folder.join(name)) {
            Ok(there) => Some(there),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("cannot read a schema", error)),
        };
        if there.as_ref() != Some(text) {
            stale.push(Stale { name: (*name).to_owned(), text: Some(text.clone()), is_there: there.is_some() });
        }
    }
    let entries = match folder.as_std_path().is_dir() {
        true => folder.read_dir_utf8().and_then(Iterator::collect::<Result<Vec<_>, _>>),
        false => Ok(Vec::new()),
    };
    let mut old: Vec<String> = entries
        .map_err(|error| failed("cannot list the schemas", error))?
        .iter()
        .map(|entry| entry.file_name().to_owned())
        .filter(|name| name.ends_with(schema::SUFFIX) && wanted.iter().all(|(wanted, _)| wanted != name))
        .collect();
    old.sort();
    stale.extend(old.into_iter().map(|name| Stale { name, text: None, is_there: true }));
    Ok(stale)
}

fn check(folder: &Utf8Path, stale: &[Stale], invocation: &str) -> Result<u8, CommandError> {
    if stale.is_empty() {
        tell(&format!("the schemas in {folder} are current"))?;
        return Ok(exit_code::OK);
    }
    let findings = stale.iter().map(|file| {
        let message = match (&file.text, file.is_there) {
            (None, _) => "no type has this schema any more",
            (Some(_), true) => "is not what the types say",
            (Some(_), false) => "is not there",
        };
        Finding::error("schema-stale", Place::file(folder.join(&file.name)), message)
            .remedy(format!("run `{invocation} schema` and commit what it writes"))
    });
    Err(CommandError::findings(CHECK_FAILED, "the checked-in schemas are not current", findings.collect()))
}

/// Written beside and renamed in, so that a full disk leaves the old one.
fn write(path: &Utf8Path, text: &str) -> Result<(), CommandError> {
    let beside = path.with_extension("json.new");
    let folder = path.parent().unwrap_or(Utf8Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&beside, text))
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|error| failed("cannot write a schema", error))
}

fn failed(what: &str, error: std::io::Error) -> CommandError {
    CommandError::new(exit_code::USAGE, what)
        .because(error)
        .hint("move away what is no file of a schema, and see that you may write there")
}

fn tell(line: &str) -> Result<(), CommandError> {
    print_data(&format!("{line}\n"))
}
