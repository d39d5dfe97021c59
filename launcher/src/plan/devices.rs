//! Which cards a rank sees: the chosen ones, within those that the caller itself may see.
//!
//! Pure; knows the rules of `*_VISIBLE_DEVICES` and no driver.

use torchlift_schema::{Accelerator, Finding, Place};

use super::request::{Device, HostRequest};
use crate::env_vars;

/// The variable that narrows what a rank sees.
pub(super) fn variable(accelerator: Option<&Accelerator>) -> &'static str {
    match accelerator {
        Some(Accelerator::Rocm(_)) => env_vars::HIP_VISIBLE_DEVICES,
        _ => env_vars::CUDA_VISIBLE_DEVICES,
    }
}

/// The cards for one host's ranks, as the variable's elements; none leaves the variable alone.
///
/// `inherited` is the variable's value without our choice. What cannot be had becomes findings: nothing left to use
/// is an error, a part that is left out a warning.
pub(super) fn visible(host: &HostRequest, inherited: Option<&str>, findings: &mut Vec<Finding>) -> Option<Vec<String>> {
    let chosen = &host.devices;
    let Some(inherited) = inherited else {
        return (!chosen.is_empty()).then(|| chosen.iter().map(ToString::to_string).collect());
    };
    let allowed = elements(inherited);
    if chosen.is_empty() {
        return Some(allowed.into_iter().map(str::to_owned).collect());
    }
    let place = || Place::host(&host.name).key("devices");
    let name = variable(host.program.accelerator());
    let is_index = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_both_kinds =
        chosen.iter().any(|device| allowed.iter().any(|text| is_index(text) != matches!(device, Device::Index(_))));
    if has_both_kinds {
        findings.push(
            Finding::error(
                "devices-not-comparable",
                place(),
                format!("`{name}` is `{inherited}`, and an index cannot be held against a UUID"),
            )
            .remedy(format!("name the cards in `devices` and in `{name}` both by index or both by UUID")),
        );
        return None;
    }
    let (kept, left_out): (Vec<_>, Vec<_>) =
        chosen.iter().partition(|device| allowed.iter().any(|text| is_same(device, text)));
    if !left_out.is_empty() {
        let list: Vec<String> = left_out.iter().map(|device| format!("`{device}`")).collect();
        let are = if list.len() == 1 { "is" } else { "are" };
        let message = format!("{} {are} not among the cards that `{name}={inherited}` shows", list.join(", "));
        let finding = if kept.is_empty() {
            Finding::error("device-not-visible", place(), message)
        } else {
            Finding::warning("device-not-visible", place(), message)
        };
        findings.push(finding.remedy(format!("choose other `devices`, or unset `{name}`")));
    }
    Some(kept.into_iter().map(ToString::to_string).collect())
}

/// The elements that CUDA would use: it stops at the first that is no card.
pub(crate) fn elements(value: &str) -> Vec<&str> {
    let is_card = |text: &&str| !text.is_empty() && !text.starts_with('-');
    value.split(',').map(str::trim).take_while(is_card).collect()
}

fn is_same(device: &Device, element: &str) -> bool {
    match device {
        Device::Index(index) => element.parse() == Ok(*index),
        // Either side may be shortened to a unique beginning.
        Device::Uuid(uuid) => uuid.starts_with(element) || element.starts_with(uuid.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::request::Program;
    use super::*;

    fn host(devices: &[Device]) -> HostRequest {
        HostRequest {
            name: "a".to_owned(),
            path: "/p".into(),
            program: Program::Plain { program: "/bin/true".into(), cwd: "/".into() },
            slots: 1,
            env: BTreeMap::new(),
            runner: Vec::new(),
            devices: devices.to_vec(),
        }
    }

    fn check(devices: &[Device], inherited: Option<&str>) -> (Option<String>, Vec<String>) {
        let mut findings = Vec::new();
        let cards = visible(&host(devices), inherited, &mut findings).map(|cards| cards.join(","));
        (cards, findings.into_iter().map(|finding| format!("{:?} {}", finding.severity, finding.code)).collect())
    }

    #[test]
    fn without_a_choice_what_was_inherited_stays() {
        assert_eq!(check(&[], None), (None, vec![]));
        assert_eq!(check(&[], Some("2,3")), (Some("2,3".to_owned()), vec![]));
        assert_eq!(check(&[], Some("0,-1,1")), (Some("0".to_owned()), vec![]));
        assert_eq!(check(&[], Some("")), (Some(String::new()), vec![]));
    }

    #[test]
    fn a_choice_is_kept_within_what_was_inherited() {
        let index = Device::Index;
        assert_eq!(check(&[index(1), index(0)], None), (Some("1,0".to_owned()), vec![]));
        assert_eq!(check(&[index(3), index(2)], Some("2, 3")), (Some("3,2".to_owned()), vec![]));
        let (cards, findings) = check(&[index(0), index(2)], Some("2,3"));
        assert_eq!((cards.as_deref(), findings), (Some("2"), vec!["Warning device-not-visible".to_owned()]));
        let (_, findings) = check(&[index(0)], Some("2,3"));
        assert_eq!(findings, ["Error device-not-visible"]);
        let (_, findings) = check(&[index(0)], Some(""));
        assert_eq!(findings, ["Error device-not-visible"]);
    }

    #[test]
    fn one_card_is_and_two_cards_are_not_among_those_that_can_be_seen() {
        let messages = |devices: &[Device]| {
            let mut findings = Vec::new();
            visible(&host(devices), Some("3"), &mut findings);
            findings.remove(0).message
        };
        assert!(messages(&[Device::Index(0)]).starts_with("`0` is not among"));
        assert!(messages(&[Device::Index(0), Device::Index(1)]).starts_with("`0`, `1` are not among"));
    }

    #[test]
    fn a_uuid_may_be_shortened_on_either_side_and_is_never_held_against_an_index() {
        let uuid = |text: &str| Device::Uuid(text.to_owned());
        assert_eq!(check(&[uuid("GPU-8932")], Some("GPU-89")), (Some("GPU-8932".to_owned()), vec![]));
        assert_eq!(check(&[uuid("GPU-89")], Some("GPU-8932")), (Some("GPU-89".to_owned()), vec![]));
        assert_eq!(check(&[uuid("GPU-89")], Some("0")), (None, vec!["Error devices-not-comparable".to_owned()]));
        assert_eq!(check(&[Device::Index(0)], Some("GPU-89")), (None, vec!["Error devices-not-comparable".to_owned()]));
    }
}
