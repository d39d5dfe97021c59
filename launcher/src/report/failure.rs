//! How a failure or a list of findings looks on stderr.
//!
//! ```text
//! error: host `gpu-07` cannot run `train`
//!   caused by: `libtorch_cpu.so` needs GLIBC_2.34, the host offers 2.31
//!
//! hint: build in an older container (`kind.arm.container`)
//! ```
//!
//! Paths, arguments and other people's words are in all of it, so that what a terminal would obey is spelled out here, for
//! everyone. Only causes and hints may have several lines: those of a cause are indented, and stay below it.

use std::error::Error as _;
use std::fmt::Write as _;

use clap::error::ContextValue;
use torchlift_schema::{Finding, exit_code};

use crate::error::CommandError;
use crate::output::terminal::{print_data, visible};

/// The text for people, with its final newline.
pub fn render(error: &CommandError) -> String {
    let mut text = String::new();
    match error {
        CommandError::Failed { hint, .. } => {
            let _ = writeln!(text, "error: {}", visible(&error.to_string()));
            let mut cause = error.source();
            while let Some(inner) = cause {
                let _ = writeln!(text, "  caused by: {}", lines(&inner.to_string(), "\n    "));
                cause = inner.source();
            }
            if let Some(hint) = hint {
                let _ = writeln!(text, "\nhint: {}", lines(hint, "\n"));
            }
        }
        CommandError::Findings { summary, findings, .. } => {
            let _ = writeln!(text, "error: {}", visible(summary));
            text.push_str(&render_findings(findings));
        }
    }
    text
}

/// Findings, a block each: errors first, in their own order.
pub fn render_findings(findings: &[Finding]) -> String {
    let mut text = String::new();
    let (errors, warnings): (Vec<_>, Vec<_>) = findings.iter().partition(|finding| finding.is_error());
    for finding in errors.into_iter().chain(warnings) {
        let label = if finding.is_error() { "error" } else { "warning" };
        let place = finding.place.to_string();
        let _ = writeln!(text, "{label}[{}]: {}", visible(&finding.code), visible(&finding.message));
        if !place.is_empty() {
            let _ = writeln!(text, "  --> {}", visible(&place));
        }
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "  = help: {}", visible(remedy));
        }
    }
    text
}

/// The lines of a text, each as people may see it.
fn lines(text: &str, between: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join(between)
}

/// Prints what clap has to say of a command line, and gives the exit code: help is data, all else is a mistake, and clap's 2
/// becomes ours.
pub fn print_usage(mut error: clap::Error) -> u8 {
    if !error.use_stderr() {
        // `error.print()` would fail at `| head`.
        let _ = print_data(error.render().to_string().as_bytes());
        return exit_code::OK;
    }
    let spelled: Vec<_> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => Some((kind, ContextValue::String(visible(text).into_owned()))),
            _ => None,
        })
        .collect();
    for (kind, value) in spelled {
        error.insert(kind, value);
    }
    // A stderr that is closed has nobody to tell.
    let _ = error.print();
    exit_code::USAGE
}

/// Prints a failure to stderr, in one write. A stderr that is closed has nobody to tell.
pub fn print(error: &CommandError) {
    super::console::print(&render(error));
}
