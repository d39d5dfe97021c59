//! Whether the libtorch of a kind has code for the cards of its hosts, before anything is built.
//!
//! Pure. Only what nothing works without is looked at here: which other libraries a program loads is known once it is
//! there. What runs where is [`torchlift::preflight::fit`]'s to say.

use torchlift::preflight::fit::{self, LibraryCode, Role};
use torchlift_schema::Finding;

use super::Inputs;
use crate::cluster::Kind;
use crate::libtorch::auto::Gpus;

/// Findings about the cards of the hosts of one kind, each on its host.
pub(super) fn kind(inputs: &Inputs<'_>, index: usize, kind: &Kind, findings: &mut Vec<Finding>) {
    let Some(Ok(variant)) = inputs.variants.get(&index) else { return };
    let candidate = variant.candidate();
    let decisive = |library: &LibraryCode<'_>| library.role == Role::Decisive;
    let libraries: Vec<LibraryCode<'_>> = candidate.libraries().into_iter().filter(decisive).collect();
    for machine in inputs.machines.get(&index).into_iter().flatten() {
        let Gpus::Known(devices) = &machine.gpus else { continue };
        let verdict = fit::check(&fit::Question {
            place: inputs.cluster.or_file(kind.places.at("libtorch")).on(&machine.name),
            devices,
            driver: machine.driver.as_ref(),
            gfx_override: machine.gfx_override.as_deref(),
            libraries: &libraries,
        });
        findings.extend(verdict.findings);
    }
}
