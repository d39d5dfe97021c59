//! An allocator's HTTP: `docs/protocol.md` has every route with an example.
//!
//! Owns what a request may be and what status answers it. Must not decide about allocations.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use torchlift_schema::control::{self, ControlReply, Holder, MessageError};
use torchlift_schema::state::AllocKey;

use super::facts::Facts;
use super::output::spool_file;
use super::reader::{Reader, Spooled};
use super::sessions::Sessions;
use super::tally::Traffic;
use super::{Found, Handle, Status};
use crate::allocator::state::{Asker, Input};
use crate::channel::{SEQUENCE, SESSION, token};
use crate::event::Stream;

/// Bytes that a session's name may have.
const MOST_SESSION: usize = 128;
/// One connection, for as long as it is open.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    /// Who is at the other end; none before a token was shown.
    owner: Option<String>,
    /// Whether it is known who that is.
    is_proved: AtomicBool,
    sessions: Mutex<BTreeSet<String>>,
}

impl Connection {
    /// A connection of this owner; none for one that has to show a token with each request.
    pub(crate) fn new(number: u64, owner: Option<String>) -> Arc<Self> {
        let is_proved = AtomicBool::new(owner.is_some());
        Arc::new(Self { number, owner, is_proved, sessions: Mutex::default() })
    }

    /// Comes to its end when this time is over and it is still not known who is at the other end.
    pub(crate) async fn is_late(&self, time: Duration) {
        tokio::time::sleep(time).await;
        if self.is_proved.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// It is closed: its sessions may have lost their last connection.
    pub(crate) async fn closed(&self, sessions: &Sessions, handle: &Handle) {
        let joined = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
        for session in joined {
            if sessions.leave(&session) {
                handle.tell(Input::Disconnected { session }).await;
            }
        }
    }
}

/// What every route knows.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// How the allocator is asked.
    pub(crate) handle: Handle,
    /// Everybody's sessions.
    pub(crate) sessions: Sessions,
    /// What has to be shown over a connection that proves nothing; without one, such a connection gets nothing.
    pub(crate) token: Option<Arc<str>>,
    /// Below which output is kept.
    pub(crate) spool: Arc<PathBuf>,
    /// What this host is.
    pub(crate) facts: Facts,
    /// Connections.
    pub(crate) traffic: Arc<Traffic>,
}

/// The routes.
pub(crate) fn router(service: Service) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/v1/control", post(control))
        .route("/v1/status", get(status))
        .route("/v1/facts", get(facts))
        .route("/metrics", get(metrics))
        .route("/v1/allocations/{key}/events", get(events))
        .route("/v1/allocations/{key}/output/{rank}/{stream}", get(output))
        .method_not_allowed_fallback(async || {
            refuse(
                StatusCode::METHOD_NOT_ALLOWED,
                "no-such-method",
                "this route is not asked in this way",
                Some(ROUTES),
            )
        })
        .fallback(async || refuse(StatusCode::NOT_FOUND, "no-such-route", "there is no such route", Some(ROUTES)))
        .layer(DefaultBodyLimit::max(control::MAX_BYTES))
        .with_state(service)
}

const ROUTES: &str = "`docs/protocol.md` has every route";

/// An answer that ends a request early. Boxed, so that what goes well is not made larger by it.
struct Refused(Box<Response>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// An answer in JSON.
fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let text = serde_json::to_vec(body).unwrap_or_default();
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (status, [kind], [text, b"\n".to_vec()].concat()).into_response()
}

fn refuse(status: StatusCode, code: &str, message: impl Into<String>, hint: Option<&str>) -> Refused {
    let (code, message, hint) = (code.to_owned(), message.into(), hint.map(str::to_owned));
    Refused(Box::new(json(status, &ControlReply::Refused { code, message, hint })))
}

