//! `[[host]]`: names expanded, overlay laid over by name, and every key checked once a table.

use std::collections::{BTreeMap, BTreeSet};

use camino::{Utf8Path, Utf8PathBuf};

use super::code;
use super::expand::Expander;
use super::fields::{Fields, Text, wrong_type};
use super::findings::{Findings, meant, quoted};
use super::host_path::HostPath;
use super::keys;
use super::kind::KindTable;
use super::model::{Files, Host, LibtorchChoice, Slots};
use super::name::{self, Collisions};
use super::node::{Node, Value};
use super::overlay;
use super::range::{HostPattern, MOST_HOSTS, PatternError};
use super::reach::{self, ReachTable};
use super::variables::{self, Scope};
use super::{gpu, model};

/// The most ranks that one host is believed to have.
const MOST_SLOTS: i64 = 65_535;

/// What hosts refer to.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// The kinds that can be used.
    pub(super) kinds: &'a [KindTable<'a>],
    /// The names of all kinds in the file, those with faults too.
    pub(super) declared: &'a [&'a str],
    /// The cluster file's folder.
    pub(super) folder: &'a Utf8Path,
    pub(super) expander: Expander<'a>,
}

/// The tables of a host: in the file, in the overlay.
type Tables = (Option<usize>, Option<usize>);

/// A host name with the tables that it stands in: of the file, of the overlay.
type Named = (String, Option<usize>, Option<usize>);

/// Reads all hosts of the file and its overlay, in file order.
pub(super) fn read(file: &[Node], over: &[Node], around: Surroundings<'_>) -> Vec<Host> {
    let findings = around.expander.findings;
    let mut budget = MOST_HOSTS;
    let file_names: Vec<Vec<String>> = file.iter().map(|node| names(node, &mut budget, findings)).collect();
    let over_names: Vec<Vec<String>> = over.iter().map(|node| names(node, &mut budget, findings)).collect();
    let named = join(&first_of_each(file, &file_names, findings), &first_of_each(over, &over_names, findings));

    let mut groups: BTreeMap<Tables, Vec<(usize, String)>> = BTreeMap::new();
    for (order, (name, at, laid)) in named.into_iter().enumerate() {
        groups.entry((at, laid)).or_default().push((order, name));
    }
    // A table whose name says no host is checked all the same.
    let nameless =
        |names: &[Vec<String>]| names.iter().enumerate().filter(|(_, n)| n.is_empty()).map(|(i, _)| i).collect();
    let (in_file, in_over): (Vec<usize>, Vec<usize>) = (nameless(&file_names), nameless(&over_names));
    in_file.into_iter().for_each(|index| drop(groups.insert((Some(index), None), Vec::new())));
    in_over.into_iter().for_each(|index| drop(groups.insert((None, Some(index)), Vec::new())));

    let mut hosts: Vec<(usize, Host)> = Vec::new();
    for ((at, laid), members) in groups {
        let mut tables = at.map(|index| file[index].clone()).into_iter().chain(laid.map(|index| over[index].clone()));
        let Some(mut node) = tables.next() else { continue };
        tables.for_each(|over| overlay::merge(&mut node, over));
        hosts.extend(table(&node, members, around));
    }
    hosts.sort_by_key(|(order, _)| *order);
    let hosts: Vec<Host> = hosts.into_iter().map(|(_, host)| host).collect();
    collisions(&hosts, findings);
    hosts
}

/// The names of one table; none when a finding says why.
fn names(node: &Node, budget: &mut usize, findings: &Findings) -> Vec<String> {
    let Value::Table(table) = &node.value else { return Vec::new() };
    let Some(name) = table.get("name") else {
        if let Some(fields) = Fields::any(node, findings) {
            fields.missing("name", "give the host a name, or a range of names such as `node-[01-04]`");
        }
        return Vec::new();
    };
    let Some(text) = super::fields::text(name, findings) else { return Vec::new() };
    match text.value.parse::<HostPattern>() {
        Ok(pattern) if pattern.count() > *budget => {
            too_many(text, findings);
            *budget = 0;
            Vec::new()
        }
        Ok(pattern) => {
            *budget -= pattern.count();
            pattern.expand()
        }
        Err(PatternError::TooMany) => {
            too_many(text, findings);
            Vec::new()
        }
        Err(error) => {
            let message = format!("`{}` is no host range: {error}", text.value);
            findings.error(code::BAD_RANGE, text.place, message, "write it as `node-[01-04]` or `node-[1,3,7-9]`");
            Vec::new()
        }
    }
}

