//! What lets connections in: how many, and as whom.
//!
//! A connection over TLS is a stranger's until it has shown who it is. Strangers have a room of their own, so that those who
//! never say anything keep out nobody but other strangers, and those for as long as a handshake may take; what is wrong with
//! them is said on stderr, not more often than somebody can read. Whoever has to show a token has a room of its own too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::allocator::server::{Connection, Handle, Service, Sessions, Traffic, router};
use crate::channel::BoxStream;
use crate::channel::listen::{Arrival, Listener, Proof};
use crate::channel::tls::HandshakeError;
use crate::clock::{Clock, Moment};
use crate::report::console;

/// Connections that are open at once; more wait until one closes.
const CONNECTIONS: usize = 256;
/// Connections that have yet to show who they are; more wait until one of them has, or its time is over.
const STRANGERS: usize = 64;
/// Requests that one connection has open at once.
const STREAMS: u32 = 256;
/// Time in which the head of a request has to be there.
const HEAD: Duration = Duration::from_secs(10);
/// Time in which a connection that proves nothing has to have shown a token.
const PROVING: Duration = Duration::from_secs(10);
/// Pause after the system had no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(100);
/// Time in which open requests may end once the allocator has.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Refused connections that are told of within [`SPAN`]; of the others, how many they were.
const MOST_TOLD: u32 = 20;
const SPAN: Duration = Duration::from_secs(10);

/// What lets connections in.
pub(super) struct Door {
    router: axum::Router,
    handle: Handle,
    sessions: Sessions,
    traffic: Arc<Traffic>,
    numbers: AtomicU64,
    room: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
    /// For those who have to show a token: whoever has none can fill it, and keeps out nobody who comes by another way.
    guests: Arc<Semaphore>,
    refused: Mutex<Refused>,
    /// Whether the allocator has ended.
    is_over: watch::Sender<bool>,
}

impl Door {
    /// To this allocator.
    pub(super) fn new(service: Service) -> Self {
        let (handle, sessions) = (service.handle.clone(), service.sessions.clone());
        let traffic = Arc::clone(&service.traffic);
        Self {
            router: router(service),
            handle,
            sessions,
            traffic,
            numbers: AtomicU64::new(0),
            room: Arc::new(Semaphore::new(CONNECTIONS)),
            strangers: Arc::new(Semaphore::new(STRANGERS)),
            guests: Arc::new(Semaphore::new(CONNECTIONS)),
            refused: Mutex::new(Refused::new()),
            is_over: watch::Sender::new(false),
        }
    }

    /// Lets in whoever comes by this way, for as long as it is polled.
    pub(super) async fn accept_from(self: Arc<Self>, listener: Listener) {
        let room = match () {
            () if listener.meets_strangers() => &self.strangers,
            () if listener.meets_guests() => &self.guests,
            () => &self.room,
        };
        loop {
            let Ok(place) = Arc::clone(room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok(arrival) => drop(tokio::spawn(Arc::clone(&self).receive(arrival, place))),
                // Too many open files, most likely: that passes.
                Err(_) => tokio::time::sleep(NO_ROOM).await,
            }
        }
    }

    /// Finds out who it is, and attends to it.
    async fn receive(self: Arc<Self>, arrival: Arrival, place: OwnedSemaphorePermit) {
        let (stream, owner, _place) = match arrival {
            Arrival::Known(stream, Proof::User(uid)) => (stream, Some(format!("user {uid}")), place),
            Arrival::Known(stream, Proof::Nothing) => (stream, None, place),
            Arrival::Stranger(stranger) => match stranger.prove().await {
                Ok((stream, role)) => {
                    let Ok(room) = Arc::clone(&self.room).acquire_owned().await else { return };
                    drop(place);
                    (stream, Some(format!("client {}", role.name())), room)
                }
                Err(error) => {
                    self.traffic.refuse();
                    let text = self.refused.lock().unwrap_or_else(PoisonError::into_inner).tell(&error);
                    return console::print(&text.unwrap_or_default());
                }
            },
        };
        self.attend(stream, owner).await;
    }

    /// Attends to the one connection that the allocator is for, and ends the allocator with it.
    pub(super) async fn attend_only(&self, stream: BoxStream, owner: &str) {
        self.attend(stream, Some(owner.to_owned())).await;
        self.handle.leave().await;
    }

    /// Lets answers that are on their way leave, and closes connections that nobody uses.
    pub(super) async fn close(&self) {
        self.is_over.send_replace(true);
        let all = CONNECTIONS as u32;
        let left = async { tokio::join!(self.room.acquire_many(all), self.guests.acquire_many(all)) };
        let _ = tokio::time::timeout(LAST_WORDS, left).await;
    }

    /// Answers the requests of one connection until it is closed.
    async fn attend(&self, stream: BoxStream, owner: Option<String>) {
        let _open = self.traffic.open();
        let connection = Connection::new(self.numbers.fetch_add(1, Ordering::Relaxed) + 1, owner);
        let router = self.router.clone().layer(axum::Extension(Arc::clone(&connection)));
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
        // What a client does wrong is answered; what its connection does wrong ends it.
        let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        tokio::pin!(served);
        let mut watch = self.is_over.subscribe();
        let is_over = async {
            let _ = watch.wait_for(|is_over| *is_over).await;
        };
        tokio::select! {
            _ = served.as_mut() => {}
            // Closed as it is: whoever showed nothing is owed nothing.
            () = connection.is_late(PROVING) => {}
            () = is_over => {
                served.as_mut().graceful_shutdown();
                let _ = served.await;
            }
        }
        connection.closed(&self.sessions, &self.handle).await;
    }
}

/// How often it was said that somebody was refused.
struct Refused {
    clock: Clock,
    since: Option<Moment>,
    told: u32,
    untold: u64,
}

impl Refused {
    fn new() -> Self {
        Self { clock: Clock::start(), since: None, told: 0, untold: 0 }
    }

    /// What is to be said of it; none when that would be too much.
    fn tell(&mut self, error: &HandshakeError) -> Option<String> {
        let now = self.clock.now();
        if self.since.is_none_or(|since| now.since(since) >= SPAN) {
            (self.since, self.told) = (Some(now), 0);
        }
        if self.told == MOST_TOLD {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        let untold = match std::mem::take(&mut self.untold) {
            0 => String::new(),
            count => console::warning(&format!("{count} more connections came to nothing")),
        };
        Some(untold + &console::warning(&error.line()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_without_end_are_not_told_of_without_end() {
        let mut refused = Refused::new();
        let error = HandshakeError::Slow { peer: "10.0.0.5:1".to_owned() };
        let told: Vec<_> = (0..1000).filter_map(|_| refused.tell(&error)).collect();
        assert_eq!(told.len(), MOST_TOLD as usize);
        assert_eq!(told[0], "warning: no connection with 10.0.0.5:1: its handshake was not over in 10 s\n");
        // As if its time had passed.
        refused.since = None;
        let text = refused.tell(&error).unwrap();
        assert!(
            text.starts_with("warning: 980 more connections came to nothing\nwarning: no connection with"),
            "{text}"
        );
    }
}
