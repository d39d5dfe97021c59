//! How a build looks when it is over, and how its plan looks before: for people on stdout, or as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use torchlift_schema::Finding;

use super::progress::{counted, duration};
use crate::cargo::CrateTime;
use crate::container::BuildContainer;
use crate::libtorch::event::human_size;
use crate::plan::{Apart, BuildPlan, Difference, HostBuild, HostKnown};

/// What a build did.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BuildReport {
    /// The job.
    pub job: String,
    /// The cargo runs.
    pub builds: Vec<BuildResult>,
    /// The hosts.
    pub hosts: Vec<HostResult>,
    /// Warnings, and findings that were accepted.
    pub findings: Vec<Finding>,
    /// The whole time, in milliseconds.
    pub elapsed_ms: u64,
}

/// What one cargo run did.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BuildResult {
    /// Its key.
    pub key: String,
    /// Its kinds.
    pub kinds: Vec<String>,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Crates that were compiled.
    pub compiled: usize,
    /// Crates that were still good.
    pub fresh: usize,
    /// How long cargo took, in milliseconds.
    pub elapsed_ms: u64,
    /// Those that were compiled, in the order in which they were there.
    pub crates: Vec<CrateTime>,
}

/// What one host has now.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HostResult {
    /// Its name.
    pub host: String,
    /// The binary, below its path.
    pub bin: String,
    /// The binary's size in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: String,
    /// Whether the binary was published now; false when it lay there already.
    pub is_new: bool,
    /// The envelope's file.
    pub envelope: String,
    /// What of it nobody checked, which does not count as good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_checked: Vec<&'static str>,
}

/// The report as text.
pub fn render(report: &BuildReport) -> String {
    let mut text = String::new();
    for build in &report.builds {
        let kinds = if build.kinds.is_empty() { String::new() } else { format!(" for {}", build.kinds.join(", ")) };
        let done = if build.compiled == 0 {
            "nothing to compile".to_owned()
        } else {
            format!("{} compiled", counted(build.compiled, "crate"))
        };
        let time = duration(Duration::from_millis(build.elapsed_ms));
        let _ = writeln!(text, "build {}{kinds}: {done}, {time}", build.key);
    }
    for host in &report.hosts {
        let state = if host.is_new { "new" } else { "unchanged" };
        let _ = writeln!(text, "host {}: {} ({}, {state})", host.host, host.bin, human_size(host.size));
        if !host.not_checked.is_empty() {
            let _ = writeln!(text, "  not checked: {}", host.not_checked.join(", "));
        }
    }
    let time = duration(Duration::from_millis(report.elapsed_ms));
    let _ = writeln!(text, "job {} is ready for {} in {time}", report.job, counted(report.hosts.len(), "host"));
    text
}

/// The plan as text: what would be run, and where its results would go.
pub fn render_plan(plan: &BuildPlan) -> String {
    let mut text = String::new();
    let program = &plan.program;
    let _ = writeln!(
        text,
        "job {}: {} `{}` of package `{}`, profile {}",
        plan.job,
        program.kind.word(),
        program.name,
        program.package,
        plan.profile
    );
    for choice in &plan.chosen {
        let kind = if choice.kind.is_empty() { String::new() } else { format!(" for kind {}", choice.kind) };
        let _ = writeln!(text, "\nlibtorch{kind}: {}", choice.variant);
        let _ = writeln!(text, "  because   {}", choice.reason);
        for refused in &choice.refused {
            let _ = writeln!(text, "  not       {refused}");
        }
    }
    for build in &plan.builds {
        let _ = writeln!(text, "\nbuild {} for {} ({})", build.key, build.concerns(), build.hosts.join(", "));
        let _ = writeln!(text, "  target    {}", build.target);
        if let Some(libtorch) = &build.libtorch {
            let _ = writeln!(text, "  libtorch  {} ({})", libtorch.root, libtorch.version);
        }
        if let Some(container) = &build.container {
            text.push_str(&render_container(container));
        }
        if let Some(apart) = &build.apart {
            let _ = writeln!(text, "  apart     from {} by {}", apart.from, differences(apart));
        }
        let _ = writeln!(text, "  in        {}", plan.workspace);
        for name in &build.env_unset {
            let _ = writeln!(text, "  unset     {name}");
        }
        for (name, value) in &build.env {
            let _ = writeln!(text, "  set       {name}={}", word(value));
        }
        let command: Vec<String> = std::iter::once(word(&build.cargo.to_string_lossy()))
            .chain(build.args.iter().map(|arg| word(arg)))
            .collect();
        let _ = writeln!(text, "  run       {}", command.join(" "));
    }
    for host in &plan.hosts {
        text.push_str(&render_host(host));
    }
    text
}

