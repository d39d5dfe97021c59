//! What a fetch tells while it works. [`crate::report::fetch`] prints it; nothing here does.

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEvent {
    /// A decision, a way that was skipped and why, a wait.
    Note(String),
    /// Something long begins.
    Begin {
        /// What: `downloading torch-2.9.0-….whl`.
        what: String,
        /// Bytes to go through; none when nobody could tell before.
        total: Option<u64>,
    },
    /// How many bytes of it are done, from 0.
    Done(u64),
    /// The long thing that began last has ended, well or not.
    End,
}

/// Who hears of it.
pub type Listener<'a> = &'a mut dyn FnMut(FetchEvent);

/// A size for people: `899.8 MB`, in steps of 1000 as package indexes and disks count.
pub fn human_size(bytes: u64) -> String {
    // Rounded to tenths in whole numbers, so that a size never reads `1000.0 MB`.
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} B"),
        1_000..999_950 => (1_000, "kB"),
        999_950..999_950_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    let tenths = (bytes + unit / 20) / (unit / 10);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_an_index_writes_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (999_960, "1.0 MB"),
            (899_815_990, "899.8 MB"),
            (2_349_000_000, "2.3 GB"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }
}
