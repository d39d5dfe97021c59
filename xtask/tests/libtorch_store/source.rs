//! `libtorch build`: the recipe, what it needs, going on after a kill, and what becomes of its result.
//!
//! git is the real one, on a repository of this disk. torch's own source, CMake, ninja and CUDA are stand-ins: the real
//! build takes hours and 60 GB.

use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use torchlift_schema::exit_code;
use torchlift_xtask::libtorch::record;

use crate::made::{Entry, region};
use crate::tree::{fails, libtorch, ok, write};
use crate::wheel;
use crate::world::{World, said};

/// Far more than anything here takes; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
const ID: &str = "builds/sm61-sm120-2.9.0";

/// CMake as far as a recipe uses it: remembers how it was called, and installs what lies in `made`.
const CMAKE: &str = r#"#!/bin/sh
here=$(dirname "$0")/..
case "$1" in
--version) echo "cmake version 3.31.0"; exit 0 ;;
--install) mkdir -p install; cp -R "$here/made/." install; exit 0 ;;
esac
printf '%s\n' "$@" "archs=$TORCH_CUDA_ARCH_LIST" >> "$here/configured"
[ -e "$here/no-cuda" ] && { echo "CMake Error: no CUDA here" >&2; exit 3; }
mkdir -p build
"#;

/// Stands still in the middle when `hold` is there.
const NINJA: &str = r#"#!/bin/sh
here=$(dirname "$0")/..
case "$1" in --version) echo 1.11.1; exit 0 ;; esac
echo "$*" >> "$here/compiled"
if [ -e "$here/hold" ]; then
    echo half > build/half
    echo ready > "$here/hold"
    cat "$here/release"
fi
"#;

const NVCC: &str = "#!/bin/sh\ncase \"$1\" in\n--version) echo 'Cuda compilation tools, release 12.8, V12.8.93' ;;\n\
--list-gpu-code) printf 'sm_61\\nsm_90\\nsm_120\\n' ;;\nesac\n";

/// Writes a `libtorch_cuda.so` whose fatbin has machine code for these architectures, in one region as `nvcc` writes it.
fn kernels(world: &World, made: &Utf8Path, archs: &[u32]) {
    let region = region(&archs.iter().map(|arch| Entry::sass(*arch, 0)).collect::<Vec<_>>());
    let bytes: Vec<String> = region.iter().map(u8::to_string).collect();
    let section = "__attribute__((section(\".nv_fatbin\"), aligned(8), used))";
    let source = format!("static const unsigned char code[] {section} = {{{}}};\n", bytes.join(","));
    let (lib, toolkit) = (made.join("lib"), world.base.join("cuda 12.8/lib64"));
    let folders = [format!("-L{lib}"), format!("-L{toolkit}")];
    let output = lib.join("libtorch_cuda.so");
    let mut args = vec!["-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,-soname,libtorch_cuda.so"];
    args.extend(["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", &folders[0], &folders[1]]);
    args.extend(["-l:libtorch_cpu.so", "-l:libcudart.so.12", "-o", output.as_str()]);
    duct::cmd("cc", args).stdin_bytes(source.as_bytes()).run().unwrap();
}

struct Site {
    world: World,
    work: Utf8PathBuf,
    source: Utf8PathBuf,
}

impl Site {
    /// A machine with everything, and a repository with the tag.
    fn new() -> Self {
        let world = World::new();
        for tool in ["git", "flock", "find", "mkdir", "mv", "rm", "env", "sed", "uname", "basename", "cut"] {
            let real = ["/usr/bin", "/bin"].map(|folder| Utf8Path::new(folder).join(tool));
            let real = real.into_iter().find(|path| path.exists()).unwrap();
            let link = world.base.join("bin").join(tool);
            if !link.exists() {
                fs_err::os::unix::fs::symlink(real, link).unwrap();
            }
        }
        world.program("cmake", CMAKE);
        world.program("ninja", NINJA);
        for compiler in ["gcc", "g++"] {
            world.program(compiler, "#!/bin/sh\necho 12.2.0\n");
        }
        world.program("python3", "#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.11.2'\nexit 0\n");
        let toolkit = world.base.join("cuda 12.8");
        write(&toolkit.join("bin/nvcc"), NVCC.as_bytes(), 0o755);
        let cudart = wheel::library(&world.index(), "libcudart.so.12", &[]);
        write(&toolkit.join("lib64/libcudart.so.12"), &cudart, 0o755);

        let made = world.base.join("made");
        libtorch(&world, &made, "2.9.0");
        fs_err::remove_file(made.join("build-version")).unwrap();
        kernels(&world, &made, &[61, 120]);

        let source = world.base.join("source of torch");
        let git = |args: &[&str]| {
            let name = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"];
            duct::cmd("git", name.iter().chain(args)).dir(&source).stdout_null().run().unwrap();
        };
        fs_err::create_dir(&source).unwrap();
        fs_err::write(source.join("version.txt"), "2.9.0\n").unwrap();
        git(&["init", "--quiet"]);
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", "a"]);
        git(&["tag", "v2.9.0"]);
        let work = world.base.join("work hier");
        Self { world, work, source }
    }

