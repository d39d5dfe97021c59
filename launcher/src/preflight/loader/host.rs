//! What the loader of a host knows before any program: default folders, cache, CPU levels, the words for tokens.

use std::path::{Path, PathBuf};

use super::cache::LdCache;

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
}

/// How deep files of `ld.so.conf` may include each other; a file that includes itself ends there.
const MAX_INCLUDES: u8 = 8;

/// Where `ldconfig` leaves what it found.
pub(in crate::preflight) const CACHE: &str = "/etc/ld.so.cache";

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
            configuration: PathBuf::from("/etc/ld.so.conf"),
        }
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
