//! Ends a tool and all that it started when this program is killed and cannot do so itself: cargo with its compilers, a
//! question that hangs.
//!
//! For one-shot tools; ranks have the guard. A shell waits for the end of a pipe that only this program writes to. A word on it
//! means that all is well; its end without a word means that the writer is gone. Must be let go before the tool is waited for,
//! or at once afterwards: the group's id is taken until then, and the shell can hit nobody else.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// `$1` is the process group, what follows a command that ends what the group has elsewhere. The group's members may be gone
/// by themselves, which is no matter.
const SCRIPT: &str =
    "read -r word || { kill -s KILL -- \"-$1\" 2>/dev/null; shift; [ $# -eq 0 ] || exec \"$@\" 2>/dev/null; }";

/// Watches over one process group.
#[derive(Debug)]
pub struct Watchdog {
    shell: Child,
}

impl Watchdog {
    /// Begins to watch over the group that `leader` leads.
    ///
    /// # Errors
    /// When no shell can be started.
    pub fn over(leader: &Child) -> io::Result<Self> {
        Self::over_both(leader, None)
    }

    /// Begins to watch over the group that `leader` leads; `ending` is run after the group's end.
    ///
    /// # Errors
    /// When no shell can be started.
    pub fn over_both(leader: &Child, ending: Option<&Command>) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "sh"]).arg(leader.id().to_string()).env_clear();
        if let Some(ending) = ending {
            shell.arg(ending.get_program()).args(ending.get_args());
            shell.envs(ending.get_envs().filter_map(|(name, value)| Some((name, value?))));
        }
        let shell = shell
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C on a terminal is for this program, which then ends the tool in good order.
            .process_group(0)
            .spawn()?;
        Ok(Self { shell })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.shell.stdin.take() {
            // A shell that someone killed reads nothing; there is nothing to tell it then.
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }
}
