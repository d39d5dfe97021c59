//! `target/cluster/events.ndjson`, as programs read it.

use serde_json::Value;
use torchlift_schema::exit_code;

use crate::support::Project;

/// The events of the last build; every line is whole.
fn events(project: &Project) -> Vec<Value> {
    let text = fs_err::read_to_string(project.root.join("target/cluster/events.ndjson")).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[test]
fn a_build_tells_programs_when_each_crate_was_there_and_what_was_published() {
    let project = Project::linked();
    project.run(&["build"]).ok();
    let first = events(&project);
    assert!(first.iter().all(|event| event["version"] == 1));
    let times: Vec<f64> = first.iter().map(|event| event["t"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let key = &first[0]["builds"][0]["key"];
    assert!(first[0]["event"] == "build" && first[0]["started_at"].as_str().unwrap().ends_with('Z'));
    let crates: Vec<&Value> = first.iter().filter(|event| event["event"] == "crate").collect();
    assert!(crates.iter().any(|event| event["name"] == "linked" && event["is_fresh"] == false));
    assert!(crates.iter().all(|event| event["build"] == *key));
    assert_eq!(first.iter().filter(|event| event["event"] == "published" && event["is_new"] == true).count(), 2);
    assert_eq!(first.last().unwrap()["exit_code"], 0);

    project.run(&["build"]).ok();
    let second = events(&project);
    assert!(second.iter().filter(|event| event["event"] == "crate").all(|event| event["is_fresh"] == true));
    let ended = second.iter().find(|event| event["event"] == "cargo-ended").unwrap();
    assert!(ended["compiled"] == 0 && ended["elapsed_ms"].is_u64(), "{ended}");
    assert_eq!(second.iter().filter(|event| event["event"] == "published" && event["is_new"] == false).count(), 2);
}

#[test]
fn a_build_that_fails_says_so_in_its_last_line_and_publishes_nothing() {
    let project = Project::linked();
    project.write("src/main.rs", "fn main() { no_such_function() }\n");
    project.run(&["build"]).fails(exit_code::BUILD);
    let events = events(&project);
    let last_two = &names(&events)[events.len() - 2..];
    assert_eq!(last_two, ["cargo-failed", "finished"]);
    assert_eq!(events.last().unwrap()["exit_code"], exit_code::BUILD);
    assert!(!names(&events).contains(&"published"));
}

#[test]
fn what_is_in_the_place_of_the_events_ends_no_build_and_holds_up_none() {
    let project = Project::linked();
    let place = project.root.join("target/cluster/events.ndjson");
    fs_err::create_dir_all(place.parent().unwrap()).unwrap();
    nix::unistd::mkfifo(&place, nix::sys::stat::Mode::S_IRWXU).unwrap();
    project.run(&["build"]).ok();
    assert_eq!(names(&events(&project)).last(), Some(&"finished"));
    fs_err::remove_file(&place).unwrap();
    fs_err::create_dir(&place).unwrap();
    project.run(&["build"]).ok().says("no events are written");
}
