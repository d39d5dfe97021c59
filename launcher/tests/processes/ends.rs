//! The exit code tells the truth, and one failure ends all.

use crate::run::ranks;

#[test]
fn all_ranks_that_return_0_at_once_end_the_run_well() {
    for nproc in [1, 2, 8] {
        let mut run = ranks(nproc).start("exit 0");
        let ended = run.end_with_nothing_left();
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    }
}

#[test]
fn the_code_of_the_first_failing_rank_is_the_code_of_the_run() {
    // Rank 3, not rank 0: whoever waits for ranks in their order hangs here.
    let mut run = ranks(4).start(r#"[ "$RANK" = 3 ] && exit 3; exec sleep 600"#);
    let ended = run.end_with_nothing_left();
    assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
}

#[test]
fn a_rank_that_returns_0_while_another_fails_does_not_hide_it() {
    let script = r#"[ "$RANK" = 0 ] && exit 0; exit 3"#;
    assert_eq!(ranks(2).start(script).end_with_nothing_left().code(), Some(3));
}

#[test]
fn a_rank_that_dies_by_a_signal_gives_128_and_its_number() {
    for (signal, code) in [("SEGV", 139), ("ABRT", 134), ("KILL", 137), ("TERM", 143)] {
        let mut run = ranks(2).start(&format!(r#"ulimit -c 0; [ "$RANK" = 1 ] && kill -{signal} $$; exec sleep 600"#));
        let ended = run.end_with_nothing_left();
        assert_eq!(ended.code(), Some(code), "{signal}: {}", ended.stderr);
    }
}

#[test]
fn ranks_that_fail_because_they_were_told_to_end_are_not_the_cause() {
    let script = r#"
        if [ "$RANK" = 0 ]; then until [ -e "$DIR/marks/1" ]; do sleep 0.01; done; exit 4; fi
        trap 'exit 77' TERM; : >"$DIR/marks/1"; while :; do sleep 0.05; done"#;
    let ended = ranks(2).start(script).end_with_nothing_left();
    assert_eq!(ended.code(), Some(4), "{}", ended.stderr);
}
