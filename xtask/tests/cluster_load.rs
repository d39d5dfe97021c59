//! Loading from disk, choosing hosts, the reference of the format, and texts that nobody would write.

#![expect(clippy::unwrap_used, reason = "a fault of the set-up ends its test")]

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use proptest::prelude::*;
use torchlift_schema::Finding;
use torchlift_xtask::cluster::{self, Cluster, Loaded, Reach, Reading, Source};

const PLAIN: &str = "schema = 1\n[job.train]\n[job.other]\n[[host]]\nname = \"node-[01-04]\"\npath = \"/srv/{name}\"\nreach = { ssh = \"{name}\" }\n";

fn home(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/me".to_owned())
}

/// A folder whose name has a space and a letter that is not ASCII.
fn folder() -> (tempfile::TempDir, Utf8PathBuf) {
    let dir = tempfile::Builder::new().prefix("clüster file ").tempdir().unwrap();
    let path = Utf8PathBuf::from_path_buf(dir.path().to_owned()).unwrap();
    (dir, path)
}

fn parse(text: &str) -> Reading {
    cluster::parse("/project/cluster.toml".into(), Source { name: "cluster.toml", text }, None, &home)
}

fn plain() -> Cluster {
    parse(PLAIN).into_result().unwrap().cluster
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code.as_str()).collect()
}

fn names(hosts: &[&cluster::Host]) -> Vec<String> {
    hosts.iter().map(|host| host.name.clone()).collect()
}

#[test]
fn a_file_that_is_not_there_is_one_finding_with_its_name() {
    let (_dir, folder) = folder();
    let file = folder.join("cluster.toml");
    let findings = cluster::load(&file, &home).unwrap_err();
    assert_eq!(codes(&findings), ["cluster-unreadable"]);
    assert_eq!(findings[0].place.file.as_deref(), Some(file.as_str()));
    assert!(findings[0].remedy.as_deref().unwrap().contains("--cluster"));
}

#[test]
fn a_relative_file_starts_from_the_given_folder_and_keeps_its_short_name() {
    let (_dir, folder) = folder();
    let text = "schema = 1\n[job.train]\n[[host]]\nname = \"here\"\npath = \".\"\n";
    fs_err::write(folder.join("my.toml"), text).unwrap();
    fs_err::write(folder.join("my.local.toml"), "[[host]]\nname = \"here\"\nslots = 0\n").unwrap();
    let Reading { cluster, findings } = cluster::read("my.toml".into(), &folder, &home);
    assert_eq!(cluster.file, folder.join("my.toml"));
    assert_eq!(codes(&findings).len(), 1);
    assert_eq!(findings[0].place.file.as_deref(), Some("my.local.toml"));
}

#[test]
fn a_folder_is_no_cluster_file() {
    let (_dir, folder) = folder();
    assert_eq!(codes(&cluster::load(&folder, &home).unwrap_err()), ["cluster-unreadable"]);
}

