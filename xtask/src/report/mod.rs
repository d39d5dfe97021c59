//! The room of xtask that prints.
//!
//! Owns stdout and stderr: whoever reads may go away at any time, which ends nothing and is no error.

pub mod build;
pub mod clean;
pub mod doctor;
pub mod events;
pub mod fetch;
pub mod libtorch;
pub mod progress;
pub mod verify;

use std::io::Write as _;

use crate::error::CommandError;
use torchlift::report::failure::render_findings;
use torchlift_schema::{Finding, exit_code};

/// Writes data to stdout. A reader that went away, as `head` does, is no error.
pub fn print_data(text: &str) -> Result<(), CommandError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(CommandError::new(exit_code::REFUSED, "stdout cannot be written").because(error))
        }
        _ => Ok(()),
    }
}

/// Writes a value as JSON to stdout.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| CommandError::new(exit_code::USAGE, "the report is no JSON").because(error))?;
    print_data(&format!("{text}\n"))
}

/// Prints findings that do not stop, to stderr.
pub fn print_warnings(findings: &[Finding]) {
    print_note(&render_findings(findings));
}

/// Writes a line for people to stderr.
pub fn say(line: &str) {
    print_note(&format!("{line}\n"));
}

/// Writes text for people to stderr. `eprintln!` would end the process where nobody reads any more.
fn print_note(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
