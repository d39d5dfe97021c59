//! `keys`: the certificates by which clients and hosts know each other.
//!
//! Owns the command line and what is said of a change; the change itself is [`crate::keys::change`]'s.

mod carry;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use torchlift_schema::exit_code;

use super::Context;
use crate::clock;
use crate::error::CommandError;
use crate::keys::change::{self, Request};
use crate::keys::check::{self, Looked};
use crate::keys::index::Holds;
use crate::keys::role::{NameError, Role, RoleKind};
use crate::keys::{KeysError, place};
use crate::output::terminal;
use crate::report::{self, console, failure, json, words};

/// Makes and shows the certificates by which clients and hosts know each other over `tls`
///
/// One machine has the authority. What it issues for a host or a client is one folder, which is carried to where it is used.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    action: Action,
    /// The folder of keys [default: `$XDG_CONFIG_HOME/torchlift/keys`, else `~/.config/torchlift/keys`]
    #[arg(long, value_name = "DIR", global = true)]
    keys: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Make an authority here, in a folder that has no keys yet
    Init {
        /// Days that the authority is good for
        #[arg(long, value_name = "N", default_value_t = change::AUTHORITY_DAYS, value_parser = days())]
        days: u32,
    },
    /// Issue a certificate for a host or a client, and say how it is carried
    Issue(IssueArgs),
    /// Say what was issued, what expires, and what is wrong
    Show {
        /// How it is printed
        #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
        format: Format,
    },
    /// Make a new authority that takes the place of the old one, and issue all certificates anew
    ///
    /// Both are trusted until `--finish`. New folders may be carried in any order meanwhile: who has the old one and who has
    /// the new one know each other.
    Rotate {
        /// Trust the old authority no more, once all hosts and clients have their new folders
        #[arg(long)]
        finish: bool,
        /// Days that the new authority is good for
        #[arg(long, value_name = "N", default_value_t = change::AUTHORITY_DAYS, value_parser = days(), conflicts_with = "finish")]
        days: u32,
    },
    /// Take back all certificates of a host or a client
    Revoke(WhoArgs),
}

/// Days that fit into a certificate's dates.
fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

