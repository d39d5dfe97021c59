//! `libtorch list`: what the stores hold.

use camino::Utf8PathBuf;
use torchlift_schema::{Accelerator, Finding, exit_code};

use super::{Format, Scene, note, print_line};
use crate::error::CommandError;
use crate::libtorch::arch::{ArchFile, gpu_codes};
use crate::libtorch::{Places, Stored, VariantFacts, active, inspect, record};
use crate::report::fetch::FetchReport;
use crate::report::{print_json, print_warnings};

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
    /// Whether the pointer that counts names it.
    is_active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<VariantFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What its `.arch` says; facts win.
    #[serde(skip_serializing_if = "Option::is_none")]
    arch: Option<ArchFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fetched: Option<record::FetchRecord>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Finding>,
}

pub(super) fn run(args: &ListArgs, scene: &Scene<'_>) -> Result<u8, CommandError> {
    let mut report = FetchReport::new();
    let stores = scene.stores(None);
    let pointer = active::case(&scene.env).and_then(|case| active::read(&stores, case.as_deref()));
    let active = match pointer {
        Ok(pointer) => pointer.and_then(|pointer| {
            let root = stores.resolve(&pointer.id);
            if root.is_none() {
                note(&mut report, format!("`{}` names `{}`, which no store has", pointer.file, pointer.id));
            }
            root
        }),
        Err(error) => {
            note(&mut report, error.to_string());
            None
        }
    };
    let rows: Vec<Row> = stores.list().into_iter().map(|stored| row(stored, &scene.places, active.as_ref())).collect();
    if args.format == Format::Json {
        print_json(&serde_json::json!({ "version": 1, "variants": rows }))?;
        return Ok(exit_code::OK);
    }
    for row in &rows {
        let what = match (&row.facts, &row.error) {
            (Some(facts), _) => {
                let active = if row.is_active { ", active" } else { "" };
                format!("torch {}, {}, {}{active}", facts.version, accelerator(&facts.accelerator), facts.cpu_arch)
            }
            (None, error) => format!("unusable: {}", error.as_deref().unwrap_or_default()),
        };
        print_line(&format!("{}\t{what}\t{}", row.id, row.root))?;
        print_warnings(&row.findings);
    }
    if rows.is_empty() {
        let roots: Vec<String> = stores.roots.iter().map(|root| format!("`{root}`")).collect();
        note(&mut report, format!("no variant is in {}", roots.join(" or ")));
    }
    Ok(exit_code::OK)
}

fn row(stored: Stored, places: &Places, active: Option<&Utf8PathBuf>) -> Row {
    let facts = inspect(&stored.root, Some(&places.facts()));
    let error = facts.as_ref().err().map(ToString::to_string);
    let facts = facts.ok();
    let (arch, unreadable) = match ArchFile::read(&stored.root) {
        Ok(arch) => (arch, None),
        Err(error) => (None, Some(format!("its `.arch` cannot be read: {error}"))),
    };
    let mut findings: Vec<Finding> = match (&arch, &facts) {
        (Some(arch), Some(facts)) => {
            arch.disagreements(&stored.root, Some(&stored.id), facts, gpu_codes(facts).as_ref())
        }
        _ => Vec::new(),
    };
    let place = || torchlift_schema::Place::file(stored.root.as_str());
    findings.extend(unreadable.map(|text| {
        Finding::warning("libtorch-arch-file", place(), text)
            .remedy("correct or delete its `.arch`: the libraries count")
    }));
    Row {
        id: stored.id.to_string(),
        is_active: active == Some(&stored.root),
        facts,
        error,
        arch,
        fetched: record::read(&stored.root),
        findings,
        root: stored.root,
    }
}

fn accelerator(accelerator: &Accelerator) -> String {
    match accelerator {
        Accelerator::Cuda(toolkit) => format!("CUDA {toolkit}").trim_end().to_owned(),
        Accelerator::Rocm(toolkit) => format!("ROCm {toolkit}").trim_end().to_owned(),
        _ => "CPU".to_owned(),
    }
}
