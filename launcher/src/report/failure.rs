//! How a failure or a list of findings looks on stderr.
//!
//! ```text
//! error: host `gpu-07` cannot run `train`
//!   caused by: `libtorch_cpu.so` needs GLIBC_2.34, the host offers 2.31
//!
//! hint: build in an older container (`kind.arm.container`)
//! ```

use std::error::Error as _;
use std::fmt::Write as _;

use torchlift_schema::Finding;

use crate::error::CommandError;

/// The text for people, with its final newline.
pub fn render(error: &CommandError) -> String {
    let mut text = String::new();
    match error {
        CommandError::Failed { hint, .. } => {
            let _ = writeln!(text, "error: {error}");
            let mut cause = error.source();
            while let Some(inner) = cause {
                let _ = writeln!(text, "  caused by: {inner}");
                cause = inner.source();
            }
            if let Some(hint) = hint {
                let _ = writeln!(text, "\nhint: {hint}");
            }
        }
        CommandError::Findings { summary, findings, .. } => {
            let _ = writeln!(text, "error: {summary}");
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
        let _ = writeln!(text, "{label}[{}]: {}", finding.code, finding.message);
        if !place.is_empty() {
            let _ = writeln!(text, "  --> {place}");
        }
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "  = help: {remedy}");
        }
    }
    text
}

/// Prints a failure to stderr, in one write. A stderr that is closed has nobody to tell.
pub fn print(error: &CommandError) {
    super::console::print(&render(error));
}
