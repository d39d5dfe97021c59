//! What the loader of a host knows before any program: default folders, cache, CPU levels, the words for tokens.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::cache::LdCache;

/// Where the files of a host's system lie in the file tree of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// Where they say: the host is this machine.
    #[default]
    This,
    /// Below this folder, the system's alone: a whole system's tree, as in a container or behind `chroot`.
    Below(PathBuf),
    /// Every file below this folder where it is there, else where it says: what QEMU's user emulation does with `-L`.
    Before(PathBuf),
}

/// Where a host's system libraries are.
#[derive(Clone, Debug, Default)]
pub struct HostLibraries {
    /// CPU architecture as in a target triple.
    pub arch: String,
    /// What `$LIB` stands for: `lib/x86_64-linux-gnu`, `lib64`, `lib`.
    pub lib: String,
    /// What `$PLATFORM` stands for (AT_PLATFORM).
    pub platform: Option<String>,
    /// Folders below `glibc-hwcaps` that this CPU can use, best first.
    pub hwcaps: Vec<String>,
    /// The folders that are searched last, in order.
    pub default_folders: Vec<PathBuf>,
    /// The loader itself, links followed; none where it is not at its usual place.
    pub loader: Option<PathBuf>,
    /// `/etc/ld.so.cache`.
    pub cache: LdCache,
    /// `/etc/ld.so.conf`. The loader does not read that file, `ldconfig` does: it is only read to say that it was
    /// not run.
    pub configuration: PathBuf,
    /// Where what is named above lies.
    pub root: Root,
}

/// How deep files of `ld.so.conf` may include each other; a file that includes itself ends there.
const MAX_INCLUDES: u8 = 8;

/// Links that the kernel follows on the way to one file.
const MAX_LINKS: u8 = 40;

/// Where `ldconfig` leaves what it found.
pub(in crate::preflight) const CACHE: &str = "/etc/ld.so.cache";
/// Which folders it looks into.
const CONFIGURATION: &str = "/etc/ld.so.conf";

/// The usual path of the loader, by architecture.
#[cfg(target_arch = "x86_64")]
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
const LOADER: &str = "/lib/ld-linux-aarch64.so.1";

impl HostLibraries {
    /// The facts of the machine that this runs on.
    pub fn of_this_host() -> Self {
        let loader = fs_err::canonicalize(LOADER).ok();
        let lib = lib_of_loader(loader.as_deref().unwrap_or(Path::new("")));
        let default_folders = default_folders(&lib);
        Self {
            arch: std::env::consts::ARCH.to_owned(),
            lib,
            platform: Some(platform()),
            hwcaps: hwcaps(),
            default_folders,
            loader,
            cache: LdCache::read(Path::new(CACHE)),
            configuration: PathBuf::from(CONFIGURATION),
            root: Root::This,
        }
    }

    /// The system of programs for `arch` that QEMU runs on this machine; `prefix` is the folder that it got as `-L`.
    pub fn emulated(arch: &str, prefix: Option<&Path>) -> Self {
        // Without a folder of its own the files are this machine's: those that it has for that CPU.
        Self::of_root(arch, Root::Before(prefix.unwrap_or(Path::new("/")).to_owned()))
    }

    /// The system that lies, whole, below `folder`.
    pub fn below(arch: &str, folder: &Path) -> Self {
        Self::of_root(arch, Root::Below(folder.to_owned()))
    }

    fn of_root(arch: &str, root: Root) -> Self {
        let mut host = Self { arch: arch.to_owned(), platform: Some(arch.to_owned()), root, ..Self::default() };
        // Which of these folders the loader was made for is not written where it could be read without running it; no
        // distribution has libraries in those of another.
        let multiarch = format!("lib/{}-linux-gnu", if arch == "i686" { "i386" } else { arch });
        let has_lib64 = host.at(&host.of_system(Path::new("/lib64"))).is_dir();
        let names = [multiarch.as_str(), "lib64", "lib"];
        host.default_folders = names
            .iter()
            .flat_map(|name| [Path::new("/").join(name), Path::new("/usr").join(name)])
            .map(|folder| host.of_system(&folder))
            .collect();
        let has_multiarch = host.default_folders.iter().take(2).any(|folder| host.at(folder).is_dir());
        host.lib = if has_multiarch {
            multiarch
        } else if has_lib64 {
            "lib64".to_owned()
        } else {
            "lib".to_owned()
        };
        host.cache = LdCache::read(&host.at(&host.of_system(Path::new(CACHE))));
        host.configuration = host.at(&host.of_system(Path::new(CONFIGURATION)));
        host
    }

    /// Where a file of the system lies, by the path that the system itself has for it.
    pub(super) fn of_system(&self, path: &Path) -> PathBuf {
        match &self.root {
            Root::Below(folder) => folder.join(path.strip_prefix("/").unwrap_or(path)),
            Root::This | Root::Before(_) => path.to_owned(),
        }
    }

