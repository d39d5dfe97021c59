//! How many cards this machine has, as its kernel drivers list them.

use torchlift_schema::Accelerator;

/// One folder a card, by the NVIDIA driver.
const NVIDIA: &str = "/proc/driver/nvidia/gpus";
/// One folder a CPU or card, by the AMD driver; cards have SIMD units.
const AMD: &str = "/sys/class/kfd/kfd/topology/nodes";

/// The cards that this accelerator computes on; 0 where there is no driver for it.
pub(super) fn count(accelerator: &Accelerator) -> u32 {
    let folders = match accelerator {
        Accelerator::Cuda(_) => fs_err::read_dir(NVIDIA).map(|entries| entries.flatten().count()),
        Accelerator::Rocm(_) => fs_err::read_dir(AMD).map(|entries| {
            entries
                .flatten()
                .filter(|entry| has_simd(&fs_err::read_to_string(entry.path().join("properties")).unwrap_or_default()))
                .count()
        }),
        _ => Ok(0),
    };
    folders.ok().and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

fn has_simd(properties: &str) -> bool {
    let count = properties.lines().find_map(|line| line.strip_prefix("simd_count "));
    count.and_then(|count| count.trim().parse::<u32>().ok()).is_some_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_simd_units_is_a_card() {
        assert!(has_simd("cpu_cores_count 0\nsimd_count 208\nmem_banks_count 1\n"));
        assert!(!has_simd("cpu_cores_count 64\nsimd_count 0\n"));
        assert!(!has_simd(""));
    }

    #[test]
    fn nothing_computes_on_a_cpu_variants_cards() {
        assert_eq!(count(&Accelerator::Cpu), 0);
    }
}
