//! This machine: the allocator lives in the launcher's own process, with one guard for each host of the plan.

use crate::allocator::Allocator;
use crate::process::handle::GuardError;

/// Brings an allocator up for one host of the run.
pub(crate) fn bring_up(run_id: &str) -> Result<Allocator, GuardError> {
    Allocator::bring_up(run_id)
}
