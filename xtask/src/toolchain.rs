//! The environment and the cargo of the project, as they were before this program was run by cargo.
//!
//! Owns which variables the outer cargo and rustup put there, which cargo is called, and what `rustc -vV` says.
//! Must not build anything.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::{Command, Output, Stdio};

use camino::{Utf8Path, Utf8PathBuf};
use torchlift::env_vars::LD_LIBRARY_PATH;
use torchlift_schema::exit_code;

use crate::commands::Context;
use crate::env_vars::CARGO_ENCODED_RUSTFLAGS;
use crate::error::CommandError;

/// An environment.
pub type Env = BTreeMap<OsString, OsString>;

/// What cargo sets for the programs and build scripts that it runs, and nobody sets for cargo.
///
/// Names that a person sets to steer cargo (`CARGO_HOME`, `CARGO_TARGET_DIR`, `CARGO_BUILD_*`, `CARGO_PROFILE_*`,
/// `CARGO_TERM_*`, `CARGO_NET_*` and their like) are not among them. The list is that of the cargo book,
/// "Environment variables cargo sets for crates", "for build scripts" and "for third party subcommands".
const SET_BY_CARGO: &[&str] = &[
    "CARGO",
    "CARGO_BIN_NAME",
    "CARGO_CRATE_NAME",
    "CARGO_MAKEFLAGS",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_MANIFEST_PATH",
    "CARGO_PRIMARY_PACKAGE",
    "CARGO_RUSTC_CURRENT_DIR",
    "CARGO_TARGET_TMPDIR",
    "RUST_RECURSION_COUNT",
];

/// The same, by how the name begins.
const SET_BY_CARGO_PREFIXES: &[&str] = &["CARGO_PKG_", "CARGO_BIN_EXE_", "CARGO_CFG_", "CARGO_FEATURE_"];

/// What cargo sets for a build script only; elsewhere a person may have set them.
const SET_FOR_BUILD_SCRIPTS: &[&str] = &[
    CARGO_ENCODED_RUSTFLAGS,
    "DEBUG",
    "HOST",
    "NUM_JOBS",
    "OPT_LEVEL",
    "OUT_DIR",
    "PROFILE",
    "RUSTC",
    "RUSTC_LINKER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOC",
    "TARGET",
];

/// What cargo sets where nobody has, so that the OpenSSL inside of it finds the system's certificates: a file and a
/// folder, side by side in one of [`OPENSSL_FOLDERS`].
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The folders that cargo's `openssl-probe` looks into. An OpenSSL of the system finds its own without a variable.
const OPENSSL_FOLDERS: &[&str] = &[
    "/etc/certs",
    "/etc/openssl",
    "/etc/pki/ca-trust/extracted/pem",
    "/etc/pki/tls",
    "/etc/ssl",
    "/opt/etc/ssl",
    "/usr/lib/ssl",
    "/usr/local/etc/openssl",
    "/usr/local/openssl",
    "/usr/local/share",
    "/usr/local/ssl",
    "/usr/share/ssl",
    "/usr/ssl",
    "/var/ssl",
];

/// Folders from `target/<triple>/<profile>/build/<package>/out` up to `target`, with some to spare for what a build
/// script makes below.
const TARGET_DEPTH: usize = 8;

/// How rustup says that a person chose the toolchain: by `+name` or by the variable itself.
const CHOSEN_BY_A_PERSON: &[&str] = &["cli", "env"];

/// The process's environment without what the outer cargo and rustup put into it.
///
/// Without this an inner cargo would be built for the outer project's toolchain, and ranks would find the
/// outer project's libraries first.
pub fn inherited(context: &Context) -> Env {
    let is_build_script = is_build_script(&context.env);
    let keeps_toolchain = is_toolchain_chosen(&context.env);
    let has_probed = has_probed_certificates(&context.env);
    let mut env: Env = context
        .env
        .iter()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            let is_cargos = SET_BY_CARGO.contains(&&*name)
                || SET_BY_CARGO_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || (is_build_script && (SET_FOR_BUILD_SCRIPTS.contains(&&*name) || name.starts_with("DEP_")));
            let is_rustups = name.starts_with("RUSTUP_TOOLCHAIN") && !(keeps_toolchain && name == "RUSTUP_TOOLCHAIN");
            let is_probed = has_probed && CERTIFICATES.contains(&&*name);
            !is_cargos && !is_rustups && !is_probed
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if let Some(path) = context.env.get(OsStr::new(LD_LIBRARY_PATH)) {
        match library_path_before_cargo(context, path) {
            Some(rest) => env.insert(LD_LIBRARY_PATH.into(), rest),
            None => env.remove(OsStr::new(LD_LIBRARY_PATH)),
        };
    }
    env
}

