//! This very machine, held against what other programs say of it.

use std::process::Command;

use nix::sys::resource::{Resource, getrlimit};
use torchlift_schema::host::{Bound, DiskPurpose, LibcFlavour, Vendor};
use torchlift_schema::{HostFacts, facts};

use crate::{probe, stdout, text};

/// The facts of this machine by the built program.
fn of_this_machine() -> HostFacts {
    let folder = tempfile::tempdir().unwrap();
    let output = probe(folder.path(), &["--format", "json", "--host", "here"]).output().unwrap();
    facts::read(stdout(&output).as_bytes()).unwrap().hosts.remove("here").unwrap()
}

/// What another program prints.
fn says(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("`{program}`: {error}"));
    text(&output.stdout)
}

#[test]
fn cores_and_memory_are_those_of_the_systems_own_tools() {
    let found = of_this_machine();
    let number = |text: String| text.trim().parse::<u64>().unwrap();
    assert_eq!(found.cores.online.map(u64::from), Some(number(says("getconf", &["_NPROCESSORS_ONLN"]))));
    // Affinity, and nothing of OpenMP's.
    let nproc = Command::new("nproc").env_remove("OMP_NUM_THREADS").env_remove("OMP_THREAD_LIMIT").output().unwrap();
    assert_eq!(found.cores.usable.map(u64::from), Some(number(text(&nproc.stdout))));
    let pages = number(says("getconf", &["_PHYS_PAGES"]));
    let page = number(says("getconf", &["PAGESIZE"]));
    assert_eq!(found.memory.total, Some(pages * page));
}

#[test]
fn an_affinity_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", "0", env!("CARGO_BIN_EXE_torchlift"), "probe", "--format", "json", "--host", "here"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let all = facts::read(stdout(&output).as_bytes()).unwrap();
    assert_eq!(all.hosts["here"].cores.usable, Some(1));
}

#[test]
fn the_c_library_is_the_one_that_the_system_runs() {
    let found = of_this_machine();
    let libc = found.libc.as_ref().unwrap();
    assert_eq!(libc.flavour, LibcFlavour::Glibc);
    // `glibc 2.36`
    let version = says("getconf", &["GNU_LIBC_VERSION"]);
    assert_eq!(libc.version.as_deref(), version.trim().strip_prefix("glibc "));
    // `ldd (Debian GLIBC 2.36-9+deb12u10) 2.36`
    let ldd = says("ldd", &["--version"]);
    assert!(ldd.lines().next().unwrap().ends_with(libc.version.as_deref().unwrap()), "{ldd}");
}