    fn command(&self, more: &[&str]) -> std::process::Command {
        let args = ["build", "--archs", "6.1;12.0", "--torch", "2.9.0", "--jobs", "1"];
        let mut command = self.world.command(&args);
        command.args(["--source", self.source.as_str(), "--work", self.work.as_str()]).args(more);
        // The stand-ins need no room, and the machine that runs the tests may have little.
        command.args(["--accept", "source-disk-small"]);
        command.env("CUDA_HOME", self.world.base.join("cuda 12.8"));
        command
    }

    fn run(&self, more: &[&str]) -> std::process::Output {
        self.command(more).output().unwrap()
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs_err::read_to_string(self.world.base.join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

#[test]
fn the_recipe_runs_in_order_and_what_it_made_is_a_variant() {
    let site = Site::new();
    let output = site.run(&["--set", "USE_NCCL=OFF"]);
    let variant = site.world.store().join(ID);
    assert_eq!(ok(&output), format!("{variant}\n"), "{}", said(&output));
    let told = said(&output);
    let at = |step: &str| told.find(&format!("step {step}\n")).unwrap_or_else(|| panic!("{step}: {told}"));
    let steps = ["checkout", "submodules", "configure", "compile", "install"].map(at);
    assert!(steps.is_sorted(), "{told}");
    let configured = site.lines("configured");
    for word in ["archs=6.1;12.0", "-DUSE_NCCL=OFF", "-DUSE_CUDA=ON", "Ninja"] {
        assert!(configured.iter().any(|line| line == word), "{word}: {configured:#?}");
    }
    assert_eq!(fs_err::read_to_string(site.work.join("source/version.txt")).unwrap(), "2.9.0\n");

    assert_eq!(fs_err::read_to_string(variant.join("build-version")).unwrap(), "2.9.0+cu128\n");
    assert!(variant.join("lib/libcudart.so.12").is_file(), "the toolkit's library that it needs came along");
    let arch = fs_err::read_to_string(variant.join(".arch")).unwrap();
    assert!(arch.contains("source=compiled\n") && arch.contains("cuda=12.8\narchs=6.1 12.0\n"), "{arch}");
    assert!(!told.contains("source-archs-differ"), "{told}");
    assert_eq!(record::read(&variant).unwrap().id.as_str(), ID);
    ok(&site.world.run(&["verify", ID]));

    let told = fails(&site.run(&[]), exit_code::BUILD);
    assert!(told.contains("error[source-id-taken]"), "{told}");
}

#[test]
fn what_has_not_the_code_that_was_asked_for_is_an_error_and_what_has_more_a_warning() {
    let site = Site::new();
    kernels(&site.world, &site.world.base.join("made"), &[61, 90]);
    let told = fails(&site.run(&[]), exit_code::BUILD);
    let words = "it has no code for `sm_120`, and has it for `sm_61` `sm_90`";
    assert!(told.contains("error[source-archs-differ]") && told.contains(words), "{told}");
    // It stays, as what it is: hours went into it.
    let arch = fs_err::read_to_string(site.world.store().join(ID).join(".arch")).unwrap();
    assert!(arch.contains("archs=6.1 9.0\n"), "{arch}");

    let site = Site::new();
    kernels(&site.world, &site.world.base.join("made"), &[61, 90, 120]);
    let output = site.run(&[]);
    ok(&output);
    let told = said(&output);
    assert!(told.contains("warning[source-archs-differ]") && told.contains("`sm_90` too"), "{told}");
}

#[test]
fn a_build_that_was_killed_goes_on_where_it_stopped() {
    let site = Site::new();
    for pipe in ["hold", "release"] {
        duct::cmd!("mkfifo", site.world.base.join(pipe).as_std_path()).run().unwrap();
    }
    let mut first = site.command(&[]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let hold = site.world.base.join("hold");
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(fs_err::read_to_string(hold)));
    assert_eq!(receiver.recv_timeout(PATIENCE).expect("the compiler was never called").unwrap(), "ready\n");
    first.kill().unwrap();
    first.wait().unwrap();
    // What it started goes on without it, and holds the recipe's lock until it ends.
    fs_err::remove_file(site.world.base.join("hold")).unwrap();
    let second = site.command(&[]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    fs_err::write(site.world.base.join("release"), "go\n").unwrap();
    let output = second.wait_with_output().unwrap();
    ok(&output);
    let told = said(&output);
    for step in ["checkout", "submodules", "configure"] {
        assert!(told.contains(&format!("step {step}: done before")), "{step}: {told}");
    }
    assert_eq!(site.lines("configured").iter().filter(|line| line.starts_with("archs=")).count(), 1);
    assert!(site.work.join("build/half").exists(), "objects are kept");
}

#[test]
fn a_step_that_fails_is_named_and_done_again() {
    let site = Site::new();
    fs_err::write(site.world.base.join("no-cuda"), "").unwrap();
    let told = fails(&site.run(&[]), exit_code::BUILD);
    for words in ["CMake Error: no CUDA here", "step `configure` failed (exit code 3)", "it goes on at `configure`"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!site.world.store().join(ID).exists());
    fs_err::remove_file(site.world.base.join("no-cuda")).unwrap();
    // The script alone does the same as the command.
    let script = site.work.join("recipe.sh");
    let mut by_hand = std::process::Command::new("sh");
    by_hand.arg(script).env_clear().env("PATH", site.world.base.join("bin"));
    let output = by_hand.output().unwrap();
    assert!(output.status.success() && said(&output).contains("step checkout: done before"), "{}", said(&output));
    ok(&site.run(&[]));
    assert_eq!(site.lines("compiled").len(), 1, "the command finds what the script did");
}

#[test]
fn a_tag_that_is_not_there_is_a_failed_checkout() {
    let site = Site::new();
    let args = ["build", "--archs", "6.1", "--torch", "2.9.7", "--source", site.source.as_str()];
    let mut command = site.world.command(&args);
    command.args(["--accept", "source-disk-small"]);
    command.env("CUDA_HOME", site.world.base.join("cuda 12.8"));
    let told = fails(&command.output().unwrap(), exit_code::BUILD);
    assert!(told.contains("step `checkout` failed") && told.contains("v2.9.7"), "{told}");
}

#[test]
fn other_archs_do_configure_and_compile_over() {
    let site = Site::new();
    ok(&site.run(&[]));
    kernels(&site.world, &site.world.base.join("made"), &[90]);
    let args = ["build", "--archs", "9.0", "--torch", "2.9.0", "--jobs", "1"];
    let mut command = site.world.command(&args);
    command.args(["--source", site.source.as_str(), "--work", site.work.as_str()]);
    command.args(["--accept", "source-disk-small"]);
    // A checkout is done over where a git that was killed left its lock.
    fs_err::remove_file(site.work.join("stamps/checkout")).unwrap();
    fs_err::write(site.work.join("source/.git/index.lock"), "").unwrap();
    command.env("CUDA_HOME", site.world.base.join("cuda 12.8"));
    let output = command.output().unwrap();
    assert!(ok(&output).ends_with("builds/sm90-2.9.0\n"));
    let archs: Vec<String> = site.lines("configured").into_iter().filter(|line| line.starts_with("archs=")).collect();
    assert_eq!(archs, ["archs=6.1;12.0", "archs=9.0"]);
    assert_eq!(site.lines("compiled").len(), 2);
}

#[test]
fn everything_that_a_machine_lacks_is_told_before_anything_is_done() {
    let site = Site::new();
    for tool in ["cmake", "ninja", "g++"] {
        fs_err::remove_file(site.world.base.join("bin").join(tool)).unwrap();
    }
    let newer = NVCC.replace("12.8, V12.8.93", "13.0, V13.0.1").replace("sm_61\\n", "");
    write(&site.world.base.join("cuda 12.8/bin/nvcc"), newer.as_bytes(), 0o755);
    let told = fails(&site.run(&[]), exit_code::BUILD);
    for words in [
        "no `cmake` on `PATH`",
        "`ninja-build`",
        "no `g++` on `PATH`",
        "the compiler of CUDA 13.0 makes no code for `6.1`",
        "CUDA 12.8 to 12.9 have them all",
        "nothing was done",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!site.work.exists());
}

#[test]
fn a_dry_run_prints_the_script_and_a_recipe_alone_is_written_where_it_is_asked_for() {
    let site = Site::new();
    fs_err::remove_file(site.world.base.join("bin/ninja")).unwrap();
    let output = site.run(&["--dry-run"]);
    let script = ok(&output);
    assert!(script.starts_with("#!/bin/sh\n") && script.contains("TORCH_CUDA_ARCH_LIST='6.1;12.0'"), "{script}");
    assert!(said(&output).contains("no `ninja` on `PATH`"), "{}", said(&output));
    assert!(!site.work.exists());
    let folder = site.world.base.join("for another machine");
    let args = ["build", "--archs", "6.1;12.0", "--torch", "2.9.0", "--recipe-only", folder.as_str()];
    assert_eq!(ok(&site.world.run(&args)), format!("{folder}/recipe.sh\n"));
    let manifest: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(folder.join("recipe.json")).unwrap()).unwrap();
    assert_eq!((manifest["id"].as_str(), manifest["version"].as_u64()), (Some(ID), Some(1)));
    for wrong in [&["build", "--archs", "gfx90a"][..], &["build"], &["build", "--archs", "6.1", "--set", "x"]] {
        fails(&site.world.run(wrong), exit_code::USAGE);
    }
}
