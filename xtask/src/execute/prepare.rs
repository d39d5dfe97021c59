//! The folder of a build, the stable link to its libtorch, and the sources for a container without a network.

use std::io;
use std::process::{Command, Stdio};

use camino::Utf8Path;

use super::Execution;
use crate::cargo::CargoError;
use crate::plan::Build;
use crate::toolchain::Env;

/// Makes the folder and points the link at the libtorch.
///
/// Cargo and build scripts see the link's path, which stays the same when the libtorch moves or is replaced by one
/// with the same ABI: nothing is then built again.
pub(super) fn prepare(execution: &Execution<'_>, build: &Build, env: &Env) -> Result<(), CargoError> {
    let make = || -> io::Result<()> {
        fs_err::create_dir_all(&build.dir)?;
        match &build.libtorch {
            Some(libtorch) => link(&libtorch.link, &libtorch.root),
            None => Ok(()),
        }
    };
    make().map_err(|source| CargoError::NoFolder { dir: build.dir.clone(), source })?;
    if build.container.as_ref().is_some_and(|container| container.needs_sources) {
        fetch(execution, build, env);
    }
    Ok(())
}

/// Lets this machine's cargo get the sources, and write the lock file as a build would: a container may have no network.
///
/// Whatever it says, the cargo inside is run: it may have another way, and tells what is missing.
fn fetch(execution: &Execution<'_>, build: &Build, env: &Env) {
    let mut command = Command::new(execution.cargo);
    command.args(["fetch", "--quiet", "--target", &build.target]);
    command.args(build.args.iter().filter(|arg| ["--locked", "--offline"].contains(&arg.as_str())));
    command.current_dir(&execution.plan.workspace).env_clear().envs(env).stdin(Stdio::null());
    let _ = command.output();
}

/// Makes `link` lead to `root`, in one step for whoever looks at it.
fn link(link: &Utf8Path, root: &Utf8Path) -> io::Result<()> {
    if fs_err::read_link(link).is_ok_and(|now| now == root.as_std_path()) {
        return Ok(());
    }
    let folder = link.parent().unwrap_or(Utf8Path::new("."));
    let temp = tempfile::Builder::new().prefix(".link-").tempdir_in(folder)?;
    let new = temp.path().join("libtorch");
    fs_err::os::unix::fs::symlink(root, &new)?;
    fs_err::rename(new, link)
}

#[cfg(test)]
mod tests {
    use camino::Utf8Path;

    use super::*;

    #[test]
    fn a_link_is_made_moved_and_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(temp.path()).unwrap();
        let own = base.join("lib torch ü");
        for root in ["/opt/a", "/opt/b", "/opt/b"] {
            link(&own, Utf8Path::new(root)).unwrap();
            assert_eq!(fs_err::read_link(&own).unwrap(), Utf8Path::new(root));
        }
        assert_eq!(base.read_dir_utf8().unwrap().count(), 1, "nothing is left beside the link");
    }
}
