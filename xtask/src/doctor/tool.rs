//! The tools that a build calls: are they there, and do they answer?

use std::ffi::OsStr;
use std::process::Command;
use std::thread;

use super::{Check, Scene, Section, SectionId, compiler};
use crate::bounded;
use crate::libtorch::pip_python;
use crate::toolchain::{RustcFacts, rustc_program};

const RUSTUP: &str = "install Rust from https://rustup.rs (`curl --proto '=https' -sSf https://sh.rustup.rs | sh`)";

pub(super) fn look(scene: &Scene) -> Section {
    let mut section = Section::new(SectionId::Tools);
    let checks: Vec<Vec<Check>> = thread::scope(|scope| {
        let looks: [fn(&Scene) -> Vec<Check>; 5] = [cargo, rustc, compiler::look, git, python];
        let running: Vec<_> = looks.into_iter().map(|look| scope.spawn(move || look(scene))).collect();
        running.into_iter().map(|look| look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    checks.into_iter().flatten().for_each(|check| section.push(check));
    section
}

/// What a tool says on stdout.
///
/// # Errors
/// In words: it is not there, it hangs, it fails.
pub(super) fn ask(scene: &Scene, program: &OsStr, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(args).env_clear().envs(&scene.env).current_dir(&scene.folder);
    run(scene, &mut command)
}

/// The same of a command that is made already.
pub(super) fn run(scene: &Scene, command: &mut Command) -> Result<String, String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = bounded::output(command, scene.patience).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if !scene.folder.is_dir() => format!("`{}` is no folder", scene.folder),
        std::io::ErrorKind::NotFound => format!("`{shown}` is not there"),
        std::io::ErrorKind::TimedOut => error.to_string(),
        _ => format!("`{shown}` cannot be started: {error}"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Err(format!("`{shown}` ended with {}: {}", output.status, last_lines(&said)))
}

/// The end of what a tool said, stderr before stdout.
fn last_lines(said: &[String]) -> String {
    /// Lines that say why; more is a listing.
    const MOST: usize = 3;
    let lines = said.iter().map(|text| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>());
    let lines = lines.into_iter().find(|lines| !lines.is_empty()).unwrap_or_default();
    if lines.is_empty() { "it said nothing".to_owned() } else { lines[lines.len().saturating_sub(MOST)..].join("; ") }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn cargo(scene: &Scene) -> Vec<Check> {
    vec![match ask(scene, &scene.cargo, &["--version"]) {
        Ok(text) if text.starts_with("cargo ") => Check::right("cargo", first_line(&text)),
        Ok(text) => Check::wrong(
            "cargo",
            format!("`{}` says `{}`", scene.cargo.to_string_lossy(), first_line(&text)),
            "is `CARGO`, a wrapper or an alias not cargo itself? name the real one with `CARGO`",
        ),
        Err(words) => Check::wrong("cargo", words, format!("{RUSTUP}, or name it with `CARGO`")),
    }]
}

fn rustc(scene: &Scene) -> Vec<Check> {
    let program = rustc_program(&scene.env);
    let facts = match ask(scene, &program, &["-vV"]) {
        Ok(text) => match RustcFacts::parse(&text) {
            Some(facts) => facts,
            None => {
                let found = format!("`{} -vV` says `{}`, and no `host:`", program.to_string_lossy(), first_line(&text));
                return vec![Check::wrong(
                    "rustc",
                    found,
                    "is `RUSTC` not rustc itself? unset it, or name the real one",
                )];
            }
        },
        Err(words) => return vec![Check::wrong("rustc", words, format!("{RUSTUP}, or name it with `RUSTC`"))],
    };
    let found = format!("{}, for {}", first_line(&facts.verbose_version), facts.host);
    vec![Check::right("rustc", found), compiler::links_rust(scene, &program)]
}

fn git(scene: &Scene) -> Vec<Check> {
    let none = "install it (`apt-get install git`): without it, what a binary was built from is told by digests of the files alone";
    vec![match ask(scene, OsStr::new("git"), &["--version"]) {
        Ok(text) => Check::right("git", first_line(&text)),
        Err(words) => Check::doubtful("git", words, none),
    }]
}

fn python(scene: &Scene) -> Vec<Check> {
    let remedy = "`libtorch fetch` gets wheels with it, and needs it for nothing else: `apt-get install python3-pip`";
    vec![match pip_python(&scene.env, scene.patience) {
        Ok(python) => Check::right("pip", format!("`{python}` has it")),
        Err(tried) => Check::doubtful("pip", tried.join("; "), remedy),
    }]
}
