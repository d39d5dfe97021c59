//! `logs`: what ranks wrote, of a run that lives or is over.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::Args;
use torchlift_schema::exit_code;

use super::Context;
use super::attach::lost;
use super::runs::{self, Found, RunName};
use crate::clock::Clock;
use crate::error::CommandError;
use crate::event::{Event, Observer as _, Outcome, Rank, Stream};
use crate::live;
use crate::output::{Console, Follow, Terminal};

/// Pause between two looks at files that may have grown.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Shows what ranks wrote
///
/// Every byte is shown once, in the order of its stream. Of one rank and one stream the bytes are shown as they are; else line by
/// line with host and rank before each.
#[derive(Clone, Debug, Args)]
pub(crate) struct LogsArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunName,
    /// Go on until the run is over and all of it is shown
    #[arg(long, short)]
    pub follow: bool,
    /// Only this rank; may be repeated
    #[arg(long, value_name = "N")]
    pub rank: Vec<u32>,
    /// Only what was written to stdout
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Only what was written to stderr
    #[arg(long)]
    pub stderr: bool,
}

/// Runs it.
///
/// # Errors
/// When there is no such run or rank, or its files cannot be read.
pub(crate) fn run(args: &LogsArgs, context: &Context) -> Result<u8, CommandError> {
    let found = runs::find(&args.run, context)?;
    let ranks = chosen(args, &found)?;
    let streams: &[Stream] = match (args.stdout, args.stderr) {
        (true, _) => &[Stream::Stdout],
        (_, true) => &[Stream::Stderr],
        _ => &[Stream::Stdout, Stream::Stderr],
    };
    // Before the files are read: what comes after this look is found by the next.
    let mut watch = match &found.living {
        Some(living) if args.follow => live::watch(&living.socket).ok(),
        _ => None,
    };
    let mut shown = Shown::new(&found, &ranks, streams, false);
    loop {
        let is_over = match &mut watch {
            // A launcher that was killed says nothing any more: what is there is all that comes.
            Some(watch) => match watch.wait(Some(PAUSE)) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(lost(&found.run_id, error)),
                ended => !matches!(ended, Ok(None)),
            },
            None => true,
        };
        match shown.turn() {
            Ok(()) => {}
            // Whoever reads this has enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(exit_code::OK),
            Err(error) => return Err(unreadable(error)),
        }
        if is_over {
            shown.close();
            return Ok(exit_code::OK);
        }
    }
}

pub(super) fn unreadable(error: io::Error) -> CommandError {
    CommandError::new(exit_code::REFUSED, "what the ranks wrote cannot be shown").because(error)
}

fn chosen(args: &LogsArgs, found: &Found) -> Result<Vec<Rank>, CommandError> {
    let all: Vec<Rank> = found.ranks.iter().map(|(rank, _)| *rank).collect();
    if let Some(missing) = args.rank.iter().find(|rank| !all.contains(&Rank(**rank))) {
        let last = all.len().saturating_sub(1);
        return Err(CommandError::new(exit_code::USAGE, format!("the run `{}` has no rank {missing}", found.run_id))
            .hint(format!("its ranks are 0 to {last}")));
    }
    Ok(if args.rank.is_empty() { all } else { args.rank.iter().map(|rank| Rank(*rank)).collect() })
}

/// Ranks' files on this process's stdout and stderr.
pub(super) struct Shown {
    follow: Follow,
    /// None where bytes are shown as they are.
    console: Option<Console>,
    clock: Clock,
}

impl Shown {
    pub(super) fn new(found: &Found, ranks: &[Rank], streams: &[Stream], is_from_now: bool) -> Self {
        let mut ranks = ranks.to_vec();
        ranks.sort();
        ranks.dedup();
        let folders: Vec<_> = ranks.iter().map(|rank| (*rank, found.rank_folder(*rank))).collect();
        let follow = Follow::new(folders.iter().map(|(rank, folder)| (*rank, folder.as_path())), streams, is_from_now);
        let is_raw = ranks.len() == 1 && streams.len() == 1;
        let console = (!is_raw).then(|| {
            let all = found.ranks.iter().map(|(rank, host)| (host.as_str(), *rank, found.rank_folder(*rank)));
            let sink = |terminal: Terminal| -> (Box<dyn io::Write>, bool) { (Box::new(terminal), false) };
            Console::of(all, sink(Terminal::stdout()), Some(sink(Terminal::stderr())))
        });
        Self { follow, console, clock: Clock::start() }
    }

    /// Bytes that were there before and are not shown.
    pub(super) fn passed_over(&self) -> u64 {
        self.follow.passed_over()
    }

    /// Shows what came.
    ///
    /// # Errors
    /// When a file cannot be read, or stdout cannot be written.
    pub(super) fn turn(&mut self) -> io::Result<()> {
        let (console, clock) = (&mut self.console, self.clock);
        self.follow.turn(&mut |rank, stream, bytes| match console {
            Some(console) => {
                console.observe(clock.now(), &Event::Output { rank, stream, bytes });
                Ok(())
            }
            None => Terminal::stdout().write_all(bytes),
        })?;
        if let Some(console) = &mut self.console {
            console.tick(self.clock.now());
        }
        Ok(())
    }

    /// Nothing more comes: a line that was begun is all of it.
    pub(super) fn close(&mut self) {
        if let Some(console) = &mut self.console {
            console.observe(self.clock.now(), &Event::Finished { outcome: Outcome::Success });
        }
    }
}
