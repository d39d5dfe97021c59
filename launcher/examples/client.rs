//! Holds one rank on each of the allocators whose addresses it is given, and tells what that costs the client.
//!
//! `client INTERVAL_MS LIMIT_MS SECONDS ADDR...`: says `running` when every rank runs, `cores: N us` for what this process had
//! of all cores in so many seconds after that, and `lost` for each host that it loses from then on. It ends with its stdin.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it is for")]

use std::process::ExitCode;
use std::time::Duration;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike as _;
use tokio::io::AsyncReadExt as _;
use torchlift::client::{AllocEvent, AllocSpec, HostSpec, Patience, RemoteProcessAlloc, split};
use torchlift::reach::{Agent, Reach};
use torchlift_schema::launch::{LaunchSpec, OsText};
use torchlift_schema::state::{AllocKey, ProcState};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number =
        || -> Result<u64, Box<dyn std::error::Error>> { Ok(args.next().ok_or("too few arguments")?.parse()?) };
    let (interval, limit, seconds) = (number()?, number()?, number()?);
    let ways = args
        .map(|addr| Ok(Reach::Agent(Agent::at(addr.parse()?))))
        .collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let (extent, views) = split::by_count(&vec![1; ways.len()])?;
    let mut launch = LaunchSpec::new("client", OsText::new("/bin/sleep")?, OsText::new("/")?, 1000);
    launch.args = vec![OsText::new("600")?];
    let host = |(index, view)| HostSpec {
        name: format!("host-{index}"),
        view,
        launch: Some(launch.clone()),
        incarnation: None,
    };
    let spec = AllocSpec {
        key: AllocKey::new("client")?,
        owner: "bench".to_owned(),
        extent,
        hosts: views.into_iter().enumerate().map(host).collect(),
        is_forced: false,
        lease: None,
        context: None,
        patience: Patience {
            interval: Duration::from_millis(interval),
            limit: Duration::from_millis(limit),
            wait: Duration::from_secs(10),
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let held = runtime.block_on(hold(spec, ways, Duration::from_secs(seconds)));
    // The read of stdin must not be waited for.
    runtime.shutdown_background();
    held
}

async fn hold(spec: AllocSpec, ways: Vec<Reach>, time: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let mut left = spec.hosts.len();
    let mut alloc = RemoteProcessAlloc::start(spec, ways);
    while left > 0 {
        match alloc.next().await.ok_or("it ended too early")? {
            AllocEvent::State { state: ProcState::Running { .. }, .. } => left -= 1,
            AllocEvent::State { state: ProcState::Failed { description, .. }, .. } => return Err(description.into()),
            AllocEvent::HostLost { why, .. } => return Err(why.into()),
            _ => {}
        }
    }
    println!("running");
    let used = core_time_us();
    tokio::time::sleep(time).await;
    println!("cores: {} us", core_time_us() - used);
    let (mut stdin, mut byte) = (tokio::io::stdin(), [0]);
    loop {
        tokio::select! {
            event = alloc.next() => match event {
                Some(AllocEvent::HostLost { .. }) => println!("lost"),
                Some(_) => {}
                None => return Ok(()),
            },
            _ = stdin.read(&mut byte) => {
                alloc.stop_and_wait().await;
                return Ok(());
            }
        }
    }
}

/// What this process has had of all cores so far, in microseconds; 0 where the kernel does not say.
fn core_time_us() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0, |usage| usage.user_time().num_microseconds() + usage.system_time().num_microseconds())
}
