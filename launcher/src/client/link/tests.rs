//! A connection's own rules: its order, its pauses, and what of one connection another must not hear.

use torchlift_schema::state::{AllocKey, WorldId};

use super::*;

const PATIENCE: Patience =
    Patience { interval: Duration::from_secs(5), limit: Duration::from_secs(15), wait: Duration::from_secs(2) };

fn at(millis: u64) -> Moment {
    Moment::after_zero(Duration::from_millis(millis))
}

struct Scene {
    link: Link,
    actions: Vec<Action>,
    news: Vec<News>,
}

impl Scene {
    fn new(may_return: bool) -> Self {
        let mut scene = Self { link: Link::new(PATIENCE, may_return, None, 1), actions: Vec::new(), news: Vec::new() };
        scene.link.allocate(at(0), &mut scene.actions);
        scene
    }

    fn on(&mut self, connection: u64, input: Input, now: u64) {
        self.link.step(connection, input, at(now), &mut self.actions, &mut self.news);
    }

    fn alive(&mut self, connection: u64, now: u64) {
        self.on(connection, answer(None, ControlReply::Alive { incarnation: "i".to_owned() }), now);
    }

    /// A link that is connected and greeted.
    fn up(may_return: bool) -> Self {
        let mut scene = Self::new(may_return);
        scene.on(1, Input::Connected, 0);
        scene.alive(1, 0);
        scene
    }

    fn since(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }
}

fn answer(number: Option<u64>, reply: ControlReply) -> Input {
    Input::Answered { number, reply }
}

fn allocating() -> ControlReply {
    ControlReply::Allocating { alloc_key: AllocKey::new("k").unwrap(), world_id: WorldId::from("w") }
}

fn line(n: u64) -> Input {
    Input::Line(RecordLine::new(n, Told::HeartBeat))
}

fn post(connection: u64, number: Option<u64>, sent: Sent) -> Action {
    Action::Post { connection, number, sent }
}

#[test]
fn nothing_is_asked_before_the_allocator_said_which_life_it_is() {
    let mut scene = Scene::new(false);
    scene.on(1, Input::Connected, 0);
    assert_eq!(scene.since(), [Action::Dial { connection: 1 }, post(1, None, Sent::HeartBeat)]);
    scene.alive(1, 1);
    assert_eq!(scene.since(), [post(1, Some(1), Sent::Allocate)]);
    scene.on(1, answer(Some(1), allocating()), 2);
    assert_eq!(scene.since(), [Action::Read { connection: 1, after: 0 }]);
}

#[test]
fn what_comes_of_a_connection_that_was_given_up_means_nothing() {
    let mut scene = Scene::up(true);
    scene.on(1, Input::Closed { why: "reset".to_owned() }, 1);
    scene.since();
    for late in [
        Input::Connected,
        answer(Some(1), allocating()),
        line(1),
        Input::Closed { why: "again".to_owned() },
        Input::RecordEnded { why: Some("gone".to_owned()) },
        Input::Unreadable { why: "nonsense".to_owned() },
        Input::NotConnected { failure: Failure::Final, why: "no".to_owned() },
    ] {
        scene.on(1, late, 2);
    }
    assert_eq!((scene.since(), scene.news.len()), (vec![], 0));
}

#[test]
fn what_was_not_answered_is_sent_again_with_its_number_over_the_next_connection() {
    let mut scene = Scene::up(true);
    scene.on(1, Input::Closed { why: "reset".to_owned() }, 1);
    scene.on(2, Input::Connected, 2);
    scene.alive(2, 3);
    assert_eq!(scene.actions.last(), Some(&post(2, Some(1), Sent::Allocate)));
    scene.on(2, answer(Some(1), allocating()), 4);
    (1..4).for_each(|n| scene.on(2, line(n), 5));
    scene.on(2, Input::Closed { why: "reset".to_owned() }, 6);
    scene.on(3, Input::Connected, 7);
    scene.since();
    scene.alive(3, 8);
    assert_eq!(scene.since(), [Action::Read { connection: 3, after: 3 }], "and the record from where it was");
}

#[test]
fn whoever_expects_another_number_gets_it_but_not_for_ever() {
    let mut scene = Scene::up(false);
    scene.on(1, answer(Some(1), ControlReply::Gap { expected: 4 }), 1);
    assert_eq!(scene.actions.last(), Some(&post(1, Some(4), Sent::Allocate)));
    scene.on(1, answer(Some(1), allocating()), 1);
    assert_eq!(scene.news, [], "an answer to a number that is not under way");
    for expected in 5..30 {
        scene.on(1, answer(Some(expected - 1), ControlReply::Gap { expected }), 1);
    }
    assert!(matches!(scene.news.as_slice(), [News::Gone { why }] if why.contains("out of order")), "{:?}", scene.news);
    assert!(scene.link.is_over());
}

#[test]
fn lines_are_passed_on_once_and_in_order_and_asked_for_where_one_is_missing() {
    let mut scene = Scene::up(false);
    scene.on(1, answer(Some(1), allocating()), 1);
    scene.since();
    for n in [1, 1, 2, 4, 3, 2, 4] {
        scene.on(1, line(n), 2);
    }
    assert_eq!(scene.news.len(), 4);
    assert_eq!(scene.since(), [Action::Read { connection: 1, after: 2 }]);
}

