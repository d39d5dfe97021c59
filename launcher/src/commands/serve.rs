//! `serve`: an allocator for clients that come over a channel.
//!
//! Owns what it is told and what it needs; `door` lets connections in.

mod door;
mod spool;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use torchlift_schema::{ChannelAddr, exit_code};

use super::{Context, keys, lookup, probe};
use crate::allocator::engine::Host;
use crate::allocator::server::{Facts, Gather, Server, Service, Sessions};
use crate::allocator::state::Rules;
use crate::channel::dial::Dialler;
use crate::channel::listen::{ListenError, Listener};
use crate::channel::{BoxStream, token};
use crate::claim;
use crate::clock;
use crate::env_vars;
use crate::error::{CommandError, one_line};
use crate::keys::{Credentials, KeysError, Wanted};
use crate::plan;
use crate::process::limit;
use crate::report::console;
use door::Door;
use spool::Spool;

/// What stands on stdout before the connection: whatever a login shell prints comes before it.
const MARKER: &str = "torchlift-serve 1\n";

/// Ranks that one allocation may have: what one machine is good for, many times over.
const MOST_RANKS: i64 = 4096;

/// Starts ranks for clients that come over a channel, and reports on them
///
/// A client asks with the messages of `docs/protocol.md`. An allocation that does not fit beside what is held is refused and
/// disturbs nobody. SIGTERM stops what is held and ends when all of it is told; a second one kills.
#[derive(Clone, Debug, Args)]
#[command(group = clap::ArgGroup::new("where").required(true).multiple(true))]
pub(crate) struct ServeArgs {
    /// Serve this address: `unix:PATH`, `unix:@NAME`, `tcp:127.0.0.1:PORT` or `tls:HOST:PORT`; may be given several times
    #[arg(long, value_name = "ADDR", group = "where")]
    pub listen: Vec<ChannelAddr>,
    /// Serve one connection, on stdin and stdout, and end with it
    #[arg(long, group = "where")]
    pub stdio: bool,
    /// The program of allocations that name none
    #[arg(long, value_name = "PROGRAM")]
    pub program: Option<OsString>,
    /// How many ranks are started at once [default: one allocation of any size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_RANKS))]
    pub slots: Option<u32>,
    /// End after this time without an allocation
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub idle_timeout: Option<Duration>,
    /// How long a client may be silent before its ranks are stopped
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "15s")]
    pub client_timeout: Duration,
    /// Start only programs below this folder; may be given several times
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
    /// The file with the secret that a client has to show over TCP; made where it is missing
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The folder of keys, for `tls:` [default: `$XDG_CONFIG_HOME/torchlift/keys`, else `~/.config/torchlift/keys`]
    #[arg(long, value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// Where the ranks' output is kept [default: `$XDG_STATE_HOME/torchlift/allocations`]
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// When what it needs cannot be had; then nothing was served.
pub(crate) fn run(args: &ServeArgs, context: &Context) -> Result<u8, CommandError> {
    let token = token(args)?;
    let credentials = credentials(args, context)?;
    let dialler = dialler(args, context, &credentials)?;
    let host = host(args, context)?;
    let spool = spool_folder(args, context)?;
    let name = credentials.iter().flatten().next().map(|credentials| credentials.role().name().to_owned());
    let gather = gather(name, context);
    let rules = Rules {
        incarnation: plan::run_id(clock::wall(), std::process::id()),
        slots: args.slots.map(|slots| slots as usize),
        most_ranks: MOST_RANKS as usize,
        has_program: host.program.is_some(),
        patience: args.client_timeout,
        idle_timeout: args.idle_timeout,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| system("the runtime cannot be started", error))?;
    let served = runtime.block_on(serve(args, Needs { credentials, dialler, rules, host, spool, token, gather }));
    // A read of stdin that nobody answers any more must not be waited for.
    runtime.shutdown_background();
    served.map(|()| exit_code::OK)
}

fn system(what: &str, error: io::Error) -> CommandError {
    CommandError::new(exit_code::REFUSED, what).because(error)
}

fn usage(message: String) -> CommandError {
    CommandError::new(exit_code::USAGE, message)
}

