//! Held against the published type itself, in both directions and byte for byte.

use std::collections::BTreeMap;

use flodl_cli::prebuild::PerHostEnvelope as Published;
use proptest::prelude::*;
use torchlift_schema::{Envelope, PerHostEnvelope, read, write};

use crate::fixture::{self, Reader};
use crate::strategy;

fn published(ours: &PerHostEnvelope) -> Published {
    Published {
        bin: ours.bin.clone(),
        ld_library_path: ours.ld_library_path.clone(),
        cwd_subpath: ours.cwd_subpath.clone(),
    }
}

fn ours(published: Published) -> PerHostEnvelope {
    PerHostEnvelope {
        bin: published.bin,
        ld_library_path: published.ld_library_path,
        cwd_subpath: published.cwd_subpath,
    }
}

proptest! {
    #[test]
    fn both_types_write_the_same_bytes_and_read_each_other(run in strategy::per_host()) {
        let theirs = serde_json::to_string(&published(&run)).expect("the published type writes");
        prop_assert_eq!(write::per_host(&run), theirs.clone());
        prop_assert_eq!(read::per_host(theirs.as_bytes()), Ok(run.clone()));
        let back: Published = serde_json::from_str(&write::per_host(&run)).expect("the published type reads");
        prop_assert_eq!(ours(back), run);
    }

    #[test]
    fn both_maps_have_the_same_bytes_and_read_each_other(map in strategy::map()) {
        let theirs: BTreeMap<_, _> = map.iter().map(|(host, run)| (host.clone(), published(run))).collect();
        // The published producer writes its map with exactly this call.
        let theirs = serde_json::to_string(&theirs).expect("the published type writes");
        prop_assert_eq!(write::per_host_map(&map), theirs.clone());
        prop_assert_eq!(read::per_host_map(theirs.as_bytes()), Ok(map.clone()));
        let back: BTreeMap<String, Published> =
            serde_json::from_str(&write::per_host_map(&map)).expect("the published type reads");
        prop_assert_eq!(back.into_iter().map(|(host, run)| (host, ours(run))).collect::<BTreeMap<_, _>>(), map);
    }

    #[test]
    fn the_published_type_reads_any_envelope(envelope in strategy::envelope()) {
        let envelope: Envelope = write::seal(envelope);
        let back: Published = serde_json::from_str(&write::to_text(&envelope)).expect("the published type reads");
        prop_assert_eq!(ours(back), envelope.per_host());
    }
}

#[test]
fn the_published_type_reads_every_good_fixture_as_we_do() {
    for fixture in fixture::all().into_iter().filter(|fixture| fixture.expected.holds.is_some()) {
        match fixture.expected.reader {
            Reader::Envelope | Reader::PerHost => {
                let theirs: Published = serde_json::from_slice(&fixture.bytes()).expect("the published type reads");
                assert_eq!(read::per_host(&fixture.bytes()), Ok(ours(theirs)), "{}", fixture.name);
            }
            Reader::Map => {
                let theirs: BTreeMap<String, Published> =
                    serde_json::from_slice(&fixture.bytes()).expect("the published type reads");
                let theirs = theirs.into_iter().map(|(host, run)| (host, ours(run))).collect();
                assert_eq!(read::per_host_map(&fixture.bytes()), Ok(theirs), "{}", fixture.name);
            }
        }
    }
}

#[test]
fn an_empty_working_directory_is_left_out_and_a_missing_one_is_empty() {
    let run = PerHostEnvelope { bin: "train".into(), ld_library_path: "/lib".into(), cwd_subpath: String::new() };
    let text = r#"{"bin":"train","ld_library_path":"/lib"}"#;
    assert_eq!(write::per_host(&run), text);
    assert_eq!(read::per_host(text.as_bytes()), Ok(run));
}