/// Whether this program was run by a build script, which has more set than a program run by cargo.
fn is_build_script(env: &Env) -> bool {
    env.contains_key(OsStr::new("OUT_DIR")) && env.contains_key(OsStr::new("CARGO_CFG_TARGET_ARCH"))
}

/// Whether a person named the toolchain; one that only follows from the outer project's folder says nothing
/// about the inner one, whose `rust-toolchain.toml` must hold.
fn is_toolchain_chosen(env: &Env) -> bool {
    env.get(OsStr::new("RUSTUP_TOOLCHAIN_SOURCE"))
        .is_some_and(|source| CHOSEN_BY_A_PERSON.iter().any(|chosen| source == chosen))
}

/// Whether the certificates are those that the outer cargo found by itself.
fn has_probed_certificates(env: &Env) -> bool {
    let folder = |name: &str| Utf8Path::new(env.get(OsStr::new(name))?.to_str()?).parent().map(Utf8Path::to_owned);
    let (Some(file), Some(dir)) = (folder(CERTIFICATES[0]), folder(CERTIFICATES[1])) else { return false };
    let is_certs = env.get(OsStr::new(CERTIFICATES[1])).is_some_and(|dir| dir.as_bytes().ends_with(b"/certs"));
    // The file may lie in the folder of single certificates too.
    let is_beside = file == dir || file == dir.join("certs");
    env.contains_key(OsStr::new("CARGO")) && is_certs && is_beside && OPENSSL_FOLDERS.contains(&dir.as_str())
}

/// The library path without its leading elements of target folder and toolchain; none when nothing is left.
///
/// Cargo and rustup only ever prepend, so that what follows the first element of someone else stays as it is;
/// empty elements go, since the loader would search the working directory for them.
fn library_path_before_cargo(context: &Context, path: &OsStr) -> Option<OsString> {
    let is_run_by_cargo = context.env.contains_key(OsStr::new("CARGO"));
    let own_folders = own_folders(context);
    let rest: Vec<&[u8]> = path
        .as_bytes()
        .split(|byte| *byte == b':')
        .skip_while(|element| is_run_by_cargo && is_cargos_folder(element, &own_folders))
        .filter(|element| !element.is_empty())
        .collect();
    (!rest.is_empty()).then(|| OsString::from_vec(rest.join(&b':')))
}

/// Folders that cargo puts libraries of the outer build into, and those of its toolchain.
fn own_folders(context: &Context) -> Vec<Utf8PathBuf> {
    let mut folders = Vec::new();
    // `target/debug/xtask`, next to which lie `deps` and `build`.
    folders.extend(context.exe.as_deref().and_then(Utf8Path::parent).map(Utf8Path::to_owned));
    let text = |name: &str| context.env.get(OsStr::new(name)).and_then(|value| value.to_str()).map(Utf8PathBuf::from);
    if is_build_script(&context.env) {
        // `target/debug/build/<package>/out`.
        folders.extend(text("OUT_DIR").and_then(|out| out.ancestors().nth(3).map(Utf8Path::to_owned)));
    }
    // `<toolchain>/bin/cargo`.
    folders.extend(text("CARGO").and_then(|cargo| Some(cargo.parent()?.parent()?.join("lib"))));
    if let (Some(home), Some(name)) = (text("RUSTUP_HOME"), text("RUSTUP_TOOLCHAIN")) {
        folders.push(home.join("toolchains").join(name).join("lib"));
    }
    // A program in `/usr/bin` must not make `/usr/lib` and `/usr/bin` cargo's.
    folders.retain(|folder| {
        !["/usr/lib", "/usr/bin", "/lib", "/bin", "/usr/local/lib", "/usr/local/bin"].contains(&folder.as_str())
    });
    folders
}

fn is_cargos_folder(element: &[u8], own_folders: &[Utf8PathBuf]) -> bool {
    let Ok(element) = std::str::from_utf8(element) else { return false };
    let path = Utf8Path::new(element);
    let mut names = path.components().rev().map(|component| component.as_str());
    let is_rustlib = names.next() == Some("lib") && names.nth(1) == Some("rustlib");
    is_rustlib || own_folders.iter().any(|folder| path.starts_with(folder)) || is_in_target_folder(path)
}

