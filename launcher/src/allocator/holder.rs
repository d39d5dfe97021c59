//! Who listens on a port, as far as /proc shows it to this user.

use std::fmt;

/// A process that listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its name, as the kernel has it (15 bytes at most).
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (process {})", self.name, self.pid)
    }
}

/// Finds it; none when nobody listens or it is another user's process.
pub(super) fn find(port: u16) -> Option<Holder> {
    let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs_err::read_to_string(table).ok())
        .flat_map(|table| {
            let inodes = table.lines().filter_map(|line| listening(line, port));
            inodes.map(|inode| format!("socket:[{inode}]")).collect::<Vec<_>>()
        })
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = fs_err::read_dir("/proc").ok()?;
    processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find_map(|pid: u32| {
        let fds = fs_err::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let holds = fds
            .filter_map(|fd| fs_err::read_link(fd.ok()?.path()).ok())
            .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()));
        let name = || fs_err::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
        holds.then(|| Holder { pid, name: name() })
    })
}

/// The inode of the socket that a line of /proc/net/tcp is about, when it listens on this port.
fn listening(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (_, local_port) = fields.next()?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    (state == LISTEN && u16::from_str_radix(local_port, 16) == Ok(port)).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_told_from_a_connection() {
        let listens =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0";
        assert_eq!(listening(listens, 8080), Some("4242"));
        assert_eq!(listening(listens, 8081), None);
        assert_eq!(listening(&listens.replace(" 0A ", " 01 "), 8080), None);
        assert_eq!(listening("  sl  local_address rem_address   st", 8080), None);
    }
}