#[test]
fn the_libraries_and_their_versions_are_those_that_a_program_gets() {
    let found = of_this_machine();
    // What the loader itself maps into a program, by the kernel's word.
    let script = "import ctypes; ctypes.CDLL('libstdc++.so.6'); ctypes.CDLL('libgcc_s.so.1'); print(open('/proc/self/maps').read())";
    let python = Command::new("python3").args(["-c", script]).env_remove("LD_LIBRARY_PATH").output().unwrap();
    let maps = text(&python.stdout);
    for name in ["libc.so.6", "libstdc++.so.6", "libgcc_s.so.1"] {
        let library = found.library(name).unwrap();
        assert!(maps.lines().any(|line| line.ends_with(&format!(" {}", library.from))), "{} in\n{maps}", library.from);
    }
    // `dlvsym` finds a symbol by its version: the highest is there, and one beyond it is not.
    let newest = found.library("libc.so.6").unwrap().highest("GLIBC_").unwrap().to_owned();
    let strings = says(
        "python3",
        &[
            "-c",
            &format!(
                "import re; data = open({:?}, 'rb').read(); print(max((tuple(map(int, v.split(b'.'))) for v in re.findall(rb'\\0GLIBC_(2[.0-9]+)(?=\\0)', data))))",
                found.library("libc.so.6").unwrap().from
            ),
        ],
    );
    let expected = format!("({})", newest.split('.').collect::<Vec<_>>().join(", "));
    assert_eq!(strings.trim(), expected);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_level_is_the_one_that_the_loader_says() {
    let found = of_this_machine();
    let loader = found.loader.program.as_deref().unwrap();
    let help = says(loader, &["--help"]);
    // `  x86-64-v3 (supported, searched)`, the best first.
    let supported =
        help.lines().find(|line| line.contains("(supported")).map(|line| line.split_whitespace().next().unwrap());
    assert_eq!(found.cpu.level.as_deref(), Some(supported.unwrap_or("x86-64-v1")), "{help}");
    assert_eq!(found.loader.hwcaps.first().map(String::as_str), supported);
}

#[test]
fn limits_and_room_are_those_of_the_process() {
    let found = of_this_machine();
    let limits = found.limits.unwrap();
    for (limit, resource) in [
        (limits.nofile, Resource::RLIMIT_NOFILE),
        (limits.nproc, Resource::RLIMIT_NPROC),
        (limits.memlock, Resource::RLIMIT_MEMLOCK),
        (limits.core, Resource::RLIMIT_CORE),
    ] {
        let (soft, hard) = getrlimit(resource).unwrap();
        assert_eq!((limit.soft, limit.hard), (Bound::of(soft), Bound::of(hard)), "{resource:?}");
    }
    let shared = found.disks.iter().find(|disk| disk.purpose == DiskPurpose::Shared).unwrap();
    let blocks = says("stat", &["--file-system", "--format", "%b %S", "/dev/shm"]);
    let (blocks, size) = blocks.trim().split_once(' ').unwrap();
    assert_eq!(shared.total, blocks.parse::<u64>().unwrap() * size.parse::<u64>().unwrap());
    assert_eq!(found.disks.len(), 3);
}

#[test]
fn the_kernels_own_words_are_repeated() {
    let found = of_this_machine();
    assert_eq!(found.system.kernel.as_deref(), Some(says("uname", &["-r"]).trim()));
    assert_eq!(found.system.hostname.as_deref(), Some(says("uname", &["-n"]).trim()));
    assert_eq!(found.cpu.arch, says("uname", &["-m"]).trim());
}

#[test]
fn cards_are_those_of_the_drivers_own_list() {
    let found = of_this_machine();
    let listed = fs_err::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
    // A container may see fewer than the kernel has.
    assert!(found.cards(Vendor::Nvidia).count() <= listed.max(1), "{:?}", found.gpus);
    assert!(
        listed > 0 || found.cards(Vendor::Nvidia).all(|card| card.from.iter().any(|from| from.contains("device-tree")))
    );
}

#[test]
fn people_get_aligned_lines_and_no_more_than_fit_a_screen() {
    let folder = tempfile::tempdir().unwrap();
    let output = probe(folder.path(), &["--host", "here"]).output().unwrap();
    let shown = stdout(&output);
    assert!(shown.starts_with("host     `here`, read 20"), "{shown}");
    for name in ["system", "cpu", "cores", "memory", "libc", "loader", "disk", "limits", "gpus"] {
        let is_there = shown.lines().any(|line| line.starts_with(&format!("{name:<9}")));
        assert!(is_there || name == "gpus", "no `{name}` in\n{shown}");
    }
    assert!(shown.lines().count() < 60, "{shown}");
    assert!(!shown.contains("machine-id") && !shown.contains('\u{1b}'));
}

#[test]
fn the_host_is_called_by_its_hostname_unless_it_is_given_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let hostname = says("uname", &["-n"]);
    let label = hostname.trim().split('.').next().unwrap();
    assert!(stdout(&probe(folder.path(), &[]).output().unwrap()).starts_with(&format!("host     `{label}`")));
    for bad in ["", "a/b", "..", "a\nb"] {
        let output = probe(folder.path(), &["--host", bad]).output().unwrap();
        assert_eq!(output.status.code(), Some(200), "{bad:?}");
        assert!(text(&output.stderr).contains("facts-host-name"), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}
