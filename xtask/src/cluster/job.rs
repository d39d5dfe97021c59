//! `[job.NAME]`: what is built and how its ranks run.

use camino::{Utf8Component, Utf8Path};

use super::code;
use super::expand::Expander;
use super::fields::{Fields, Text};
use super::keys;
use super::model::{ArtifactName, Job};
use super::name;
use super::node::Node;
use super::variables::{self, Scope};

/// Reads one job; none: it is no table, or has no name that can be used.
pub(super) fn read(job_name: Text<'_>, node: &Node, expander: &Expander<'_>) -> Option<Job> {
    let findings = expander.findings;
    let is_named = name::check_table(job_name, "job", findings);
    let fields = Fields::new(node, keys::JOB, findings)?;
    let cargo = |key: &str, what: &str| {
        fields.text(key).filter(|text| name::check_cargo(*text, what, findings)).map(|text| text.value.to_owned())
    };
    let (package, bin, example) = (cargo("package", "package"), cargo("bin", "bin"), cargo("example", "example"));
    if let (Some(_), Some(second)) = (fields.get("bin"), fields.get("example")) {
        findings.error(
            code::EXCLUSIVE_KEYS,
            &second.place,
            format!("job `{}` has both `bin` and `example`", job_name.value),
            "leave one of them out",
        );
    }
    let env = variables::map(&fields, "env", Scope::Rank);
    let env_pass = variables::names(&fields, "env_pass");
    for key in env_pass.iter().filter(|key| env.contains_key(*key)) {
        findings.warning(
            code::SHADOWED_VARIABLE,
            fields.place_of("env_pass"),
            format!("`{key}` is in `env_pass` and in `env`, and the value in `env` is used"),
            "leave one of them out",
        );
    }
    let job = Job {
        name: job_name.value.to_owned(),
        package,
        artifact: example.map_or(ArtifactName::Bin(bin), ArtifactName::Example),
        profile: profile(&fields),
        cwd: cwd(&fields),
        env,
        env_pass,
        push: push(&fields),
        require: fields
            .texts("require")
            .unwrap_or_default()
            .into_iter()
            .filter_map(|text| expander.read(text))
            .collect(),
        places: node.places(),
    };
    is_named.then_some(job)
}

fn profile(fields: &Fields<'_>) -> String {
    let default = || "release".to_owned();
    let Some(text) = fields.text("profile") else { return default() };
    if text.value == "debug" {
        fields.findings.error(
            code::BAD_VALUE,
            text.place,
            "`debug` is the folder of cargo's profile `dev`, and no profile",
            "write `dev`",
        );
        return default();
    }
    if name::check_cargo(text, "profile", fields.findings) { text.value.to_owned() } else { default() }
}

/// A path that stays below the folder it starts from, in its simplest form; none: it does not.
fn below(text: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in Utf8Path::new(text).components() {
        match part {
            Utf8Component::Normal(part) => parts.push(part),
            Utf8Component::CurDir => {}
            Utf8Component::ParentDir | Utf8Component::RootDir | Utf8Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

fn cwd(fields: &Fields<'_>) -> String {
    let Some(text) = fields.text("cwd") else { return String::new() };
    let is_plain = !text.value.starts_with('~') && !text.value.contains(['$', '{', '}']);
    below(text.value).filter(|_| is_plain).unwrap_or_else(|| {
        fields.findings.error(
            code::BAD_PATH,
            text.place,
            format!("`cwd = {:?}` does not stay below the host's `path`", text.value),
            "write a relative path without `..`, `~` and `$`",
        );
        String::new()
    })
}

fn push(fields: &Fields<'_>) -> Vec<String> {
    let list = fields.texts("push").unwrap_or_default();
    fields.unique(&list);
    let mut patterns = Vec::new();
    for text in list {
        if below(text.value).is_none() || text.value.starts_with('~') {
            fields.findings.error(
                code::BAD_PATH,
                text.place,
                format!("`{}` does not stay below the project", text.value),
                "write a relative pattern without `..`; what lies elsewhere goes into `require`",
            );
        } else {
            patterns.push(text.value.to_owned());
        }
    }
    patterns
}
