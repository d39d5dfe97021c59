//! How keys read: who is trusted, what was issued, and what each is good for now.
//!
//! Pure. What is wrong with them is findings, which are rendered as all others are.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use torchlift_schema::Finding;

use super::words;
use crate::keys::check::{WARN_DAYS, summary};
use crate::keys::index::{DAY, Duty, Index, Issued, Stamp};
use crate::output::terminal::visible;

/// What a certificate is good for at a time.
fn state(entry: &Issued, now: Stamp) -> &'static str {
    match entry {
        Issued { revoked: Some(_), .. } => "revoked",
        Issued { not_after, .. } if *not_after <= now => "expired",
        Issued { is_replaced: true, .. } => "replaced",
        Issued { not_before, .. } if *not_before > now => "early",
        Issued { not_after, .. } if not_after.0 - now.0 < WARN_DAYS * DAY => "expiring",
        _ => "good",
    }
}

/// For people.
pub(crate) fn render(folder: &Path, index: &Index, now: Duration) -> String {
    let now = Stamp::of(now);
    let mut rows: Vec<[String; 4]> = Vec::new();
    for authority in &index.authorities {
        let duty = match authority.duty {
            Duty::Signs => "signs",
            Duty::Retires => "is trusted until `torchlift keys rotate --finish`",
        };
        rows.push(["authority".to_owned(), authority.id.clone(), span(authority.not_after, now), duty.to_owned()]);
    }
    for entry in &index.issued {
        let until = match (state(entry, now), entry.revoked) {
            ("revoked", Some(when)) => format!("revoked on {}", when.day()),
            ("replaced", _) => format!("replaced, good until {}", entry.not_after.day()),
            ("early", _) => format!("good from {} on", entry.not_before),
            _ => span(entry.not_after, now),
        };
        rows.push([entry.role.word().to_owned(), entry.name.clone(), until, entry.names.join(", ")]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let mut text = format!("{}: {}\n", visible(&folder.display().to_string()), summary(index));
    for [kind, name, until, rest] in &rows {
        let [first, second, third] = widths;
        let line = format!("{kind:first$}  {name:second$}  {until:third$}  {rest}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn span(until: Stamp, now: Stamp) -> String {
    match until.0.checked_sub(now.0) {
        None | Some(0) => format!("expired on {}", until.day()),
        Some(left) => {
            let days = usize::try_from(left / DAY).unwrap_or(usize::MAX);
            format!("good until {} ({})", until.day(), words::count(days, "day"))
        }
    }
}

/// For programs: the index, with the state of each certificate and all findings.
pub(crate) fn json(folder: &Path, index: &Index, findings: &[Finding], now: Duration) -> Value {
    let now = Stamp::of(now);
    let issued = |entry: &Issued| {
        let mut value = json!(entry);
        value["state"] = state(entry, now).into();
        value
    };
    json!({
        "version": 1,
        "folder": folder.display().to_string(),
        "holds": index.holds,
        "authorities": index.authorities,
        "issued": index.issued.iter().map(issued).collect::<Vec<_>>(),
        "findings": findings,
    })
}
