//! The official archive, by a `curl` that fails on demand.

use crate::wheel::{Member, archive, library};
use crate::world::{World, said};

/// curl as far as a fetch uses it: `server` is the file that it serves; `cut` makes the first download break off.
const CURL: &str = r#"#!/bin/sh
here=$(dirname "$0")/..
for last in "$@"; do :; done
echo "$last" >> "$here/urls"
[ -e "$here/server" ] || { echo "curl: (6) could not resolve host" >&2; exit 6; }
case "$*" in
*--head*) printf 'HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n' "$(wc -c < "$here/server" | tr -d ' ')"; exit 0 ;;
esac
out=
take=
for arg in "$@"; do
    [ -n "$take" ] && out=$arg && take=
    [ "$arg" = --output ] && take=yes
done
have=0
[ -e "$out" ] && have=$(wc -c < "$out" | tr -d ' ')
echo "from $have" >> "$here/urls"
if [ -e "$here/cut" ]; then
    head -c 500 "$here/server" > "$out"
    echo "curl: (18) transfer closed with outstanding bytes" >&2
    exit 18
fi
tail -c "+$((have + 1))" "$here/server" >> "$out"
"#;

fn world() -> World {
    let world = World::new();
    world.program("curl", CURL);
    let scratch = world.index();
    let mut members: Vec<Member> =
        [("libtorch_cpu.so", vec!["libc10.so"]), ("libc10.so", vec![]), ("libtorch.so", vec!["libtorch_cpu.so"])]
            .into_iter()
            .map(|(name, needed)| Member::new(&format!("libtorch/lib/{name}"), library(&scratch, name, &needed)))
            .collect();
    members.push(Member::new("libtorch/include/torch/torch.h", "#pragma once\n"));
    members.push(Member::new("libtorch/build-version", "2.9.0+cpu\n"));
    archive(&world.base.join("server"), &members);
    world
}

fn urls(world: &World) -> String {
    fs_err::read_to_string(world.base.join("urls")).unwrap()
}

#[test]
fn the_official_archive_is_taken_when_its_host_answers() {
    let world = world();
    let output = world.fetch();
    assert!(output.status.success(), "{}", said(&output));
    let url = "https://download.pytorch.org/libtorch/cpu/libtorch-shared-with-deps-2.9.0%2Bcpu.zip";
    assert!(urls(&world).contains(url), "{}", urls(&world));
    assert!(world.variant().join("lib/libtorch.so").is_file());
    assert_eq!(world.calls("torch"), 0);
    let record = torchlift_xtask::libtorch::record::read(&world.variant()).unwrap();
    assert_eq!((record.is_cut, record.torch.as_str()), (false, "2.9.0+cpu"));
    fs_err::remove_dir_all(world.base.join("home")).unwrap();
    fs_err::remove_file(world.base.join("server")).unwrap();
    assert!(world.fetch().status.success(), "the kept archive needs no network");
}

#[test]
fn a_download_that_broke_off_goes_on_where_it_stopped() {
    let world = world();
    fs_err::write(world.base.join("cut"), "").unwrap();
    let output = world.fetch();
    assert!(!output.status.success());
    assert!(said(&output).contains("transfer closed"), "{}", said(&output));
    assert_eq!(world.remains(), [""; 0]);
    fs_err::remove_file(world.base.join("cut")).unwrap();
    let output = world.fetch();
    assert!(output.status.success(), "{}", said(&output));
    assert!(urls(&world).contains("from 500\n"), "{}", urls(&world));
}

#[test]
fn a_mirror_is_asked_in_place_of_the_official_host() {
    let world = world();
    let mut command = world.command(&crate::world::FETCH);
    command.env("TORCHLIFT_LIBTORCH_URL", "http://mirror.example/torch/");
    assert!(command.output().unwrap().status.success());
    assert!(urls(&world).starts_with("http://mirror.example/torch/cpu/libtorch-shared-with-deps-2.9.0%2Bcpu.zip\n"));
}

#[test]
fn an_entry_of_the_archive_that_leaves_its_folder_is_refused() {
    let world = world();
    archive(&world.base.join("server"), &[Member::new("libtorch/../../escaped", "x")]);
    let output = world.fetch();
    assert!(said(&output).contains("would leave the folder"), "{}", said(&output));
    assert_eq!(world.remains(), [""; 0]);
}
