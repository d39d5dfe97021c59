//! Runs a plan given as JSON on stdin-free arguments: `run_plan HOSTS RANKS_PER_HOST GRACE_MS RUN_DIR PROGRAM ARGS…`.
//!
//! The smallest launcher there can be: what the tests of `dispatcher` drive. It prints one line an event.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use torchlift::clock::Moment;
use torchlift::event::{End, Event, Observer, Outcome, Rank, Stream};
use torchlift::plan::{EnvValue, HostPlan, LaunchPlan, RankPlan};
use torchlift::process::signal::die_by;

struct Printer;

impl Observer for Printer {
    fn observe(&mut self, _now: Moment, event: &Event<'_>) {
        let mut out = std::io::stdout().lock();
        match event {
            Event::Output { stream: Stream::Stdout, bytes, .. } => {
                let _ = out.write_all(bytes);
            }
            Event::Output { bytes, .. } => {
                let _ = std::io::stderr().write_all(bytes);
            }
            other => {
                let _ = writeln!(out, "{other:?}");
            }
        }
        let _ = out.flush();
    }
}

fn main() -> ExitCode {
    torchlift::process::guard::enter();
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let number = |index: usize| args[index].to_str().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    let (hosts, per_host, grace) = (number(0), number(1), number(2));
    let run_id = args[3].to_str().expect("a run id").to_owned();
    let open = |value: &std::ffi::OsStr| EnvValue { value: value.to_owned(), is_secret: false };
    let mut env: BTreeMap<_, _> = std::env::vars_os().map(|(name, value)| (name, open(&value))).collect();
    env.insert("TORCHLIFT_RUN_ID".into(), open(run_id.as_ref()));
    let rank = |host: u64, local: u64| {
        let rank = host * per_host + local;
        let mut env = env.clone();
        env.insert("RANK".into(), open(rank.to_string().as_ref()));
        RankPlan { rank: Rank(rank as u32), local_rank: local as u32, env }
    };
    let host = |host: u64| HostPlan {
        name: format!("host-{host}"),
        program: PathBuf::from(&args[4]),
        args: args[5..].to_vec(),
        cwd: std::env::current_dir().expect("a working folder"),
        ranks: (0..per_host).map(|local| rank(host, local)).collect(),
    };
    let plan = LaunchPlan {
        run_id,
        run_dir: std::env::temp_dir(),
        master_addr: "127.0.0.1".to_owned(),
        master_port: std::env::var("PLAN_PORT").ok().and_then(|port| port.parse().ok()),
        grace: Duration::from_millis(grace),
        hosts: (0..hosts).map(host).collect(),
    };
    match torchlift::dispatcher::run(&plan, &mut Printer) {
        Ok(Outcome::Success) => ExitCode::SUCCESS,
        Ok(Outcome::RankFailed { end: End::Exited(code), .. }) => ExitCode::from(code),
        Ok(Outcome::RankFailed { end: End::Signaled { signal, .. }, .. }) => ExitCode::from(128 + signal as u8),
        Ok(Outcome::RankFailed { .. }) => ExitCode::from(126),
        Ok(Outcome::Signaled { signal, .. }) => die_by(signal),
        Ok(Outcome::HostLost { .. }) => ExitCode::from(206),
        Err(error) => {
            println!("error: {error}");
            ExitCode::from(201)
        }
    }
}
