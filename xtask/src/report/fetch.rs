//! How a fetch looks on stderr: a bar on a terminal, plain lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use torchlift::clock::{Clock, Moment};

use crate::libtorch::event::{FetchEvent, human_size};

/// Between two lines about the same thing where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Prints what a fetch tells.
pub struct FetchReport {
    is_terminal: bool,
    clock: Clock,
    current: Option<Current>,
}

struct Current {
    what: String,
    total: Option<u64>,
    done: u64,
    began: Moment,
    told: Moment,
    bar: Option<ProgressBar>,
}

impl FetchReport {
    /// A report to the process's stderr.
    pub fn new() -> Self {
        Self { is_terminal: std::io::IsTerminal::is_terminal(&std::io::stderr()), clock: Clock::start(), current: None }
    }

    /// Prints one event.
    pub fn hear(&mut self, event: FetchEvent) {
        match event {
            FetchEvent::Note(text) => self.line(&text),
            FetchEvent::Begin { what, total } => self.begin(what, total),
            FetchEvent::Done(done) => self.advance(done),
            FetchEvent::End => self.end(),
        }
    }

    fn begin(&mut self, what: String, total: Option<u64>) {
        let size = total.map_or_else(|| "size not known before".to_owned(), human_size);
        self.line(&format!("{what} ({size})"));
        let bar = self.is_terminal.then(|| {
            let bar = match total {
                Some(total) => ProgressBar::new(total).with_style(style(
                    "{bar:40} {percent:>3} % {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
                )),
                None => {
                    ProgressBar::new_spinner().with_style(style("{spinner} {decimal_bytes} {decimal_bytes_per_sec}"))
                }
            };
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar
        });
        let now = self.clock.now();
        self.current = Some(Current { what, total, done: 0, began: now, told: now, bar });
    }

    fn advance(&mut self, done: u64) {
        let now = self.clock.now();
        let Some(current) = &mut self.current else { return };
        current.done = done;
        if let Some(bar) = &current.bar {
            bar.set_position(done);
        } else if now.since(current.told) >= LINE_EVERY {
            current.told = now;
            let of = match current.total {
                Some(total) if total > 0 => {
                    format!(" of {} ({} %)", human_size(total), done.saturating_mul(100) / total)
                }
                _ => String::new(),
            };
            let line = format!("{}: {}{of}", current.what, human_size(done));
            self.line(&line);
        }
    }

    fn end(&mut self) {
        let Some(current) = self.current.take() else { return };
        if let Some(bar) = &current.bar {
            bar.finish_and_clear();
        }
        let took = self.clock.now().since(current.began);
        // What was over at once needs no second line.
        if took >= Duration::from_secs(1) {
            self.line(&format!("{}: {} in {:.1} s", current.what, human_size(current.done), took.as_secs_f64()));
        }
    }

    fn line(&self, text: &str) {
        match self.current.as_ref().and_then(|current| current.bar.as_ref()) {
            Some(bar) => bar.println(text),
            None => super::say(text),
        }
    }
}

impl Default for FetchReport {
    fn default() -> Self {
        Self::new()
    }
}

/// A template that does not parse would be a fault of this file, and is not worth ending a download for.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
