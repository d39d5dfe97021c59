//! From the files to the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read as _;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::{Finding, Place};

use super::code;
use super::expand::Expander;
use super::fields::{Fields, wrong_type};
use super::findings::{Findings, meant, quoted, sorted};
use super::host::{self, Surroundings};
use super::kind::{self, KindTable};
use super::model::{Cluster, Slurm};
use super::name::Collisions;
use super::node::{Node, Value};
use super::syntax::{self, SET_ASIDE};
use super::{accept, job, keys, overlay, toolchain};
use crate::file;

/// The cluster file's name, where none is given: in the workspace's root.
pub const FILE_NAME: &str = "cluster.toml";

/// The version of the format that is read here.
pub const SCHEMA: i64 = 1;

/// No cluster file is larger; bytes.
const MOST_BYTES: u64 = 4 << 20;

/// How variables are looked up; an environment's value that is not UTF-8 counts as not set.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A lookup in an environment such as that of `Context`.
pub fn lookup(env: &BTreeMap<OsString, OsString>) -> impl Fn(&str) -> Option<String> + '_ {
    |name| env.get(std::ffi::OsStr::new(name)).and_then(|value| value.to_str()).map(str::to_owned)
}

/// A cluster without errors.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The cluster.
    pub cluster: Cluster,
    /// What is doubtful and does not stop.
    pub warnings: Vec<Finding>,
}

/// What could be read, with everything that was found.
///
/// The cluster lacks what had errors: a caller that has more to check may do so, and tell all findings together.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The jobs, kinds and hosts that could be read.
    pub cluster: Cluster,
    /// Errors and warnings, in the order of their places.
    pub findings: Vec<Finding>,
}

impl Reading {
    /// The cluster, when no error stands; else every finding.
    pub fn into_result(self) -> Result<Loaded, Vec<Finding>> {
        if self.findings.iter().any(Finding::is_error) {
            return Err(self.findings);
        }
        Ok(Loaded { cluster: self.cluster, warnings: self.findings })
    }
}

/// A text and what findings call it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file as the user named it.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// Loads a cluster file and its overlay; fails with every finding.
///
/// A relative `file` starts from the process's working directory.
pub fn load(file: &Utf8Path, env: Lookup<'_>) -> Result<Loaded, Vec<Finding>> {
    read(file, Utf8Path::new(""), env).into_result()
}

/// Reads a cluster file and its overlay, and looks whether the folders of local hosts are there.
///
/// A relative `file` starts from `cwd`; findings call it as it was given.
pub fn read(file: &Utf8Path, cwd: &Utf8Path, env: Lookup<'_>) -> Reading {
    let mut findings = Vec::new();
    let place = cwd.join(file);
    let absolute = camino::absolute_utf8(&place).unwrap_or(place);
    let Some(text) = text(&absolute, file, &mut findings) else {
        return Reading { cluster: empty(&absolute), findings };
    };
    let over = overlay_path(file);
    let over_place = overlay_path(&absolute);
    let is_there = fs_err::symlink_metadata(&over_place).is_ok();
    let over_text = if is_there { self::text(&over_place, &over, &mut findings) } else { None };
    let source = Source { name: file.as_str(), text: &text };
    let over_source = over_text.as_deref().map(|text| Source { name: over.as_str(), text });
    let mut reading = parse(&absolute, source, over_source, env);
    findings.append(&mut reading.findings);
    findings.extend(missing_folders(&reading.cluster));
    reading.findings = sorted(findings, &[file.as_str(), over.as_str()]);
    reading
}

/// A finding for each table of local hosts of which some have no folder on this machine.
fn missing_folders(cluster: &Cluster) -> Vec<Finding> {
    let mut missing: BTreeMap<Place, Vec<&Utf8Path>> = BTreeMap::new();
    let local = cluster.hosts.iter().filter(|host| matches!(host.reach, super::Reach::Local));
    for host in local.filter(|host| !host.path.is_dir()) {
        let paths = missing.entry(host.places.at("path")).or_default();
        if paths.last() != Some(&host.path.as_path()) {
            paths.push(&host.path);
        }
    }
    let finding = |(place, paths): (Place, Vec<&Utf8Path>)| {
        let some: Vec<&str> = paths.iter().take(3).map(|path| path.as_str()).collect();
        let message = match paths.len() {
            1 => format!("{} is no folder of this machine", quoted(&some)),
            2 | 3 => format!("{} are no folders of this machine", quoted(&some)),
            count => format!("{} and {} more are no folders of this machine", quoted(&some), count - some.len()),
        };
        let remedy = "make it, or write in `path` where the host has the project";
        Finding::error(code::PATH_MISSING, place, message).remedy(remedy)
    };
    missing.into_iter().map(finding).collect()
}