/// Whether the path lies in a target folder of cargo's, by the file that cargo keeps in each.
///
/// An outer program that is not this one, and calls it, has its own.
fn is_in_target_folder(path: &Utf8Path) -> bool {
    path.ancestors().take(TARGET_DEPTH).any(|folder| folder.join(".rustc_info.json").is_file())
}

/// The cargo to call for the project.
///
/// `$CARGO` is the very cargo that runs us. Under rustup it is one toolchain's own binary, which would not look at the
/// project's `rust-toolchain.toml`; there the `cargo` on the path is called, unless a person chose the toolchain.
pub fn cargo_program(context: &Context) -> OsString {
    let named = context.env.get(OsStr::new("CARGO")).filter(|cargo| !cargo.is_empty());
    let is_under_rustup = context.env.contains_key(OsStr::new("RUSTUP_TOOLCHAIN"));
    match named {
        Some(cargo) if !is_under_rustup || is_toolchain_chosen(&context.env) => cargo.clone(),
        Some(cargo) => {
            if is_on_path("cargo", &context.env) {
                "cargo".into()
            } else {
                cargo.clone()
            }
        }
        None => "cargo".into(),
    }
}

/// Whether a folder of `PATH` has a file of this name.
pub fn is_on_path(program: &str, env: &Env) -> bool {
    let Some(path) = env.get(OsStr::new("PATH")) else { return false };
    std::env::split_paths(path).any(|folder| folder.join(program).is_file())
}

/// How a tool is run whose answer is waited for.
pub type Run<'a> = &'a (dyn Fn(&mut Command) -> io::Result<Output> + Sync);

/// Runs a tool and waits for as long as it takes.
///
/// # Errors
/// When it cannot be started.
pub fn output(command: &mut Command) -> io::Result<Output> {
    command.output()
}

/// What a tool says on stdout, without the line's end; none where it cannot be started, fails, or says what is no text.
pub fn said(command: &mut Command, run: Run<'_>) -> Option<String> {
    let output =
        run(command.stdin(Stdio::null()).stderr(Stdio::null())).ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
}

/// How the tools of a project are asked.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    /// Their environment.
    pub env: &'a Env,
    /// The cargo that is called.
    pub cargo: &'a OsString,
    /// How each is run.
    pub run: Run<'a>,
}

/// The rustc that cargo would call with this environment.
pub fn rustc_program(env: &Env) -> OsString {
    env.get(OsStr::new("RUSTC")).cloned().unwrap_or_else(|| "rustc".into())
}

/// What `rustc -vV` says for the project.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RustcFacts {
    /// The whole text; part of the build key.
    pub verbose_version: String,
    /// The triple that it builds for when none is given.
    pub host: String,
}

impl RustcFacts {
    /// Facts from the text of `rustc -vV`; none when it has no `host:` line.
    pub fn parse(text: &str) -> Option<Self> {
        let host = text.lines().find_map(|line| line.strip_prefix("host: "))?;
        Some(Self { verbose_version: text.trim_end().to_owned(), host: host.trim().to_owned() })
    }

    /// Asks the rustc that cargo would call in `folder` with this environment.
    pub fn read(env: &Env, folder: &Utf8Path) -> Result<Self, CommandError> {
        Self::ask(env, folder, &output)
    }

