//! Carries out what a client's state says: connections, messages, records.
//!
//! Everything happens in one task of its own, so that hosts are beaten to and looked after though nobody asks for the next
//! event: the published client kept its hosts alive only while somebody did. Must not decide.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use torchlift_schema::state::AllocKey;

use super::http::{self, Origin, Request};
use super::link::{Action, Input};
use super::state::{AllocEvent, AllocSpec, Client, Output};
use crate::clock::{self, Clock};
use crate::reach::Reach;

/// What hosts sent and the client has not looked at, at most; whoever sends beyond that waits.
const QUEUE: usize = 1024;

/// One allocation over many hosts, under the name that the published client has.
///
/// Dropping it closes every connection: what has no lease ends with that, and what has one when it runs out.
#[derive(Debug)]
pub struct RemoteProcessAlloc {
    /// At most a few for each process that was asked for: what an allocator tells beyond that is not passed on.
    events: mpsc::UnboundedReceiver<AllocEvent>,
    is_stopped: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RemoteProcessAlloc {
    /// Asks each host for its part, by the way at the same place. Has to be called within a Tokio runtime.
    ///
    /// It returns at once: what becomes of it, failures too, is told by [`Self::next`]. A host without a way to it is lost.
    pub fn start(spec: AllocSpec, ways: Vec<Reach>) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let (is_stopped, stops) = watch::channel(false);
        let seed = clock::wall().as_nanos() as u64 ^ u64::from(std::process::id());
        let key = spec.key.clone();
        let task = tokio::spawn(run(Client::new(spec, seed), key, ways, stops, sender));
        Self { events, is_stopped, task }
    }

    /// The next thing that became of it; none once every host is over, and from then on.
    pub async fn next(&mut self) -> Option<AllocEvent> {
        self.events.recv().await
    }

    /// Asks every host to stop its part. Returns at once: what it leads to is told by [`Self::next`], to the end.
    pub fn stop(&self) {
        self.is_stopped.send_replace(true);
    }

    /// Stops it and waits for its end.
    pub async fn stop_and_wait(&mut self) {
        self.stop();
        while self.next().await.is_some() {}
    }
}

impl Drop for RemoteProcessAlloc {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection that is made or stands; it is closed when this is dropped.
#[derive(Debug)]
struct Conversation {
    task: JoinHandle<()>,
    /// No more than a beat, a message and a reader are under way.
    requests: mpsc::UnboundedSender<Request>,
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(
    mut client: Client,
    key: AllocKey,
    ways: Vec<Reach>,
    mut stops: watch::Receiver<bool>,
    events: mpsc::UnboundedSender<AllocEvent>,
) {
    let clock = Clock::start();
    let (sender, mut inputs) = mpsc::channel::<(usize, u64, Input)>(QUEUE);
    let mut conversations: Vec<Option<Conversation>> = Vec::new();
    let mut output = Output::default();
    let mut is_stopped = false;
    client.begin(clock.now(), &mut output);
    loop {
        for (host, action) in output.actions.drain(..) {
            if conversations.len() <= host {
                conversations.resize_with(host + 1, || None);
            }
            let at = &mut conversations[host];
            match action {
                Action::Dial { connection } => {
                    let (requests, asked) = mpsc::unbounded_channel();
                    let way = ways.get(host).cloned();
                    let origin = Origin { host, connection, key: key.clone(), inputs: sender.clone() };
                    let task = tokio::spawn(http::converse(way, origin, asked));
                    *at = Some(Conversation { task, requests });
                }
                Action::Post { number, sent, .. } => {
                    let message = Box::new(client.message(host, sent));
                    ask(at.as_ref(), Request::Post { number, message });
                }
                Action::Read { after, .. } => ask(at.as_ref(), Request::Read { after }),
                Action::HangUp { .. } => *at = None,
            }
        }
        for event in output.events.drain(..) {
            // Whoever dropped the other end is not told.
            let _ = events.send(event);
        }
        if client.is_over() {
            return;
        }
        let pause = client.deadline().map(|deadline| deadline.since(clock.now()));
        tokio::select! {
            biased;
            Ok(()) = stops.changed(), if !is_stopped => {
                is_stopped = true;
                client.stop(clock.now(), &mut output);
            }
            Some((host, connection, input)) = inputs.recv() => {
                client.step(host, connection, input, clock.now(), &mut output);
            }
            () = tokio::time::sleep(pause.unwrap_or(Duration::MAX)), if pause.is_some() => {}
        }
        // Not left to the wait: hosts that say something all the time would keep it from the others.
        client.tick(clock.now(), &mut output);
    }
}

fn ask(conversation: Option<&Conversation>, request: Request) {
    if let Some(conversation) = conversation {
        // A connection that ended says so itself.
        let _ = conversation.requests.send(request);
    }
}