    /// The file that a program gets that opens `path`, which is one of this machine or, by [`Self::of_system`], of the system.
    pub(super) fn at(&self, path: &Path) -> PathBuf {
        match &self.root {
            Root::This => path.to_owned(),
            Root::Below(folder) => match path.strip_prefix(folder) {
                Ok(below) => inside(folder, below),
                Err(_) => path.to_owned(),
            },
            Root::Before(folder) => {
                let before = path.strip_prefix("/").map(|below| folder.join(below));
                before.ok().filter(|before| before.exists()).unwrap_or_else(|| path.to_owned())
            }
        }
    }

    /// Whether it is this machine's own system, of which this machine's CPU says something.
    pub fn is_this_machine(&self) -> bool {
        self.root == Root::This
    }

    /// The folders that [`Self::configuration`] and the files that it includes name, in their order.
    pub fn configured_folders(&self) -> Vec<PathBuf> {
        configured_folders(&self.configuration, MAX_INCLUDES)
    }

    /// Flags of a cache's entries for libraries of `arch`: glibc's, in the machine's usual ABI.
    pub(super) fn cache_flags(arch: &str) -> Option<u32> {
        const LIBC6: u32 = 0x0003;
        match arch {
            "x86_64" => Some(0x0300 | LIBC6),
            "x86_64-x32" => Some(0x0800 | LIBC6),
            "i686" => Some(LIBC6),
            "aarch64" => Some(0x0a00 | LIBC6),
            _ => None,
        }
    }
}

/// The file `below` a folder that is a system's root: an absolute link in there starts from the folder, as it would for the
/// system itself.
fn inside(folder: &Path, below: &Path) -> PathBuf {
    let mut parts: VecDeque<OsString> = below.iter().map(OsStr::to_owned).collect();
    let mut at = folder.to_owned();
    let mut links = 0;
    while let Some(part) = parts.pop_front() {
        at.push(part);
        let Ok(target) = fs_err::read_link(&at) else { continue };
        links += 1;
        // Relative ones lead where they lead; more links than the kernel follows lead nowhere.
        if let (Ok(target), true) = (target.strip_prefix("/"), links <= MAX_LINKS) {
            target.iter().rev().for_each(|part| parts.push_front(part.to_owned()));
            folder.clone_into(&mut at);
        }
    }
    at
}

/// What `$LIB` is on a host whose loader is really at `loader`: the folder that its distribution configured for it.
fn lib_of_loader(loader: &Path) -> String {
    let folder = loader.parent().unwrap_or(Path::new(""));
    let below = folder.strip_prefix("/usr").or_else(|_| folder.strip_prefix("/")).unwrap_or(folder);
    match below.to_str() {
        Some(lib) if lib.starts_with("lib") => lib.to_owned(),
        _ if std::env::consts::ARCH == "x86_64" => "lib64".to_owned(),
        _ => "lib".to_owned(),
    }
}

/// The folders that a loader with this `$LIB` searches last. A Debian multiarch loader has the plain ones too.
fn default_folders(lib: &str) -> Vec<PathBuf> {
    let mut folders = vec![Path::new("/").join(lib), Path::new("/usr").join(lib)];
    if lib.contains('/') {
        folders.extend([PathBuf::from("/lib"), PathBuf::from("/usr/lib")]);
    }
    folders
}

/// The levels of the x86-64 ABI above the base that this CPU has, highest first.
#[cfg(target_arch = "x86_64")]
fn hwcaps() -> Vec<String> {
    use std::arch::is_x86_feature_detected as has;
    let v2 = has!("cmpxchg16b") && has!("popcnt") && has!("sse3") && has!("sse4.1") && has!("sse4.2") && has!("ssse3");
    let v3 = v2
        && has!("avx")
        && has!("avx2")
        && has!("bmi1")
        && has!("bmi2")
        && has!("f16c")
        && has!("fma")
        && has!("lzcnt")
        && has!("movbe");
    let v4 = v3 && has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    let levels = [(v4, "x86-64-v4"), (v3, "x86-64-v3"), (v2, "x86-64-v2")];
    levels.iter().filter(|(has, _)| *has).map(|(_, name)| (*name).to_owned()).collect()
}

/// glibc names no such folders for this architecture.
#[cfg(not(target_arch = "x86_64"))]
fn hwcaps() -> Vec<String> {
    Vec::new()
}

/// What `$PLATFORM` is here. glibc says `haswell` on Intel CPUs of that level, and else what the kernel says.
#[cfg(target_arch = "x86_64")]
fn platform() -> String {
    use std::arch::is_x86_feature_detected as has;
    let is_level =
        has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("movbe") && has!("popcnt") && has!("fma");
    if is_level && is_intel() { "haswell".to_owned() } else { "x86_64".to_owned() }
}

