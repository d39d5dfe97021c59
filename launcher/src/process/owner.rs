//! Who a process is, for people.

use std::os::unix::fs::MetadataExt as _;

/// ``process 4711 (`python3` of user 1000)``; the number alone where /proc does not show it here.
pub(crate) fn shown(pid: u32) -> String {
    let folder = format!("/proc/{pid}");
    let name = fs_err::read_to_string(format!("{folder}/comm")).ok();
    match (name, fs_err::metadata(&folder)) {
        (Some(name), Ok(metadata)) => {
            format!("process {pid} (`{}` of user {})", name.trim_end().escape_debug(), metadata.uid())
        }
        _ => format!("process {pid}"),
    }
}
