//! What libraries export, and the C++ ABI that it tells.

use std::process::Command;

use torchlift::preflight::symbols::{self, CxxAbi};

use crate::Room;
use crate::stand_in::{library, sources};

/// Report 7: which string ABI a library speaks is in its symbols.
#[test]
fn the_cxx_abi_is_told_by_the_symbols() {
    let room = Room::new();
    let abi = |source: &str, args: &[&str]| {
        let path = room.path("libabi.so");
        library(source, &path, args);
        symbols::read(&path).unwrap().cxx_abi
    };
    let new = abi("greet.cpp", &["-D_GLIBCXX_USE_CXX11_ABI=1"]);
    let old = abi("greet.cpp", &["-D_GLIBCXX_USE_CXX11_ABI=0"]);
    assert_eq!((new, old), (CxxAbi::Cxx11, CxxAbi::PreCxx11));
    assert!(!new.fits(old));
    assert_eq!(abi("quiet.cpp", &[]), CxxAbi::Unknown);
    assert_eq!(abi("leaf.c", &[]), CxxAbi::Unknown);
}

#[test]
fn the_digest_follows_the_exported_symbols_and_nothing_else() {
    let room = Room::new();
    let path = room.path("libx.so");
    let read = |source: &str, args: &[&str]| {
        library(source, &path, args);
        symbols::read(&path).unwrap()
    };
    let leaf = read("leaf.c", &["-DLEAF=1"]);
    assert_eq!(leaf.count, 1);
    assert_eq!(leaf, read("leaf.c", &["-DLEAF=2", "-O2", "-g"]));
    assert_eq!(leaf, read("leaf.c", &["-Wl,--hash-style=sysv"]));
    assert_ne!(leaf.sha256, read("branch.c", &[]).sha256);
    assert_eq!(read("leaf.c", &["-fvisibility=hidden"]).count, 0);
    let script = |name: &str| format!("-Wl,--version-script={}", sources().join(name).display());
    let both = read("versioned.c", &[&script("versioned.map")]);
    let old = read("versioned.c", &["-DWITHOUT_NEW", &script("versioned_old.map")]);
    let plain = read("versioned.c", &[]);
    assert_eq!((both.count, old.count, plain.count), (2, 1, 2));
    assert_ne!(both.sha256, plain.sha256, "versions count");
}

#[test]
fn the_exported_symbols_are_those_that_nm_prints() {
    let room = Room::new();
    let path = room.path("libgreet.so");
    library("greet.cpp", &path, &["-fPIC"]);
    let libstdcxx = Command::new("c++").arg("-print-file-name=libstdc++.so.6").output().unwrap();
    let libstdcxx = String::from_utf8(libstdcxx.stdout).unwrap();
    for file in [path.to_str().unwrap(), libstdcxx.trim()] {
        let output = Command::new("nm").args(["-D", "--defined-only", "--extern-only", file]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        // A version has an absolute symbol of its own name, which nothing binds to.
        let mut names: Vec<&str> = printed
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace().rev();
                let (name, kind) = (words.next()?, words.next()?);
                let is_version = kind == "A" && name.split_once("@@").is_none_or(|(name, version)| name == version);
                (!is_version).then_some(name)
            })
            .collect();
        names.sort_unstable();
        assert_eq!(symbols::read(file.as_ref()).unwrap().count, names.len(), "{file}");
    }
}
