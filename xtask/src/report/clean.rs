//! What `clean` took out, for people.

use std::fmt::Write as _;

use camino::Utf8Path;

use super::progress::counted;
use crate::execute::stale::Stale;
use crate::libtorch::event::human_size;

/// A line a build, and what all of them come to.
pub fn render(stale: &Stale, builds_dir: &Utf8Path, is_dry_run: bool) -> String {
    let mut text = String::new();
    for build in &stale.builds {
        let idle = match build.idle_days {
            Some(0) => "used today".to_owned(),
            Some(1) => "not used for 1 day".to_owned(),
            Some(days) => format!("not used for {days} days"),
            None => "used at a time to come".to_owned(),
        };
        let _ = writeln!(text, "{}  {:>8}  {idle}", build.key, human_size(build.size));
    }
    let kept = match stale.kept {
        0 => "no envelope names one".to_owned(),
        1 => "1 build stays, which an envelope names".to_owned(),
        kept => format!("{kept} builds stay, which envelopes name"),
    };
    let size = human_size(stale.builds.iter().map(|build| build.size).sum());
    let count = counted(stale.builds.len(), "build");
    let _ = match (stale.builds.is_empty(), is_dry_run) {
        (true, _) => writeln!(text, "nothing to take out in `{builds_dir}`: {kept}"),
        (false, true) => writeln!(text, "{count} in `{builds_dir}` would go, and free {size}; {kept}"),
        (false, false) => writeln!(text, "{count} in `{builds_dir}` taken out, {size} freed; {kept}"),
    };
    text
}