impl Service {
    /// Who asks.
    fn owner(&self, connection: &Connection, headers: &HeaderMap) -> Result<String, Refused> {
        if let Some(owner) = &connection.owner {
            return Ok(owner.clone());
        }
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        match (&self.token, shown) {
            (Some(token), Some(shown)) if token::is_same(token, shown) => {
                connection.is_proved.store(true, Ordering::Relaxed);
                Ok("token".to_owned())
            }
            _ => Err(refuse(
                StatusCode::UNAUTHORIZED,
                "no-token",
                "this connection proves nothing, and the request shows no valid token",
                Some("send the header `authorization: Bearer TOKEN` with what is in the allocator's `--token-file`"),
            )),
        }
    }

    /// In which session, which this connection takes part in from now on.
    async fn asker(&self, connection: &Connection, headers: &HeaderMap) -> Result<Asker, Refused> {
        let owner = self.owner(connection, headers)?;
        let name = match headers.get(SESSION) {
            None => format!("connection {}", connection.number),
            Some(value) => match value.to_str() {
                Ok(name) if (1..=MOST_SESSION).contains(&name.len()) => name.to_owned(),
                _ => {
                    let message = format!("`{SESSION}` has to have 1 to {MOST_SESSION} printable ASCII characters");
                    return Err(refuse(StatusCode::BAD_REQUEST, "bad-session", message, Some(ROUTES)));
                }
            },
        };
        // Nobody gets into another's session by its name.
        let session = format!("{owner}: {name}");
        let is_new = connection.sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(session.clone());
        if is_new && self.sessions.join(&session) {
            self.handle.tell(Input::Connected { session: session.clone() }).await;
        }
        Ok(Asker { session, owner })
    }
}

async fn control(
    State(shared): State<Service>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
    body: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Result<Response, Refused> {
    let by = shared.asker(&connection, &headers).await?;
    let body = body.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("a message has at most {} bytes", control::MAX_BYTES);
            refuse(error.status(), "message-too-large", message, Some("ask for it in several allocations"))
        }
        status => {
            let message = format!("the message cannot be read: {}", error.body_text());
            refuse(status, "message-cut-short", message, Some("send it again, to its end"))
        }
    })?;
    let number = match headers.get(SEQUENCE) {
        None => None,
        Some(value) => match value.to_str().ok().and_then(|text| text.parse::<u64>().ok()) {
            Some(number) => Some(number),
            None => {
                let message = format!("`{SEQUENCE}` has to be a whole number from 1");
                return Err(refuse(StatusCode::BAD_REQUEST, "bad-sequence", message, Some(ROUTES)));
            }
        },
    };
    let order = shared.sessions.order(&by.session);
    let mut order = order.lock().await;
    if let Some(reply) = number.and_then(|number| order.look(number)) {
        return Ok(json(status_of(&reply), &reply));
    }
    let reply = match control::allocator_message(&body) {
        Ok(message) => shared.handle.ask(by, message).await,
        Err(error) => refusal_of(&error),
    };
    if number.is_some() {
        order.answered(reply.clone());
    }
    Ok(json(status_of(&reply), &reply))
}

