//! What a person sees while cargo runs: a bar with crate names on a terminal, plain lines elsewhere.
//!
//! Cargo's own words pass through unchanged in both. Everything goes to stderr; stdout is for data.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use torchlift::env_vars;

use super::say;
use crate::cargo::{CargoEvent, Watcher};
use crate::plan::Build;
use crate::toolchain::Env;

/// Cargo itself draws no more often.
const DRAWS_PER_SECOND: u8 = 10;

/// The progress of one build.
#[derive(Debug)]
pub struct Progress {
    /// None where stderr is no terminal: a bar there prints nothing, or its escape codes.
    bar: Option<ProgressBar>,
    /// The bars of all builds at once, where there are several.
    bars: Option<MultiProgress>,
    /// Whether only whole lines are written, since others write between.
    is_by_line: bool,
    /// A line of cargo's whose end has not come yet; a bar must not be drawn behind it.
    rest: Vec<u8>,
    is_quiet: bool,
}

/// How the reporting of builds is set up.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Whether stderr is a terminal.
    pub is_terminal: bool,
    /// Whether only errors are to be told.
    pub is_quiet: bool,
}

impl Console {
    /// The console of this process.
    pub fn new(is_quiet: bool) -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), is_quiet }
    }

    /// Where the progress of builds is shown; `is_beside` when there are several at once.
    pub fn board(self, is_beside: bool) -> Board {
        let bars = (is_beside && self.is_terminal && !self.is_quiet)
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND)));
        Board { console: self, bars, is_beside }
    }

    fn begin(self, build: &Build, program: &str, packages: Option<usize>) -> Progress {
        let libtorch =
            build.libtorch.as_ref().map(|libtorch| format!(" on torch {} in `{}`", libtorch.version, libtorch.root));
        let hosts = counted(build.hosts.len(), "host");
        let text = format!("building `{program}` for {} ({hosts}){}", build.concerns(), libtorch.unwrap_or_default());
        if !self.is_quiet {
            say(&text);
        }
        let bar = (self.is_terminal && !self.is_quiet).then(|| bar(build, packages));
        Progress { bar, bars: None, is_by_line: false, rest: Vec::new(), is_quiet: self.is_quiet }
    }

    /// Lets cargo write to us in colour where a person reads along, unless they chose otherwise: it sees a pipe.
    pub fn colour(self, env: &mut Env) {
        let is_set = |name: &str| env.get(OsStr::new(name)).is_some_and(|value| !value.is_empty());
        let is_dumb = env.get(OsStr::new(env_vars::TERM)).is_none_or(|term| term == "dumb");
        if self.is_terminal && !is_dumb && !is_set(env_vars::NO_COLOR) && !is_set("CARGO_TERM_COLOR") {
            env.insert("CARGO_TERM_COLOR".into(), "always".into());
        }
    }

    /// Tells something that is not an error.
    pub fn note(self, text: &str) {
        if !self.is_quiet {
            say(text);
        }
    }
}

/// The place for the progress of the builds of a plan.
#[derive(Debug)]
pub struct Board {
    console: Console,
    bars: Option<MultiProgress>,
    is_beside: bool,
}

impl Board {
    /// Begins the progress of a build. `packages` is an upper bound for what it compiles, where that is known.
    pub fn begin(&self, build: &Build, program: &str, packages: Option<usize>) -> Progress {
        let mut progress = self.console.begin(build, program, packages);
        progress.is_by_line = self.is_beside;
        if let Some(bars) = &self.bars {
            progress.bar = progress.bar.map(|bar| bars.add(bar));
            progress.bars = Some(bars.clone());
        }
        progress
    }
}

/// `1 host`, `2 hosts`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn bar(build: &Build, packages: Option<usize>) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
    let name = build.concerns().replace('`', "");
    let (bar, template) = match packages {
        Some(most) => (ProgressBar::new(most as u64), "{prefix} [{bar:24}] {pos}/{len} {elapsed} {wide_msg}"),
        None => (ProgressBar::new_spinner(), "{prefix} {spinner} {pos} {elapsed} {wide_msg}"),
    };
    bar.set_draw_target(target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(name);
    bar
}

impl Progress {
    /// Ends it; the bar is taken away.
    pub fn end(mut self) {
        let rest = std::mem::take(&mut self.rest);
        self.pass_on(&rest);
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn pass_on(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // A closed stderr is no reason to end a build.
        let write = || drop(std::io::stderr().lock().write_all(bytes));
        match (&self.bars, &self.bar) {
            (Some(bars), _) => bars.suspend(write),
            (None, Some(bar)) => bar.suspend(write),
            (None, None) => write(),
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.bar.is_none() && !self.is_by_line {
            return self.pass_on(bytes);
        }
        self.rest.extend_from_slice(bytes);
        if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
            let whole: Vec<u8> = self.rest.drain(..=end).collect();
            self.pass_on(&whole);
        }
    }
}

impl Watcher for Progress {
    fn watch(&mut self, event: &CargoEvent<'_>) {
        match event {
            CargoEvent::Text(bytes) => self.text(bytes),
            CargoEvent::Crate { name, count, is_fresh } => {
                let Some(bar) = &self.bar else { return };
                let count = *count as u64;
                if bar.length().is_some_and(|length| length < count) {
                    bar.set_length(count);
                }
                bar.set_position(count);
                if !is_fresh {
                    bar.set_message((*name).to_owned());
                }
            }
            CargoEvent::Waiting { file, holder } if !self.is_quiet => {
                let what = file.map_or_else(|| "a lock".to_owned(), |file| format!("the lock on `{file}`"));
                self.pass_on(format!("hint: cargo waits for {what}, which {holder} holds\n").as_bytes());
            }
            CargoEvent::Waiting { .. } => {}
        }
    }

    fn tick(&mut self) {
        if let Some(bar) = &self.bar {
            bar.tick();
        }
    }
}

/// Rounded for people: `0.3 s`, `12.0 s`, `2 min 05 s`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libtorch::event::human_size;

    #[test]
    fn numbers_are_rounded_for_people() {
        assert_eq!(duration(Duration::from_millis(349)), "0.3 s");
        assert_eq!(duration(Duration::from_secs(125)), "2 min 05 s");
        assert_eq!(human_size(999), "999 B");
        assert_eq!(human_size(4_440_000), "4.4 MB");
        assert_eq!(human_size(2_100_000_000), "2.1 GB");
        assert_eq!((counted(1, "host"), counted(2, "host")), ("1 host".to_owned(), "2 hosts".to_owned()));
    }
}
