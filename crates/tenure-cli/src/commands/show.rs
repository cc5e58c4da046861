//! `tenure show`: one resource in full. What it reads, `why` explains.

use super::{Caller, lease_or_none, lease_text, words};
use crate::args::{Output, Show as Asked};
use crate::failure::Failure;
use crate::print::{self, Row};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use tenure::v1;

#[derive(Serialize)]
pub(super) struct Show {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) capacity: u64,
    pub(super) defined: bool,
    pub(super) free_units: u64,
    pub(super) holders: Vec<Holding>,
    pub(super) holders_count: u64,
    pub(super) vacating: Vec<Vacating>,
    pub(super) vacating_count: u64,
    pub(super) line: Vec<Waiter>,
    pub(super) waiting: u64,
    pub(super) past: Vec<Past>,
    pub(super) blockers: Vec<Blocker>,
}

#[derive(Serialize)]
pub(super) struct Holding {
    pub(super) handle: String,
    pub(super) holder: String,
    pub(super) lease: String,
    pub(super) fence: u64,
    #[serde(serialize_with = "words::as_word")]
    pub(super) mode: v1::Mode,
    pub(super) units: u64,
    pub(super) state: String,
    pub(super) since_wall_ms: u64,
    pub(super) held_ms: u64,
    pub(super) renewed_wall_ms: u64,
    pub(super) renewed_ago_ms: u64,
    pub(super) ttl_ms: u64,
    pub(super) remaining_ms: u64,
    pub(super) grace_ms: u64,
    pub(super) lock_delay_ms: u64,
    pub(super) is_final: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) breaks_in_ms: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) breaks_by: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) breaks_reason: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) epoch: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) class: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    pub(super) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Vacating {
    pub(super) handle: String,
    pub(super) holder: String,
    pub(super) lease: String,
    pub(super) fence: u64,
    #[serde(serialize_with = "words::as_word")]
    pub(super) mode: v1::Mode,
    pub(super) units: u64,
    pub(super) remaining_ms: u64,
    pub(super) end: String,
}

#[derive(Serialize)]
pub(super) struct Waiter {
    pub(super) place: u64,
    pub(super) holder: String,
    pub(super) lease: String,
    #[serde(serialize_with = "words::as_word")]
    pub(super) mode: v1::Mode,
    pub(super) units: u64,
    pub(super) priority: i32,
    pub(super) since_wall_ms: u64,
    pub(super) waited_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit_left_ms: Option<u64>,
    pub(super) resources: Vec<String>,
    pub(super) reserved: bool,
    pub(super) remaining_ms: u64,
}

#[derive(Serialize)]
pub(super) struct Past {
    pub(super) handle: String,
    pub(super) holder: String,
    pub(super) lease: String,
    pub(super) fence: u64,
    #[serde(serialize_with = "words::as_word")]
    pub(super) mode: v1::Mode,
    pub(super) units: u64,
    pub(super) since_wall_ms: u64,
    pub(super) held_ms: u64,
    pub(super) ended_wall_ms: u64,
    pub(super) end: String,
}

#[derive(Serialize)]
pub(super) struct Blocker {
    pub(super) depth: u32,
    pub(super) resource: String,
    pub(super) state: String,
    pub(super) holder: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<String>,
    pub(super) fence: u64,
    pub(super) remaining_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<v1::ShowReply> for Show {
    fn from(reply: v1::ShowReply) -> Self {
        let name = &reply.name;
        Self {
            holders: reply.holders.into_iter().map(|held| holding(name, held)).collect(),
            vacating: reply.vacating.into_iter().map(|stake| vacating(name, stake)).collect(),
            line: reply.line.into_iter().map(waiter).collect(),
            past: reply.past.into_iter().map(|claim| past(name, claim)).collect(),
            blockers: reply.blockers.into_iter().map(blocker).collect(),
            state: reply.state,
            capacity: reply.capacity,
            defined: reply.defined,
            free_units: reply.free_units,
            holders_count: reply.holders_count,
            vacating_count: reply.vacating_count,
            waiting: reply.waiting,
            name: reply.name,
        }
    }
}

fn holding(name: &str, held: v1::Holding) -> Holding {
    Holding {
        handle: format!("{name}@{}", held.fence),
        mode: held.mode(),
        holder: held.holder,
        lease: lease_text(held.lease),
        fence: held.fence,
        units: held.units,
        state: held.state,
        since_wall_ms: held.since_wall_ms,
        held_ms: held.held_ms,
        renewed_wall_ms: held.renewed_wall_ms,
        renewed_ago_ms: held.renewed_ago_ms,
        ttl_ms: held.ttl_ms,
        remaining_ms: held.remaining_ms,
        grace_ms: held.grace_ms,
        lock_delay_ms: held.lock_delay_ms,
        is_final: held.is_final,
        breaks_in_ms: held.breaks_in_ms,
        breaks_by: held.breaks_by,
        breaks_reason: held.breaks_reason,
        epoch: held.epoch,
        class: held.class,
        reason: held.reason,
        labels: held.labels,
        parent: lease_or_none(held.parent),
    }
}

fn vacating(name: &str, stake: v1::Vacating) -> Vacating {
    Vacating {
        handle: format!("{name}@{}", stake.fence),
        mode: stake.mode(),
        holder: stake.holder,
        lease: lease_text(stake.lease),
        fence: stake.fence,
        units: stake.units,
        remaining_ms: stake.remaining_ms,
        end: stake.end.as_ref().map(words::end).unwrap_or_default(),
    }
}

fn waiter(waiter: v1::Waiter) -> Waiter {
    Waiter {
        mode: waiter.mode(),
        place: waiter.place,
        holder: waiter.holder,
        lease: lease_text(waiter.lease),
        units: waiter.units,
        priority: waiter.priority,
        since_wall_ms: waiter.since_wall_ms,
        waited_ms: waiter.waited_ms,
        limit_left_ms: waiter.limit_left_ms,
        resources: waiter.resources,
        reserved: waiter.reserved,
        remaining_ms: waiter.remaining_ms,
    }
}

fn past(name: &str, claim: v1::PastClaim) -> Past {
    let mode = claim.mode();
    let end = claim.end.unwrap_or_default();
    Past {
        handle: format!("{name}@{}", claim.fence),
        holder: claim.holder,
        lease: lease_text(claim.lease),
        fence: claim.fence,
        mode,
        units: claim.units,
        since_wall_ms: claim.since_wall_ms,
        held_ms: claim.held_ms,
        ended_wall_ms: end.wall_ms,
        end: words::end(&end),
    }
}

fn blocker(blocker: v1::Blocker) -> Blocker {
    Blocker {
        depth: blocker.depth,
        resource: blocker.resource,
        state: blocker.state,
        holder: blocker.holder,
        lease: lease_or_none(blocker.lease),
        fence: blocker.fence,
        remaining_ms: blocker.remaining_ms,
    }
}

impl Row for Holding {
    const HEADINGS: &'static [&'static str] = &["HANDLE", "HOLDER", "MODE", "SINCE", "RENEWED", "LEFT", "WHAT FOR"];
    const EMPTY: &'static str = "nobody holds it";