/// Where cargo runs, and what of this machine is seen there.
fn render_container(container: &BuildContainer) -> String {
    /// Digits of an image's id that a person compares.
    const DIGITS: usize = 12;
    let mut text = String::new();
    let engine: Vec<String> = container.engine.words().iter().map(|it| word(it)).collect();
    let id: String = container.id.chars().take(DIGITS).collect();
    let glibc = container.glibc.as_ref().map(|glibc| format!(", with glibc {glibc}")).unwrap_or_default();
    let _ = writeln!(text, "  container {}, image `{}` ({id}){glibc}", engine.join(" "), container.image);
    let options: Vec<String> = container.options.iter().map(|it| word(it)).collect();
    let _ = writeln!(text, "  options   {}", options.join(" "));
    if let Some(toolchain) = &container.toolchain {
        let _ = writeln!(text, "  toolchain {toolchain} of this machine: the image has no cargo");
    }
    for mount in &container.mounts {
        let mode = if mount.is_read_only { " (read only)" } else { "" };
        let _ = writeln!(text, "  mount     {}{mode}", mount.path);
    }
    text
}

/// In what two keys differ: `RUSTFLAGS (`-g` here, nothing there)`.
fn differences(apart: &Apart) -> String {
    let value = |value: &Option<String>| match value.as_deref() {
        None | Some("") => "nothing".to_owned(),
        Some(text) => format!("`{text}`"),
    };
    let part = |by: &Difference| format!("{} ({} here, {} there)", by.part, value(&by.here), value(&by.there));
    apart.by.iter().map(part).collect::<Vec<_>>().join("; ")
}

fn render_host(host: &HostBuild) -> String {
    let mut text = String::new();
    let kind = host.kind.as_ref().map(|kind| format!(" (kind {kind})")).unwrap_or_default();
    let _ = writeln!(text, "\nhost {}{kind}", host.name);
    let _ = writeln!(text, "  build            {}", host.build);
    let _ = writeln!(text, "  bin              {}", host.bin);
    if !host.ld_library_path.is_empty() {
        let _ = writeln!(text, "  LD_LIBRARY_PATH  {}", host.ld_library_path);
    }
    if let Some(HostKnown { has, file, age_days }) = &host.facts {
        let from = match (file, age_days) {
            (None, _) => "this machine says".to_owned(),
            (Some(file), Some(0)) => format!("{file}, of today"),
            (Some(file), Some(1)) => format!("{file}, 1 day old"),
            (Some(file), Some(days)) => format!("{file}, {days} days old"),
            (Some(file), None) => format!("{file}, of a time to come"),
        };
        let _ = writeln!(text, "  has              {has} ({from})");
    }
    if !host.cwd_subpath.is_empty() {
        let _ = writeln!(text, "  folder           {}", host.cwd_subpath);
    }
    text
}

/// A word as a shell takes it; what no shell can take is shown with its escapes.
fn word(text: &str) -> String {
    shlex::try_quote(text).map_or_else(|_| format!("{text:?}"), |quoted| quoted.into_owned())
}