/// The secret for addresses over which a connection proves nothing.
fn token(args: &ServeArgs) -> Result<Option<String>, CommandError> {
    let is_needed = args.listen.iter().any(|addr| matches!(addr, ChannelAddr::Tcp(_)));
    match (&args.token_file, is_needed) {
        (Some(file), _) => token::read_or_make(file).map(Some).map_err(|error| {
            usage(format!("`{}` gives no token", file.display()))
                .because(error)
                .hint("give a file of your own with mode 0600, or the path of one that is to be made")
        }),
        (None, true) => Err(usage("`tcp:` needs `--token-file`: a connection over it proves nothing".to_owned())
            .hint("give `--token-file FILE`; it is made where it is missing, and clients show what is in it")),
        (None, false) => Ok(None),
    }
}

/// The keys to serve each address with; none for an address that is served without.
fn credentials(args: &ServeArgs, context: &Context) -> Result<Vec<Option<Arc<Credentials>>>, CommandError> {
    let credentials = |addr: &ChannelAddr| {
        let ChannelAddr::Tls(to) = addr else { return Ok(None) };
        let folder = keys::folder(args.keys.as_deref(), context)?;
        match Credentials::serving(&folder, to.host()) {
            Ok(credentials) => Ok(Some(Arc::new(credentials))),
            Err(error) => Err(without_keys(&format!("`{addr}` cannot be served"), error)),
        }
    };
    args.listen.iter().map(credentials).collect()
}

/// What dials clients that have an address of their own. Whoever names no keys and serves without them needs none.
fn dialler(
    args: &ServeArgs,
    context: &Context,
    credentials: &[Option<Arc<Credentials>>],
) -> Result<Dialler, CommandError> {
    match (credentials.iter().flatten().next(), &args.keys) {
        (Some(credentials), _) => Ok(Dialler::new(Arc::clone(credentials)).for_http1()),
        (None, Some(named)) => {
            let folder = keys::folder(Some(named), context)?;
            let credentials = Credentials::open(&folder, Wanted::host(None));
            let credentials =
                credentials.map_err(|error| without_keys("no client can be dialled over `tls:`", error))?;
            Ok(Dialler::new(Arc::new(credentials)).for_http1())
        }
        (None, None) => Ok(Dialler::plain()),
    }
}

fn without_keys(what: &str, error: KeysError) -> CommandError {
    match error {
        // Where the authority is there are the keys of several hosts.
        KeysError::Choice { ref found, .. } if found.contains(',') => {
            let error = keys::failed(what, error);
            error.hint("listen by the name of one, `tls:HOST:PORT`, or name the folder of one with `--keys DIR`")
        }
        other => keys::failed(what, other),
    }
}

fn host(args: &ServeArgs, context: &Context) -> Result<Host, CommandError> {
    let program = match &args.program {
        None => None,
        Some(program) => {
            let path = context.env.get(OsStr::new(env_vars::PATH)).map(OsString::as_os_str);
            let found = lookup::find(program, path, &context.cwd).ok_or_else(|| {
                usage(format!("the program `{}` is not found", program.to_string_lossy()))
                    .hint("give its path, or see that it is in `PATH` and may be executed")
            })?;
            Some(vec![found.into_os_string()])
        }
    };
    let claims = claim::folder(&context.env).map_err(|error| usage(error.to_string()).hint(error.hint()))?;
    let roots = args.root.iter().map(|root| {
        fs_err::canonicalize(context.cwd.join(root)).map_err(|error| {
            usage(format!("`--root {}` is no folder", root.display()))
                .because(error)
                .hint("give a folder that is there")
        })
    });
    let roots = roots.collect::<Result<Vec<_>, _>>()?;
    Ok(Host {
        program,
        roots,
        cwd: context.cwd.clone(),
        env: plan::inherited(&context.env),
        hosts_file: context.env.get(OsStr::new(env_vars::TORCH_ELASTIC_CUSTOM_HOSTNAMES_LIST_FILE)).map(PathBuf::from),
        claims,
        open_files: limit::soft()
            .map_err(|error| system("the limit of open files cannot be read", io::Error::from(error)))?,
    })
}

