//! `reach`: how a host is reached.

use std::net::Ipv6Addr;

use super::code;
use super::expand::Expander;
use super::fields::{Fields, text};
use super::findings::meant;
use super::host_path::HostPath;
use super::keys;
use super::model::Reach;
use super::name;
use super::node::{Node, Value};

/// A reach in which `{name}` is not filled in yet.
#[derive(Clone, Debug)]
pub(super) enum ReachTable {
    Local,
    Ssh(HostPath),
    Agent(HostPath),
    Slurm,
}

impl ReachTable {
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Local)
    }

    pub(super) fn is_slurm(&self) -> bool {
        matches!(self, Self::Slurm)
    }

    /// The reach of one host.
    pub(super) fn of(&self, name: &str) -> Reach {
        match self {
            Self::Local => Reach::Local,
            Self::Ssh(target) => Reach::Ssh(target.expand(name, false)),
            Self::Agent(address) => Reach::Agent(address.expand(name, false)),
            Self::Slurm => Reach::Slurm,
        }
    }
}

const FORMS: &str = "write `\"local\"`, `\"slurm\"`, `{ ssh = \"user@host\" }` or `{ agent = \"tls:host:port\" }`";

/// Reads `reach`; none: a finding says why.
pub(super) fn read(node: &Node, expander: &Expander<'_>) -> Option<ReachTable> {
    let findings = expander.findings;
    match &node.value {
        Value::String(word) => match word.as_str() {
            "local" => Some(ReachTable::Local),
            "slurm" => Some(ReachTable::Slurm),
            "ssh" => {
                let remedy = "write `{ ssh = \"{name}\" }`, with `user@` before it where the users differ";
                findings.error(code::BAD_REACH, &node.place, "`reach = \"ssh\"` does not say where to", remedy);
                None
            }
            "agent" => {
                let remedy = "write `{ agent = \"tls:{name}:7700\" }`";
                findings.error(code::BAD_REACH, &node.place, "`reach = \"agent\"` does not say where to", remedy);
                None
            }
            other => {
                let near = meant(other, ["local", "slurm"], "words");
                let remedy = if near.starts_with("did you") { near } else { FORMS.to_owned() };
                findings.error(code::BAD_REACH, &node.place, format!("`{other}` is no way to reach a host"), remedy);
                None
            }
        },
        Value::Table(_) => {
            let fields = Fields::new(node, keys::REACH, findings)?;
            let (ssh, agent) = (fields.get("ssh"), fields.get("agent"));
            match (ssh, agent) {
                (Some(ssh), None) => target(ssh, expander).map(ReachTable::Ssh),
                (None, Some(agent)) => address(agent, expander).map(ReachTable::Agent),
                (Some(_), Some(_)) => {
                    let message = "`reach` has both `ssh` and `agent`";
                    findings.error(code::EXCLUSIVE_KEYS, &node.place, message, "leave one of them out");
                    None
                }
                (None, None) => {
                    if fields.entries().next().is_none() {
                        findings.error(code::BAD_REACH, &node.place, "`reach` says no way to the host", FORMS);
                    }
                    None
                }
            }
        }
        _ => {
            let message = format!("`reach` must be a string or a table, not {}", node.type_name());
            findings.error(code::WRONG_TYPE, &node.place, message, FORMS);
            None
        }
    }
}

/// An ssh target: it goes to `ssh` as one word, and must never be read as an option.
fn target(node: &Node, expander: &Expander<'_>) -> Option<HostPath> {
    let text = text(node, expander.findings)?;
    let target = expander.read(text)?;
    let expanded = target.expand("name", false);
    let host = expanded.rsplit_once('@').map_or(expanded.as_str(), |(_, host)| host);
    let user = expanded.rsplit_once('@').map(|(user, _)| user);
    let fault = if expanded.starts_with('-') || host.starts_with('-') {
        Some("ssh would read it as an option")
    } else if host.is_empty() || user.is_some_and(str::is_empty) {
        Some("it has no host or no user")
    } else if expanded.contains(char::is_whitespace) {
        Some("it has a space")
    } else if target.is_home {
        Some("`~` is no host")
    } else {
        None
    };
    let Some(fault) = fault else { return Some(target) };
    let message = format!("`{}` is no ssh target: {fault}", text.value);
    let remedy = "write `host`, `user@host` or `ssh://user@host:port`; options go into `~/.ssh/config`";
    expander.findings.error(code::BAD_REACH, text.place, message, remedy);
    None
}

/// An agent's address: TLS, a host and a port.
fn address(node: &Node, expander: &Expander<'_>) -> Option<HostPath> {
    let text = text(node, expander.findings)?;
    let address = expander.read(text)?;
    let expanded = address.expand("name", false);
    let Some(fault) = address_fault(&expanded) else { return Some(address) };
    let message = format!("`{}` is no agent's address: {fault}", text.value);
    expander.findings.error(code::BAD_REACH, text.place, message, "write `tls:HOST:PORT`");
    None
}

/// What keeps a text from being an agent's address; none: it is one.
fn address_fault(text: &str) -> Option<String> {
    let Some(rest) = text.strip_prefix("tls:") else {
        return Some("an agent is reached over `tls` only".to_owned());
    };
    let Some((host, port)) = rest.rsplit_once(':') else {
        return Some("it has no port".to_owned());
    };
    if !port.parse::<u16>().is_ok_and(|port| port != 0) || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Some(format!("`{port}` is no port"));
    }
    if let Some(inner) = host.strip_prefix('[') {
        let is_address = inner.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
        return (!is_address).then(|| format!("`{host}` is no IPv6 address"));
    }
    let labels = host.strip_suffix('.').unwrap_or(host);
    labels.split('.').any(|label| name::label_fault(label).is_some()).then(|| format!("`{host}` is no host's name"))
}

#[cfg(test)]
mod tests {
    use super::address_fault;

    #[test]
    fn an_agent_has_a_host_and_a_port() {
        for good in ["tls:node-a:7700", "tls:node-a.example.org:1", "tls:10.0.0.1:65535", "tls:[::1]:7700"] {
            assert_eq!(address_fault(good), None, "{good}");
        }
        for bad in [
            "tcp:node-a:7700",
            "tls:node-a",
            "tls:node-a:0",
            "tls:node-a:65536",
            "tls::7700",
            "tls:a_b:1",
            "tls:[x]:1",
            "tls:a:+1",
        ] {
            assert!(address_fault(bad).is_some(), "{bad}");
        }
    }
}