/// What `$PLATFORM` is here.
#[cfg(not(target_arch = "x86_64"))]
fn platform() -> String {
    std::env::consts::ARCH.to_owned()
}

/// By the CPU's own word: /proc/cpuinfo is slow to read on machines with many CPUs.
#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    let word = |text: &[u8; 4]| u32::from_le_bytes(*text);
    (vendor.ebx, vendor.edx, vendor.ecx) == (word(b"Genu"), word(b"ineI"), word(b"ntel"))
}

/// The folders that the `ldconfig` file at `path` and those that it includes name, in their order.
fn configured_folders(path: &Path, depth: u8) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let text = fs_err::read(path).unwrap_or_default();
    for line in String::from_utf8_lossy(&text).lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        match line.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])) {
            Some(patterns) if depth > 0 => {
                for pattern in patterns.split_whitespace() {
                    let pattern = path.parent().unwrap_or(Path::new("/")).join(pattern);
                    folders.extend(matching(&pattern).iter().flat_map(|file| configured_folders(file, depth - 1)));
                }
            }
            None if line.starts_with('/') => {
                // A type may follow the folder: `/usr/lib=libc6`.
                folders.push(PathBuf::from(line.split('=').next().unwrap_or(line).trim_end_matches('/')));
            }
            _ => {}
        }
    }
    folders
}

/// The files that a pattern with at most one `*`, in its last part, stands for.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (pattern.parent(), pattern.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let Some((start, end)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| {
                name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
            })
        })
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_folders_follow_from_where_the_loader_lies() {
        let debian = lib_of_loader(Path::new("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"));
        assert_eq!(debian, "lib/x86_64-linux-gnu");
        let folders: Vec<_> = default_folders(&debian).iter().map(|folder| folder.display().to_string()).collect();
        assert_eq!(folders, ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib"]);
        assert_eq!(lib_of_loader(Path::new("/usr/lib64/ld-linux-x86-64.so.2")), "lib64");
        assert_eq!(default_folders("lib64"), [PathBuf::from("/lib64"), PathBuf::from("/usr/lib64")]);
    }

    #[test]
    fn the_files_of_another_system_lie_below_its_root_with_its_absolute_links_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("ein System");
        for sub in ["usr/lib/aarch64-linux-gnu", "lib64"] {
            fs_err::create_dir_all(root.join(sub)).unwrap();
        }
        fs_err::write(root.join("usr/lib/aarch64-linux-gnu/ld.so"), "").unwrap();
        fs_err::os::unix::fs::symlink("/usr/lib/aarch64-linux-gnu/ld.so", root.join("lib64/ld.so")).unwrap();
        fs_err::os::unix::fs::symlink("/loop", root.join("loop")).unwrap();
        let host = HostLibraries::below("aarch64", &root);
        assert_eq!(host.lib, "lib/aarch64-linux-gnu");
        assert_eq!(host.default_folders[1], root.join("usr/lib/aarch64-linux-gnu"));
        let real = root.join("usr/lib/aarch64-linux-gnu/ld.so");
        assert_eq!(host.at(&host.of_system(Path::new("/lib64/ld.so"))), real);
        assert_eq!(host.at(Path::new("/variant/lib/libtorch.so")), Path::new("/variant/lib/libtorch.so"));
        assert!(!host.at(&root.join("loop")).exists());
        // QEMU takes this machine's file where the folder has none.
        let host = HostLibraries::emulated("aarch64", Some(&root));
        assert_eq!(host.at(Path::new("/usr/lib/aarch64-linux-gnu/ld.so")), real);
        assert_eq!(
            host.at(Path::new("/usr/lib/aarch64-linux-gnu/other.so")),
            Path::new("/usr/lib/aarch64-linux-gnu/other.so")
        );
        assert!(!host.is_this_machine() && HostLibraries::default().is_this_machine());
    }

    #[test]
    fn the_configuration_is_followed_through_includes_and_comments() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs_err::create_dir(root.join("d")).unwrap();
        fs_err::write(root.join("ld.so.conf"), "# c\ninclude d/*.conf\n/opt/a/ # x\ninclude ld.so.conf\n").unwrap();
        fs_err::write(root.join("d/b.conf"), "/opt/b=libc6\n").unwrap();
        fs_err::write(root.join("d/a.conf"), "/opt/c\nrelative\n").unwrap();
        fs_err::write(root.join("d/a.txt"), "/opt/no\n").unwrap();
        let found = configured_folders(&root.join("ld.so.conf"), 0);
        assert_eq!(found, [PathBuf::from("/opt/a")]);
        let found = configured_folders(&root.join("ld.so.conf"), 1);
        assert_eq!(found[..3], ["/opt/c", "/opt/b", "/opt/a"].map(PathBuf::from));
    }
}
