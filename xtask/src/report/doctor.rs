//! An examination in words: one line a look, what is not right with its remedy below it.
//!
//! Pure. Every state stands there as a word, so that colours only help.

use std::fmt::Write as _;

use torchlift::report::visible;

use crate::doctor::{Check, Counts, Examination, State};

/// Columns of a state.
const STATES: usize = 10;
/// Columns of what was looked at; longer names push what follows.
const NAMES: usize = 17;

/// The text for people, with its final newline.
pub fn render(examination: &Examination, is_coloured: bool) -> String {
    let mut text = String::new();
    for section in &examination.sections {
        let _ = writeln!(text, "{}", section.id.title());
        for check in &section.checks {
            line(&mut text, check, is_coloured);
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}", summary(examination.counts));
    text
}

fn line(text: &mut String, check: &Check, is_coloured: bool) {
    let word = format!("{:<STATES$}", check.state.word());
    let word = if is_coloured { format!("{}{word}\x1b[0m", colour(check.state)) } else { word };
    let _ = writeln!(text, "  {word}{:<NAMES$} {}", visible(&check.id), visible(&check.found));
    let place = check.place.to_string();
    if !place.is_empty() && check.state != State::Right {
        let _ = writeln!(text, "  {:STATES$}--> {}", "", visible(&place));
    }
    if let Some(remedy) = &check.remedy {
        let _ = writeln!(text, "  {:STATES$}= help: {}", "", visible(remedy));
    }
}

fn colour(state: State) -> &'static str {
    match state {
        State::Right => "\x1b[32m",
        State::Unchecked => "\x1b[36m",
        State::Doubtful => "\x1b[33m",
        State::Wrong => "\x1b[1;31m",
    }
}

fn summary(counts: Counts) -> String {
    let Counts { right, doubtful, wrong, unchecked } = counts;
    let verdict = match (wrong, doubtful) {
        (0, 0) => "nothing is wrong",
        (0, _) => "nothing is wrong; look at what is doubtful",
        _ => "mend what is wrong first: each has its remedy",
    };
    format!("{right} right, {doubtful} doubtful, {wrong} wrong, {unchecked} not checked: {verdict}")
}
