//! From where the system of a host can be looked at: its loader, its C library, all that is not in a variant.
//!
//! Pure, but for the files of a system that it names. A host that is this machine runs its programs as this machine does,
//! unless a runner stands before them.

use std::sync::Arc;

use camino::Utf8Path;
use torchlift::preflight::{HostLibraries, Runner};

use crate::cluster::{Cluster, Host, Reach};

/// From where it can be looked at.
#[derive(Clone, Debug, Default)]
pub enum Sight {
    /// Here: it is this machine's.
    Here,
    /// It is what a runner of this machine gives to its programs.
    Behind {
        /// The runner's first word.
        program: String,
        /// What is known of it.
        runner: Runner,
        /// The files, where they lie on this machine.
        system: Option<Arc<HostLibraries>>,
    },
    /// Nowhere here.
    #[default]
    Elsewhere,
}

impl Sight {
    /// Of a host; `variable` looks up what its ranks have in their environment.
    pub fn of(host: &Host, cluster: &Cluster, variable: impl Fn(&str) -> Option<String>) -> Self {
        if host.reach != Reach::Local {
            return Self::Elsewhere;
        }
        let words = cluster.runner_of(host);
        let runner = Runner::of(words, variable);
        let system = match &runner {
            Runner::None => return Self::Here,
            Runner::Qemu { arch, prefix } => Some(HostLibraries::emulated(arch, prefix.as_deref())),
            Runner::Unknown => {
                let sysroot = cluster.toolchain_of(host).and_then(|toolchain| toolchain.sysroot.as_deref());
                let target = cluster.kinds.get(host.kind).and_then(|kind| kind.target.as_deref());
                let arch = target.and_then(|target| target.split('-').next()).unwrap_or(std::env::consts::ARCH);
                sysroot.map(|folder| HostLibraries::below(arch, Utf8Path::new(folder).as_std_path()))
            }
        };
        let program = words.first().cloned().unwrap_or_default();
        Self::Behind { program, runner, system: system.map(Arc::new) }
    }

    /// The system's files; `here` are this machine's own. None where they cannot be looked at.
    pub(super) fn system<'a>(&'a self, here: &'a HostLibraries) -> Option<&'a HostLibraries> {
        match self {
            Self::Here => Some(here),
            Self::Behind { system, .. } => system.as_deref(),
            Self::Elsewhere => None,
        }
    }

    /// Whether they can be looked at.
    pub(super) fn is_seen(&self) -> bool {
        !matches!(self, Self::Elsewhere | Self::Behind { system: None, .. })
    }

    /// Whether it is known for which CPU programs are there, whatever its facts say.
    pub(super) fn has_known_cpu(&self) -> bool {
        matches!(self, Self::Here | Self::Behind { runner: Runner::Qemu { .. }, .. })
    }

    /// Whether facts of this machine are facts of the host.
    pub(super) fn is_this_machine(&self) -> bool {
        matches!(self, Self::Here)
    }

    /// Whose search of libraries was repeated, in words.
    pub(super) fn searched(&self) -> String {
        match self {
            Self::Here => "the search of this machine's loader".to_owned(),
            Self::Behind { program, system: Some(_), .. } => format!("the search of the loader behind `{program}`"),
            Self::Behind { .. } | Self::Elsewhere => "what lies in the variant".to_owned(),
        }
    }

    /// Why nobody here looks at what cannot be looked at.
    pub(super) fn unseen(&self) -> String {
        match self {
            Self::Behind { program, .. } => format!("they are those behind `{program}`, which nobody here can see"),
            Self::Here | Self::Elsewhere => {
                "they are the host's own, which looks at them itself before a start".to_owned()
            }
        }
    }

    /// What tells systems apart that lie on this machine.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Here => "here".to_owned(),
            Self::Behind { runner, system, .. } => match system {
                Some(system) => format!("{runner:?} {:?}", system.root),
                None => "elsewhere".to_owned(),
            },
            Self::Elsewhere => "elsewhere".to_owned(),
        }
    }
}
