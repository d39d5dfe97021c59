//! How many CPUs a process gets: what is online, its affinity, its quota; and the NUMA nodes.

use std::path::Path;

use torchlift_schema::host::{CoreFacts, NumaNode};

use super::{Problems, Roots, cgroup, field};

const ONLINE: &str = "/sys/devices/system/cpu/online";
const STATUS: &str = "/proc/self/status";
const CPUINFO: &str = "/proc/cpuinfo";
const NODES: &str = "/sys/devices/system/node";

/// Reads them.
pub(super) fn read(roots: &Roots, problems: &mut Problems) -> CoreFacts {
    let mut facts = CoreFacts::default();
    if let Some(count) = roots.line(ONLINE).as_deref().and_then(count) {
        facts.online = Some(count);
        facts.from.push(ONLINE.to_owned());
    } else if let Some(count) = roots.text(CPUINFO).ok().and_then(|text| processors(&text)) {
        // A container may hide /sys.
        facts.online = Some(count);
        facts.from.push(CPUINFO.to_owned());
    } else {
        problems.unread("cores.online", format!("neither `{ONLINE}` nor `{CPUINFO}` says how many CPUs there are"));
    }
    let status = roots.text(STATUS).unwrap_or_default();
    match field(&status, "Cpus_allowed_list").and_then(count) {
        Some(count) => {
            facts.usable = Some(count);
            facts.from.push(STATUS.to_owned());
        }
        None => problems.unread("cores.usable", format!("`{STATUS}` does not say on which CPUs a process may run")),
    }
    if let Some((quota, from)) = quota(roots) {
        facts.quota_thousandths = Some(quota);
        facts.from.push(from);
    }
    facts.numa = numa(roots);
    if !facts.numa.is_empty() {
        facts.from.push(NODES.to_owned());
    }
    facts
}

/// The lowest quota of the process's groups in thousandths of a CPU, and the folder that has it.
fn quota(roots: &Roots) -> Option<(u64, String)> {
    let lowest = |hierarchy: &cgroup::Hierarchy| {
        hierarchy.lowest(|folder| match hierarchy.is_unified {
            true => unified_quota(&roots.line(folder.join("cpu.max"))?),
            false => split_quota(roots, folder),
        })
    };
    let found = cgroup::hierarchies(roots, "cpu").iter().filter_map(lowest).min_by_key(|(quota, _)| *quota);
    found.map(|(quota, folder)| (quota, folder.display().to_string()))
}

/// `max 100000` or `250000 100000`: time in a period, both in microseconds.
fn unified_quota(line: &str) -> Option<u64> {
    let (quota, period) = line.split_once(' ')?;
    thousandths(quota.parse().ok()?, period.trim().parse().ok()?)
}

/// The same as two files; a quota of -1 is none.
fn split_quota(roots: &Roots, folder: &Path) -> Option<u64> {
    let quota = roots.line(folder.join("cpu.cfs_quota_us"))?.parse().ok()?;
    thousandths(quota, roots.line(folder.join("cpu.cfs_period_us"))?.parse().ok()?)
}

fn thousandths(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period)
}

fn numa(roots: &Roots) -> Vec<NumaNode> {
    let numbers = roots.names(NODES).into_iter().filter_map(|name| name.strip_prefix("node")?.parse::<u32>().ok());
    let mut nodes: Vec<NumaNode> = numbers
        .map(|node| {
            let folder = Path::new(NODES).join(format!("node{node}"));
            let memory = roots.text(folder.join("meminfo")).ok().and_then(|text| total(&text));
            NumaNode::new(node, roots.line(folder.join("cpulist")).unwrap_or_default(), memory)
        })
        .collect();
    nodes.sort_by_key(|node| node.node);
    nodes
}

/// `Node 0 MemTotal:  65838 kB`, in bytes.
fn total(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.split_once(" MemTotal:"))?.1;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn processors(text: &str) -> Option<u32> {
    let count = text.lines().filter(|line| line.split(':').next().is_some_and(|key| key.trim() == "processor")).count();
    u32::try_from(count).ok().filter(|count| *count > 0)
}

/// How many CPUs a list of the kernel names, such as `0-3,8,10-11`.
fn count(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_kernel_is_counted() {
        assert_eq!(count("0-3,8,10-11\n"), Some(7));
        assert_eq!(count("0"), Some(1));
        for wrong in ["", "a", "3-1", "1,", "0-4294967295"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_quota_is_in_thousandths_and_none_is_none() {
        assert_eq!(unified_quota("250000 100000"), Some(2_500));
        assert_eq!(unified_quota("max 100000"), None);
        assert_eq!(unified_quota("1 0"), None);
    }
}
