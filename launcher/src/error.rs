//! What ends a command: a failure with its exit code, or findings.
//!
//! Shared by `torchlift` and `xtask`; [`crate::report::failure`] renders it. `Display` never repeats its source.

use torchlift_schema::Finding;

/// A boxed cause.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a command ends without success.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// One thing failed.
    #[error("{message}")]
    Failed {
        /// What failed: lower-case, no full stop, literals in backticks.
        message: String,
        /// Why.
        #[source]
        source: Option<Cause>,
        /// What to do next.
        hint: Option<String>,
        /// Of the table in `torchlift_schema::exit_code`.
        exit_code: u8,
    },
    /// Findings stand; each is printed with its place and remedy.
    #[error("{summary}")]
    Findings {
        /// What they prevented.
        summary: String,
        /// All of them, errors and warnings.
        findings: Vec<Finding>,
        /// Of the table in `torchlift_schema::exit_code`.
        exit_code: u8,
    },
}

/// An error with all its causes, on one line: for those who get one text.
pub fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

impl CommandError {
    /// A failure without a cause or a hint.
    pub fn new(exit_code: u8, message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), source: None, hint: None, exit_code }
    }

    /// Findings that prevented something.
    pub fn findings(exit_code: u8, summary: impl Into<String>, findings: Vec<Finding>) -> Self {
        Self::Findings { summary: summary.into(), findings, exit_code }
    }

    /// The same with its cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Cause>) -> Self {
        if let Self::Failed { source, .. } = &mut self {
            *source = Some(cause.into());
        }
        self
    }

    /// The same with what to do next.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Failed { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// The code that the process ends with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { exit_code, .. } | Self::Findings { exit_code, .. } => *exit_code,
        }
    }
}
