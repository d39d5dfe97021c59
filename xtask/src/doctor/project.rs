//! The project: its workspace, what it pins, its cluster file; and all that follows from it.
//!
//! Owns the order: the stores and the cluster are looked at once the workspace is known, the builds once the cluster is. What
//! can be told without one of them is told without it.

use std::io;
use std::process::{Command, Output};
use std::sync::mpsc::Sender;
use std::thread;

use camino::Utf8PathBuf;
use torchlift_schema::Finding;

use super::{Check, Scene, Section, SectionId, build, cluster, counted, quoted, send, store};
use crate::bounded;
use crate::cluster::{FILE_NAME, lookup, overlay_path, read};
use crate::error::CommandError;
use crate::facts::{Overview, torch_pin};
use crate::toolchain::{RustcFacts, Tools};
use crate::workspace::{SourceId, WorkspaceFacts, resolve, source_id};

/// Looks, and sends the sections of the stores, the project, the cluster and the builds.
pub(super) fn look(scene: &Scene, sender: &Sender<Section>) {
    let run = |command: &mut Command| -> io::Result<Output> { bounded::output(command, scene.patience) };
    let manifest = scene.choice.manifest_path.as_ref().map(|file| scene.context.cwd.join(file));
    let workspace = WorkspaceFacts::ask(&scene.cargo, &scene.env, &scene.context.cwd, manifest.as_deref(), &run);
    thread::scope(|scope| {
        let root = workspace.as_ref().map_or_else(|_| scene.folder.clone(), |workspace| workspace.root.clone());
        scope.spawn(move || send(sender, store::look(scene, Some(&root))));
        match workspace {
            Ok(workspace) => with_workspace(scene, sender, workspace, &run),
            Err(error) => without_workspace(scene, sender, &error),
        }
    });
}

