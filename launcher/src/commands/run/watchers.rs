//! Everyone who watches a run, in the order in which they must hear of things.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::time::Duration;

use super::detach::is_detached;
use super::flags::{Format, RunOptions};
use crate::clock::Moment;
use crate::env_vars;
use crate::event::{Event, Observer};
use crate::live::Live;
use crate::output::{Console, LogFiles, Terminal};
use crate::plan::Planned;
use crate::report::json::EventLog;
use crate::report::record::Record;
use crate::report::{console, shown};

/// The watchers of one attempt.
pub(super) struct Watchers<'a> {
    pub(super) record: Record<'a>,
    pub(super) files: LogFiles,
    events: EventLog,
    /// None when ranks' lines are not shown.
    lines: Option<Console>,
    /// None where nobody can ask how it goes.
    pub(super) live: Option<Live>,
    is_quiet: bool,
}

impl<'a> Watchers<'a> {
    /// Makes the files of a run whose folder is there already, `plan.json` among them.
    ///
    /// # Errors
    /// When one of them cannot be made.
    pub(super) fn create(planned: &'a Planned, options: RunOptions, start: Moment, wall: Duration) -> io::Result<Self> {
        let plan = &planned.plan;
        let text = crate::report::json::text(&shown::plan(planned));
        crate::report::json::write_whole(&plan.run_dir, shown::PLAN, &text)?;
        let sink = |terminal: Terminal| -> (Box<dyn Write>, bool) {
            // What is begun on a terminal and goes on in a file has none.
            let may_be = terminal.is_terminal() && !is_detached(&planned.base_env);
            let is_coloured = may_be && wants_colour(&planned.base_env);
            (Box::new(terminal), is_coloured)
        };
        let lines = match options.format {
            _ if options.is_quiet => None,
            Format::Text => Some(Console::new(plan, 0, sink(Terminal::stdout()), Some(sink(Terminal::stderr())))),
            Format::Json => Some(Console::new(plan, 0, sink(Terminal::stderr()), None)),
        };
        Ok(Self {
            record: Record::new(plan, 0, start, wall),
            files: LogFiles::create(plan, 0)?,
            events: EventLog::create(plan, start, wall)?,
            lines,
            live: None,
            is_quiet: options.is_quiet,
        })
    }
}

fn wants_colour(env: &BTreeMap<OsString, OsString>) -> bool {
    let get = |name: &str| env.get(OsStr::new(name)).filter(|value| !value.is_empty());
    get(env_vars::NO_COLOR).is_none() && get(env_vars::TERM).is_some_and(|term| term != "dumb")
}

impl Observer for Watchers<'_> {
    fn observe(&mut self, now: Moment, event: &Event<'_>) {
        self.record.observe(now, event);
        // Files first: the console may lag or be closed.
        self.files.observe(now, event);
        if let Some(lines) = &mut self.lines {
            lines.observe(now, event);
        }
        self.events.observe(now, event, &self.record);
        if let Some(live) = &mut self.live {
            live.observe(now, event);
        }
        if let Some(error) = self.files.take_trouble() {
            console::print(&console::warning(&format!("a rank's output cannot be written, ranks go on: {error}")));
        }
        if let Some(error) = self.events.take_trouble() {
            console::print(&console::warning(&format!("events are no longer written, ranks go on: {error}")));
        }
        if !self.is_quiet
            && let Some(text) = console::progress(event, &self.record)
        {
            console::print(&text);
        }
    }

    fn deadline(&self) -> Option<Moment> {
        self.lines.as_ref().and_then(Observer::deadline)
    }

    fn tick(&mut self, now: Moment) {
        if let Some(lines) = &mut self.lines {
            lines.tick(now);
        }
    }
}
