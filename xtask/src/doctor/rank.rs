//! What a launch of the envelopes that are there would meet before its first rank.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::Parser as _;
use torchlift::commands::run;
use torchlift_schema::Envelope;

use super::{Check, Scene, Section, counted};
use crate::commands::launch::{LaunchArgs, request};
use crate::error::CommandError;
use crate::facts::Facts;

/// `launch` without any argument.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    launch: LaunchArgs,
}

pub(super) fn look(scene: &Scene, facts: &Facts, envelopes: BTreeMap<String, Envelope>, section: &mut Section) {
    let looked = Line::try_parse_from(Vec::<OsString>::new())
        .map_err(|error| CommandError::new(torchlift_schema::exit_code::USAGE, error.to_string()))
        .and_then(|line| request::request(&line.launch, facts, envelopes, &scene.context))
        .and_then(|request| run::look(&request));
    let look = match looked {
        Ok(look) => look,
        Err(CommandError::Findings { findings, .. }) => {
            return findings.into_iter().for_each(|finding| section.push(Check::of_finding(finding)));
        }
        Err(error) => {
            return section.push(Check::unchecked(
                "launch",
                error.to_string(),
                scene.typed("launch --no-build --dry-run"),
            ));
        }
    };
    let what = format!("{} on {}", counted(look.ranks as usize, "rank"), counted(look.hosts, "host"));
    if let Some((needed, hard)) = look.too_few_files {
        section.push(Check::wrong(
            "open-files",
            format!("{what} need {needed} open files, and the hard limit is {hard}"),
            "let the administrator raise it (`/etc/security/limits.conf`, `LimitNOFILE` of a service), or launch fewer ranks",
        ));
    }
    let is_good = !look.findings.iter().any(torchlift_schema::Finding::is_error);
    look.findings.into_iter().for_each(|finding| section.push(Check::of_finding(finding)));
    if is_good {
        let found = format!(
            "{what} would start: programs and libraries are those of the envelopes, and the loader finds all of them"
        );
        section.push(Check::right("launch", found));
    }
}
