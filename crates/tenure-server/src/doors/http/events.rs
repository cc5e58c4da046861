//! What happened and what happens, over HTTP. A watch is a stream of server-sent events: each has its place as its id, so
//! that a browser or a script that comes back with `Last-Event-ID` misses nothing.

use super::body::{Asked, bad_query, is_text};
use super::problem::{NotRead, Problem};
use super::{Answer, HttpDoor, after_ms};
use crate::doors::watch;
use crate::limits::WATCH_PULSE;
use axum::Json;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::Deserialize;
use std::convert::Infallible;
use std::fmt::Write;
use tenure_api::{read_cursor, v1, write_cursor};
use tokio::time::timeout;
use utoipa::IntoParams;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WhichPast {
    /// Only this resource, or this instance as `SERVICE/ID`,
    resource: String,
    /// or those whose name starts so; neither: everything, leases, classes and keys included.
    prefix: String,
    /// At most so many; 0 is 100, and more than 10,000 is 10,000.
    #[param(value_type = u64, maximum = 4_294_967_295_u32)]
    limit: u32,
    /// The `next` of the page before.
    before: String,
    /// From this node's own copy, without asking whether it is the newest.
    stale: bool,
}

/// Tells what happened, newest first.
#[utoipa::path(get, path = "/v1/history", tag = "events", params(WhichPast), responses(
    (status = 200, description = "A page of events.", body = v1::HistoryReply),
    NotRead,
))]
pub(super) async fn history(door: HttpDoor, Asked(asked): Asked<WhichPast>) -> Answer<v1::HistoryReply> {
    let request = v1::HistoryRequest {
        before: place(&asked.before, "before")?,
        resource: asked.resource,
        prefix: asked.prefix,
        limit: asked.limit,
        stale: asked.stale,
    };
    Ok(Json(door.desk.history(&request).await?))
}

fn place(text: &str, of: &str) -> Result<Option<v1::Cursor>, Problem> {
    let bad = || bad_query(&format!("`{of}` is not a place among the events, REVISION.N"));
    (!text.is_empty()).then(|| read_cursor(text).ok_or_else(bad)).transpose()
}

/// What to watch, from where, for how long.
#[derive(Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WatchQuery {
    /// Only resources and instances whose name starts so; it may be said several times. Without it: everything.
    #[param(required = false)]
    prefix: Vec<String>,
    /// Resume after this place: the id of an event, or a revision. The header `Last-Event-ID` goes before it. Without:
    /// from now on.
    #[param(required = false)]
    after: String,
    /// Close the stream after so long.
    #[param(required = false)]
    for_ms: Option<u64>,
}

impl WatchQuery {
    fn read(query: &str) -> Result<Self, Problem> {
        is_text(query)?;
        let mut asked = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "prefix" => asked.prefix.push(value.into_owned()),
                "after" => asked.after = value.into_owned(),
                "for_ms" => {
                    let ms = value.parse().map_err(|_| bad_query("`for_ms` is not a number of milliseconds"))?;
                    asked.for_ms = Some(ms);
                }
                other => return Err(bad_query(&format!("unknown field `{other}`, expected prefix, after or for_ms"))),
            }
        }
        Ok(asked)
    }
}

/// One event of the stream, as programs that read such streams give it. It is there for the description alone.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "what is sent is written by hand")]
pub(super) struct Told {
    /// The place of the event, after which a stream can be resumed; a problem has none.
    id: Option<String>,
    /// The event, as JSON.
    data: String,
}

/// Tells what happens, in order and without gaps. Renewals are not events. Each message has an event as its data and its
/// place as its id; a message without data only moves the place. A message named `problem` is the last one.
#[utoipa::path(get, path = "/v1/watch", tag = "events", params(WatchQuery,
    ("Last-Event-ID" = Option<String>, Header, description = "Resume after this place.")), responses(
    (status = 200, description = "A stream of events.", body = Told, content_type = "text/event-stream"),
    NotRead,
))]
pub(super) async fn watch(door: HttpDoor, RawQuery(query): RawQuery, headers: HeaderMap) -> Result<Response, Problem> {
    let asked = WatchQuery::read(query.as_deref().unwrap_or_default())?;
    // A browser that has not heard anything yet comes back with an empty id.
    let last = headers.get("last-event-id").map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let last = last.filter(|id| !id.is_empty());
    let after = match last {
        Some(id) => place(&id, "Last-Event-ID")?,
        None => place(&asked.after, "after")?,
    };
    let request = v1::WatchRequest { prefixes: asked.prefix, after, ..v1::WatchRequest::default() };
    let mut replies = watch::open(&door.desk, request).map_err(|failure| *failure)?;
    // The first reply comes at once. If it is a no, the client hears it as a status.
    let first = match replies.next().await {
        Some(Ok(reply)) => message(&reply),
        Some(Err(failure)) => return Err(failure.into()),
        None => return Err(crate::unready::Unready::Stopping.into()),
    };
    let told = futures::stream::iter([first]).chain(with_pulse(replies));
    let end = async move {
        tokio::select! {
            () = after_ms(asked.for_ms) => {}
            () = door.stop.comes() => {}
        }
    };
    let body = Body::from_stream(told.take_until(end).map(Ok::<_, Infallible>));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// The replies as messages, and a sign of life when there are none.
fn with_pulse(replies: watch::Replies) -> BoxStream<'static, String> {
    let next = |replies: Option<watch::Replies>| async move {
        let mut replies = replies?;
        match timeout(WATCH_PULSE, replies.next()).await {
            Ok(Some(Ok(reply))) => Some((message(&reply), Some(replies))),
            Ok(Some(Err(failure))) => {
                let problem = serde_json::to_string(&Problem::from(failure)).expect("a problem has only text keys");
                Some((format!("event: problem\ndata: {problem}\n\n"), None))
            }
            Ok(None) => None,
            Err(_) => Some((": still here\n\n".into(), Some(replies))),
        }
    };
    futures::stream::unfold(Some(replies), next).boxed()
}

/// A reply as server-sent events. The last message has no data and moves the place to where the reply ends.
fn message(reply: &v1::WatchReply) -> String {
    let mut text = String::new();
    for event in &reply.events {
        let at = write_cursor(&v1::Cursor { revision: event.revision, n: event.n });
        let data = serde_json::to_string(event).expect("an event has only text keys");
        write!(text, "id: {at}\ndata: {data}\n\n").expect("a text takes every line");
    }
    let last = reply.events.last().map(|event| v1::Cursor { revision: event.revision, n: event.n });
    if let Some(cursor) = reply.cursor.as_ref().filter(|cursor| Some(**cursor) != last) {
        write!(text, "id: {}\n\n", write_cursor(cursor)).expect("a text takes every line");
    }
    text
}
