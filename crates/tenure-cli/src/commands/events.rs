//! What happened and what happens: history, watch.

use super::{Caller, lease_or_none, lease_text, stop_signal, words};
use crate::args::{History, Output, Watch};
use crate::clock;
use crate::failure::Failure;
use crate::page::{Cell, List, Row};
use crate::print;
use serde::Serialize;
use std::process::ExitCode;
use tenure::{Error, v1};
use tenure_api::write_cursor;

/// Events asked for in one page of a history.
const PAGE: u32 = 1000;

#[derive(Serialize)]
struct Event {
    revision: u64,
    n: u32,
    wall_ms: u64,
    at_ms: u64,
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    instance: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    check: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    health: &'static str,
    #[serde(skip_serializing_if = "is_zero")]
    fence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    holder: String,
    #[serde(skip_serializing_if = "is_unsaid", serialize_with = "words::as_word")]
    mode: v1::Mode,
    #[serde(skip_serializing_if = "is_zero")]
    units: u64,
    #[serde(skip_serializing_if = "is_zero")]
    ttl_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    breaks_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<End>,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    key: String,
    #[serde(skip_serializing_if = "is_zero")]
    kv_revision: u64,
    #[serde(skip_serializing_if = "is_zero")]
    version: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_key: String,
    #[serde(skip)]
    words: String,
}

#[derive(Serialize)]
struct End {
    how: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    to: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_unsaid(mode: &v1::Mode) -> bool {
    *mode == v1::Mode::Unspecified
}

impl Event {
    fn new(event: v1::Event) -> Self {
        Self {
            words: sentence(&event),
            mode: event.mode(),
            health: match event.health() {
                v1::Health::Unspecified => "",
                health => words::health(health),
            },
            units: event.units,
            revision: event.revision,
            n: event.n,
            wall_ms: event.wall_ms,
            at_ms: event.at_ms,
            kind: event.kind,
            resource: event.resource,
            instance: event.instance,
            check: event.check,
            fence: event.fence,
            lease: lease_or_none(event.lease),
            holder: event.holder,
            ttl_ms: event.ttl_ms,
            until_ms: event.until_ms,
            breaks_at_ms: event.breaks_at_ms,
            end: event.end.map(|end| End {
                how: end.how,
                by: end.by,
                reason: end.reason,
                parent: lease_or_none(end.parent),
                to: end.to,
            }),
            why: event.why,
            parent: lease_or_none(event.parent),
            class: event.class,
            capacity: event.capacity,
            key: words::text(&event.key),
            kv_revision: event.kv_revision,
            version: event.version,
            by: event.by,
            reason: event.reason,
            api_key: event.api_key,
        }
    }