#[derive(Clone, Debug, Args)]
struct IssueArgs {
    #[command(flatten)]
    who: WhoArgs,
    /// A further DNS name or address that the host is dialled by; may be repeated
    /// [default: those of the certificate before]
    #[arg(long = "name", value_name = "DNS|IP", conflicts_with = "client")]
    names: Vec<String>,
    /// Days that it is good for, and no longer than its authority
    #[arg(long, value_name = "N", default_value_t = change::DAYS, value_parser = days())]
    days: u32,
    /// Issue another also where the one before is still good
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
struct WhoArgs {
    /// The host, by its name in the cluster file
    host: Option<String>,
    /// A client: one who controls
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
}

impl WhoArgs {
    fn role(&self) -> Result<Role, NameError> {
        match (&self.host, &self.client) {
            (Some(host), _) => Role::host(host),
            (None, client) => Role::client(client.as_deref().unwrap_or_default()),
        }
    }
}

/// How keys are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Runs it.
///
/// # Errors
/// When nothing was changed, with the reason.
pub(crate) fn run(args: &KeysArgs, context: &Context) -> Result<u8, CommandError> {
    let folder = folder(args.keys.as_deref(), context)?;
    let now = clock::wall();
    let shown = folder.display();
    match &args.action {
        Action::Init { days } => {
            let index = change::init(&folder, *days, now).map_err(|error| failed("no authority was made", error))?;
            let until = index.signing().map(|entry| entry.not_after.day()).unwrap_or_default();
            say(&[
                format!("made an authority in `{shown}`, good until {until}; whoever reads that folder can control every host"),
                "next: `torchlift keys issue --client NAME` for whoever controls, `torchlift keys issue HOST` for every host".to_owned(),
            ]);
        }
        Action::Issue(args) => issue(&folder, args)?,
        Action::Show { format } => return show(&folder, *format),
        Action::Rotate { finish: false, days } => {
            let rotation =
                change::rotate(&folder, *days, now).map_err(|error| failed("the authority was not rotated", error))?;
            let mut lines = vec![format!(
                "authority `{}` signs from now on, and `{}` is trusted until the rotation is finished; {} issued anew",
                rotation.signing,
                rotation.retiring,
                words::count(rotation.issued.len(), "certificate")
            )];
            lines.extend(rotation.expired.iter().map(|role| {
                let arguments = role.kind().arguments(role.name());
                format!("{role} got none, since its certificate had expired: `torchlift keys issue {arguments}` when it is needed")
            }));
            lines.extend(carry::folders(&folder, &rotation.issued));
            lines.push("when all of them have it: `torchlift keys rotate --finish`".to_owned());
            say(&lines);
        }
        Action::Rotate { finish: true, .. } => {
            let old = change::finish(&folder, now).map_err(|error| failed("the rotation was not finished", error))?;
            let old = old.map(|id| format!(" `{id}`")).unwrap_or_default();
            let mut lines = vec![format!("the old authority{old} is trusted no more, and its private key is removed")];
            lines.extend(carry::files(&folder, &[place::TRUST, place::REVOKED]));
            say(&lines);
        }
        Action::Revoke(who) => {
            let wrong = |error| failed("nothing was revoked", error);
            let role = who.role().map_err(|error| wrong(error.into()))?;
            let count = change::revoke(&folder, &role, now).map_err(wrong)?;
            let mut lines = vec![match count {
                0 => format!("all certificates of {role} were revoked before; the list is written anew"),
                _ => format!("revoked {} of {role}", words::count(count, "certificate")),
            }];
            lines.push(
                "it is let in by all who have not got the new list, and a connection that stands is not ended"
                    .to_owned(),
            );
            lines.extend(carry::files(&folder, &[place::REVOKED]));
            say(&lines);
        }
    }
    Ok(exit_code::OK)
}

/// The folder of keys: the one that `--keys` names, else this user's.
pub(super) fn folder(named: Option<&Path>, context: &Context) -> Result<PathBuf, CommandError> {
    match named {
        Some(folder) => Ok(context.cwd.join(folder)),
        None => place::default_folder(&context.env).ok_or_else(|| {
            CommandError::new(exit_code::USAGE, "no folder for keys: neither `XDG_CONFIG_HOME` nor `HOME` is set")
                .hint("name one: `--keys DIR`")
        }),
    }
}

fn issue(folder: &Path, args: &IssueArgs) -> Result<(), CommandError> {
    let wrong = |error| failed("no certificate was issued", error);
    let role = args.who.role().map_err(|error| wrong(error.into()))?;
    let request = Request { role: role.clone(), names: args.names.clone(), days: args.days, is_forced: args.force };
    let outcome = change::issue(folder, &request, clock::wall()).map_err(wrong)?;
    let until = outcome.issued.not_after.day();
    let mut lines =
        vec![format!("issued the certificate of {role}, good until {until}: `{}`", outcome.folder.display())];
    if outcome.has_replaced {
        let arguments = role.kind().arguments(role.name());
        lines.push(format!(
            "the one before stays good until it ends: if others may have its key, `torchlift keys revoke {arguments}`, then issue once more"
        ));
    }
    if role.kind() == RoleKind::Client {
        lines.push(format!("`torchlift` on this machine finds it there (`--keys {}`)", carry::quoted(folder)));
    }
    lines.extend(carry::folders(folder, &[role]));
    say(&lines);
    Ok(())
}

fn show(folder: &Path, format: Format) -> Result<u8, CommandError> {
    let now = clock::wall();
    let (index, findings) = match check::look(folder, now) {
        Looked::Absent => {
            return Err(failed("there is nothing to show", KeysError::Absent { folder: folder.to_owned() }));
        }
        Looked::Unusable(findings) => {
            return Err(CommandError::findings(exit_code::USAGE, "the keys cannot be shown", findings));
        }
        Looked::There { index, findings } => (index, findings),
    };
    let text = match format {
        Format::Text => report::keys::render(folder, &index, now),
        Format::Json => json::text(&report::keys::json(folder, &index, &findings, now)),
    };
    terminal::print_data(text.as_bytes())
        .map_err(|error| CommandError::new(exit_code::USAGE, "cannot write to stdout").because(error))?;
    if format == Format::Text {
        console::print(&failure::render_findings(&findings));
        if index.holds == Holds::Authority && index.issued.is_empty() {
            say(&[
                "next: `torchlift keys issue --client NAME`, and `torchlift keys issue HOST` for every host".to_owned()
            ]);
        }
    }
    Ok(exit_code::OK)
}

fn say(lines: &[String]) {
    let text: String = lines.iter().map(|line| report::visible(line).into_owned() + "\n").collect();
    console::print(&text);
}

/// A failure of keys, which prevented what is said.
pub(super) fn failed(what: &str, error: KeysError) -> CommandError {
    let code = match &error {
        KeysError::Unreadable { .. }
        | KeysError::Unwritable { .. }
        | KeysError::Busy { .. }
        | KeysError::Signing { .. } => exit_code::REFUSED,
        _ => exit_code::USAGE,
    };
    if let KeysError::Findings { findings, .. } = &error {
        return CommandError::findings(code, format!("{what}: {error}"), findings.clone());
    }
    let hint = error.hint();
    CommandError::new(code, what).because(error).hint(hint)
}
