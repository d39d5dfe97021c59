//! `docs/runs.md` says what the program does.

use std::path::Path;

use torchlift_schema::exit_code;

use crate::stage::Stage;

fn page() -> String {
    fs_err::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runs.md")).unwrap()
}

#[test]
fn the_page_has_every_exit_code_with_its_meaning_and_no_other() {
    let page = page();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| 1 ") || line.starts_with("| 2")).collect();
    let table: Vec<String> = exit_code::TABLE.iter().map(|(code, meaning)| format!("| {code} | {meaning} |")).collect();
    assert_eq!(rows, table);
}

#[test]
fn the_page_has_every_event_of_a_run_and_every_file() {
    let page = page();
    let stage = Stage::new();
    stage
        .sh(&["--nproc", "2", "--grace", "1ms"], "trap '' TERM; [ $RANK = 1 ] && exit 1; while :; do sleep 1; done")
        .code(1);
    let run = stage.only_run();
    let events = fs_err::read_to_string(run.join("events.ndjson")).unwrap();
    for line in events.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let row = format!("| `{}` |", event["event"].as_str().unwrap());
        let row = page.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("no {row}"));
        let keys = event.as_object().unwrap().keys();
        for key in keys.filter(|key| !["version", "t", "event"].contains(&key.as_str())) {
            assert!(row.contains(&format!("`{key}`")), "{key} is not in {row}");
        }
    }
    for entry in fs_err::read_dir(&run).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("`{name}")), "{name}");
    }
}
