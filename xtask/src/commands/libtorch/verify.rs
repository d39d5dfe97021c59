//! `libtorch verify`: are the files of a variant those that were put into the store?

use torchlift_schema::{Finding, VariantId, exit_code};

use super::{Format, Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::Stored;
use crate::libtorch::event::human_size;
use crate::libtorch::verify::{Outcome, Verified, VerifyError, verify};
use crate::report::fetch::FetchReport;
use crate::report::{print_json, print_warnings};
use crate::workspace::offer;

/// Arguments of `libtorch verify`.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// The variant [default: all]
    #[arg(value_name = "ID")]
    id: Option<VariantId>,
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &VerifyArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let mut verified = Vec::new();
    for stored in chosen(args, scene)? {
        note(&mut report, format!("`{}` in `{}`", stored.id, stored.root));
        let outcome = verify(&stored, &mut |event| report.hear(event));
        verified.push(outcome.map_err(|error| failed(error, &stored))?);
    }
    let findings: Vec<Finding> = verified.iter().flat_map(|verified| verified.findings(args.id.is_some())).collect();
    if args.format == Format::Json {
        print_json(&serde_json::json!({ "version": 1, "variants": verified }))?;
    } else {
        for verified in &verified {
            print_line(&line(verified))?;
        }
    }
    if findings.iter().any(Finding::is_error) {
        let summary = "not every variant is what was put into the store";
        return Err(CommandError::findings(exit_code::INTEGRITY, summary, findings));
    }
    print_warnings(&findings);
    Ok(exit_code::OK)
}

fn chosen(args: &VerifyArgs, scene: &Scene<'_>) -> Result<Vec<Stored>, CommandError> {
    let stores = scene.stores(None);
    let Some(id) = &args.id else { return Ok(stores.list()) };
    if let Some(root) = stores.resolve(id) {
        return Ok(vec![Stored { id: id.clone(), root }]);
    }
    let stored: Vec<String> = stores.list().into_iter().map(|stored| stored.id.to_string()).collect();
    let names: Vec<&str> = stored.iter().map(String::as_str).collect();
    let failure = CommandError::new(exit_code::USAGE, format!("no store has `{id}`"));
    Err(if names.is_empty() { failure } else { failure.hint(offer("variants", id.as_str(), &names)) })
}

fn line(verified: &Verified) -> String {
    let what = match &verified.outcome {
        Outcome::Same { files, bytes } => format!("as it was put in: {files} files, {}", human_size(*bytes)),
        Outcome::Differs { differences } => format!("{} of its files differ", differences.len()),
        Outcome::Unrecorded => "nothing says what it was".to_owned(),
        Outcome::BadList { .. } => "its list of files is not the one that was written".to_owned(),
    };
    format!("{}\t{what}\t{}", verified.id, verified.root)
}

fn failed(error: VerifyError, stored: &Stored) -> CommandError {
    let failure = CommandError::new(exit_code::BUILD, format!("`{}` was not verified", stored.id));
    match error {
        VerifyError::Hold(error) => failure.because(error),
        other => failure.because(other),
    }
}
