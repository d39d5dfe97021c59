//! What a command line chooses from a cluster: a job, and hosts by name or range.

use std::collections::BTreeSet;

use torchlift_schema::{Finding, Place};

use super::code;
use super::findings::meant;
use super::model::{Cluster, Host, Job};
use super::range::HostPattern;

impl Cluster {
    /// The host of this name; a finding with the near miss when there is none.
    pub fn host(&self, name: &str) -> Result<&Host, Vec<Finding>> {
        self.hosts.iter().find(|host| host.name == name).ok_or_else(|| {
            let remedy = meant(name, self.hosts.iter().map(|host| host.name.as_str()), "hosts");
            vec![self.unknown(code::UNKNOWN_HOST, format!("there is no host `{name}`")).remedy(remedy)]
        })
    }

    /// The job of this name, or the file's first; a finding with the near miss when there is none.
    pub fn job(&self, name: Option<&str>) -> Result<&Job, Vec<Finding>> {
        let found = match name {
            Some(name) => self.jobs.iter().find(|job| job.name == name),
            None => self.jobs.first(),
        };
        found.ok_or_else(|| {
            let name = name.unwrap_or_default();
            let remedy = meant(name, self.jobs.iter().map(|job| job.name.as_str()), "jobs");
            vec![self.unknown(code::UNKNOWN_JOB, format!("there is no job `{name}`")).remedy(remedy)]
        })
    }

    /// The hosts that `--host` and `--exclude` leave, in file order; all of them when `include` is empty.
    ///
    /// Both take names and ranges, several in one word with commas between them. Every name that the file does not
    /// have is a finding, and so is a choice that leaves no host.
    pub fn select(&self, include: &[String], exclude: &[String]) -> Result<Vec<&Host>, Vec<Finding>> {
        let mut findings = Vec::new();
        let included = self.names(include, "--host", &mut findings);
        let excluded = self.names(exclude, "--exclude", &mut findings);
        let is_chosen =
            |host: &&Host| (include.is_empty() || included.contains(&host.name)) && !excluded.contains(&host.name);
        let hosts: Vec<&Host> = self.hosts.iter().filter(is_chosen).collect();
        if hosts.is_empty() && findings.is_empty() {
            let remedy = "leave `--exclude` out, or name other hosts with `--host`";
            findings.push(self.unknown(code::NO_HOST, "no host is left".to_owned()).remedy(remedy));
        }
        if findings.is_empty() { Ok(hosts) } else { Err(findings) }
    }

    fn names(&self, words: &[String], flag: &str, findings: &mut Vec<Finding>) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for word in words.iter().flat_map(|word| split(word)) {
            match word.parse::<HostPattern>() {
                Ok(pattern) => {
                    for name in pattern.expand() {
                        match self.host(&name) {
                            Ok(_) => drop(names.insert(name)),
                            Err(unknown) => findings.extend(unknown),
                        }
                    }
                }
                Err(error) => findings.push(
                    self.unknown(code::BAD_RANGE, format!("`{flag} {word}` is no host range: {error}"))
                        .remedy("write it as `node-[01-04]`"),
                ),
            }
        }
        names
    }

    fn unknown(&self, code: &str, message: String) -> Finding {
        Finding::error(code, Place::file(self.file.as_str()), message)
    }
}

/// The words between commas that stand outside of brackets.
fn split(word: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = word.split(move |c| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.is_empty()).collect()
}