fn with_workspace(
    scene: &Scene,
    sender: &Sender<Section>,
    workspace: WorkspaceFacts,
    run: &(dyn Fn(&mut Command) -> io::Result<Output> + Sync),
) {
    let mut section = Section::new(SectionId::Project);
    of_workspace(&workspace, &mut section);
    let rustc = RustcFacts::ask(&scene.env, &workspace.root, run);
    let file = file(scene, &workspace.root);
    let (rustc, true) = (rustc, is_there(scene, &file)) else {
        section.push(no_file(scene, &workspace.root));
        send(sender, section);
        return rest_unchecked(sender, "there is no cluster file");
    };
    let Ok(rustc) = rustc else {
        only_the_file(scene, &file, &mut section);
        send(sender, section);
        return rest_unchecked(sender, "rustc gives no answer, so that nothing can be planned");
    };
    let (overview, source) = thread::scope(|scope| {
        let source = scope.spawn(|| source_id(&workspace.root, &scene.env, run));
        let wanted = scope.spawn(|| torch_pin(&scene.cargo, &workspace, &scene.env, run));
        let tools = Tools { env: &scene.env, cargo: &scene.cargo, run };
        let overview = Overview::read(&scene.choice, &scene.context, tools, &workspace, &rustc, wanted);
        (overview, source.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    pinned(&workspace, &overview, &mut section);
    section.push(sources(&workspace, &source));
    of_file(&overview, &mut section);
    let (of_cluster, of_project): (Vec<Finding>, Vec<Finding>) =
        overview.findings.iter().cloned().partition(cluster::is_about);
    of_project.into_iter().for_each(|finding| section.push(Check::of_finding(finding)));
    // That a file lost all of its hosts or jobs is told by what lost them.
    if !overview.findings.iter().any(Finding::is_error) {
        overview.unknown.iter().cloned().for_each(|finding| section.push(Check::of_finding(finding)));
    }
    for job in overview.cluster.jobs.iter().filter(|job| overview.job.as_ref().is_none_or(|own| own.name != job.name)) {
        if let Err(finding) = resolve(job, &workspace, overview.cluster.file.as_str()) {
            section.push(Check::of_finding(*finding));
        }
    }
    send(sender, section);
    send(sender, cluster::look(&overview, &rustc, of_cluster));
    send(sender, build::look(scene, overview, workspace, source));
}

fn of_workspace(workspace: &WorkspaceFacts, section: &mut Section) {
    let programs: usize = workspace.packages.iter().map(|package| package.bins.len() + package.examples.len()).sum();
    let (packages, programs) = (counted(workspace.packages.len(), "package"), counted(programs, "program"));
    section.push(Check::right("workspace", format!("{} with {packages}, {programs}", quoted(&workspace.root))));
    section.push(match &workspace.lock {
        Some(lock) => Check::right("cargo-lock", format!("`Cargo.lock` pins {}", counted(lock.packages, "package"))),
        None => Check::doubtful(
            "cargo-lock",
            "there is no `Cargo.lock`, so that which `torch-sys` will be built is not known",
            "`cargo generate-lockfile` makes it; the first build does too",
        ),
    });
}

fn pinned(workspace: &WorkspaceFacts, overview: &Overview, section: &mut Section) {
    let versions = workspace.lock.as_ref().map(|lock| lock.torch_sys.as_slice()).unwrap_or_default();
    let list = versions.iter().map(|version| format!("torch-sys {version}")).collect::<Vec<_>>().join(", ");
    section.push(match (versions.len(), &overview.wanted) {
        (0, _) => Check::right("torch-version", "no `torch-sys` is locked, so that no libtorch is asked for"),
        (1, Some(wanted)) => Check::right("torch-version", format!("torch {}, by {}", wanted.version, wanted.origin)),
        (1, None) => Check::doubtful(
            "torch-version",
            format!("which torch {list} needs is not known: its source is not on this machine"),
            "`cargo fetch --locked` gets the sources",
        ),
        (_, wanted) => {
            let taken = wanted.as_ref().map(|wanted| format!("; torch {} is taken", wanted.version));
            let found = format!("dependencies disagree: {list}{}", taken.unwrap_or_default());
            Check::doubtful(
                "torch-version",
                found,
                "`cargo tree -i torch-sys` says who wants which: bring them to one version",
            )
        }
    });
}

fn sources(workspace: &WorkspaceFacts, source: &io::Result<SourceId>) -> Check {
    let has_git = workspace.root.ancestors().any(|folder| folder.join(".git").exists());
    match source {
        Ok(source) if has_git && source.to_string().starts_with("files:") => Check::doubtful(
            "sources",
            format!("`{source}`: the folder is in a git checkout, and git says nothing of it"),
            format!("`git -C '{}' status` says why", workspace.root),
        ),
        Ok(source) => Check::right("sources", format!("`{source}`")),
        Err(error) => {
            Check::wrong("sources", format!("a source file cannot be read: {error}"), "mend or remove what it names")
        }
    }
}

fn of_file(overview: &Overview, section: &mut Section) {
    let cluster = &overview.cluster;
    let found = format!(
        "`{}` with {}, {}, {}",
        overview.file,
        counted(cluster.jobs.len(), "job"),
        counted(cluster.kinds.iter().filter(|kind| !kind.name.is_empty()).count(), "kind"),
        counted(cluster.hosts.len(), "host"),
    );
    let over = overlay_path(&cluster.file);
    let found = match fs_err::symlink_metadata(&over) {
        Ok(_) => format!("{found}; `{}` is laid over it", over.file_name().unwrap_or_default()),
        Err(_) => found,
    };
    section.push(Check::right("cluster-file", found));
    if let (Some(job), Some(plan)) = (&overview.job, &overview.plan) {
        let program = &plan.program;
        let found = format!(
            "`{}` is {} `{}` of `{}`, profile `{}`",
            job.name,
            program.kind.word(),
            program.name,
            program.package,
            plan.profile
        );
        section.push(Check::right("job", found));
    }
}

/// The cluster file as it was given, or where it belongs.
fn file(scene: &Scene, root: &camino::Utf8Path) -> Utf8PathBuf {
    match &scene.choice.cluster {
        Some(file) => file.clone(),
        None => root.join(FILE_NAME),
    }
}

/// Whether there is one; one that was named is told of as missing by whoever reads it.
fn is_there(scene: &Scene, file: &camino::Utf8Path) -> bool {
    scene.choice.cluster.is_some() || fs_err::symlink_metadata(file).is_ok()
}

fn no_file(scene: &Scene, folder: &camino::Utf8Path) -> Check {
    let typed = scene.typed("build --dry-run");
    Check::doubtful(
        "cluster-file",
        format!("there is no `{FILE_NAME}` in {}, so that there is nothing to build for", quoted(folder)),
        format!(
            "write one: `schema = 1`, a `[job.train]`, a `[kind.here]` with `libtorch = \"auto\"`, and a `[[host]]` with `name = \"here\"` and \
             `path = \".\"` (docs/cluster-file.md); then {typed}"
        ),
    )
}

/// What the file says by itself.
fn only_the_file(scene: &Scene, file: &camino::Utf8Path, section: &mut Section) {
    let reading = read(file, &scene.context.cwd, &lookup(&scene.env));
    if !reading.findings.iter().any(Finding::is_error) {
        section.push(Check::right("cluster-file", format!("`{file}` can be read")));
    }
    reading.findings.into_iter().for_each(|finding| section.push(Check::of_finding(finding)));
}

fn without_workspace(scene: &Scene, sender: &Sender<Section>, error: &CommandError) {
    let mut section = Section::new(SectionId::Project);
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        words = format!("{words}: {inner}");
        source = inner.source();
    }
    let has_manifest = scene.choice.manifest_path.is_some()
        || scene.context.cwd.ancestors().any(|folder| fs_err::symlink_metadata(folder.join("Cargo.toml")).is_ok());
    section.push(if has_manifest {
        Check::wrong("workspace", words, "mend what cargo names: `cargo metadata --no-deps` says it again")
    } else {
        let found = format!("no cargo project is in {} or above it", quoted(&scene.context.cwd));
        let remedy = format!(
            "change into yours; `cargo new NAME` begins one, and in Torchlift's own checkout {} shows one at work",
            scene.typed("demo")
        );
        Check::unchecked("workspace", found, remedy)
    });
    let file = file(scene, &scene.folder);
    if is_there(scene, &file) {
        only_the_file(scene, &file, &mut section);
    } else {
        section.push(no_file(scene, &scene.folder));
    }
    send(sender, section);
    rest_unchecked(sender, "without a workspace nothing can be planned");
}

fn rest_unchecked(sender: &Sender<Section>, why: &str) {
    for (id, name) in [(SectionId::Cluster, "hosts"), (SectionId::Build, "plan")] {
        let mut section = Section::new(id);
        section.push(Check::unchecked(name, why, "mend what stands under `project` and `tools` first"));
        send(sender, section);
    }
}
