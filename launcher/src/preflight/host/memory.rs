//! How much memory a process gets.

use torchlift_schema::host::{Bound, MemoryFacts};

use super::{Problems, Roots, cgroup, field};

const MEMINFO: &str = "/proc/meminfo";

/// Reads it.
pub(super) fn read(roots: &Roots, problems: &mut Problems) -> MemoryFacts {
    let mut facts = MemoryFacts::default();
    let text = roots.text(MEMINFO);
    let size = |key: &str| text.as_ref().ok().and_then(|text| kilobytes(field(text, key)?));
    (facts.total, facts.swap) = (size("MemTotal"), size("SwapTotal"));
    match (&text, facts.total) {
        (_, Some(_)) => facts.from.push(MEMINFO.to_owned()),
        (Ok(_), None) => problems.unread("memory.total", format!("`{MEMINFO}` does not say how much memory there is")),
        (Err(error), None) => {
            problems.unread("memory.total", format!("how much memory there is cannot be read: {error}"))
        }
    }
    if let Some((limit, from)) = limit(roots) {
        facts.limit = Some(limit);
        facts.from.push(from);
    }
    facts
}

/// The lowest limit of the process's groups, and the folder that has it.
fn limit(roots: &Roots) -> Option<(u64, String)> {
    let lowest = |hierarchy: &cgroup::Hierarchy| {
        let file = if hierarchy.is_unified { "memory.max" } else { "memory.limit_in_bytes" };
        hierarchy.lowest(|folder| match Bound::of(roots.line(folder.join(file))?.parse().ok()?) {
            Bound::At(limit) => Some(limit),
            // The older layout writes its greatest number for none.
            Bound::Unlimited => None,
        })
    };
    let found = cgroup::hierarchies(roots, "memory").iter().filter_map(lowest).min_by_key(|(limit, _)| *limit);
    found.map(|(limit, folder)| (limit, folder.display().to_string()))
}

/// `24683656 kB`, in bytes.
fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
