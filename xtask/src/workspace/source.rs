//! What a binary was built from: recorded in the envelope, never part of a build's key.
//!
//! In a git checkout: the commit, and a digest of what differs from it. Elsewhere: a digest of the source files.
//! Both with a digest of `Cargo.lock`. Files that only a run writes (checkpoints, logs) must not make a binary look
//! old, so that of files that git does not know only sources count.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::process::Command;
use std::time::SystemTime;

use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use torchlift::preflight::digest::hex;

use crate::file;
use crate::toolchain::{Env, Run, output, said};

/// Extensions of files that a build reads: Rust, what build scripts hand to a C, C++ or CUDA compiler, manifests.
const SOURCE_EXTENSIONS: &[&str] = &[
    "asm", "c", "cc", "cpp", "cu", "cuh", "cxx", "h", "hip", "hpp", "hxx", "inc", "inl", "in", "proto", "rs", "s", "S",
    "toml",
];

/// Folders of what was built and run, wherever they lie.
const NO_SOURCES: &[&str] = &["target", ".torchlift", ".git"];

/// Hex digits of a digest that are written down: 64 bits tell two states of one tree apart.
const SHORT: usize = 16;

/// What a binary was built from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(into = "String")]
pub struct SourceId {
    /// `git:<commit>`, `git:<commit>+<digest of what differs>` or `files:<digest>`.
    tree: String,
    /// Digest of `Cargo.lock`; none when there is no such file.
    lock: Option<String>,
}

impl SourceId {
    /// Reads the text form; anything else is kept whole, and then equals nothing that this version makes.
    pub fn parse(text: &str) -> Self {
        match text.split_once(";lock:") {
            Some((tree, lock)) => Self { tree: tree.to_owned(), lock: Some(lock.to_owned()) },
            None => Self { tree: text.to_owned(), lock: None },
        }
    }

    /// The same with `Cargo.lock` read again: the first build of a project writes it.
    #[must_use]
    pub fn with_lock_of(mut self, root: &Utf8Path) -> Self {
        self.lock = lock_digest(root);
        self
    }

    /// Whether `now` is of other sources, `Cargo.lock` left aside.
    pub fn has_other_sources(&self, now: &Self) -> bool {
        self.tree != now.tree
    }

    /// What is different in `now`, in words; empty when nothing is.
    pub fn difference(&self, now: &Self) -> Vec<String> {
        let mut words = Vec::new();
        if self.tree != now.tree {
            let (old_commit, old_dirt) = self.tree.split_once('+').unwrap_or((&self.tree, ""));
            let (new_commit, new_dirt) = now.tree.split_once('+').unwrap_or((&now.tree, ""));
            if !old_commit.starts_with("git:") || !new_commit.starts_with("git:") {
                words.push("source files".to_owned());
            } else {
                if old_commit != new_commit {
                    words.push(format!("the commit (`{}`, now `{}`)", short(old_commit), short(new_commit)));
                }
                if old_dirt != new_dirt {
                    words.push("uncommitted changes".to_owned());
                }
            }
        }
        if self.lock != now.lock {
            words.push("`Cargo.lock`".to_owned());
        }
        words
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tree)?;
        match &self.lock {
            Some(lock) => write!(f, ";lock:{lock}"),
            None => Ok(()),
        }
    }
}

impl From<SourceId> for String {
    fn from(id: SourceId) -> Self {
        id.to_string()
    }
}

fn short(commit: &str) -> &str {
    commit.trim_start_matches("git:").get(..12).unwrap_or(commit)
}

/// The source id of the workspace in `root` as it is now.
///
/// Git is run by `run`.
///
/// # Errors
/// When a source file cannot be read.
pub fn source_id(root: &Utf8Path, env: &Env, run: Run<'_>) -> io::Result<SourceId> {
    let tree = match git_state(root, env, run) {
        Some(state) => state.describe()?,
        None => format!("files:{}", digest_of(&source_files(root))?),
    };
    Ok(SourceId { tree, lock: lock_digest(root) })
}

/// When each source file was last written, by its path below the workspace in `root`.
///
/// A source id says whether the sources are others than before; with the time of a build this says which of them.
pub fn source_times(root: &Utf8Path, env: &Env) -> BTreeMap<String, SystemTime> {
    let changed = git_state(root, env, &output).map(|state| state.changed).unwrap_or_default();
    let files = source_files(root).into_values().chain(changed.into_values());
    files
        .filter_map(|file| {
            let written = fs_err::symlink_metadata(&file).and_then(|metadata| metadata.modified()).ok()?;
            Some((file.strip_prefix(root).ok()?.to_string(), written))
        })
        .collect()
}

