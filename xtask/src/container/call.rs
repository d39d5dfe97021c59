//! One run of cargo in a container: the engine's command line, and how the container is ended.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use camino::Utf8Path;

use super::{BuildContainer, Engine, Mount, passed};
use crate::bounded;
use crate::plan::Build;
use crate::toolchain::Env;

/// The label of all containers that are started here, so that a person finds them.
const LABEL: &str = "torchlift=build";
/// How long the engine may take to end a container.
const END: Duration = Duration::from_secs(60);

/// Containers that this process has named.
static NAMED: AtomicU32 = AtomicU32::new(0);

/// How one container is ended from outside: the engine alone knows all of its processes.
#[derive(Clone, Debug)]
pub struct Ending {
    engine: Engine,
    name: String,
    env: Env,
}

impl Ending {
    /// The command that ends it.
    pub fn command(&self) -> Command {
        let mut command = self.engine.command(&self.env);
        command.args(self.engine.end_args(&self.name));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Ends it and waits until it is gone; one that is gone already is as good.
    pub fn end(&self) {
        let _ = bounded::output(&mut self.command(), END);
    }
}

/// The engine's command for `build` in the workspace `folder`, not started, and how its container is ended.
///
/// `further` are variables for the inside beside those of the build.
pub fn call(
    build: &Build,
    container: &BuildContainer,
    folder: &Utf8Path,
    env: &Env,
    further: &[(&str, String)],
) -> (Command, Ending) {
    let number = NAMED.fetch_add(1, Ordering::Relaxed);
    let name = format!("torchlift-{}-{}-{number}", build.key, std::process::id());
    let mut command = container.engine.command(env);
    command.args(["run", "--rm", "--pull=never", "--log-driver=none", "--label", LABEL, "--name", &name]);
    command.args(&container.options);
    for volume in container.mounts.iter().filter_map(Mount::volume) {
        command.arg("--volume").arg(volume);
    }
    command.arg("--workdir").arg(folder);
    let own = passed(env);
    let own = own.iter().map(|(name, value)| (name.to_string_lossy(), value.to_string_lossy()));
    let set = build.env.iter().map(|(name, value)| (name.into(), value.into()));
    let further = further.iter().map(|(name, value)| ((*name).into(), value.into()));
    for (name, value) in own.chain(set).chain(further) {
        command.arg("--env").arg(format!("{name}={value}"));
    }
    // What an image sets of these would lead a build script past its libtorch as well; `env` knows how to unset, engines do not.
    command.args(["--entrypoint", "env", &container.id]);
    for name in &build.env_unset {
        command.args(["-u", name]);
    }
    command.arg(&build.cargo).args(&build.args);
    (command, Ending { engine: container.engine.clone(), name, env: env.clone() })
}
