//! `[[accept]]`: findings that are taken as warnings, each with its reason.

use std::collections::BTreeSet;

use torchlift::preflight::code::INTEGRITY;

use super::code;
use super::fields::Fields;
use super::findings::{Findings, meant};
use super::keys;
use super::kind::required;
use super::model::Accept;
use super::node::Node;

/// Words of integrity and security: a finding whose code has one cannot be accepted, whoever makes it.
const NEVER: [&str; 8] =
    ["integrity", "security", "digest", "sha256", "tampered", "swapped", "certificate", "permission"];

/// Whether a finding with this code can be accepted at all.
fn is_acceptable(code: &str) -> bool {
    !INTEGRITY.contains(&code) && !code.split('-').any(|word| NEVER.contains(&word))
}

/// Why a code cannot be accepted, whatever the file says, with what to do; none for one that can.
pub fn fault(code: &str) -> Option<(&'static str, &'static str)> {
    let is_code = code.starts_with(|c: char| c.is_ascii_lowercase())
        && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !is_code {
        Some(("is no finding's code", "write it as it is printed: lower-case words with hyphens"))
    } else if !is_acceptable(code) {
        Some(("is about integrity or security, and cannot be accepted", "mend what it names"))
    } else if code::TABLE.iter().any(|(ours, _)| *ours == code) {
        Some(("is about the cluster file itself, and cannot be accepted", "mend the file"))
    } else {
        None
    }
}

/// Reads the list; hosts are those of the file.
pub(super) fn read(nodes: &[Node], hosts: &BTreeSet<String>, findings: &Findings) -> Vec<Accept> {
    let mut list: Vec<Accept> = Vec::new();
    for node in nodes {
        let Some(fields) = Fields::new(node, keys::ACCEPT, findings) else { continue };
        let finding = required(&fields, "code", "name the finding, as it is printed: `code = \"library-missing\"`");
        let reason = required(&fields, "reason", "say why it may be: `reason = \"…\"`");
        let host = fields.text("host");
        let is_there = host.is_none_or(|host| {
            let is_there = hosts.contains(host.value);
            if !is_there {
                let remedy = meant(host.value, hosts.iter().map(String::as_str), "hosts");
                let message = format!("there is no host `{}`", host.value);
                findings.error(code::UNKNOWN_HOST, host.place, message, remedy);
            }
            is_there
        });
        let Some(finding) = finding else { continue };
        if let Some((fault, remedy)) = fault(finding.value) {
            findings.error(code::BAD_ACCEPT, finding.place, format!("`{}` {fault}", finding.value), remedy);
            continue;
        }
        let (Some(reason), true) = (reason, is_there) else { continue };
        let accept = Accept {
            code: finding.value.to_owned(),
            host: host.map(|host| host.value.to_owned()),
            reason: reason.value.to_owned(),
        };
        if list.iter().any(|other| other.code == accept.code && other.host == accept.host) {
            let message = format!("`{}` is already accepted here", accept.code);
            findings.error(code::DUPLICATE_VALUE, finding.place, message, "leave one of them out");
        } else {
            list.push(accept);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::is_acceptable;

    #[test]
    fn integrity_and_security_cannot_be_accepted() {
        for never in [
            "program-changed",
            "library-changed",
            "integrity-binary",
            "binary-sha256",
            "envelope-digest",
            "certificate-role",
        ] {
            assert!(!is_acceptable(never), "{never}");
        }
        assert!(is_acceptable("library-missing"));
        assert!(is_acceptable("library-from-elsewhere"));
    }
}
