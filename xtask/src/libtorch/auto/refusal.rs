//! Why a variant is not taken.

use std::fmt;

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It is of another version.
    #[error("it is torch {found}, and {wanted} is needed")]
    Version {
        /// What it is.
        found: String,
        /// What the program needs.
        wanted: String,
    },
    /// It is for another CPU.
    #[error("it is for {found}, and {wanted} is needed")]
    Arch {
        /// What it is for.
        found: String,
        /// What the target is.
        wanted: String,
    },
    /// A host's C library is too old.
    #[error("it needs glibc {needs}, and host `{host}` has {has}")]
    Glibc {
        /// The host.
        host: String,
        /// What the host has.
        has: String,
        /// What the variant needs.
        needs: String,
    },
    /// A host has another C library.
    #[error("it needs glibc, and host `{host}` has musl")]
    Musl {
        /// The host.
        host: String,
    },
    /// A host has GPUs, and the variant uses none.
    #[error("it computes on CPUs alone, and host `{host}` has GPUs")]
    ForCpus {
        /// The host.
        host: String,
    },
    /// A host has no card of the vendor.
    #[error("it is for cards of {vendor}, and host `{host}` has none")]
    NoCard {
        /// The host.
        host: String,
        /// Who makes what it is for.
        vendor: &'static str,
    },
    /// Its libraries have no code for GPUs, though it is for them.
    #[error("no code for GPUs was found in it")]
    NoCode,
    /// Its code, or the driver, does not serve a card.
    #[error("host `{host}`: {message}")]
    Cards {
        /// The host.
        host: String,
        /// What fit says.
        message: String,
    },
}

impl Refusal {
    /// Whether the variant is for something else altogether.
    pub(super) fn is_of_another_kind(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::Arch { .. })
    }
}

/// A variant that is not taken, with all the reasons.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Refused {
    /// Its id, or its folder.
    pub variant: String,
    /// At least one.
    pub reasons: Vec<Refusal>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons: Vec<String> = self.reasons.iter().map(ToString::to_string).collect();
        write!(f, "`{}`: {}", self.variant, reasons.join("; "))
    }
}
