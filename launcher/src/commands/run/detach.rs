//! A run that goes on by itself, in a session of its own.
//!
//! The command executes itself again and waits. The second process does what the first would have done, on the same terminal,
//! until a rank runs: then it says so over the socket that it finds as its stdin, lets go of the terminal, and the first one is
//! done. Whatever keeps the run from starting is told by the second process, and its exit code is the first one's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use fs_err::{File, OpenOptions};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use serde::{Deserialize, Serialize};
use torchlift_schema::exit_code;

use super::flags::{Format, RunOptions};
use crate::clock::Moment;
use crate::env_vars::TORCHLIFT_INTERNAL_DETACHED;
use crate::error::CommandError;
use crate::event::{Event, Observer};
use crate::output::terminal;
use crate::plan::LaunchPlan;
use crate::report::{console, json};

/// The file in a run's folder that gets what would have been shown.
pub(crate) const CONSOLE: &str = "console.log";

/// What the first process is told: the run goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Begun {
    run_id: String,
    run_dir: String,
}

/// Whether this is the process that goes on by itself.
pub fn is_detached(env: &BTreeMap<OsString, OsString>) -> bool {
    env.contains_key(OsStr::new(TORCHLIFT_INTERNAL_DETACHED))
}

/// Executes this command again, to go on by itself, and gives the exit code of this one: 0 once a rank runs.
///
/// # Errors
/// When it cannot be executed.
pub fn leave(options: RunOptions) -> Result<u8, CommandError> {
    let failed = |error| CommandError::new(exit_code::REFUSED, "the run cannot go on by itself").because(error);
    let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env(TORCHLIFT_INTERNAL_DETACHED, "1");
    let mut child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn().map_err(failed)?;
    // It has the other end as well.
    drop(command);
    let mut text = String::new();
    ours.read_to_string(&mut text).map_err(failed)?;
    let Ok(begun) = serde_json::from_str::<Begun>(&text) else {
        // It has told why.
        let status = child.wait().map_err(failed)?;
        let signal = || status.signal().and_then(|signal| u8::try_from(128 + signal).ok());
        return Ok(status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .or_else(signal)
            .unwrap_or(exit_code::REFUSED));
    };
    let id = &begun.run_id;
    let data = match options.format {
        Format::Text => format!("{id}\n"),
        Format::Json => json::text(&begun),
    };
    terminal::print_data(data.as_bytes()).map_err(|error| {
        CommandError::new(exit_code::REFUSED, format!("the run `{id}` goes on, and its id cannot be written to stdout"))
            .because(error)
            .hint(format!("`torchlift stop {id}` ends it"))
    })?;
    if !options.is_quiet {
        console::print(&format!("run `{id}` goes on by itself: `torchlift status {id}`, `logs`, `attach`, `stop`\n"));
    }
    Ok(exit_code::OK)
}

/// What the second process has to let go of.
#[derive(Debug)]
pub(super) struct Terminal {
    foreground: UnixStream,
    /// What gets what would have been shown, once the run has a folder.
    console: Option<File>,
}

impl Terminal {
    /// What it was started with: begins a session of its own. None in a process that is not detached.
    ///
    /// # Errors
    /// When the system refuses it.
    pub(super) fn take(env: &BTreeMap<OsString, OsString>) -> io::Result<Option<Self>> {
        if !is_detached(env) {
            return Ok(None);
        }
        // Refused to one that leads a group, and so to nobody who was started for this.
        let _ = setsid();
        let foreground = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        dup2_stdin(&OpenOptions::new().read(true).open("/dev/null")?)?;
        Ok(Some(Self { foreground, console: None }))
    }

    /// Whether somebody still waits for the run to begin.
    fn is_awaited(&self) -> bool {
        // The other side writes nothing: what happens there is its end.
        poll(&mut [PollFd::new(self.foreground.as_fd(), PollFlags::POLLIN)], 0_u8) == Ok(0)
    }

    /// Makes the file that gets what would have been shown, in the run's folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn make_console(&mut self, folder: &Path) -> io::Result<()> {
        self.console = Some(OpenOptions::new().create(true).append(true).open(folder.join(CONSOLE))?);
        Ok(())
    }

    /// Lets go of it: what is shown from now on goes to the run's file.
    ///
    /// # Errors
    /// When nobody waits any more.
    fn let_go(mut self, plan: &LaunchPlan) -> io::Result<()> {
        let begun = Begun { run_id: plan.run_id.clone(), run_dir: plan.run_dir.to_string_lossy().into_owned() };
        if let Some(console) = self.console {
            dup2_stdout(&console)?;
            dup2_stderr(&console)?;
        }
        self.foreground.write_all(&serde_json::to_vec(&begun)?)
    }
}

/// Makes sure that somebody still waits: else the run is not begun at all.
pub(super) fn check(terminal: Option<&Terminal>) -> Result<(), CommandError> {
    if terminal.is_none_or(Terminal::is_awaited) {
        return Ok(());
    }
    Err(CommandError::new(exit_code::INTERRUPTED, "the command that began this run is gone, and no rank was started"))
}

/// Watches a run, and lets go of the terminal when its first rank runs.
pub(super) struct Leaving<'a, O> {
    pub(super) watchers: &'a mut O,
    pub(super) plan: &'a LaunchPlan,
    pub(super) terminal: Option<Terminal>,
}

impl<O: Observer> Observer for Leaving<'_, O> {
    fn observe(&mut self, now: Moment, event: &Event<'_>) {
        if let Event::Started { .. } = event
            && let Some(terminal) = self.terminal.take()
            && terminal.let_go(self.plan).is_err()
        {
            // Nobody would know of it: it ends as if whoever waited had stopped it.
            let _ = kill(Pid::this(), Signal::SIGTERM);
        }
        self.watchers.observe(now, event);
    }

    fn deadline(&self) -> Option<Moment> {
        self.watchers.deadline()
    }

    fn tick(&mut self, now: Moment) {
        self.watchers.tick(now);
    }
}