#[test]
fn neither_a_pipe_without_a_writer_nor_a_device_without_an_end_holds_the_reader_up() {
    let (_dir, folder) = folder();
    let pipe = folder.join("cluster.toml");
    nix::unistd::mkfifo(pipe.as_std_path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for file in [pipe.as_path(), Utf8Path::new("/dev/zero")] {
        let findings = cluster::load(file, &home).unwrap_err();
        assert_eq!(codes(&findings), ["cluster-unreadable"]);
        assert!(findings[0].message.contains("not a file"), "{}", findings[0].message);
    }
    let file = folder.join("mine.toml");
    fs_err::write(&file, PLAIN).unwrap();
    fs_err::rename(&pipe, folder.join("mine.local.toml")).unwrap();
    assert_eq!(codes(&cluster::load(&file, &home).unwrap_err()), ["cluster-unreadable"], "the overlay counts as well");
}

#[test]
fn the_overlay_beside_the_file_is_read_and_named_in_its_findings() {
    let (_dir, folder) = folder();
    let file = folder.join("my.toml");
    fs_err::write(&file, "schema = 1\n[job.train]\n[[host]]\nname = \"here\"\npath = \".\"\n").unwrap();
    let over = folder.join("my.local.toml");
    fs_err::write(&over, "[[host]]\nname = \"here\"\nslots = 3\n").unwrap();
    let Loaded { cluster, warnings } = cluster::load(&file, &home).unwrap();
    assert!(warnings.is_empty());
    assert_eq!(cluster.hosts[0].slots, cluster::Slots::Count(3));
    assert_eq!(cluster.hosts[0].path, folder);

    fs_err::write(&over, "[[host]]\nname = \"here\"\nslots = 0\n").unwrap();
    let findings = cluster::load(&file, &home).unwrap_err();
    assert_eq!(findings[0].place.file.as_deref(), Some(over.as_str()));
    assert_eq!(findings[0].place.line, Some(3));
}

#[test]
fn an_overlay_that_cannot_be_read_is_an_error_and_not_left_out() {
    let (_dir, folder) = folder();
    let file = folder.join("cluster.toml");
    fs_err::write(&file, "schema = 1\n[job.train]\n[[host]]\nname = \"here\"\npath = \".\"\n").unwrap();
    fs_err::create_dir(folder.join("cluster.local.toml")).unwrap();
    assert_eq!(codes(&cluster::load(&file, &home).unwrap_err()), ["cluster-unreadable"]);
}

#[test]
fn missing_folders_of_local_hosts_come_with_the_other_findings() {
    let (_dir, folder) = folder();
    fs_err::create_dir(folder.join("a")).unwrap();
    let file = folder.join("cluster.toml");
    let text = "schema = 1\n[job.train]\n[[host]]\nname = \"[a-b]\"\npath = \".\"\n[[host]]\nname = \"x-[1-2]\"\npath = \"hosts/{name}\"\n[[host]]\nname = \"c\"\nslots = 0\npath = \"/nowhere\"\nreach = { ssh = \"c\" }\n";
    fs_err::write(&file, text).unwrap();
    let findings = cluster::load(&file, &home).unwrap_err();
    assert_eq!(codes(&findings), ["bad-range", "path-missing", "bad-value"]);
    assert_eq!(findings[1].place.line, Some(8));
    assert!(findings[1].message.contains("hosts/x-1`, `") && findings[1].message.contains("hosts/x-2`"));
}

#[test]
fn a_file_that_is_not_utf8_is_named_at_its_first_wrong_byte_and_checked_all_the_same() {
    let (_dir, folder) = folder();
    let file = folder.join("cluster.toml");
    let mut bytes = b"schema = 1\n# gr\xf6\xdfe\n[job.train]\nbinn = \"x\"\n".to_vec();
    bytes.extend(b"[[host]]\nname = \"here\"\npath = \".\"\n");
    fs_err::write(&file, bytes).unwrap();
    let findings = cluster::load(&file, &home).unwrap_err();
    assert_eq!(codes(&findings), ["not-utf8", "unknown-key"]);
    assert_eq!((findings[0].place.line, findings[0].place.column), (Some(2), Some(5)));
}

#[test]
fn a_huge_file_is_refused_unread() {
    let (_dir, folder) = folder();
    let file = folder.join("cluster.toml");
    fs_err::File::create(&file).unwrap().set_len(100 << 20).unwrap();
    assert_eq!(codes(&cluster::load(&file, &home).unwrap_err()), ["cluster-unreadable"]);
}

#[test]
fn what_has_no_fault_can_still_be_checked_by_the_caller() {
    let text = "schema = 1\n[job.train]\nbinn = \"x\"\n[kind.k]\nlibtorch = \"builds/none\"\n[[host]]\nname = \"here\"\npath = \".\"\n";
    let reading = parse(text);
    assert_eq!(codes(&reading.findings), ["unknown-key"]);
    let kind = &reading.cluster.kinds[0];
    let place = kind.places.at("libtorch");
    assert_eq!((place.line, place.column), (Some(5), Some(12)));
    assert_eq!(place.key.as_deref(), Some("kind.k.libtorch"));
    // A key that the file does not have is placed at its table.
    assert_eq!(kind.places.at("library_path.before[0]").line, Some(4));
    assert_eq!(reading.cluster.hosts[0].places.at("path").line, Some(8));
}

#[test]
fn hosts_are_chosen_by_name_and_range_in_file_order() {
    let cluster = plain();
    let select = |include: &[&str], exclude: &[&str]| {
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        cluster.select(&own(include), &own(exclude)).map(|hosts| names(&hosts)).map_err(|findings| {
            findings
                .into_iter()
                .map(|finding| format!("{}: {}", finding.code, finding.remedy.unwrap()))
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(select(&[], &[]).unwrap(), ["node-01", "node-02", "node-03", "node-04"]);
    assert_eq!(select(&["node-04", "node-[01,02]"], &["node-02"]).unwrap(), ["node-01", "node-04"]);
    assert_eq!(select(&["node-04,node-[01,02]"], &[]).unwrap(), ["node-01", "node-02", "node-04"]);
    assert_eq!(
        select(&["node-1", "gpu", "node-[4-1]"], &["node-0"]).unwrap_err(),
        [
            "unknown-host: did you mean `node-01`?",
            "unknown-host: hosts: `node-01`, `node-02`, `node-03`, `node-04`",
            "bad-range: write it as `node-[01-04]`",
            "unknown-host: did you mean `node-01`?",
        ]
    );
    assert!(select(&[], &["node-[01-04]"]).unwrap_err()[0].starts_with("no-host"));
}

#[test]
fn the_first_job_is_the_default() {
    let cluster = plain();
    assert_eq!(cluster.job(None).unwrap().name, "train");
    assert_eq!(cluster.job(Some("other")).unwrap().name, "other");
    let findings = cluster.job(Some("trian")).unwrap_err();
    assert_eq!(findings[0].code, "unknown-job");
    assert_eq!(findings[0].remedy.as_deref(), Some("did you mean `train`?"));
}

#[test]
fn required_paths_are_seen_from_each_host() {
    let text = "schema = 1\n[job.train]\nrequire = [\"/data/{name}\", \"~/cache\", \"w.pt\"]\n[[host]]\nname = \"far\"\npath = \"~/rdl\"\nreach = { ssh = \"far\" }\n[[host]]\nname = \"here\"\npath = \"sub\"\n";
    let cluster = parse(text).into_result().unwrap().cluster;
    let on = |name: &str| -> Vec<Utf8PathBuf> {
        let host = cluster.host(name).unwrap();
        cluster.jobs[0].require.iter().map(|path| path.on(host)).collect()
    };
    assert_eq!(on("far"), ["/data/far", "~/cache", "~/rdl/w.pt"]);
    assert_eq!(on("here"), ["/data/here", "/home/me/cache", "/project/sub/w.pt"]);
}

#[test]
fn without_home_a_tilde_of_this_machine_is_a_finding_and_one_of_another_is_not() {
    let text = |reach: &str| format!("schema = 1\n[job.t]\n[[host]]\nname = \"a\"\npath = \"~/x\"\nreach = {reach}\n");
    let parse =
        |text: &str| cluster::parse("/p/c.toml".into(), Source { name: "c.toml", text }, None, &|_| None).into_result();
    assert_eq!(codes(&parse(&text("\"local\"")).unwrap_err()), ["unset-variable"]);
    assert_eq!(parse(&text("{ ssh = \"a\" }")).unwrap().cluster.hosts[0].path, "~/x");
}

#[test]
fn the_largest_cluster_is_read_and_one_host_more_is_refused() {
    let text = |range: &str| {
        format!("schema = 1\n[job.t]\n[[host]]\nname = \"n{range}\"\npath = \"/p\"\nreach = {{ ssh = \"{{name}}\" }}\n")
    };
    let cluster = parse(&text("[0-65535]")).into_result().unwrap().cluster;
    assert_eq!(cluster.hosts.len(), 65_536);
    assert_eq!(cluster.hosts[65_535].reach, Reach::Ssh("n65535".to_owned()));
    assert_eq!(codes(&parse(&text("[0-65536]")).findings), ["too-many-hosts"]);
}

/// The TOML blocks of the reference.
fn examples() -> Vec<String> {
    let docs = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cluster-file.md");
    let text = fs_err::read_to_string(docs).unwrap();
    let blocks = text.split("```toml\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_example_of_the_reference_is_a_valid_file() {
    let examples = examples();
    assert!(examples.len() >= 8);
    for example in examples {
        let reading = parse(&example);
        assert!(reading.findings.is_empty(), "{example}\n{:#?}", reading.findings);
    }
}

#[test]
fn the_reference_has_every_key_and_code_and_no_other() {
    let docs = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cluster-file.md");
    let text = fs_err::read_to_string(docs).unwrap();
    let first_cells: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let keys = cluster::keys::TABLES.iter().flat_map(|(_, keys)| keys.iter().copied());
    let codes = cluster::code::TABLE.iter().map(|(code, _)| *code);
    let expected: BTreeSet<&str> = keys.chain(codes).collect();
    assert_eq!(first_cells, expected);
    let shown = examples().concat();
    for (table, keys) in cluster::keys::TABLES.iter().filter(|(table, _)| *table != "schema") {
        for key in *keys {
            assert!(shown.contains(&format!("{key} = ")), "no example has `{key}` of `{table}`");
        }
    }
}

fn valid_texts() -> Vec<String> {
    let folder = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/clusters/valid");
    let paths = folder.read_dir_utf8().unwrap().map(|entry| entry.unwrap().into_path());
    let mut paths: Vec<Utf8PathBuf> = paths.filter(|path| path.extension() == Some("toml")).collect();
    paths.sort();
    paths.iter().map(|path| fs_err::read_to_string(path).unwrap()).collect()
}

/// What must hold of any text: findings have places in it, and a cluster without errors is whole.
fn check(text: &str) {
    let reading = parse(text);
    let lines = text.lines().count().max(1) + 1;
    for finding in &reading.findings {
        let place = &finding.place;
        assert!(place.line.is_some_and(|line| line >= 1 && line as usize <= lines), "{finding:?}");
        assert!(finding.remedy.is_some(), "{finding:?}");
    }
    let places: BTreeSet<_> = reading.cluster.hosts.iter().map(|host| &host.name).collect();
    assert_eq!(places.len(), reading.cluster.hosts.len(), "a host stands twice");
    if let Ok(Loaded { cluster, .. }) = reading.into_result() {
        assert!(!cluster.jobs.is_empty() && !cluster.hosts.is_empty() && !cluster.kinds.is_empty());
        assert!(cluster.hosts.iter().all(|host| host.kind < cluster.kinds.len()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        check(&text);
    }

    #[test]
    fn no_heap_of_toml_pieces_makes_the_parser_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "schema = 1\n", "[job.a]\n", "[[host]]\n", "[host]\n", "[kind.k]\n", "name = ", "path = ", "reach = ",
            "\"", "'", "\"\"\"", "[", "]", "{", "}", "=", ",", ".", "\n", "\r\n", "\t", "#", "a", "1", "ä", "\u{feff}",
            "\"n[1-3]\"\n", "\".\"\n", "{ ssh = \"x\" }\n", "env.A = \"1\"\n", "[\"\u{fffd}1\"]\n", "${", "{name}",
        ]), 0..40),
    ) {
        check(&pieces.concat());
    }

    #[test]
    fn no_mutation_of_a_valid_file_makes_the_parser_panic(
        which in 0usize..1000,
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[\\[\\]{}=\"'\\n.#,a0ä$~-]{0,3}"), 1..6),
    ) {
        let texts = valid_texts();
        let mut letters: Vec<char> = texts[which % texts.len()].chars().collect();
        for (at, cut, put) in edits {
            let from = at.index(letters.len() + 1).min(letters.len());
            let to = (from + cut).min(letters.len());
            letters.splice(from..to, put.chars());
        }
        check(&letters.into_iter().collect::<String>());
    }
}