fn lock_digest(root: &Utf8Path) -> Option<String> {
    let bytes = file::read(&root.join("Cargo.lock")).ok()?;
    Some(hex(&Sha256::digest(bytes))[..SHORT].to_owned())
}

/// What git says of a workspace.
struct GitState {
    commit: String,
    /// Files that differ from the commit, by their path below the checkout, with where they lie.
    changed: BTreeMap<String, Utf8PathBuf>,
}

impl GitState {
    fn describe(&self) -> io::Result<String> {
        let commit = &self.commit;
        if self.changed.is_empty() {
            return Ok(format!("git:{commit}"));
        }
        Ok(format!("git:{commit}+{}", digest_of(&self.changed)?))
    }
}

/// None outside a checkout, without git, before the first commit, and where the checkout does not hold the workspace.
fn git_state(root: &Utf8Path, env: &Env, run: Run<'_>) -> Option<GitState> {
    let checkout = root.ancestors().find(|folder| folder.join(".git").exists())?;
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(root).env_clear().envs(env).env("GIT_OPTIONAL_LOCKS", "0");
        said(&mut command, run)
    };
    // A workspace in an ignored folder of somebody's checkout would never look changed.
    if git(&["ls-files", "--", "Cargo.toml"])?.is_empty() {
        return None;
    }
    let status =
        git(&["status", "--porcelain=v2", "--branch", "-z", "--no-renames", "--untracked-files=all", "--", "."])?;
    let mut commit = None;
    let mut changed = BTreeMap::new();
    for entry in status.split('\0') {
        if let Some(oid) = entry.strip_prefix("# branch.oid ") {
            commit = Some(oid.to_owned()).filter(|oid| oid != "(initial)");
        }
        // The path is the ninth field of a changed entry, the eleventh of an unmerged one.
        let (path, is_known) = match entry.split_at_checked(2) {
            Some(("1 ", _)) => (entry.splitn(9, ' ').nth(8), true),
            Some(("u ", _)) => (entry.splitn(11, ' ').nth(10), true),
            Some(("? ", path)) => (Some(path), false),
            _ => continue,
        };
        let Some(path) = path else { continue };
        let file = checkout.join(path);
        let is_counted = !is_in_no_sources(&file, root) && file.file_name() != Some("Cargo.lock");
        if is_counted && (is_known || is_source(&file)) {
            changed.insert(path.to_owned(), file);
        }
    }
    Some(GitState { commit: commit?, changed })
}

fn source_files(root: &Utf8Path) -> BTreeMap<String, Utf8PathBuf> {
    let is_entered = |entry: &walkdir::DirEntry| {
        entry.depth() == 0 || !entry.file_type().is_dir() || {
            let name = entry.file_name().to_string_lossy();
            !name.starts_with('.') && !NO_SOURCES.contains(&&*name)
        }
    };
    walkdir::WalkDir::new(root)
        .into_iter()
        .filter_entry(is_entered)
        .flatten()
        .filter(|entry| entry.file_type().is_file())
        .filter_map(|entry| Utf8PathBuf::from_path_buf(entry.into_path()).ok())
        .filter(|file| is_source(file))
        .filter_map(|file| Some((file.strip_prefix(root).ok()?.to_string(), file)))
        .collect()
}

fn is_in_no_sources(file: &Utf8Path, root: &Utf8Path) -> bool {
    file.strip_prefix(root).is_ok_and(|below| below.components().any(|part| NO_SOURCES.contains(&part.as_str())))
}

fn is_source(file: &Utf8Path) -> bool {
    file.extension().is_some_and(|extension| SOURCE_EXTENSIONS.contains(&extension))
}