    /// The same, with rustc run by `run`.
    pub fn ask(env: &Env, folder: &Utf8Path, run: Run<'_>) -> Result<Self, CommandError> {
        let rustc = rustc_program(env);
        let shown = rustc.to_string_lossy().into_owned();
        let failed = || CommandError::new(exit_code::BUILD, format!("`{shown} -vV` did not say for what it builds"));
        let mut command = Command::new(rustc);
        // What rustup says meanwhile, such as that it gets a toolchain, is for whoever waits.
        command.arg("-vV").current_dir(folder).env_clear().envs(env).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = run(&mut command)
            .map_err(|error| failed().because(error).hint("install Rust from https://rustup.rs, or set `RUSTC`"))?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let words = if words.is_empty() { format!("it ended with {}", output.status) } else { words };
            return Err(failed().because(words).hint("mend that toolchain, or set `RUSTC` to another one"));
        }
        Self::parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(failed)
    }

    /// The folder of the toolchain that is called in `folder`; none where rustc does not say.
    pub fn sysroot(env: &Env, folder: &Utf8Path, run: Run<'_>) -> Option<Utf8PathBuf> {
        let mut command = Command::new(rustc_program(env));
        command.args(["--print", "sysroot"]).current_dir(folder).env_clear().envs(env).stdin(Stdio::null());
        let output = run(&mut command).ok().filter(|output| output.status.success())?;
        let said = String::from_utf8_lossy(&output.stdout);
        Some(Utf8PathBuf::from(said.trim())).filter(|folder| folder.is_absolute())
    }

    /// Whether the standard library for `target` is there; none where rustc does not say.
    pub fn has_std(env: &Env, folder: &Utf8Path, target: &str, run: Run<'_>) -> Option<bool> {
        let mut command = Command::new(rustc_program(env));
        command.args(["--print", "target-libdir", "--target", target]).current_dir(folder).env_clear().envs(env);
        let asked = said(&mut command, run)?;
        let entries = Utf8Path::new(asked.trim()).read_dir_utf8().into_iter().flatten().flatten();
        Some(entries.into_iter().any(|entry| entry.file_name().starts_with("libstd-")))
    }

    /// The features that the code for `target` may use with these flags, by rustc's names; none where rustc does not say,
    /// which the build then tells.
    pub fn features(env: &Env, folder: &Utf8Path, target: &str, flags: &[String], run: Run<'_>) -> Option<Vec<String>> {
        let mut command = Command::new(rustc_program(env));
        command.args(["--print", "cfg", "--target", target]).args(flags).current_dir(folder).env_clear().envs(env);
        let asked = said(&mut command, run)?;
        let feature = |line: &str| Some(line.strip_prefix("target_feature=\"")?.strip_suffix('"')?.to_owned());
        Some(asked.lines().filter_map(feature).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(env: &[(&str, &str)]) -> Context {
        Context {
            invocation: "cargo xtask".to_owned(),
            cwd: "/project".into(),
            exe: Some("/project/target/debug/xtask".into()),
            env: env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect(),
        }
    }

    fn text(env: &Env, name: &str) -> Option<String> {
        env.get(OsStr::new(name)).map(|value| value.to_string_lossy().into_owned())
    }

    /// As rustup 1.29 and cargo 1.95 set it, with a user's own `/opt/mine` behind.
    const UNDER_CARGO: &[(&str, &str)] = &[
        ("CARGO", "/home/u/.rustup/toolchains/stable/bin/cargo"),
        ("CARGO_HOME", "/home/u/.cargo"),
        ("CARGO_MANIFEST_DIR", "/project/xtask"),
        ("CARGO_PKG_VERSION", "0.1.0"),
        ("CARGO_TARGET_DIR", "/scratch/target"),
        ("CARGO_BUILD_JOBS", "3"),
        ("CARGO_TERM_COLOR", "never"),
        ("CARGO_ENCODED_RUSTFLAGS", "-Cdebuginfo=1"),
        (
            "LD_LIBRARY_PATH",
            "/project/target/debug/build/z-1/out:/project/target/debug:/project/target/debug/deps:\
             /home/u/.rustup/toolchains/stable/lib/rustlib/x86_64-unknown-linux-gnu/lib:\
             /home/u/.rustup/toolchains/stable/lib:/opt/mine::/project/target/debug",
        ),
        ("RUSTUP_HOME", "/home/u/.rustup"),
        ("RUSTUP_TOOLCHAIN", "stable"),
        ("RUSTUP_TOOLCHAIN_SOURCE", "default"),
        ("RUST_BACKTRACE", "1"),
        ("RUST_RECURSION_COUNT", "1"),
        ("PATH", "/nowhere"),
    ];

    #[test]
    fn what_the_outer_cargo_set_is_taken_out_and_what_a_person_set_stays() {
        let env = inherited(&context(UNDER_CARGO));
        let names: Vec<_> = env.keys().map(|name| name.to_string_lossy().into_owned()).collect();
        assert_eq!(
            names,
            [
                "CARGO_BUILD_JOBS",
                "CARGO_ENCODED_RUSTFLAGS",
                "CARGO_HOME",
                "CARGO_TARGET_DIR",
                "CARGO_TERM_COLOR",
                "LD_LIBRARY_PATH",
                "PATH",
                "RUSTUP_HOME",
                "RUST_BACKTRACE"
            ]
        );
    }

    #[test]
    fn certificates_that_cargo_found_go_and_those_of_a_person_stay() {
        let kept = |file: &str, dir: &str, by: &str| {
            let env = inherited(&context(&[("SSL_CERT_FILE", file), ("SSL_CERT_DIR", dir), (by, "/t/bin/cargo")]));
            text(&env, "SSL_CERT_FILE").is_some() && text(&env, "SSL_CERT_DIR").is_some()
        };
        assert!(!kept("/usr/lib/ssl/cert.pem", "/usr/lib/ssl/certs", "CARGO"));
        assert!(!kept("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs", "CARGO"));
        assert!(kept("/usr/lib/ssl/cert.pem", "/usr/lib/ssl/certs", "NOT_CARGO"));
        assert!(kept("/home/u/corporate.pem", "/usr/lib/ssl/certs", "CARGO"));
    }

    #[test]
    fn folders_of_another_programs_target_are_cargos_too() {
        let temp = tempfile::tempdir().unwrap();
        let target = Utf8Path::from_path(temp.path()).unwrap().join("mein ziel");
        fs_err::create_dir_all(&target).unwrap();
        fs_err::write(target.join(".rustc_info.json"), "{}").unwrap();
        let path = format!("{target}/debug/build/z-1/out:{target}/debug/deps:/opt/mine");
        let env = inherited(&context(&[("CARGO", "/t/bin/cargo"), ("LD_LIBRARY_PATH", &path)]));
        assert_eq!(text(&env, "LD_LIBRARY_PATH").as_deref(), Some("/opt/mine"));
    }

    #[test]
    fn only_leading_elements_of_target_and_toolchain_leave_the_library_path() {
        let env = inherited(&context(UNDER_CARGO));
        assert_eq!(text(&env, "LD_LIBRARY_PATH").as_deref(), Some("/opt/mine:/project/target/debug"));
    }

    #[test]
    fn a_library_path_of_nothing_but_cargos_is_unset() {
        let env = inherited(&context(&[
            ("CARGO", "/t/bin/cargo"),
            ("LD_LIBRARY_PATH", "/project/target/debug:/t/lib/rustlib/x/lib:/t/lib:"),
        ]));
        assert_eq!(text(&env, "LD_LIBRARY_PATH"), None);
    }

    #[test]
    fn a_library_path_is_left_alone_where_no_cargo_runs_us() {
        let env = inherited(&context(&[("LD_LIBRARY_PATH", "/project/target/debug:/opt/x")]));
        assert_eq!(text(&env, "LD_LIBRARY_PATH").as_deref(), Some("/project/target/debug:/opt/x"));
    }

    #[test]
    fn a_build_scripts_variables_do_not_reach_an_inner_cargo() {
        let env = inherited(&context(&[
            ("CARGO", "/t/bin/cargo"),
            ("CARGO_CFG_TARGET_ARCH", "x86_64"),
            ("OUT_DIR", "/outer/target/debug/build/p-1/out"),
            ("CARGO_ENCODED_RUSTFLAGS", ""),
            ("CARGO_MAKEFLAGS", "-j --jobserver-fds=8,9"),
            ("RUSTC", "rustc"),
            ("TARGET", "x86_64-unknown-linux-gnu"),
            ("DEP_Z_ROOT", "/x"),
            ("LD_LIBRARY_PATH", "/outer/target/debug/build/p-1/out:/outer/target/debug/deps:/mine"),
            ("HOME", "/home/u"),
        ]));
        let names: Vec<_> = env.keys().map(|name| name.to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["HOME", "LD_LIBRARY_PATH"]);
        assert_eq!(text(&env, "LD_LIBRARY_PATH").as_deref(), Some("/mine"));
    }

    #[test]
    fn a_toolchain_that_a_person_chose_holds_for_the_inner_cargo() {
        let chosen = context(&[
            ("CARGO", "/n/bin/cargo"),
            ("RUSTUP_TOOLCHAIN", "nightly"),
            ("RUSTUP_TOOLCHAIN_SOURCE", "cli"),
            ("PATH", "/usr/bin"),
        ]);
        assert_eq!(text(&inherited(&chosen), "RUSTUP_TOOLCHAIN").as_deref(), Some("nightly"));
        assert_eq!(cargo_program(&chosen), "/n/bin/cargo");
    }

    #[test]
    fn the_cargo_that_runs_us_is_used_where_no_rustup_chooses() {
        assert_eq!(cargo_program(&context(&[("CARGO", "/opt/rust/bin/cargo")])), "/opt/rust/bin/cargo");
        assert_eq!(cargo_program(&context(&[])), "cargo");
    }

    #[test]
    fn rustc_facts_have_the_host_triple() {
        let facts = RustcFacts::parse("rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\n").unwrap();
        assert_eq!(facts.host, "x86_64-unknown-linux-gnu");
        assert_eq!(RustcFacts::parse("rustc 1.95.0"), None);
    }
}
