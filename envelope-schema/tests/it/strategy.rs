//! Envelopes that hold every rule, for property tests.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use torchlift_schema::{
    Accelerator, Artifact, Envelope, Finding, LibraryFile, LibtorchRecord, PerHostEnvelope, Place, VariantId,
};

/// A segment of a path: any text without a slash or a NUL that is not `.` or `..`.
fn segment() -> impl Strategy<Value = String> {
    "[^/\\x00]{1,12}".prop_filter("a name", |text| text != "." && text != "..")
}

fn relative_path() -> impl Strategy<Value = String> {
    vec(segment(), 1..4).prop_map(|segments| segments.join("/"))
}

fn library_path() -> impl Strategy<Value = String> {
    vec("/[^:;$\\x00]{0,16}", 0..4).prop_map(|elements| elements.join(":"))
}

fn text() -> impl Strategy<Value = String> {
    "[^\\x00]{1,12}"
}

fn sha256() -> impl Strategy<Value = String> {
    "[0-9a-f]{64}"
}

fn size() -> impl Strategy<Value = u64> {
    1..=9_007_199_254_740_991_u64
}

pub(crate) fn per_host() -> impl Strategy<Value = PerHostEnvelope> {
    (relative_path(), library_path(), option::of(relative_path())).prop_map(|(bin, ld_library_path, cwd)| {
        PerHostEnvelope { bin, ld_library_path, cwd_subpath: cwd.unwrap_or_default() }
    })
}

pub(crate) fn map() -> impl Strategy<Value = BTreeMap<String, PerHostEnvelope>> {
    btree_map("[A-Za-z0-9é][A-Za-z0-9._-]{0,20}", per_host(), 0..5)
}

fn artifact() -> impl Strategy<Value = Artifact> {
    let floors = (option::of("[0-9]{1,2}\\.[0-9]{1,2}"), option::of("3\\.4\\.[0-9]{1,2}"));
    let rest = (option::of("([0-9a-f]{2}){1,20}"), option::of("x86-64-v[1-4]|armv8-a"), vec(text(), 0..4));
    (size(), sha256(), "[0-9a-f]{1,16}", text(), floors, rest).prop_map(
        |(size, sha256, key, source, (glibc, libstdcxx), (build_id, cpu_level, needed))| {
            let mut artifact = Artifact::new("x86_64-unknown-linux-gnu", size, sha256, key, source);
            artifact.glibc = glibc;
            artifact.libstdcxx = libstdcxx;
            artifact.build_id = build_id;
            artifact.cpu_level = cpu_level;
            artifact.needed = needed;
            artifact
        },
    )
}

fn accelerator() -> impl Strategy<Value = Accelerator> {
    prop_oneof![
        Just(Accelerator::Cpu),
        "([0-9]{1,2}(\\.[0-9]){0,2})?".prop_map(Accelerator::Cuda),
        "[0-9]\\.[0-9]".prop_map(Accelerator::Rocm),
    ]
}

fn libtorch() -> impl Strategy<Value = LibtorchRecord> {
    let variant = option::of("[A-Za-z0-9_][A-Za-z0-9._+-]{0,8}/[A-Za-z0-9_][A-Za-z0-9._+-]{0,8}");
    let libraries = btree_set(segment(), 0..4).prop_flat_map(|names| {
        let count = names.len();
        (Just(names), vec((size(), sha256()), count))
    });
    (variant, text(), accelerator(), vec(text(), 0..3), libraries).prop_map(
        |(variant, version, accelerator, archs, (names, rest))| {
            let variant = variant.map(|id| id.parse::<VariantId>().expect("a variant id"));
            let mut record = LibtorchRecord::new(variant, version, accelerator);
            record.archs = archs;
            record.libraries =
                names.into_iter().zip(rest).map(|(file, (size, sha256))| LibraryFile { file, size, sha256 }).collect();
            record
        },
    )
}

fn finding() -> impl Strategy<Value = Finding> {
    (("[a-z]{1,6}(-[a-z0-9]{1,4}){0,2}", text()), option::of(".{0,8}"), option::of(any::<(u32, u32)>())).prop_map(
        |((code, message), text, at)| {
            let mut place = Place::default();
            if let Some((line, column)) = at {
                place = Place::file("cluster.toml").at(line, column).key("host[1].name").on("node-a");
            }
            let finding = Finding::warning(code, place, message);
            match text {
                Some(remedy) => finding.remedy(remedy),
                None => finding,
            }
        },
    )
}

/// An unsealed envelope that holds every rule.
pub(crate) fn envelope() -> impl Strategy<Value = Envelope> {
    let head = ("[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?", option::of(text()));
    (head, per_host(), artifact(), option::of(libtorch()), vec(finding(), 0..3)).prop_map(
        |((host, kind), run, artifact, libtorch, findings)| {
            let mut envelope = Envelope::new(host, run, artifact);
            envelope.kind = kind;
            envelope.libtorch = libtorch;
            envelope.findings = findings;
            envelope
        },
    )
}
