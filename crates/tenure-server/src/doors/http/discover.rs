//! Discovery over HTTP: who is there, page by page or as a stream. How long an answer may be kept stands in its header, too,
//! so that whatever caches it stops in time.

use super::body::{Asked, bad_query, is_text};
use super::problem::{NotRead, Problem};
use super::{Answer, HttpDoor, after_ms};
use crate::bells::Bell;
use crate::doors::fleet;
use crate::doors::look::instance::Wanted;
use crate::limits::{DISCOVER_WAIT_MAX, RETRY_AFTER, WATCH_PULSE};
use crate::unready::Unready;
use axum::Json;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::v1;
use tenure_core::Revision;
use tokio::time::{sleep, timeout};
use utoipa::IntoParams;

/// Which instances.
#[derive(Clone, Debug, Default, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WhichInstances {
    /// Of this service,
    #[param(required = false)]
    service: String,
    /// or of all whose name starts so; neither: of all.
    #[param(required = false)]
    prefix: String,
    /// Only with these capabilities: words with `&`, `|`, `!` and parentheses; a comma is an `&`.
    #[param(required = false)]
    cap: String,
    /// Only with this label, as `KEY=VALUE`; it may be said several times.
    #[param(required = false)]
    label: Vec<String>,
    /// Only in this zone.
    #[param(required = false)]
    zone: String,
    /// Also those that new work is not for: critical, unknown, draining.
    #[param(required = false)]
    all: bool,
}

/// What else is said in a query. Each call names those that it knows.
#[derive(Debug, Default)]
pub(super) struct Rest {
    pub(super) limit: u32,
    pub(super) from: String,
    pub(super) stale: bool,
    pub(super) after: u64,
    pub(super) wait_ms: Option<u64>,
    pub(super) for_ms: Option<u64>,
    pub(super) scheme: String,
}

impl WhichInstances {
    /// Reads a query in which these names may stand, beside those that say which instances.
    pub(super) fn read(query: &str, known: &[&str]) -> Result<(Self, Rest), Problem> {
        is_text(query)?;
        let (mut which, mut rest) = (Self::default(), Rest::default());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            // As the description has it: 63 bits.
            let whole = value.parse::<i64>().ok().and_then(|number| u64::try_from(number).ok());
            let number = || whole.ok_or_else(|| bad_query(&format!("`{name}` is not a whole number")));
            let is_so = || value.parse().map_err(|_| bad_query(&format!("`{name}` is neither true nor false")));
            match &*name {
                "service" => which.service = value.into_owned(),
                "prefix" => which.prefix = value.into_owned(),
                "cap" => which.cap = value.into_owned(),
                "label" => which.label.push(value.into_owned()),
                "zone" => which.zone = value.into_owned(),
                "all" => which.all = is_so()?,
                other if !known.contains(&other) => return Err(unknown(other, known)),
                "limit" => rest.limit = u32::try_from(number()?).unwrap_or(u32::MAX),
                "from" => rest.from = value.into_owned(),
                "stale" => rest.stale = is_so()?,
                "after" => rest.after = number()?,
                "wait_ms" => rest.wait_ms = Some(number()?),
                "for_ms" => rest.for_ms = Some(number()?),
                "scheme" => rest.scheme = value.into_owned(),
                other => return Err(unknown(other, known)),
            }
        }
        Ok((which, rest))
    }

    /// The message that gRPC would have carried.
    pub(super) fn message(self, rest: &Rest) -> Result<v1::DiscoverRequest, Problem> {
        let mut request = v1::DiscoverRequest {
            service: self.service,
            service_prefix: self.prefix,
            capabilities: self.cap,
            zone: self.zone,
            all: self.all,
            limit: rest.limit,
            from: rest.from.clone(),
            stale: rest.stale,
            ..v1::DiscoverRequest::default()
        };
        for label in &self.label {
            let pair = label.split_once('=').ok_or_else(|| bad_query("a label is asked for as KEY=VALUE"))?;
            if request.labels.insert(pair.0.into(), pair.1.into()).is_some() {
                return Err(bad_query(&format!("the label `{}` is asked for twice", pair.0)));
            }
        }
        Ok(request)
    }
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    let expected = ["service", "prefix", "cap", "label", "zone", "all"].iter().chain(known);
    let expected: Vec<&str> = expected.copied().collect();
    bad_query(&format!("unknown field `{name}`, expected one of {}", expected.join(", ")))
}

/// How many, from where, and how new.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes what is read by hand")]
pub(super) struct Paging {
    /// At most so many; 0 is 1,000, and more than 10,000 is 10,000.
    #[param(required = false)]
    limit: u64,
    /// The `next` of the page before.
    #[param(required = false)]
    from: String,
    /// From this node's own copy, without asking whether it is the newest.
    #[param(required = false)]
    stale: bool,
    /// With `wait_ms`: the revision of the answer before.
    #[param(required = false)]
    after: u64,
    /// Answer only when something has happened to these services after that revision, but after so long in any case, and
    /// after five minutes at the latest.
    #[param(required = false)]
    wait_ms: u64,
}