    fn cells(&self) -> Vec<String> {
        let left = match self.state.as_str() {
            "overdue" => String::from("overdue"),
            _ => print::span_ms(self.remaining_ms),
        };
        vec![
            self.handle.clone(),
            self.holder.clone(),
            words::mode(self.mode, self.units),
            print::ago_ms(self.held_ms),
            print::ago_ms(self.renewed_ago_ms),
            left,
            print::or_dash(&self.reason),
        ]
    }

    fn name(&self) -> String {
        self.handle.clone()
    }
}

impl Row for Vacating {
    const HEADINGS: &'static [&'static str] = &["HANDLE", "HOLDER", "MODE", "HOW IT ENDED", "FREE IN"];
    const EMPTY: &'static str = "nothing is vacating";

    fn cells(&self) -> Vec<String> {
        let (end, left) = (print::or_dash(&self.end), print::span_ms(self.remaining_ms));
        vec![self.handle.clone(), self.holder.clone(), words::mode(self.mode, self.units), end, left]
    }

    fn name(&self) -> String {
        self.handle.clone()
    }
}

impl Row for Waiter {
    const HEADINGS: &'static [&'static str] =
        &["PLACE", "HOLDER", "MODE", "PRIORITY", "WAITED", "GIVES UP IN", "WAITS FOR"];
    const EMPTY: &'static str = "nobody waits";

    fn cells(&self) -> Vec<String> {
        let limit = self.limit_left_ms.map_or_else(|| "-".into(), print::span_ms);
        vec![
            self.place.to_string(),
            self.holder.clone(),
            words::mode(self.mode, self.units),
            if self.reserved { "reserved".into() } else { self.priority.to_string() },
            print::span_ms(self.waited_ms),
            limit,
            self.resources.join(" "),
        ]
    }

    fn name(&self) -> String {
        self.lease.clone()
    }
}

impl Row for Past {
    const HEADINGS: &'static [&'static str] = &["HANDLE", "HOLDER", "MODE", "HELD FOR", "ENDED", "HOW"];
    const EMPTY: &'static str = "no claim is remembered";

    fn cells(&self) -> Vec<String> {
        let ended = print::ago_ms(crate::clock::wall_ms().saturating_sub(self.ended_wall_ms));
        let held = print::span_ms(self.held_ms);
        vec![
            self.handle.clone(),
            self.holder.clone(),
            words::mode(self.mode, self.units),
            held,
            ended,
            self.end.clone(),
        ]
    }

    fn name(&self) -> String {
        self.handle.clone()
    }
}

/// Asks for one resource.
pub(super) async fn look(caller: &Caller, name: &str, what: &str) -> Result<Show, Failure> {
    let client = caller.connect(what).await?;
    let request = v1::ShowRequest { resource: name.into(), stale: false };
    Ok(client.show(request).await.map_err(|error| Failure::of(what, &error))?.into())
}

pub(crate) async fn show(caller: &Caller, args: Asked) -> Result<ExitCode, Failure> {
    let what = format!("cannot show {}", args.name);
    let show = look(caller, &args.name, &what).await?;
    match caller.output {
        Output::Json | Output::Jsonl => print::line(&print::json(&show)),
        Output::Name => show.holders.iter().for_each(|held| print::line(&held.handle)),
        Output::Table => tables(&show),
    }
    Ok(ExitCode::SUCCESS)
}

fn tables(show: &Show) {
    let capacity = match (show.capacity, show.defined) {
        (1, false) => "1".into(),
        (capacity, false) => format!("{capacity}, {} free", show.free_units),
        (capacity, true) => format!("{capacity} by definition, {} free", show.free_units),
    };
    print::facts(&[("name", show.name.clone()), ("state", show.state.clone()), ("capacity", capacity)]);
    section("holders", show.holders_count, &show.holders);
    section("vacating", show.vacating_count, &show.vacating);
    section("line", show.waiting, &show.line);
    section("before", show.past.len() as u64, &show.past);
}

/// A table under its name, if there is anything in it.
fn section<T: Row>(name: &str, count: u64, rows: &[T]) {
    if rows.is_empty() {
        return;
    }
    let shown = rows.len() as u64;
    let more = if count > shown { format!(" (the first {shown} of {count})") } else { String::new() };
    print::line(&format!("\n{name}{more}"));
    print::table(2, rows);
}