/// Every name that the tables say, whatever else is wrong with them.
pub(super) fn known_names(file: &[Node], over: &[Node]) -> BTreeSet<String> {
    let silent = Findings::default();
    let mut budget = MOST_HOSTS;
    file.iter().chain(over).flat_map(|node| names(node, &mut budget, &silent)).collect()
}

fn too_many(text: Text<'_>, findings: &Findings) {
    let message = format!("with `{}` there are more than {MOST_HOSTS} hosts", text.value);
    findings.error(code::TOO_MANY_HOSTS, text.place, message, "write a smaller range");
}

/// Each name with its first table; a name that comes again is a finding with both lines.
fn first_of_each(nodes: &[Node], names: &[Vec<String>], findings: &Findings) -> Vec<(String, usize)> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ordered = Vec::new();
    let mut again: BTreeMap<(usize, usize), BTreeSet<&str>> = BTreeMap::new();
    for (index, names) in names.iter().enumerate() {
        for name in names {
            match first.get(name.as_str()) {
                Some(earlier) => drop(again.entry((*earlier, index)).or_default().insert(name)),
                None => {
                    first.insert(name, index);
                    ordered.push((name.clone(), index));
                }
            }
        }
    }
    let place = |index: usize| match &nodes[index].value {
        Value::Table(table) => table.get("name").map_or(&nodes[index].place, |name| &name.place),
        _ => &nodes[index].place,
    };
    for ((earlier, index), names) in again {
        let names: Vec<&str> = names.into_iter().collect();
        let some = quoted(&names[..names.len().min(3)]);
        let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        let (line, here) = (place(earlier).line.unwrap_or_default(), place(index).line.unwrap_or_default());
        let message = if earlier == index {
            format!("the range names {some}{more} twice, in line {here}")
        } else {
            {
                let are = if names.len() == 1 { "is" } else { "are" };
                format!("{some}{more} {are} already in line {line}, and again in line {here}")
            }
        };
        findings.error(code::DUPLICATE_HOST, place(index), message, "name each host once");
    }
    ordered
}

/// The file's names with the overlay's laid over; names only in the overlay come last.
fn join(file: &[(String, usize)], over: &[(String, usize)]) -> Vec<Named> {
    let mut left: BTreeMap<&str, usize> = over.iter().map(|(name, index)| (name.as_str(), *index)).collect();
    let mut named: Vec<Named> =
        file.iter().map(|(name, index)| (name.clone(), Some(*index), left.remove(name.as_str()))).collect();
    named.extend(
        over.iter()
            .filter(|(name, _)| left.contains_key(name.as_str()))
            .map(|(name, index)| (name.clone(), None, Some(*index))),
    );
    named
}

