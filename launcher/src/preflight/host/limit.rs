//! Limits of a process, as the kernel lists them for this one.

use torchlift_schema::host::{Bound, Limit, LimitFacts};

use super::{Problems, Roots};

const LIMITS: &str = "/proc/self/limits";

/// Reads them.
pub(super) fn read(roots: &Roots, problems: &mut Problems) -> Option<LimitFacts> {
    match roots.text(LIMITS) {
        Ok(text) => {
            let facts = parse(&text);
            if facts.is_none() {
                problems.unread("limits", format!("`{LIMITS}` lacks a limit"));
            }
            facts
        }
        Err(error) => {
            problems.unread("limits", format!("limits cannot be read: {error}"));
            None
        }
    }
}

fn parse(text: &str) -> Option<LimitFacts> {
    let limit = |name: &str| {
        let mut values = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
        Some(Limit { soft: bound(values.next()?)?, hard: bound(values.next()?)? })
    };
    Some(LimitFacts::new(
        limit("Max open files")?,
        limit("Max processes")?,
        limit("Max locked memory")?,
        limit("Max core file size")?,
    ))
}

fn bound(text: &str) -> Option<Bound> {
    if text == "unlimited" { Some(Bound::Unlimited) } else { text.parse().ok().map(Bound::of) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_their_names() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max core file size        0                    unlimited            bytes     \n\
                    Max processes             96415                96415                processes \n\
                    Max open files            1024                 1048576              files     \n\
                    Max locked memory         8388608              8388608              bytes     \n";
        let facts = parse(text).unwrap();
        assert_eq!(facts.nofile, Limit { soft: Bound::At(1024), hard: Bound::At(1_048_576) });
        assert_eq!(facts.core, Limit { soft: Bound::At(0), hard: Bound::Unlimited });
        assert_eq!(parse(&text.replace("Max open files", "Open files")), None);
        assert_eq!(parse(&text.replace("8388608", "many")), None);
    }
}
