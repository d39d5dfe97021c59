//! `libtorch list`: what the stores hold.

use camino::Utf8PathBuf;
use torchlift_schema::exit_code;

use super::{Format, Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::{VariantFacts, inspect, record};
use crate::report::fetch::FetchReport;
use crate::report::print_json;

/// Arguments of `libtorch list`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// How to print it
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(serde::Serialize)]
struct Row {
    id: String,
    root: Utf8PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<VariantFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fetched: Option<record::FetchRecord>,
}

pub(super) fn run(args: &ListArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let stores = scene.stores(None);
    let rows: Vec<Row> = stores
        .list()
        .into_iter()
        .map(|stored| {
            let facts = inspect(&stored.root, Some(&scene.places.facts()));
            let error = facts.as_ref().err().map(ToString::to_string);
            let fetched = record::read(&stored.root);
            Row { id: stored.id.to_string(), root: stored.root, facts: facts.ok(), error, fetched }
        })
        .collect();
    if args.format == Format::Json {
        print_json(&serde_json::json!({ "version": 1, "variants": rows }))?;
        return Ok(exit_code::OK);
    }
    for row in &rows {
        let what = match (&row.facts, &row.error) {
            (Some(facts), _) => format!("torch {}, {}", facts.version, facts.cpu_arch),
            (None, error) => format!("unusable: {}", error.as_deref().unwrap_or_default()),
        };
        print_line(&format!("{}\t{what}\t{}", row.id, row.root))?;
    }
    if rows.is_empty() {
        let roots: Vec<String> = stores.roots.iter().map(|root| format!("`{root}`")).collect();
        note(&mut FetchReport::new(), format!("no variant is in {}", roots.join(" or ")));
    }
    Ok(exit_code::OK)
}
