//! The rules for values of control messages, all of them at once.
//!
//! What an allocator can give, how many ranks and which programs, is the allocator's to decide; here is only what no message
//! means: an empty name, a NUL, environments that fit no view.

use super::{ClientContext, RemoteProcessAllocatorMessage, Terms};
use crate::extent::View;
use crate::finding::{Finding, Place};
use crate::rule;
use crate::state::{AllocatedTerms, RemoteProcessProcStateMessage};

/// The code of every such finding.
const CODE: &str = "message-value";

/// Every value of the message that breaks a rule; empty when all hold.
pub(super) fn of_allocator(message: &RemoteProcessAllocatorMessage) -> Vec<Finding> {
    let mut found = Found::default();
    if let RemoteProcessAllocatorMessage::Allocate { view, hosts, client_context, terms, .. } = message {
        for (index, host) in hosts.iter().enumerate() {
            found.text(&format!("Allocate.hosts[{index}]"), host);
        }
        if let Some(ClientContext { trace_id }) = client_context {
            found.hold("Allocate.client_context.trace_id", rule::has_no_nul(trace_id), "has a NUL");
        }
        if let Some(terms) = terms {
            found.terms(terms, view);
        }
    }
    if let RemoteProcessAllocatorMessage::StopWith { signal: Some(signal), .. } = message {
        let is_signal = (1..=rule::MAX_SIGNAL).contains(signal);
        found.hold("StopWith.signal", is_signal, &format!("is {signal}, and signals are 1 to {}", rule::MAX_SIGNAL));
    }
    found.0
}

/// Every value of the message that breaks a rule; empty when all hold.
pub(super) fn of_state(message: &RemoteProcessProcStateMessage) -> Vec<Finding> {
    let mut found = Found::default();
    if let RemoteProcessProcStateMessage::Allocated { terms: Some(terms), .. } = message {
        let AllocatedTerms { incarnation, master_port, .. } = &**terms;
        found.text("Allocated.terms.incarnation", incarnation);
        found.hold("Allocated.terms.master_port", *master_port != Some(0), "is 0, which is no port");
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<Finding>);

impl Found {
    fn hold(&mut self, key: &str, holds: bool, otherwise: &str) {
        if !holds {
            self.0.push(Finding::error(CODE, Place::default().key(key), otherwise));
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        self.hold(key, rule::is_text(text), "is empty or has a NUL");
    }

    fn terms(&mut self, terms: &Terms, view: &View) {
        self.text("Allocate.terms.owner", &terms.owner);
        let Some(launch) = &terms.launch else { return };
        self.text("Allocate.terms.launch.run_id", &launch.run_id);
        for (key, path) in [("program", &launch.program), ("cwd", &launch.cwd)] {
            let is_absolute = std::path::Path::new(path.as_os_str()).is_absolute();
            self.hold(&format!("Allocate.terms.launch.{key}"), is_absolute, "is no absolute path");
        }
        for (index, card) in launch.cards.iter().enumerate() {
            self.text(&format!("Allocate.terms.launch.cards[{index}]"), card);
        }
        let ranks = launch.rank_env.len();
        let fits = ranks == 0 || ranks == view.num_ranks();
        let otherwise = format!("has {ranks} environments, and the view has {} ranks", view.num_ranks());
        self.hold("Allocate.terms.launch.rank_env", fits, &otherwise);
        let all = std::iter::once(&launch.env).chain(&launch.rank_env);
        let is_name = |name: &[u8]| !name.is_empty() && !name.contains(&b'=');
        let names = all.flat_map(|env| env.keys());
        let wrong = names.filter(|name| !is_name(name.as_os_str().as_encoded_bytes())).count();
        let otherwise = format!("{wrong} of its variables have an empty name, or one with `=`");
        self.hold("Allocate.terms.launch.env", wrong == 0, &otherwise);
    }
}