/// The overlay of a cluster file: `cluster.local.toml` of `cluster.toml`.
pub fn overlay_path(file: &Utf8Path) -> Utf8PathBuf {
    file.with_extension("local.toml")
}

/// A file's bytes, at most one more than a cluster file may have.
fn bytes(path: &Utf8Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of the file at `place`, called `file`; what is no UTF-8 in it is a finding, and replaced so that the rest
/// can be checked.
fn text(place: &Utf8Path, file: &Utf8Path, findings: &mut Vec<Finding>) -> Option<String> {
    let unreadable = |message: String, remedy: &str| {
        Finding::error(code::CLUSTER_UNREADABLE, Place::file(file.as_str()), message).remedy(remedy)
    };
    let bytes = match bytes(place) {
        Ok(bytes) if bytes.len() as u64 <= MOST_BYTES => bytes,
        Ok(_) => {
            findings.push(unreadable(
                format!("`{file}` is larger than {} MiB, which no cluster file is", MOST_BYTES >> 20),
                "name the cluster file with `--cluster FILE`",
            ));
            return None;
        }
        Err(error) => {
            let reason = match error.kind() {
                std::io::ErrorKind::Other => error.to_string(),
                kind => kind.to_string(),
            };
            findings.push(unreadable(
                format!("cannot read the cluster file `{file}`: {reason}"),
                "write one (see `docs/cluster-file.md`), or name it with `--cluster FILE`",
            ));
            return None;
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let (line, column) = super::position::Lines::new(&text).position(at);
            let place = Place::file(file.as_str()).at(line, column);
            let finding = Finding::error(code::NOT_UTF8, place, format!("`{file}` is not UTF-8 from here on"));
            findings.push(finding.remedy("save it as UTF-8"));
            Some(text)
        }
    }
}

/// Reads texts: pure but for `env`. `file` is the cluster file's absolute path, from which relative paths start.
pub fn parse(file: &Utf8Path, base: Source<'_>, over: Option<Source<'_>>, env: Lookup<'_>) -> Reading {
    let documents: Vec<syntax::Document> =
        std::iter::once(base).chain(over).map(|source| syntax::parse(source.name, source.text)).collect();
    let findings = Findings::new(documents.iter().flat_map(|document| document.lost.clone()).collect());
    documents.iter().flat_map(|document| &document.findings).for_each(|finding| findings.push(finding.clone()));
    let names: Vec<&str> = std::iter::once(base).chain(over).map(|source| source.name).collect();

    let mut roots = documents.into_iter().map(|document| document.root);
    let mut lists = Lists::default();
    let mut merged: Option<Node> = None;
    let mut is_readable = true;
    for mut root in roots.by_ref() {
        let is_overlay = merged.is_some();
        is_readable &= schema(&root, is_overlay, &findings);
        lists.take(&mut root, is_overlay, &findings);
        match &mut merged {
            Some(base) => overlay::merge(base, root),
            None => merged = Some(root),
        }
    }
    let cluster = match &merged {
        Some(root) if is_readable => tables(root, &lists, file, Expander { env, findings: &findings }),
        // What a newer format means by its keys is not ours to say.
        _ => empty(file),
    };
    Reading { cluster, findings: findings.into_sorted(&names) }
}

/// The tables that are lists, of the file and of the overlay; they are not merged as tables are.
#[derive(Debug, Default)]
struct Lists {
    hosts: Vec<Node>,
    over_hosts: Vec<Node>,
    accepts: Vec<Node>,
}

impl Lists {
    fn take(&mut self, root: &mut Node, is_overlay: bool, findings: &Findings) {
        let Value::Table(table) = &mut root.value else { return };
        table.entries.retain(|entry| !entry.key.starts_with(SET_ASIDE));
        let mut list = |key: &str| match table.remove(key) {
            None => Vec::new(),
            Some(Node { value: Value::Array(items), .. }) => items,
            Some(node) => {
                let message = format!("`{key}` is a list of tables, not {}", node.type_name());
                findings.error(code::WRONG_TYPE, &node.place, message, format!("write `[[{key}]]`"));
                if matches!(node.value, Value::Table(_)) { vec![node] } else { Vec::new() }
            }
        };
        let hosts = list("host");
        self.accepts.extend(list("accept"));
        if is_overlay { self.over_hosts = hosts } else { self.hosts = hosts }
    }
}

/// Whether the format is one that is read here.
fn schema(root: &Node, is_overlay: bool, findings: &Findings) -> bool {
    let Some(fields) = Fields::any(root, findings) else { return true };
    let remedy = format!("write `schema = {SCHEMA}` at the top");
    let Some(node) = fields.get("schema") else {
        if !is_overlay {
            fields.missing("schema", &remedy);
        }
        return true;
    };
    match node.value {
        Value::Integer(Some(SCHEMA)) => true,
        Value::Integer(Some(newer)) if newer > SCHEMA => {
            let message = format!("the format is {newer}, and this torchlift reads {SCHEMA}");
            findings.error(code::SCHEMA_VERSION, &node.place, message, "use a newer torchlift");
            false
        }
        Value::Integer(_) => {
            findings.error(code::SCHEMA_VERSION, &node.place, "there is no such format", remedy);
            true
        }
        _ => {
            wrong_type(node, "an integer", findings);
            true
        }
    }
}

fn empty(file: &Utf8Path) -> Cluster {
    Cluster {
        file: file.to_owned(),
        jobs: Vec::new(),
        kinds: Vec::new(),
        hosts: Vec::new(),
        toolchains: BTreeMap::new(),
        slurm: Slurm::default(),
        accept: Vec::new(),
    }
}

/// Checks every table, and gives what can be used.
fn tables(root: &Node, lists: &Lists, file: &Utf8Path, expander: Expander<'_>) -> Cluster {
    let findings = expander.findings;
    let mut cluster = empty(file);
    let folder = cluster.folder().to_owned();
    let Some(fields) = Fields::new(root, keys::ROOT, findings) else { return cluster };
    let named = |key: &str| fields.get(key).and_then(|node| Fields::any(node, findings));

    let jobs = named("job");
    let mut names = Collisions::default();
    for (name, node) in jobs.iter().flat_map(Fields::entries) {
        names.check(name.value, name.place, "job", findings);
        cluster.jobs.extend(job::read(name, node, &expander));
    }
    if jobs.is_none_or(|jobs| jobs.entries().next().is_none()) && (jobs.is_some() || fields.get("job").is_none()) {
        fields.missing("job", "write a `[job.NAME]`: what to build and run");
    }

    let kind_fields = named("kind");
    let declared: Vec<&str> = kind_fields.iter().flat_map(Fields::entries).map(|(name, _)| name.value).collect();
    let mut names = Collisions::default();
    let mut kinds: Vec<KindTable<'_>> = Vec::new();
    for (name, node) in kind_fields.iter().flat_map(Fields::entries) {
        names.check(name.value, name.place, "kind", findings);
        kinds.extend(kind::read(name, node, &expander));
    }
    if declared.is_empty() {
        kinds.push(KindTable::unnamed());
    }

    for (triple, node) in named("toolchain").iter().flat_map(Fields::entries) {
        cluster.toolchains.extend(toolchain::read(triple, node, &folder, &expander));
    }
    if let Some(node) = fields.get("slurm") {
        cluster.slurm = toolchain::slurm(node, &expander);
    }
    let around = Surroundings { kinds: &kinds, declared: &declared, folder: &folder, expander };
    cluster.hosts = host::read(&lists.hosts, &lists.over_hosts, around);
    if lists.hosts.is_empty() && lists.over_hosts.is_empty() {
        fields.missing("host", "write a `[[host]]` with `name` and `path`");
    }
    // Names of hosts that have other faults are known all the same.
    let known = host::known_names(&lists.hosts, &lists.over_hosts);
    cluster.accept = accept::read(&lists.accepts, &known, findings);
    for table in kinds {
        kind_with_others(&table, &known, &cluster.toolchains, findings);
        cluster.kinds.push(table.kind);
    }
    cluster
}

/// Checks what a kind says about other tables.
fn kind_with_others(
    table: &KindTable<'_>,
    hosts: &BTreeSet<String>,
    toolchains: &BTreeMap<String, super::Toolchain>,
    findings: &Findings,
) {
    let kind = &table.kind;
    if let Some(host) = kind.build_on.as_deref().filter(|host| !hosts.contains(*host)) {
        let remedy = meant(host, hosts.iter().map(String::as_str), "hosts");
        findings.error(code::UNKNOWN_HOST, &kind.places.at("build_on"), format!("there is no host `{host}`"), remedy);
    }
    let here = own_target();
    let target = kind.target.as_deref().unwrap_or(&here);
    let other = if kind.container.is_some() {
        "container"
    } else if kind.build_on.is_some() {
        "build_on"
    } else {
        return;
    };
    if toolchains.contains_key(target) {
        let message = format!("kind `{}` has `{other}`, and its target `{target}` a `[toolchain]`", kind.name);
        findings.error(code::EXCLUSIVE_KEYS, &kind.places.at(other), message, "leave one of them out");
    }
}

/// The triple of programs for this machine.
fn own_target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}
