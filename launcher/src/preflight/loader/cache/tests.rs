use std::process::Command;

use super::*;

/// A cache of these entries (flags, hwcap, name, path), with these glibc-hwcaps names.
fn cache(entries: &[(u32, u64, &str, &str)], hwcaps: &[&str]) -> Vec<u8> {
    let mut strings = Vec::new();
    let start = NEW_HEADER + entries.len() * NEW_ENTRY;
    let mut intern = |text: &str| {
        let at = (start + strings.len()) as u32;
        strings.extend(text.bytes());
        strings.push(0);
        at
    };
    let mut table = Vec::new();
    for (flags, hwcap, name, path) in entries {
        for word in [*flags, intern(name), intern(path), 0, *hwcap as u32, (hwcap >> 32) as u32] {
            table.extend(word.to_ne_bytes());
        }
    }
    let names: Vec<u32> = hwcaps.iter().map(|name| intern(name)).collect();
    while !(start + strings.len()).is_multiple_of(4) {
        strings.push(0);
    }
    let directory = (start + strings.len()) as u32;
    let mut bytes = NEW_MAGIC.to_owned();
    for word in [entries.len() as u32, strings.len() as u32, 2, directory, 0, 0, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(table);
    bytes.extend(strings);
    for word in [EXTENSION_MAGIC, 1, HWCAPS_SECTION, 0, directory + 24, names.len() as u32 * 4] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(names.iter().flat_map(|name| name.to_ne_bytes()));
    bytes
}

fn levels(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_entry_for_the_machine_and_its_best_level_is_taken() {
    let level = |index: u64| IS_HWCAPS_INDEX | index;
    let bytes = cache(
        &[
            (0x0303, level(1), "liba.so.1", "/v3/liba.so.1"),
            (0x0303, level(0), "liba.so.1", "/v2/liba.so.1"),
            (0x0303, 0, "liba.so.1", "/plain/liba.so.1"),
            (0x0303, 0x40, "libold.so", "/tls/libold.so"),
            (0x0003, 0, "liba.so.1", "/i686/liba.so.1"),
        ],
        &["x86-64-v2", "x86-64-v3"],
    );
    let cache = LdCache::parse(&bytes);
    let find = |name, flags, hwcaps: &[&str]| cache.lookup(name, flags, &levels(hwcaps));
    let v3 = ["x86-64-v3", "x86-64-v2"];
    assert_eq!(find("liba.so.1", 0x0303, &v3), Some("/v3/liba.so.1".into()));
    assert_eq!(find("liba.so.1", 0x0303, &v3[1..]), Some("/v2/liba.so.1".into()));
    assert_eq!(find("liba.so.1", 0x0303, &[]), Some("/plain/liba.so.1".into()));
    assert_eq!(find("liba.so.1", 0x0003, &v3), Some("/i686/liba.so.1".into()));
    assert_eq!(find("liba.so", 0x0303, &v3), None);
    assert_eq!(find("libold.so", 0x0303, &v3), None);
}

#[test]
fn a_cache_behind_an_older_one_is_found() {
    let new = cache(&[(0x0303, 0, "liba.so", "/a/liba.so")], &[]);
    let mut bytes = OLD_MAGIC.to_owned();
    bytes.push(0);
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend([0; OLD_ENTRY]);
    bytes.extend([0; 4]);
    bytes.extend(new);
    assert_eq!(LdCache::parse(&bytes).lookup("liba.so", 0x0303, &[]), Some("/a/liba.so".into()));
}

#[test]
fn a_damaged_cache_is_an_empty_one_and_never_a_panic() {
    let whole = cache(&[(0x0303, IS_HWCAPS_INDEX, "liba.so", "/a/liba.so")], &["x86-64-v2"]);
    for end in 0..whole.len() {
        LdCache::parse(&whole[..end]).lookup("liba.so", 0x0303, &levels(&["x86-64-v2"]));
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        LdCache::parse(&bytes).lookup("liba.so", 0x0303, &levels(&["x86-64-v2"]));
    }
    assert!(LdCache::parse(b"something else").is_empty());
}

/// Every line of `ldconfig -p` on the machine that the test runs on.
#[test]
fn this_machines_cache_says_what_ldconfig_prints() {
    let cache = LdCache::read(Path::new("/etc/ld.so.cache"));
    let printed = ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"]
        .iter()
        .find_map(|program| Command::new(program).arg("-p").output().ok())
        .expect("glibc's ldconfig is there");
    let text = String::from_utf8(printed.stdout).expect("paths are UTF-8");
    let (kind, flags) =
        if cfg!(target_arch = "x86_64") { ("(libc6,x86-64)", 0x0303) } else { ("(libc6,AArch64)", 0x0a03) };
    let mut count = 0;
    let mut first: Option<&str> = None;
    for line in text.lines() {
        let Some((name, path)) = line.split_once(" => ") else { continue };
        let Some((name, found)) = name.trim().split_once(' ') else { continue };
        // Of several entries for one name the first is the loader's.
        if found == kind && first.replace(name) != Some(name) {
            assert_eq!(cache.lookup(name, flags, &[]), Some(path.into()), "{name}");
            count += 1;
        }
    }
    assert!(count > 3, "{text}");
}
