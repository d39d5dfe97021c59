//! The containers of kinds that are built in one: what their engines and images say.
//!
//! The sources of the workspace are looked for once, and only where a kind has a container.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::Finding;

use super::kind_place;
use crate::cluster::Cluster;
use crate::container::{self, ContainerFacts, Sources};
use crate::libtorch::Variant;
use crate::toolchain::{Env, Run, RustcFacts};
use crate::workspace::WorkspaceFacts;

/// Where toolchains are that belong to the system: none of these can be laid over an image's own.
const OF_THE_SYSTEM: [&str; 3] = ["/", "/usr", "/usr/local"];

/// What is asked about all kinds.
pub(super) struct Question<'a> {
    pub(super) cluster: &'a Cluster,
    /// Indices of the kinds that are used.
    pub(super) kinds: Vec<usize>,
    pub(super) variants: &'a BTreeMap<usize, Result<Variant, Finding>>,
    pub(super) workspace: &'a WorkspaceFacts,
    pub(super) rustc: &'a RustcFacts,
    pub(super) cargo: &'a OsStr,
    pub(super) env: &'a Env,
    /// How cargo and rustc are run.
    pub(super) run: Run<'a>,
    /// The folder for what is remembered.
    pub(super) cache: Option<&'a Utf8Path>,
}

/// The container of every kind that has one, by the kind's index.
pub(super) fn by_kind(question: &Question<'_>) -> BTreeMap<usize, Result<ContainerFacts, Finding>> {
    let kinds = question.kinds.iter().filter_map(|index| Some((*index, question.cluster.kinds.get(*index)?)));
    let kinds: Vec<_> = kinds.filter_map(|(index, kind)| Some((index, kind, kind.container.as_ref()?))).collect();
    if kinds.is_empty() {
        return BTreeMap::new();
    }
    let root = &question.workspace.root;
    let sources = Sources::read(question.cargo, root, question.env, question.run);
    let toolchain = RustcFacts::sysroot(question.env, root, question.run).filter(is_mountable);
    let asked = kinds.into_iter().map(|(index, kind, container)| {
        let place = kind_place(question.cluster, index, "container");
        let Some(sources) = &sources else {
            let message = "nothing says where cargo keeps what it downloads: neither `CARGO_HOME` nor `HOME` is set";
            return (index, Err(Finding::error("container-path", place, message).remedy("set one of them")));
        };
        let asked = container::Question {
            kind,
            container,
            variant: question.variants.get(&index).and_then(|variant| variant.as_ref().ok()),
            sources,
            rustc: question.rustc,
            toolchain: toolchain.as_deref(),
            env: question.env,
            cache: question.cache,
        };
        (index, asked.ask(&place).map_err(|finding| *finding))
    });
    asked.collect()
}

/// Whether a toolchain can be seen inside without hiding what the image has there.
fn is_mountable(folder: &Utf8PathBuf) -> bool {
    !OF_THE_SYSTEM.contains(&folder.as_str()) && folder.join("bin/cargo").is_file()
}