/// Finds the instances that new work can go to. The answer may be kept for as long as its `Cache-Control` says: until the
/// first lease in it ends unless it is renewed.
#[utoipa::path(get, path = "/v1/instances", tag = "registry", params(WhichInstances, Paging), responses(
    (status = 200, description = "A page of instances, by service and id.", body = v1::DiscoverReply),
    NotRead,
))]
pub(super) async fn discover(door: HttpDoor, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let known = ["limit", "from", "stale", "after", "wait_ms"];
    let (which, rest) = WhichInstances::read(query.as_deref().unwrap_or_default(), &known)?;
    let request = which.message(&rest)?;
    if let Some(wait_ms) = rest.wait_ms {
        wait(&door, &request, Revision(rest.after), wait_ms).await?;
    }
    let reply = door.desk.discover(&request).await?;
    let cache = cache_control(&reply);
    Ok(([(header::CACHE_CONTROL, cache)], Json(reply)).into_response())
}

/// For how long an answer may be kept: by whoever asked, in whole seconds, less rather than more.
fn cache_control(reply: &v1::DiscoverReply) -> String {
    match reply.valid_for_ms / 1000 {
        0 => "no-store".into(),
        seconds => format!("private, max-age={seconds}"),
    }
}

fn patience(wait_ms: u64) -> Duration {
    Duration::from_millis(wait_ms).min(DISCOVER_WAIT_MAX)
}

/// Waits until something has happened to these services after a revision, for so long at most.
async fn wait(door: &HttpDoor, request: &v1::DiscoverRequest, after: Revision, wait_ms: u64) -> Result<(), Problem> {
    let node = door.desk.node();
    door.desk.may_discover(&request.service, &request.service_prefix)?;
    let _room = door.desk.caller().take_watcher()?;
    let wanted = Wanted::read(request)?;
    let bell = Arc::new(Bell::default());
    let hanging = node.service_bells().hang(wanted.keys(), &bell, &door.desk.caller().client());
    let _hanging = hanging.ok_or(Unready::Overloaded { retry_after: RETRY_AFTER })?;
    // What is no longer kept has happened, and so has what another node told.
    let has_changed = node.read_stale(|ledger| match fleet::changed(ledger, &wanted, after) {
        Ok(changes) => !changes.is_empty() || after > ledger.revision(),
        Err(_) => true,
    });
    if has_changed {
        return Ok(());
    }
    tokio::select! {
        _ = bell.rung() => Ok(()),
        () = sleep(patience(wait_ms)) => Ok(()),
        () = door.stop.comes() => Err(Unready::Stopping.into()),
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WhichServices {
    /// Only names that start so.
    prefix: String,
    /// At most so many; 0 is 1,000, and more than 10,000 is 10,000.
    #[param(value_type = u64, maximum = 4_294_967_295_u32)]
    limit: u32,
    /// The `next` of the page before.
    from: String,
    /// From this node's own copy, without asking whether it is the newest.
    stale: bool,
}

/// Lists the services with instances, each with how many are how well.
#[utoipa::path(get, path = "/v1/services", tag = "registry", params(WhichServices), responses(
    (status = 200, description = "A page of services, by name.", body = v1::ListServicesReply),
    NotRead,
))]
pub(super) async fn services(door: HttpDoor, Asked(asked): Asked<WhichServices>) -> Answer<v1::ListServicesReply> {
    let WhichServices { prefix, limit, from, stale } = asked;
    Ok(Json(door.desk.list_services(&v1::ListServicesRequest { prefix, limit, from, stale }).await?))
}

/// From where, and for how long.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes what is read by hand")]
pub(super) struct Span {
    /// Resume after this revision, with what has changed since. The header `Last-Event-ID` goes before it. Without: with a
    /// snapshot.
    #[param(required = false)]
    after: u64,
    /// Close the stream after so long.
    #[param(required = false)]
    for_ms: u64,
}

/// One message of the stream, as programs that read such streams give it. It is there for the description alone.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "what is sent is written by hand")]
pub(super) struct ToldOfInstances {
    /// `snapshot`, `changes`, `fresh` or `problem`.
    event: String,
    /// The revision after which a stream can be resumed.
    id: Option<String>,
    /// A WatchInstancesReply, as JSON.
    data: String,
}