#[test]
fn refused_is_gone_at_once_after_it_was_reached_and_may_come_up_before() {
    let refused = || Input::NotConnected { failure: Failure::Refused, why: "refused".to_owned() };
    let mut scene = Scene::new(false);
    scene.on(1, refused(), 100);
    assert_eq!(scene.news, [], "it may be coming up");
    scene.on(1, Input::Tick, 400);
    scene.on(2, refused(), 2000);
    assert_eq!(scene.news, [News::Gone { why: "refused".to_owned() }]);
    let mut scene = Scene::up(true);
    scene.on(1, Input::Closed { why: "reset".to_owned() }, 100);
    scene.on(2, refused(), 101);
    assert_eq!(scene.news, [News::Gone { why: "refused".to_owned() }]);
}

#[test]
fn whoever_closes_without_a_word_is_not_dialled_all_the_time() {
    let mut scene = Scene::new(false);
    scene.on(1, Input::Connected, 0);
    scene.since();
    scene.on(1, Input::Closed { why: "alert".to_owned() }, 1);
    assert_eq!(scene.since(), []);
    scene.on(0, Input::Tick, 100);
    assert_eq!(scene.since(), [Action::Dial { connection: 2 }]);
    // Nothing is due that a closed connection would have answered: that would wake up its client all the time.
    let mut scene = Scene::new(true);
    scene.on(1, Input::Connected, 0);
    scene.on(1, Input::Closed { why: "alert".to_owned() }, 4990);
    assert!(scene.link.deadline().unwrap() > at(5030));
}

#[test]
fn pauses_grow_and_differ_and_end_with_the_patience() {
    let mut pauses = Vec::new();
    for seed in 0..2 {
        let mut link = Link::new(PATIENCE, true, None, seed);
        let (mut actions, mut news) = (Vec::new(), Vec::new());
        link.allocate(at(0), &mut actions);
        let mut now = at(0);
        let mut own = Vec::new();
        while news.is_empty() {
            let Some(Action::Dial { connection }) = actions.last().cloned() else { panic!("{actions:?}") };
            let failed = Input::NotConnected { failure: Failure::Passing, why: "no route".to_owned() };
            link.step(connection, failed, now, &mut actions, &mut news);
            let next = link.deadline().unwrap();
            own.push(next.since(now));
            now = next;
            link.step(0, Input::Tick, now, &mut actions, &mut news);
        }
        assert!(own[0] < Duration::from_millis(70) && own[4] > Duration::from_millis(700), "{own:?}");
        assert!(own.iter().all(|pause| *pause <= Duration::from_millis(1250)), "{own:?}");
        assert_eq!(now, at(15_000));
        pauses.push(own);
    }
    assert_ne!(pauses[0], pauses[1]);
}

#[test]
fn a_connection_without_answers_is_given_up_for_another_where_something_outlives_it() {
    let mut scene = Scene::up(true);
    scene.since();
    scene.on(1, line(1), 4000);
    scene.on(1, Input::Tick, 5000);
    assert_eq!(scene.since(), [Action::Dial { connection: 2 }]);
}

#[test]
fn a_host_that_writes_and_never_answers_is_lost_where_nothing_outlives_its_connection() {
    let mut scene = Scene::up(false);
    scene.on(1, line(1), 14_000);
    assert!(!scene.link.is_over());
    scene.on(1, Input::Tick, 15_000);
    assert_eq!(scene.news.last(), Some(&News::Gone { why: "its allocator gave no answer for 15s".to_owned() }));
}

#[test]
fn a_plain_stop_is_sent_once_and_one_in_so_many_words_as_often_as_it_is_said() {
    let mut scene = Scene::up(false);
    let allocating = ControlReply::Allocating { alloc_key: AllocKey::new("k").unwrap(), world_id: WorldId::from("w") };
    scene.on(1, answer(Some(1), allocating), 0);
    scene.since();
    let kill = Sent::StopWith { signal: None, grace_ms: Some(0) };
    for sent in [Sent::Stop, Sent::Stop, kill, kill] {
        scene.link.stop(sent, at(1), &mut scene.actions, &mut scene.news);
    }
    for number in 2..5 {
        scene.on(1, answer(Some(number), ControlReply::Stopping { alloc_keys: Vec::new() }), 2);
    }
    let sent: Vec<Sent> = scene
        .since()
        .into_iter()
        .filter_map(|action| match action {
            Action::Post { sent, number: Some(_), .. } => Some(sent),
            _ => None,
        })
        .collect();
    assert_eq!(sent, [Sent::Stop, kill, kill]);
}

#[test]
fn an_allocator_that_greets_and_closes_again_and_again_is_not_dialled_all_the_time_and_is_lost_in_the_end() {
    let mut scene = Scene::new(true);
    let (mut now, mut dials) = (0, 0);
    while !scene.link.is_over() {
        let connection = 1 + dials;
        scene.on(connection, Input::Connected, now);
        scene.alive(connection, now);
        scene.on(connection, Input::Closed { why: "closed".to_owned() }, now);
        dials += 1;
        if let Some(deadline) = scene.link.deadline().filter(|_| dials > 1) {
            now = deadline.since(at(0)).as_millis() as u64 + 1;
            scene.on(0, Input::Tick, now);
        }
    }
    assert!(dials < 25, "{dials} connections");
    let why = "its allocator takes connections and closes them: closed".to_owned();
    assert_eq!(scene.news, [News::Gone { why }]);
    assert!((15_000..17_000).contains(&now), "{now}");
}
