//! The examples of `docs/protocol.md` and `docs/keys.md`, run as they stand.

use std::process::{Command, Stdio};

use crate::allocator::setup;

/// The commands of a page's `console` blocks, each with what it prints.
pub(crate) fn examples(page: &str) -> Vec<(String, String)> {
    let mut examples = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for example in block.split("$ ").skip(1) {
            let mut lines = example.lines();
            let mut command = lines.next().unwrap().to_owned();
            while let Some(start) = command.strip_suffix('\\') {
                command = format!("{start}{}", lines.next().unwrap());
            }
            examples.push((command, lines.map(|line| format!("{line}\n")).collect()));
        }
    }
    examples
}

/// Without what is another one in each run.
fn steady(text: &str, incarnation: &str) -> String {
    let text = text.replace(incarnation, "INCARNATION");
    let mut steady = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once(r#""pid":"#) {
        let end = after.find(|char: char| !char.is_ascii_digit()).unwrap();
        steady.push_str(before);
        steady.push_str(r#""pid":PID"#);
        rest = &after[end..];
    }
    steady + rest
}

#[test]
fn the_examples_of_the_protocol_do_what_they_say() {
    let page = include_str!("../../../docs/protocol.md");
    let examples = examples(page);
    assert!(examples.len() >= 6, "{}", examples.len());
    let allocator = setup().program("echo \"hello from rank $RANK\"; trap 'exit 0' TERM; sleep 600 & wait").start();
    let incarnation = allocator.get("/v1/status").1["incarnation"].as_str().unwrap().to_owned();
    let user = nix::unistd::geteuid().to_string();
    for (command, prints) in examples {
        let output = Command::new("bash")
            .args(["-c", &command])
            .env("SOCKET", allocator.folder.join("s"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let found = String::from_utf8(output.stdout).unwrap();
        let found = steady(&found, &incarnation).replace(&format!("(user {user})"), "(user 1000)");
        assert_eq!(found, prints, "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_protocol_names_every_code_of_a_refusal() {
    let page = include_str!("../../../docs/protocol.md");
    let sources = [
        include_str!("../../src/allocator/server/routes.rs"),
        include_str!("../../src/allocator/state/reply.rs"),
        include_str!("../../../envelope-schema/src/control/read.rs"),
    ];
    let starts = ["message-", "bad-", "no-such-", "no-token", "no-facts", "allocate-", "allocator-"];
    let words = sources.iter().flat_map(|source| source.split('"'));
    let codes = words.filter(|word| starts.iter().any(|start| word.starts_with(start)));
    let codes: std::collections::BTreeSet<_> =
        codes.filter(|word| !word.ends_with('-') && !word.contains(' ')).collect();
    assert!(codes.len() >= 15, "{codes:?}");
    for code in codes {
        assert!(page.contains(&format!("`{code}`")), "{code}");
    }
}