    /// The place to go on after.
    fn place(&self) -> String {
        write_cursor(&v1::Cursor { revision: self.revision, n: self.n })
    }
}

/// What happened, in words, and with which API key it was asked for.
fn sentence(event: &v1::Event) -> String {
    match event.api_key.as_str() {
        "" => happened(event),
        key => format!("{} [key {key}]", happened(event)),
    }
}

fn happened(event: &v1::Event) -> String {
    let handle = format!("{}@{}", event.resource, event.fence);
    let (lease, holder, resource) = (lease_text(event.lease), &event.holder, &event.resource);
    let mode = words::mode(event.mode(), event.units);
    let ttl = print::span_ms(event.ttl_ms);
    let end = words::end(event.end.as_ref().unwrap_or(&v1::End::default()));
    let after = |moment_ms: u64| print::span_ms(moment_ms.saturating_sub(event.at_ms));
    let on_lease = if event.lease == 0 { String::new() } else { format!(" on lease {lease}") };
    let key = words::text(&event.key);
    match event.kind.as_str() {
        "granted" => {
            let class = if event.class.is_empty() { String::new() } else { format!(", class {}", event.class) };
            let parent =
                if event.parent == 0 { String::new() } else { format!(", under {}", lease_text(event.parent)) };
            format!("lease {lease} granted to {holder} for {ttl}{class}{parent}")
        }
        "queued" => format!("{holder} waits for {resource} ({mode})"),
        "seated" => format!("{holder} holds {handle} ({mode}) for {ttl}"),
        "vacated" => match event.until_ms {
            Some(until_ms) => format!("{handle} {end}; vacating for {}", after(until_ms)),
            None => format!("{handle} {end}"),
        },
        "freed" => format!("{handle} is vacated"),
        "breaking" => {
            let order = words::by_order("", &event.by, &event.reason);
            format!("{handle} will be broken in {}{order}", after(event.breaks_at_ms))
        }
        "left" => format!("lease {lease} left the line of {resource}: {}", event.why.replace('_', " ")),
        "ended" => format!("lease {lease} of {holder} {end}"),
        "defined" => match event.capacity {
            Some(capacity) => format!("{resource} defined with {}", print::count(capacity, "unit", "units")),
            None => format!("{resource} no longer defined"),
        },
        "class_set" => format!("class {} set", event.class),
        "put" => format!("key {key} written{on_lease} (version {})", event.version),
        "deleted" => format!("key {key} deleted{on_lease}"),
        _ if !event.instance.is_empty() => sentence_of_instance(event),
        other => format!("{other} {resource}"),
    }
}

fn sentence_of_instance(event: &v1::Event) -> String {
    let (instance, by) = (&event.instance, words::by_order("", &event.by, &event.reason));
    let until = event.until_ms.map(|until_ms| print::span_ms(until_ms.saturating_sub(event.at_ms)));
    match event.kind.as_str() {
        "registered" => format!("{instance} registered by {}", event.holder),
        "updated" => format!("{instance} says something else of itself"),
        "drained" => format!("{instance} drained{by}"),
        "undrained" => format!("{instance} undrained{by}"),
        "health_changed" => {
            let check = match event.check.as_str() {
                "" => String::new(),
                check => format!(" (check {check} {})", words::health(event.check_health())),
            };
            let held = until.map_or_else(String::new, |until| format!(", held down for {until}"));
            format!("{instance} is {}{check}{held}", words::health(event.health()))
        }
        "deregistered" => {
            let end = words::end(event.end.as_ref().unwrap_or(&v1::End::default()));
            format!("{instance} gone: {end}")
        }
        "suspected" => format!("{instance} is suspect, and kept for {}", until.unwrap_or_default()),
        "cleared" => format!("{instance} is heard of again"),
        other => format!("{other} {instance}"),
    }
}

impl Row for Event {
    const HEADINGS: &'static [&'static str] = &["PLACE", "WHEN", "WHAT"];
    const EMPTY: &'static str = "nothing is remembered";

    fn cells(&self) -> Vec<Cell> {
        let ago = print::ago_ms(clock::wall_ms().saturating_sub(self.wall_ms));
        vec![self.place().into(), ago.into(), self.words.clone().into()]
    }

    fn name(&self) -> String {
        self.place()
    }
}

