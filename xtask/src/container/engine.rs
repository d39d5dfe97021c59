//! The engine: podman or docker, with the options that a person gave it, and the few things that differ between the two.

use std::io;
use std::process::{Command, Output};
use std::time::Duration;

use nix::unistd::{getegid, geteuid};

use crate::bounded;
use crate::cluster::Container;
use crate::toolchain::Env;

/// A container engine's command line, up to its verb.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Engine(Vec<String>);

impl Engine {
    /// The engine of a kind.
    pub fn of(container: &Container) -> Self {
        Self(std::iter::once(container.engine.clone()).chain(container.engine_args.iter().cloned()).collect())
    }

    /// As it is called: a name or a path.
    pub fn program(&self) -> &str {
        self.0.first().map(String::as_str).unwrap_or_default()
    }

    /// All words up to the verb.
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// Whether it is podman, which runs without a daemon and as the user who calls it.
    pub fn is_podman(&self) -> bool {
        self.program().ends_with("podman")
    }

    /// The engine with its options and nothing else; it has the caller's environment, as at a prompt.
    pub fn command(&self, env: &Env) -> Command {
        let mut command = Command::new(self.program());
        command.args(self.0.iter().skip(1)).env_clear().envs(env);
        command
    }

    /// Asks it something.
    ///
    /// # Errors
    /// When it cannot be started or gives no answer within `limit`.
    pub(super) fn ask(&self, env: &Env, args: &[String], limit: Duration) -> io::Result<Output> {
        bounded::output(self.command(env).args(args), limit)
    }

    /// Options of every `run`: what is written belongs to the caller, no label of SELinux keeps the mounted folders away, and
    /// of the engine's own environment nothing gets in.
    pub(super) fn run_options(&self) -> Vec<String> {
        let (user, group) = (geteuid(), getegid());
        let mut options = Vec::new();
        if self.is_podman() && !user.is_root() {
            // Without it the caller would be root inside, and another number here.
            options.push("--userns=keep-id".to_owned());
        }
        options.push(format!("--user={user}:{group}"));
        options.push("--security-opt=label=disable".to_owned());
        if self.is_podman() {
            options.push("--http-proxy=false".to_owned());
        }
        options
    }

    /// The arguments that end the container `name` at once, whatever state it is in, and take it away.
    pub fn end_args(&self, name: &str) -> Vec<String> {
        // Podman asks politely for ten seconds first, and a cargo that is the first process inside does not hear it.
        let at_once: &[&str] = if self.is_podman() { &["--time", "0", "--ignore"] } else { &[] };
        let mut args = vec!["rm".to_owned(), "--force".to_owned()];
        args.extend(at_once.iter().map(|word| (*word).to_owned()));
        args.push(name.to_owned());
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_is_told_in_its_own_words_to_end_a_container_at_once() {
        let engine = |name: &str| {
            Engine::of(&Container {
                engine: name.to_owned(),
                engine_args: vec!["--log-level=error".to_owned()],
                image: "i".to_owned(),
                args: Vec::new(),
            })
        };
        let podman = engine("/usr/bin/podman");
        assert!(podman.is_podman());
        assert_eq!(podman.words(), ["/usr/bin/podman", "--log-level=error"]);
        assert_eq!(podman.end_args("c"), ["rm", "--force", "--time", "0", "--ignore", "c"]);
        assert_eq!(engine("docker").end_args("c"), ["rm", "--force", "c"]);
        assert!(!engine("docker").run_options().iter().any(|option| option.contains("proxy")));
    }
}
