//! The cards of a run: claimed before it starts, and who else uses them.

use std::cell::LazyCell;
use std::path::Path;

use torchlift_schema::{Finding, Place, exit_code};

use crate::claim::{self, Claims, Wanted};
use crate::commands::probe;
use crate::error::CommandError;
use crate::plan::{Planned, RunRequest};
use crate::preflight::code;
use crate::preflight::gpu::CardUser;
use crate::preflight::host::Roots;
use crate::process::owner;
use crate::report::words;

/// Keeps other runs off the cards of this one, as long as the answer lives; with what is doubtful about them.
///
/// # Errors
/// When another run has one of them.
pub(super) fn claim(request: &RunRequest, planned: &Planned) -> Result<(Claims, Vec<Finding>), CommandError> {
    let cards = LazyCell::new((|| claim::cards_here(&Roots::default())) as fn() -> Vec<String>);
    let hosts = request.hosts.iter().zip(&planned.plan.hosts);
    let wanted: Vec<Wanted> = hosts.map(|(host, plan)| Wanted::of(host, plan, &cards)).collect();
    let folder = claim::folder(&request.base_env)
        .map_err(|error| CommandError::new(exit_code::USAGE, error.to_string()).hint(error.hint()))?;
    let holder = claim::Holder::of(&request.run_id);
    let (claims, mut doubts) = claim::take(&folder, &wanted, &holder)
        .map_err(|findings| CommandError::findings(exit_code::REFUSED, "the run was not started", findings))?;
    // A driver that sleeps takes its time to answer: it is asked only where it matters.
    if wanted.iter().any(|wanted| !wanted.cards.is_empty()) {
        doubts.extend(in_use(&wanted, &probe::card_users(&request.base_env, Path::new("/"))));
    }
    Ok((claims, doubts))
}

/// A warning for each process that uses a card that a host is to have.
fn in_use(wanted: &[Wanted], users: &[CardUser]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Wanted { host, cards } in wanted {
        for user in users.iter().filter(|user| cards.iter().any(|card| is_same(card, &user.card))) {
            let process = owner::shown(user.pid);
            let memory = user.memory.map(|bytes| format!(", {}", words::size(bytes))).unwrap_or_default();
            let message = format!("card `{}` is in use by {process}{memory}", user.card);
            let finding = Finding::warning(code::CARD_IN_USE, Place::host(host).key("devices"), message);
            findings.push(
                finding.remedy("wait for its end, choose other cards in `devices`, or see that there is room for both"),
            );
        }
    }
    findings
}

/// A card may be named by the beginning of its UUID.
fn is_same(name: &str, uuid: &str) -> bool {
    !name.is_empty() && uuid.starts_with(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_on_a_card_of_a_host_is_named_with_what_it_holds_and_those_on_others_are_not() {
        let wanted = [Wanted { host: "a".to_owned(), cards: vec!["GPU-1".to_owned()] }];
        let pid = std::process::id();
        let user = |card: &str, pid, memory| CardUser { card: card.to_owned(), pid, memory };
        let users =
            [user("GPU-1111", pid, Some(3 << 30)), user("GPU-2222", pid, None), user("GPU-1111", u32::MAX, None)];
        let told: Vec<String> = in_use(&wanted, &users).into_iter().map(|finding| finding.message).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with(&format!("card `GPU-1111` is in use by process {pid} (`")), "{told:?}");
        assert!(told[0].ends_with("), 3 GiB"), "{told:?}");
        assert_eq!(told[1], format!("card `GPU-1111` is in use by process {}", u32::MAX));
    }
}