/// Digest over names and contents in the order of names; a file that is gone counts as gone.
fn digest_of(files: &BTreeMap<String, Utf8PathBuf>) -> io::Result<String> {
    let mut digest = Sha256::new();
    for (name, path) in files {
        digest.update(name.len().to_le_bytes());
        digest.update(name);
        match file::open(path) {
            Ok(mut open) => {
                let mut content = Sha256::new();
                io::copy(&mut open, &mut content)?;
                digest.update(b"=");
                digest.update(content.finalize());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => digest.update(b"-"),
            // A changed submodule is a folder; its commit is in the checkout's own state of it.
            Err(error) if file::is_not_a_file(&error) => digest.update(b"/"),
            Err(error) => return Err(error),
        }
    }
    Ok(hex(&digest.finalize())[..SHORT].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Project {
        _temp: tempfile::TempDir,
        root: Utf8PathBuf,
        env: Env,
    }

    impl Project {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let root = Utf8Path::from_path(temp.path()).unwrap().join("mein Projekt – ü");
            let mut env: Env = std::env::vars_os().filter(|(name, _)| name == "PATH").collect();
            for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
                env.insert(name.into(), "nobody".into());
            }
            env.insert("GIT_CONFIG_NOSYSTEM".into(), "1".into());
            env.insert("HOME".into(), temp.path().into());
            let project = Self { _temp: temp, root, env };
            project.write("Cargo.toml", "[package]");
            project.write("Cargo.lock", "version = 4");
            project.write("src/main.rs", "fn main() {}");
            project.write(".gitignore", "/data\n");
            project
        }

        fn write(&self, file: &str, text: &str) {
            let file = self.root.join(file);
            fs_err::create_dir_all(file.parent().unwrap()).unwrap();
            fs_err::write(file, text).unwrap();
        }

        fn commit(&self) {
            for arguments in [vec!["init", "-q"], vec!["add", "-A"], vec!["commit", "-qm", "x"]] {
                duct::cmd("git", arguments).dir(&self.root).full_env(&self.env).run().unwrap();
            }
        }

        fn id(&self) -> SourceId {
            source_id(&self.root, &self.env, &output).unwrap()
        }
    }

    #[test]
    fn a_clean_checkout_is_its_commit() {
        let project = Project::new();
        project.commit();
        let text = project.id().to_string();
        assert!(text.starts_with("git:") && !text.contains('+'), "{text}");
        assert_eq!(SourceId::parse(&text), project.id());
    }

    #[test]
    fn an_edit_a_new_source_and_a_deleted_one_are_uncommitted_changes() {
        let project = Project::new();
        project.write("src/gone.rs", "");
        project.commit();
        let clean = project.id();
        let mut seen = vec![clean.clone()];
        let mut change = |what: &str| {
            let now = project.id();
            assert_eq!(clean.difference(&now), ["uncommitted changes"], "{what}");
            assert!(!seen.contains(&now), "{what}");
            seen.push(now);
        };
        project.write("src/main.rs", "fn main() { }");
        change("edited");
        project.write("src/größe neu.rs", "");
        change("new");
        fs_err::remove_file(project.root.join("src/gone.rs")).unwrap();
        change("deleted");
    }

    #[test]
    fn a_pipe_in_a_sources_place_is_not_waited_for() {
        let project = Project::new();
        project.commit();
        for file in ["src/main.rs", "Cargo.lock"] {
            let before = project.id();
            let file = project.root.join(file);
            fs_err::remove_file(&file).unwrap();
            nix::unistd::mkfifo(file.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
            assert_ne!(before, project.id(), "{file}");
        }
    }

    #[test]
    fn what_a_run_writes_does_not_make_a_binary_look_old() {
        let project = Project::new();
        for commit in [false, true] {
            if commit {
                project.commit();
            }
            let before = project.id();
            project.write(&format!("checkpoint-{commit}.ot"), "weights");
            project.write(&format!("target/cluster/{commit}/generated.rs"), "x");
            project.write(&format!(".torchlift/runs/{commit}/plan.toml"), "");
            assert_eq!(before, project.id());
        }
    }

    #[test]
    fn the_lock_file_is_told_apart_from_the_sources() {
        let project = Project::new();
        project.commit();
        let before = project.id();
        project.write("Cargo.lock", "version = 3");
        assert_eq!(before.difference(&project.id()), ["`Cargo.lock`"]);
        assert_eq!(before.with_lock_of(&project.root), project.id());
    }

    #[test]
    fn outside_git_the_source_files_count() {
        let project = Project::new();
        let before = project.id();
        assert!(before.to_string().starts_with("files:"), "{before}");
        project.write("src/main.rs", "fn main() { }");
        assert_eq!(before.difference(&project.id()), ["source files"]);
    }

    #[test]
    fn a_workspace_in_an_ignored_folder_of_a_checkout_is_no_part_of_it() {
        let outer = Project::new();
        outer.write("data/p/Cargo.toml", "[package]");
        outer.commit();
        let id = source_id(&outer.root.join("data/p"), &outer.env, &output).unwrap();
        assert!(id.to_string().starts_with("files:"), "{id}");
    }

    #[test]
    fn a_new_commit_is_named() {
        let project = Project::new();
        project.commit();
        let before = project.id();
        project.write("src/main.rs", "fn main() { }");
        project.commit();
        let words = before.difference(&project.id());
        assert!(words.len() == 1 && words[0].starts_with("the commit (`"), "{words:?}");
    }
}
