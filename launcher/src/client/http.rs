//! How a client's messages travel: HTTP/2 over one connection, as `docs/protocol.md` says.
//!
//! Owns requests, and the making of inputs out of whatever comes back. Must not decide what that means.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Method, Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use torchlift_schema::control::{self, ControlReply, RemoteProcessAllocatorMessage as Asked};
use torchlift_schema::state::AllocKey;

use super::link::{Failure, Input};
use super::stream::{Refusal, Watched};
use crate::channel::{SEQUENCE, SESSION};
use crate::error::one_line;
use crate::reach::Reach;

/// What a connection is asked to do.
#[derive(Debug)]
pub(super) enum Request {
    /// Send a message.
    Post { number: Option<u64>, message: Box<Asked> },
    /// Read the record from behind its first lines; a reader that is there stops.
    Read { after: u64 },
}

/// Time in which a connection on which a request failed may still say how it ended.
const LAST_WORD: Duration = Duration::from_millis(100);
/// Bytes of an answer that are read: who holds what on a host of thousands.
const MOST: usize = 1024 * 1024;

/// Which connection of which host something comes from, and where it goes.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) host: usize,
    pub(super) connection: u64,
    /// Names the session and the record.
    pub(super) key: AllocKey,
    pub(super) inputs: mpsc::Sender<(usize, u64, Input)>,
}

impl Origin {
    async fn tell(&self, input: Input) {
        // Nobody listens once the client is over.
        let _ = self.inputs.send((self.host, self.connection, input)).await;
    }
}

/// Makes a connection and uses it until it breaks or nobody asks any more.
pub(super) async fn converse(way: Option<Reach>, origin: Origin, mut requests: mpsc::UnboundedReceiver<Request>) {
    let connected = match &way {
        Some(way) => connect(way).await,
        None => Err(io::Error::new(io::ErrorKind::Unsupported, "there is no way to this host")),
    };
    let (sender, driver, refusal) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            let (failure, why) = match way.as_ref().and_then(|way| way.refusal(&error)) {
                Some(refusal) => (Failure::Final, refusal),
                None => (failure(&error), one_line(&error)),
            };
            return origin.tell(Input::NotConnected { failure, why }).await;
        }
    };
    let token = way.as_ref().and_then(Reach::token).map(|token| format!("Bearer {token}"));
    let exchange = Arc::new(Exchange { sender, token, origin });
    // A set, so that it ends with this.
    let mut driving = JoinSet::new();
    driving.spawn(async move {
        let ended = driver.await;
        if let Some(why) = refusal.get() {
            return Input::Unreadable { why: why.clone() };
        }
        let why = ended.map_or_else(|error| one_line(&error), |()| "the other side closed it".to_owned());
        Input::Closed { why }
    });
    let mut work = JoinSet::new();
    let mut reader: Option<AbortHandle> = None;
    exchange.origin.tell(Input::Connected).await;
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                None => return,
                Some(Request::Post { number, message }) => drop(work.spawn(Arc::clone(&exchange).post(number, message))),
                Some(Request::Read { after }) => {
                    let after = work.spawn(Arc::clone(&exchange).read(after));
                    if let Some(before) = reader.replace(after) {
                        before.abort();
                    }
                }
            },
            Some(Ok(end)) = driving.join_next() => return exchange.origin.tell(end).await,
            Some(Ok(Some(why))) = work.join_next() => {
                // The connection itself may know better why.
                let end = timeout(LAST_WORD, driving.join_next()).await.ok().flatten().and_then(Result::ok);
                return exchange.origin.tell(end.unwrap_or(Input::Closed { why })).await;
            }
        }
    }
}

type Body = Full<Bytes>;
type Driver = http2::Connection<TokioIo<Watched>, Body, TokioExecutor>;

async fn connect(way: &Reach) -> io::Result<(SendRequest<Body>, Driver, Refusal)> {
    let (stream, refusal) = Watched::new(way.connect().await?, way.clone());
    let connected = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, driver) = connected.map_err(io::Error::other)?;
    Ok((sender, driver, refusal))
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        // A socket without a file is one that nobody serves.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Failure::Refused,
        io::ErrorKind::Unsupported
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidData => Failure::Final,
        _ => Failure::Passing,
    }
}

/// What requests over one connection share. Each ends with a text when the connection is of no use any more.
struct Exchange {
    sender: SendRequest<Body>,
    token: Option<String>,
    origin: Origin,
}

impl Exchange {
    async fn post(self: Arc<Self>, number: Option<u64>, message: Box<Asked>) -> Option<String> {
        let body = serde_json::to_vec(&*message).unwrap_or_default();
        let answer = async { whole(self.send(Method::POST, "/v1/control", number, body.into()).await?).await };
        let input = match answer.await.map(|text| control::control_reply(&text)) {
            Ok(Ok(reply)) => Input::Answered { number, reply },
            Ok(Err(error)) => Input::Unreadable { why: format!("its allocator gave an answer that is none: {error}") },
            Err(why) => return Some(why),
        };
        self.origin.tell(input).await;
        None
    }

    async fn read(self: Arc<Self>, after: u64) -> Option<String> {
        match self.record(after).await {
            Ok(input) => {
                self.origin.tell(input).await;
                None
            }
            Err(why) => Some(why),
        }
    }

    /// Tells of each line; gives what is to be told when there are no more.
    async fn record(&self, after: u64) -> Result<Input, String> {
        let path = format!("/v1/allocations/{}/events?after={after}", self.origin.key);
        let response = self.send(Method::GET, &path, None, Bytes::new()).await?;
        if response.status() != StatusCode::OK {
            let why = match control::control_reply(&whole(response).await?) {
                Ok(ControlReply::Refused { message, .. }) => message,
                _ => "its allocator does not give its record".to_owned(),
            };
            return Ok(Input::RecordEnded { why: Some(why) });
        }
        let (mut body, mut text) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(|error| one_line(&error))?.into_data() else { continue };
            text.extend_from_slice(&bytes);
            let mut begin = 0;
            while let Some(length) = memchr::memchr(b'\n', &text[begin..]) {
                let line = control::record_line(&text[begin..begin + length]);
                begin += length + 1;
                match line {
                    Ok(line) => self.origin.tell(Input::Line(line)).await,
                    Err(error) => {
                        let why = format!("its allocator's record has a line that is none: {error}");
                        return Ok(Input::Unreadable { why });
                    }
                }
            }
            text.drain(..begin);
            if text.len() > control::MAX_BYTES {
                let why = format!("its allocator's record has a line of more than {} bytes", control::MAX_BYTES);
                return Ok(Input::Unreadable { why });
            }
        }
        Ok(Input::RecordEnded { why: None })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        number: Option<u64>,
        body: Bytes,
    ) -> Result<Response<Incoming>, String> {
        // HTTP/2 has no host but in the address of what is asked for.
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(format!("http://allocator{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .header(SESSION, self.origin.key.as_str());
        if let Some(number) = number {
            request = request.header(SEQUENCE, number);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body)).map_err(|error| one_line(&error))?;
        self.sender.clone().send_request(request).await.map_err(|error| one_line(&error))
    }
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, String> {
    let body = Limited::new(response.into_body(), MOST).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| one_line(&*error))
}