/// Where output is kept: a folder of this allocator's own, so that two never share one.
fn spool_folder(args: &ServeArgs, context: &Context) -> Result<PathBuf, CommandError> {
    let var = |name: &str| context.env.get(OsStr::new(name)).map(PathBuf::from).filter(|path| path.is_absolute());
    let spool = match &args.spool {
        Some(spool) => context.cwd.join(spool),
        None => var(env_vars::XDG_STATE_HOME)
            .or_else(|| Some(var(env_vars::HOME)?.join(".local/state")))
            .ok_or_else(|| {
                usage("there is no place for the ranks' output".to_owned()).hint("give `--spool DIR`, or set HOME")
            })?
            .join("torchlift/allocations"),
    };
    Ok(spool.join(plan::run_id(clock::wall(), std::process::id())))
}

/// How facts of this host are gathered, under the name in its certificate where it has one.
fn gather(name: Option<String>, context: &Context) -> Arc<Gather> {
    let context = context.clone();
    let read = move || {
        let (_, facts) = probe::gathered(name.as_deref(), &context.cwd, &context)?;
        probe::check(&facts)?;
        Ok(torchlift_schema::facts::to_text(&facts))
    };
    Arc::new(move || match read() {
        Ok(text) => Ok(text),
        Err(CommandError::Findings { summary, findings, .. }) => {
            let all: Vec<String> = findings.iter().map(|finding| finding.message.clone()).collect();
            Err(format!("{summary}: {}", all.join("; ")))
        }
        Err(error) => Err(one_line(&error)),
    })
}

/// What it serves with.
struct Needs {
    /// The keys of each address.
    credentials: Vec<Option<Arc<Credentials>>>,
    dialler: Dialler,
    rules: Rules,
    host: Host,
    /// The folder for output, which is not there yet.
    spool: PathBuf,
    token: Option<String>,
    gather: Arc<Gather>,
}

async fn serve(args: &ServeArgs, needs: Needs) -> Result<(), CommandError> {
    let Needs { credentials, dialler, rules, host, spool, token, gather } = needs;
    let mut listeners = Vec::new();
    for (addr, credentials) in args.listen.iter().zip(credentials) {
        listeners.push(Listener::bind(addr, credentials).await.map_err(not_served)?);
    }
    let spool = Spool::make(spool.clone()).map_err(|error| {
        system(&format!("the folder `{}` for the ranks' output cannot be made", spool.display()), error)
            .hint("give another one with `--spool DIR`")
    })?;
    let server = Server::new(rules, host, dialler, spool.folder().to_owned())
        .map_err(|error| system("the allocator cannot be started", error))?;
    let door = Arc::new(Door::new(Service {
        handle: server.handle(),
        sessions: Sessions::default(),
        token: token.map(Arc::from),
        spool: Arc::new(spool.folder().to_owned()),
        facts: Facts::new(gather),
        traffic: Arc::default(),
    }));
    let mut accepting = Vec::new();
    for listener in listeners {
        console::print(&format!("serving `{}`\n", listener.addr()));
        accepting.push(tokio::spawn(Arc::clone(&door).accept_from(listener)));
    }
    if args.stdio {
        let stream = marked_stdio().map_err(|error| system("stdout cannot be written", error))?;
        let door = Arc::clone(&door);
        tokio::spawn(async move { door.attend_only(stream, "stdio").await });
    }
    let ran = server.run().await;
    for listener in &accepting {
        listener.abort();
    }
    door.close().await;
    ran.map_err(|error| system("the allocator cannot go on", error))
}

fn not_served(error: ListenError) -> CommandError {
    let hint = error.hint();
    usage("nothing is served".to_owned()).because(error).hint(hint)
}

/// Writes the marker, and gives stdin and stdout as one stream.
fn marked_stdio() -> io::Result<BoxStream> {
    let mut stdout = io::stdout();
    stdout.write_all(MARKER.as_bytes())?;
    stdout.flush()?;
    Ok(Box::new(tokio::io::join(tokio::io::stdin(), tokio::io::stdout())))
}
