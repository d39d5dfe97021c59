//! `status`: the runs of this user on this machine, and how one of them goes.

use clap::Args;
use torchlift_schema::exit_code;

use super::Context;
use super::run::Format;
use super::runs::{self, RunName};
use crate::error::CommandError;
use crate::live;
use crate::live::message::{RankState, Status};
use crate::output::terminal::{self, visible};
use crate::report::json::{self, REPORT};
use crate::report::{console, words};

/// Shows the runs of yours that live on this machine, or how one goes
#[derive(Clone, Debug, Args)]
pub(crate) struct StatusArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunName,
    /// Print JSON: the runs that live, or the one that is named; of one that is over its report
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub format: Format,
}

/// Runs it.
///
/// # Errors
/// When the run that is named is not there.
pub(crate) fn run(args: &StatusArgs, context: &Context) -> Result<u8, CommandError> {
    let text = match (&args.run.run, args.format) {
        (None, format) => {
            let look = live::look(&context.env);
            let gone = live::sweep(&look.left);
            let all: Vec<Status> = look.living.into_iter().map(|living| living.status).collect();
            match format {
                Format::Json => {
                    look.silent.iter().for_each(|id| console::print(&console::warning(&silent(id))));
                    json::text(&all)
                }
                Format::Text => list(&all, &look.silent, &gone),
            }
        }
        (Some(_), format) => {
            let found = runs::find(&args.run, context)?;
            match (found.living, format) {
                (Some(living), Format::Json) => json::text(&living.status),
                (Some(living), Format::Text) => shown(&living.status),
                (None, format) => over(&found.run_id, &found.folder.join(REPORT), format)?,
            }
        }
    };
    terminal::print_data(text.as_bytes())
        .map_err(|error| CommandError::new(exit_code::REFUSED, "cannot write to stdout").because(error))?;
    Ok(exit_code::OK)
}

fn silent(id: &str) -> String {
    format!("{}  gives no answer: its launcher may be suspended", visible(id))
}

fn list(all: &[Status], silent: &[String], gone: &[String]) -> String {
    let mut text: String = all.iter().map(line).collect();
    for id in silent {
        text.push_str(&format!("{}\n", self::silent(id)));
    }
    for id in gone {
        text.push_str(&format!(
            "{}  its launcher is gone without a word: it was killed, and its ranks with it\n",
            visible(id)
        ));
    }
    if text.is_empty() { "no run of yours lives here\n".to_owned() } else { text }
}

/// One run on a line.
fn line(status: &Status) -> String {
    let count = |state| status.ranks.iter().filter(|rank| rank.state == state).count();
    let states = [
        (RankState::Waiting, "waiting"),
        (RankState::Running, "running"),
        (RankState::Succeeded, "done"),
        (RankState::Failed, "failed"),
    ];
    let states = states.into_iter().map(|(state, name)| (count(state), name)).filter(|(count, _)| *count > 0);
    let states: Vec<String> = states.map(|(count, name)| format!("{count} {name}")).collect();
    let ranks = words::count(status.ranks.len(), "rank");
    let stopping = if status.is_stopping { ", being ended" } else { "" };
    let (id, pid, since) = (visible(&status.run_id), status.pid, &status.started_at);
    let command = status.command.join(" ");
    format!("{id}  {ranks}: {}{stopping}  since {since}  pid {pid}  {}\n", states.join(", "), visible(&command))
}

/// One run with its ranks.
fn shown(status: &Status) -> String {
    let mut text = line(status);
    let folder = status.run_dir.as_os_str().to_string_lossy();
    text.push_str(&format!("files in `{}`\n", visible(&folder)));
    for rank in &status.ranks {
        let state = match rank.state {
            RankState::Waiting => "waits to be started".to_owned(),
            RankState::Running => format!("runs, pid {}", rank.pid.unwrap_or_default()),
            RankState::Succeeded | RankState::Failed => rank.end.clone().unwrap_or_default(),
        };
        text.push_str(&format!("rank {} on `{}` {}\n", rank.rank, visible(&rank.host), visible(&state)));
    }
    text
}

/// A run that is over, by its report.
fn over(id: &str, report: &std::path::Path, format: Format) -> Result<String, CommandError> {
    let text = fs_err::read_to_string(report).map_err(|error| {
        CommandError::new(exit_code::USAGE, format!("the run `{id}` lives no more, and has no report"))
            .because(error)
            .hint("its launcher was killed, and its ranks with it, or there was no room for a report")
    })?;
    let report: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| CommandError::new(exit_code::USAGE, "its report cannot be read").because(error))?;
    Ok(match format {
        Format::Json => text,
        Format::Text => {
            let outcome = report["outcome"]["kind"].as_str().unwrap_or("unknown");
            let (code, elapsed) = (&report["exit_code"], report["elapsed_s"].as_f64().unwrap_or_default());
            format!("{}  over: {outcome}, exit code {code}, after {elapsed:.1} s\n", visible(id))
        }
    })
}
