//! Telling a client that has an address of its own: its record is posted there, line by line, as the published allocator did.
//!
//! One POST at a time, in order, each until it is acknowledged; a connection that breaks is made anew, with a pause that grows.
//! A line that cannot be delivered in time means that the client is gone. Between lines, a `HeartBeat` finds that out too.

use std::io;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use torchlift_schema::control::ControlReply;
use torchlift_schema::state::AllocKey;
use torchlift_schema::{ChannelAddr, RemoteProcessProcStateMessage as State};

use super::Handle;
use crate::allocator::record::Record;
use crate::allocator::state::Input;
use crate::channel::dial::Dialler;
use crate::channel::{SEQUENCE, SESSION};
use crate::error::one_line;
use crate::report::console;

/// Time in which a message has to be acknowledged; the published default.
pub(crate) const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two messages when there is nothing to tell; the published default.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);
/// The first pause before a connection is tried again; it doubles up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Time in which one request has to be answered before its connection counts as broken.
const ANSWER: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const MOST: usize = 64 * 1024;

/// Who is told how the delivery goes.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) key: AllocKey,
    pub(super) handle: Handle,
}

/// Delivers a record to its end.
pub(super) async fn all(dialler: Dialler, to: ChannelAddr, session: String, record: Record, told: Option<Told>) {
    let mut client = Client { dialler, to, session, connection: None };
    let mut grown = record.watch();
    let mut next = 0;
    loop {
        let Some(line) = record.line(next) else {
            if grown.borrow_and_update().0 > next {
                continue;
            }
            match timeout(HEARTBEAT, grown.changed()).await {
                Ok(Ok(())) => {}
                // Nobody writes it any more.
                Ok(Err(_)) => return,
                Err(_) => {
                    if let Err(gone) = client.deliver(None, &State::HeartBeat).await {
                        return undeliverable(&client.to, gone, told).await;
                    }
                }
            }
            continue;
        };
        match client.deliver(line.n, &line.message).await {
            Ok(Some(expected)) => next = (expected as usize).saturating_sub(1).min(next + 1),
            Ok(None) => {
                next += 1;
                if let (State::Done(_), Some(Told { key, handle })) = (&line.message, &told) {
                    handle.tell(Input::Delivered { key: key.clone() }).await;
                }
                if matches!(line.message, State::Done(_)) {
                    return;
                }
            }
            Err(gone) => return undeliverable(&client.to, gone, told).await,
        }
    }
}

async fn undeliverable(to: &ChannelAddr, Gone { why }: Gone, told: Option<Told>) {
    if let Some(why) = why {
        console::print(&console::warning(&format!(
            "the client at `{to}` cannot be told what becomes of its ranks: {why}"
        )));
    }
    if let Some(Told { key, handle }) = told {
        handle.tell(Input::Undeliverable { key }).await;
    }
}

/// A client that is dialled.
struct Client {
    dialler: Dialler,
    to: ChannelAddr,
    session: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// The client will never take it.
struct Gone {
    /// Why not; none when it wants it no more.
    why: Option<String>,
}

impl Client {
    /// Delivers one message within its time; gives the number that the client expects in its place, if it expects another.
    async fn deliver(&mut self, number: Option<u64>, message: &State) -> Result<Option<u64>, Gone> {
        let Ok(body) = serde_json::to_vec(message).map(Bytes::from) else {
            return Err(Gone { why: Some("the message has no text".to_owned()) });
        };
        let until = Instant::now() + DELIVERY_TIMEOUT;
        let mut pause = FIRST_PAUSE;
        let mut why = "it does not answer".to_owned();
        loop {
            match timeout_at(until, self.post(number, body.clone())).await {
                Ok(Ok((status, _))) if status.is_success() => return Ok(None),
                Ok(Ok((StatusCode::CONFLICT, text))) => match serde_json::from_slice(&text) {
                    Ok(ControlReply::Gap { expected }) => return Ok(Some(expected)),
                    _ => return Err(Gone { why: None }),
                },
                Ok(Ok((status, _))) if status.is_client_error() => return Err(Gone { why: None }),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    return Err(Gone { why: Some(error.to_string()) });
                }
                Ok(Err(error)) => {
                    why = self.dialler.refusal(&self.to, &error).unwrap_or_else(|| one_line(&error));
                }
                Ok(Ok((status, _))) => why = format!("it answered {status}"),
                Err(_) => return Err(Gone { why: Some(why) }),
            }
            self.connection = None;
            if Instant::now() + pause >= until {
                return Err(Gone { why: Some(why) });
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    async fn post(&mut self, number: Option<u64>, body: Bytes) -> io::Result<(StatusCode, Bytes)> {
        let sender = match &mut self.connection {
            Some(sender) if !sender.is_closed() => sender,
            connection => {
                let stream = self.dialler.dial(&self.to).await?;
                let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
                tokio::spawn(driver);
                connection.insert(sender)
            }
        };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri("/v1/state")
            .header(header::HOST, "torchlift")
            .header(header::CONTENT_TYPE, "application/json")
            .header(SESSION, &self.session);
        if let Some(number) = number {
            request = request.header(SEQUENCE, number);
        }
        let request = request.body(Full::new(body)).map_err(io::Error::other)?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MOST).collect().await.map_err(io::Error::other)?;
            Ok((status, body.to_bytes()))
        };
        timeout(ANSWER, answer).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}