/// A message that cannot be read is answered like one that cannot be met: it has its number, and will not get better.
fn refusal_of(error: &MessageError) -> ControlReply {
    let message = match error {
        MessageError::Values { findings } => {
            let all = findings.iter().map(|finding| format!("{}: {}", finding.place, finding.message));
            all.collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    };
    ControlReply::Refused { code: error.code().to_owned(), message, hint: Some(error.hint().to_owned()) }
}

/// The status of an answer.
fn status_of(reply: &ControlReply) -> StatusCode {
    match reply {
        ControlReply::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
        ControlReply::Refused { code, .. } if code == "allocator-draining" => StatusCode::SERVICE_UNAVAILABLE,
        ControlReply::Refused { code, .. } if code.starts_with("message-") => StatusCode::BAD_REQUEST,
        ControlReply::Refused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ControlReply::Gap { .. } => StatusCode::CONFLICT,
        _ => StatusCode::OK,
    }
}

/// What lives here.
#[derive(Serialize)]
struct Shown {
    incarnation: String,
    version: &'static str,
    allocations: Vec<Holder>,
}

async fn status(
    State(shared): State<Service>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    shared.owner(&connection, &headers)?;
    let status = looked(&shared.handle).await?;
    let Status { incarnation, holders: allocations, .. } = status;
    let version = env!("CARGO_PKG_VERSION");
    Ok(json(StatusCode::OK, &Shown { incarnation, version, allocations }))
}

async fn looked(handle: &Handle) -> Result<Status, Refused> {
    let ended = || refuse(StatusCode::SERVICE_UNAVAILABLE, "allocator-draining", "this allocator has ended", None);
    handle.status().await.ok_or_else(ended)
}

async fn metrics(
    State(shared): State<Service>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    shared.owner(&connection, &headers)?;
    let status = looked(&shared.handle).await?;
    let text = status.tally.text(&status.incarnation, status.holders.len(), &shared.traffic);
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    Ok(([kind], text).into_response())
}

async fn facts(
    State(shared): State<Service>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    shared.owner(&connection, &headers)?;
    let none = |why: String| {
        let hint = Some("`torchlift probe` on that host says what could be read");
        refuse(StatusCode::INTERNAL_SERVER_ERROR, "no-facts", why, hint)
    };
    let text = shared.facts.text().await.map_err(none)?;
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(([kind], text).into_response())
}

#[derive(Deserialize)]
struct After {
    #[serde(default)]
    after: u64,
}

/// What stands behind the `?` of a request.
fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refused> {
    let wrong = |error: QueryRejection| {
        refuse(
            StatusCode::BAD_REQUEST,
            "bad-query",
            error.body_text(),
            Some("numbers are whole and from 0, and `follow` is `true` or `false`"),
        )
    };
    query.map(|Query(query)| query).map_err(wrong)
}

/// The allocation with this key, if it is the asker's.
async fn found(
    shared: &Service,
    connection: &Connection,
    headers: &HeaderMap,
    key: &str,
) -> Result<(AllocKey, Found), Refused> {
    let by = shared.asker(connection, headers).await?;
    let missing = || {
        let message = format!("`{}` is no allocation of yours here", key.escape_debug());
        refuse(StatusCode::NOT_FOUND, "no-such-allocation", message, Some("`GET /v1/status` lists what is held"))
    };
    let key = AllocKey::new(key).map_err(|_| missing())?;
    let found = shared.handle.find(key.clone(), by.owner).await.ok_or_else(missing)?;
    Ok((key, found))
}

async fn events(
    State(shared): State<Service>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
    Path(key): Path<String>,
    asked: Result<Query<After>, QueryRejection>,
) -> Result<Response, Refused> {
    let After { after } = query(asked)?;
    let (key, found) = found(&shared, &connection, &headers, &key).await?;
    let reader = Reader {
        found,
        next: usize::try_from(after).unwrap_or(usize::MAX),
        key,
        handle: shared.handle,
        is_over: false,
    };
    let lines = stream::unfold(reader, |mut reader| async {
        let text = reader.text().await?;
        Some((Ok::<_, Infallible>(text), reader))
    });
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(([kind], Body::from_stream(lines)).into_response())
}

#[derive(Deserialize)]
struct From {
    #[serde(default)]
    from: u64,
    #[serde(default)]
    follow: bool,
}

async fn output(
    State(shared): State<Service>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
    Path((key, rank, stream)): Path<(String, String, String)>,
    asked: Result<Query<From>, QueryRejection>,
) -> Result<Response, Refused> {
    let From { from, follow } = query(asked)?;
    let (key, found) = found(&shared, &connection, &headers, &key).await?;
    let stream = match stream.as_str() {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => return Err(refuse(StatusCode::NOT_FOUND, "no-such-stream", "a stream is `stdout` or `stderr`", None)),
    };
    let Some(rank) = rank.parse().ok().filter(|rank| *rank < found.ranks) else {
        let message = format!("there is no local rank `{}` among {}", rank.escape_debug(), found.ranks);
        return Err(refuse(StatusCode::NOT_FOUND, "no-such-rank", message, None));
    };
    let file = spool_file(&shared.spool, &key, rank, stream);
    let bytes = stream::unfold(Spooled { file, at: from, found, follow }, |mut spooled| async {
        let bytes = spooled.bytes().await?;
        Some((Ok::<_, Infallible>(bytes), spooled))
    });
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(([kind], Body::from_stream(bytes)).into_response())
}