/// Tells who is there, and every change of it. A message named `snapshot` is a part of all there is, one named `changes`
/// says what has changed, one named `fresh` how long everything is valid from now on. One named `problem` is the last one.
#[utoipa::path(get, path = "/v1/watch/instances", tag = "registry", params(WhichInstances, Span,
    ("Last-Event-ID" = Option<u64>, Header, description = "Resume after this revision.")), responses(
    (status = 200, description = "A stream of replies.", body = ToldOfInstances, content_type = "text/event-stream"),
    NotRead,
))]
pub(super) async fn watch(door: HttpDoor, RawQuery(query): RawQuery, headers: HeaderMap) -> Result<Response, Problem> {
    let (which, rest) = WhichInstances::read(query.as_deref().unwrap_or_default(), &["after", "for_ms"])?;
    let request = which.message(&rest)?;
    // A browser that has not heard anything yet comes back with an empty id.
    let last = headers.get("last-event-id").map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let after = match last.filter(|id| !id.is_empty()) {
        Some(id) => id.parse().map_err(|_| bad_query("`Last-Event-ID` is not a revision"))?,
        None => rest.after,
    };
    let request = v1::WatchInstancesRequest {
        service: request.service,
        service_prefix: request.service_prefix,
        capabilities: request.capabilities,
        labels: request.labels,
        zone: request.zone,
        all: request.all,
        after,
    };
    let mut replies = fleet::open(door.desk.clone(), request).map_err(|failure| *failure)?;
    // The first reply comes at once. If it is a no, the client hears it as a status.
    let first = match replies.next().await {
        Some(Ok(reply)) => message(&reply),
        Some(Err(failure)) => return Err(failure.into()),
        None => return Err(Unready::Stopping.into()),
    };
    let told = futures::stream::iter([first]).chain(with_pulse(replies));
    let end = async move {
        tokio::select! {
            () = after_ms(rest.for_ms) => {}
            () = door.stop.comes() => {}
        }
    };
    let body = Body::from_stream(told.take_until(end).map(Ok::<_, Infallible>));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// The replies as messages, and a sign of life when there are none.
fn with_pulse(replies: fleet::Replies) -> BoxStream<'static, String> {
    let next = |replies: Option<fleet::Replies>| async move {
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

/// A reply as a server-sent event. Only one that ends something has a place to resume after.
fn message(reply: &v1::WatchInstancesReply) -> String {
    let event = match reply {
        reply if reply.snapshot => "snapshot",
        reply if reply.put.is_empty() && reply.removed.is_empty() => "fresh",
        _ => "changes",
    };
    let id = if reply.revision == 0 { String::new() } else { format!("id: {}\n", reply.revision) };
    let data = serde_json::to_string(reply).expect("a reply has only text keys");
    format!("event: {event}\n{id}data: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_ever() {
        assert_eq!(patience(30_000), Duration::from_secs(30));
        assert_eq!(patience(u64::MAX), Duration::from_secs(300));
    }

    fn read(query: &str) -> Result<v1::DiscoverRequest, String> {
        let (which, rest) = WhichInstances::read(query, &["limit", "stale"]).map_err(|bad| format!("{bad:?}"))?;
        which.message(&rest).map_err(|bad| format!("{bad:?}"))
    }

    #[test]
    fn a_query_says_which_instances() {
        let asked = read("service=a%2Fb&cap=gpu%26!old&label=k%3Dv&label=x%3D&zone=eu&all=true&limit=5&stale=true");
        let labels = [("k", "v"), ("x", "")].map(|(key, value)| (key.into(), value.into()));
        let full = v1::DiscoverRequest {
            service: "a/b".into(),
            capabilities: "gpu&!old".into(),
            labels: labels.into(),
            zone: "eu".into(),
            all: true,
            limit: 5,
            stale: true,
            ..v1::DiscoverRequest::default()
        };
        assert_eq!(asked, Ok(full));
        assert_eq!(read(""), Ok(v1::DiscoverRequest::default()));
        for (bad, word) in [
            ("nothing=1", "unknown field `nothing`"),
            ("after=1", "unknown field `after`"),
            ("label=k", "KEY=VALUE"),
            ("label=k%3D1&label=k%3D2", "twice"),
            ("all=yes", "neither true nor false"),
            ("limit=-1", "not a whole number"),
            ("service=%FF", "not text"),
        ] {
            let refused = read(bad).unwrap_err();
            assert!(refused.contains(word) && refused.contains("bad_query"), "{bad}: {refused}");
        }
    }

    #[test]
    fn an_answer_is_kept_no_longer_than_its_first_lease() {
        let kept = |valid_for_ms| cache_control(&v1::DiscoverReply { valid_for_ms, ..v1::DiscoverReply::default() });
        assert_eq!(kept(14_999), "private, max-age=14");
        assert_eq!(kept(1_000), "private, max-age=1");
        assert_eq!(kept(999), "no-store");
        assert_eq!(kept(0), "no-store", "nobody knows when somebody comes");
    }

    #[test]
    fn a_message_has_a_place_only_if_it_ends_something() {
        let part = v1::WatchInstancesReply { snapshot: true, ..v1::WatchInstancesReply::default() };
        assert!(message(&part).starts_with("event: snapshot\ndata: {"));
        let last = v1::WatchInstancesReply { last: true, revision: 7, ..part };
        assert!(message(&last).starts_with("event: snapshot\nid: 7\ndata: {"));
        let fresh = v1::WatchInstancesReply { last: true, revision: 8, ..v1::WatchInstancesReply::default() };
        assert!(message(&fresh).starts_with("event: fresh\nid: 8\n"));
        let removed = vec![v1::RemovedInstance::default()];
        let changes =
            v1::WatchInstancesReply { removed, revision: 9, last: true, ..v1::WatchInstancesReply::default() };
        assert!(message(&changes).starts_with("event: changes\nid: 9\n") && message(&changes).ends_with("}\n\n"));
    }
}