pub(crate) async fn history(caller: &Caller, args: History) -> Result<ExitCode, Failure> {
    let what = "cannot tell what happened";
    let client = caller.connect(what).await?;
    let hint = args.name.as_ref().map(|name| (name, print::quoted(name))).map(|(name, quoted)| {
        format!("only {name} itself was asked for; what starts so: tenure history --prefix {quoted}")
    });
    let mut request = v1::HistoryRequest {
        resource: args.name.unwrap_or_default(),
        prefix: args.prefix.unwrap_or_default(),
        ..v1::HistoryRequest::default()
    };
    let mut rows: Vec<Event> = Vec::new();
    let mut left = args.limit;
    while left > 0 {
        request.limit = left.min(PAGE);
        let page = client.history(request.clone()).await.map_err(|error| Failure::of(what, &error))?;
        left = left.saturating_sub(u32::try_from(page.events.len()).unwrap_or(u32::MAX));
        rows.extend(page.events.into_iter().map(Event::new));
        let Some(next) = page.next else { break };
        request.before = Some(next);
    }
    let is_empty = rows.is_empty();
    print::draw(caller.output, &List(rows));
    if let Some(hint) = hint.filter(|_| is_empty) {
        print::say(&hint);
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn watch(caller: &Caller, args: Watch) -> Result<ExitCode, Failure> {
    let what = "cannot watch";
    let stopped = stop_signal()
        .map_err(|error| Failure::before(what, &error.to_string(), "Look with `tenure history` instead."))?;
    let client = caller.connect(what).await?;
    // As they were typed, each with a space before it.
    let typed: String = args.prefixes.iter().map(|prefix| format!(" {}", print::quoted(prefix))).collect();
    let request = v1::WatchRequest { prefixes: args.prefixes, after: args.after, ..v1::WatchRequest::default() };
    let mut replies = client.watch_stream(request).await.map_err(|error| Failure::of(what, &error))?;
    let mut at: Option<v1::Cursor> = None;
    tokio::pin!(stopped);
    loop {
        let reply = tokio::select! {
            reply = replies.message() => reply,
            () = &mut stopped => return Ok(ExitCode::SUCCESS),
        };
        match reply {
            Ok(Some(reply)) => {
                reply.events.into_iter().map(Event::new).for_each(|event| tell(caller.output, &event));
                at = reply.cursor.or(at);
            }
            Ok(None) => return Err(broken(&typed, at, &Error::Broken("the server closed the stream".into()))),
            Err(status) => return Err(broken(&typed, at, &status.into())),
        }
    }
}

/// A watch that was under way says where to go on.
fn broken(typed: &str, at: Option<v1::Cursor>, error: &Error) -> Failure {
    match (error, at) {
        (Error::Broken(why), Some(at)) => {
            let place = write_cursor(&at);
            let next = format!("Go on without a gap: tenure watch{typed} --after {place}");
            Failure::unreachable("the watch has ended", why, &next)
        }
        _ => Failure::of("cannot watch", error),
    }
}

fn tell(output: Output, event: &Event) {
    match output {
        Output::Json | Output::Jsonl => print::line(&print::json(event)),
        Output::Name => print::line(&event.place()),
        Output::Table => {
            print::line(&format!("{:<8}  {}  {}", event.place(), clock::local(event.wall_ms), event.words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str) -> v1::Event {
        v1::Event {
            kind: kind.into(),
            resource: "db".into(),
            fence: 7,
            lease: 255,
            holder: "ann".into(),
            mode: v1::Mode::Shared.into(),
            ttl_ms: 15_000,
            at_ms: 1_000,
            ..v1::Event::default()
        }
    }

    #[test]
    fn every_event_is_a_sentence() {
        let told = [
            (event("granted"), "lease 00000000000000ff granted to ann for 15.0s"),
            (event("queued"), "ann waits for db (shared)"),
            (event("seated"), "ann holds db@7 (shared) for 15.0s"),
            (event("freed"), "db@7 is vacated"),
            (
                v1::Event { why: "waited_out".into(), ..event("left") },
                "lease 00000000000000ff left the line of db: waited out",
            ),
            (v1::Event { capacity: Some(3), ..event("defined") }, "db defined with 3 units"),
            (event("defined"), "db no longer defined"),
            (v1::Event { class: "lock".into(), ..event("class_set") }, "class lock set"),
            (
                v1::Event { key: b"k".into(), version: 2, ..event("put") },
                "key k written on lease 00000000000000ff (version 2)",
            ),
            (v1::Event { key: b"k".into(), lease: 0, ..event("deleted") }, "key k deleted"),
        ];
        for (event, words) in told {
            assert_eq!(sentence(&event), words);
        }
        let with_key = v1::Event { api_key: "ops".into(), ..event("freed") };
        assert_eq!(sentence(&with_key), "db@7 is vacated [key ops]");
        let end =
            Some(v1::End { how: "revoked".into(), by: "op".into(), reason: "stuck".into(), ..v1::End::default() });
        let vacated = v1::Event { end, until_ms: Some(4_000), ..event("vacated") };
        assert_eq!(sentence(&vacated), "db@7 revoked by op: stuck; vacating for 3.0s");
        let breaking = v1::Event { breaks_at_ms: 31_000, by: "op".into(), reason: "stuck".into(), ..event("breaking") };
        assert_eq!(sentence(&breaking), "db@7 will be broken in 30.0s by op: stuck");
    }
}