/// Checks one table and gives its hosts.
fn table(node: &Node, members: Vec<(usize, String)>, around: Surroundings<'_>) -> Vec<(usize, Host)> {
    let findings = around.expander.findings;
    let Some(fields) = Fields::new(node, keys::HOST, findings) else { return Vec::new() };
    let kind = kind(&fields, around);
    let reach = match fields.get("reach") {
        Some(node) => reach::read(node, &around.expander),
        None => Some(ReachTable::Local),
    };
    let members = with_good_names(members, reach.as_ref(), &fields);
    let path = path(&fields, reach.as_ref(), kind, around);
    let files = files(&fields);
    let slots = slots(&fields);
    let devices = gpu::devices(&fields);
    let env = variables::map(&fields, "env", Scope::Rank);
    let runner = fields.words("runner");
    let places = node.places();
    let (Some(kind), Some(reach), Some(path)) = (kind, reach, path) else { return Vec::new() };
    let is_local = reach.is_local();
    let home_fault = !is_local;
    let mut hosts = Vec::with_capacity(members.len());
    for (order, name) in members {
        let expanded = path.expand(&name, is_local);
        let library_path = |elements: &[(Text<'_>, HostPath)]| -> Vec<String> {
            elements
                .iter()
                .filter(|(text, path)| {
                    let is_usable = if home_fault { !path.is_home } else { around.expander.has_home(path, *text) };
                    if home_fault && path.is_home && hosts.is_empty() {
                        no_home(*text, &name, findings);
                    }
                    is_usable
                })
                .map(|(_, path)| path.expand(&name, is_local))
                .collect()
        };
        let host = Host {
            kind,
            path: if is_local { simplest(around.folder.join(&expanded).as_str()) } else { simplest(&expanded) },
            reach: reach.of(&name),
            files,
            slots,
            devices: devices.clone(),
            env: env.clone(),
            runner: runner.clone(),
            library_path_before: library_path(&around.kinds[kind].before),
            library_path_after: library_path(&around.kinds[kind].after),
            line: node.place.line.unwrap_or_default(),
            places: places.clone(),
            name,
        };
        hosts.push((order, host));
    }
    hosts
}

fn no_home(text: Text<'_>, host: &str, findings: &Findings) {
    let message = format!("`{}` cannot be used on host `{host}`: the loader there expands no `~`", text.value);
    findings.error(code::BAD_LIBRARY_PATH, text.place, message, "write the folder in full");
}

/// The hosts whose names can be used; the first that cannot is a finding.
fn with_good_names(
    members: Vec<(usize, String)>,
    reach: Option<&ReachTable>,
    fields: &Fields<'_>,
) -> Vec<(usize, String)> {
    let is_slurm = reach.is_some_and(ReachTable::is_slurm);
    let fault = |name: &str| match name {
        // With a reach that cannot be read, nobody knows whether a star is right.
        "*" if is_slurm || reach.is_none() => None,
        "*" => Some("a star stands for all nodes, with `reach = \"slurm\"` only".to_owned()),
        _ if is_slurm => name::folder_fault(name),
        _ => name::label_fault(name),
    };
    let place = fields.place_of("name");
    if let Some((name, fault)) = members.iter().find_map(|(_, name)| fault(name).map(|fault| (name, fault))) {
        let message = format!("`{}` cannot be a host's name: {fault}", name.escape_debug());
        let remedy = if is_slurm {
            "write `*` for all nodes, or the name of a partition"
        } else {
            "use letters, digits and hyphens; what ssh should dial goes into `reach`"
        };
        fields.findings.error(code::BAD_NAME, place, message, remedy);
    }
    if let Some((_, name)) = members.iter().find(|(_, name)| !is_slurm && name.chars().any(|c| c.is_ascii_uppercase()))
    {
        let remedy = format!("write `{}`", name.to_lowercase());
        let message = format!("the host name `{name}` has upper-case letters, which DNS does not tell apart");
        fields.findings.warning(code::NAME_CASE, place, message, remedy);
    }
    members.into_iter().filter(|(_, name)| fault(name).is_none()).collect()
}

fn kind(fields: &Fields<'_>, around: Surroundings<'_>) -> Option<usize> {
    let position = |name: &str| around.kinds.iter().position(|table| table.kind.name == name);
    let Some(node) = fields.get("kind") else {
        return match around.declared {
            [] => Some(0),
            [only] => position(only),
            several => {
                fields.missing("kind", &format!("name one of the kinds: {}", quoted(several)));
                None
            }
        };
    };
    let text = super::fields::text(node, fields.findings)?;
    // A kind with faults of its own has its own findings.
    if !around.declared.contains(&text.value) && !fields.findings.is_lost(text.value) {
        let remedy = match around.declared {
            [] => format!("write a `[kind.{}]`, or leave `kind` out", text.value),
            kinds => meant(text.value, kinds.iter().copied(), "kinds"),
        };
        fields.findings.error(code::UNKNOWN_KIND, text.place, format!("there is no kind `{}`", text.value), remedy);
    }
    position(text.value)
}

fn path(
    fields: &Fields<'_>,
    reach: Option<&ReachTable>,
    kind: Option<usize>,
    around: Surroundings<'_>,
) -> Option<HostPath> {
    let text = super::kind::required(fields, "path", "say where the host has the project, such as `path = \".\"`")?;
    let path = around.expander.read(text)?;
    let reach = reach?;
    if reach.is_local() {
        return around.expander.has_home(&path, text).then_some(path);
    }
    let expanded = path.expand("name", false);
    if !path.is_home && !expanded.starts_with('/') {
        let message = format!("`{}` is relative, and nobody can say to what on that host", text.value);
        fields.findings.error(code::BAD_PATH, text.place, message, "write an absolute path, or begin it with `~/`");
        return None;
    }
    let has_libtorch = kind.is_some_and(|kind| around.kinds[kind].kind.libtorch != LibtorchChoice::None);
    if let Some(bad) = expanded.chars().find(|c| has_libtorch && ":;$".contains(*c)) {
        let message = format!("`{}` has a `{bad}`, at which the loader splits its search path", text.value);
        fields.findings.error(code::BAD_PATH, text.place, message, "use a folder without `:`, `;` and `$`");
        return None;
    }
    Some(path)
}

fn files(fields: &Fields<'_>) -> Files {
    let Some(text) = fields.text("files") else { return Files::Shared };
    match text.value {
        "shared" => Files::Shared,
        "push" => Files::Push,
        other => {
            let remedy = meant(other, ["shared", "push"], "values");
            fields.findings.error(code::BAD_VALUE, text.place, format!("`{other}` is no way files get there"), remedy);
            Files::Shared
        }
    }
}

fn slots(fields: &Fields<'_>) -> model::Slots {
    let Some(node) = fields.get("slots") else { return Slots::Default };
    let remedy = "write a number from 1, or `\"gpus\"` for one rank a card";
    match &node.value {
        Value::Integer(Some(count)) if (1..=MOST_SLOTS).contains(count) => {
            Slots::Count(u32::try_from(*count).unwrap_or(1))
        }
        Value::Integer(count) => {
            let count = count.map_or_else(|| "this many".to_owned(), |count| format!("`{count}`"));
            let message = format!("a host cannot have {count} ranks");
            fields.findings.error(code::BAD_VALUE, &node.place, message, remedy);
            Slots::Default
        }
        Value::String(word) if word == "gpus" => Slots::Gpus,
        Value::String(word) => {
            let remedy = match word.parse::<u32>() {
                Ok(count) => format!("write {count} without quotes"),
                Err(_) => meant(word, ["gpus"], "the only word"),
            };
            fields.findings.error(code::BAD_VALUE, &node.place, format!("`{word}` is no number of ranks"), remedy);
            Slots::Default
        }
        _ => {
            wrong_type(node, "a number or `\"gpus\"`", fields.findings);
            Slots::Default
        }
    }
}

/// Names that differ in case only are one host and one folder; the first of each table is told.
fn collisions(hosts: &[Host], findings: &Findings) {
    let mut seen = Collisions::default();
    let mut told = BTreeSet::new();
    let mut lower = BTreeSet::new();
    for host in hosts {
        let is_new = lower.insert(host.name.to_lowercase());
        if is_new || told.insert(host.line) {
            seen.check(&host.name, &host.places.at("name"), "host", findings);
        }
    }
}

/// A path without `.` and without a slash at its end; `..` stays, since links may lie before it.
pub(super) fn simplest(path: &str) -> Utf8PathBuf {
    Utf8Path::new(path).components().collect()
}
