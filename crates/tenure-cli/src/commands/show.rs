//! `tenure show`: one resource in full. What it reads, `why` explains.

use super::again::{again, once};
use super::{Caller, lease_or_none, lease_text, words};
use crate::args::Show as Asked;
use crate::failure::Failure;
use crate::page::{Cell, Left, Page, Row};
use crate::print::{self, Draw};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use tenure::{Client, v1};

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
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_key: String,
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
        api_key: held.api_key,
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

impl Holding {
    pub(super) fn left(&self) -> Left {
        Left { remaining_ms: self.remaining_ms, of_ms: self.ttl_ms }
    }
}

impl Row for Holding {
    const HEADINGS: &'static [&'static str] = &["HANDLE", "HOLDER", "MODE", "SINCE", "RENEWED", "LEFT", "WHAT FOR"];
    const EMPTY: &'static str = "nobody holds it";

    fn cells(&self) -> Vec<Cell> {
        let left = match self.state.as_str() {
            "overdue" => "overdue".into(),
            _ => Cell::Left(self.left()),
        };
        let (since, renewed) = (print::ago_ms(self.held_ms), print::ago_ms(self.renewed_ago_ms));
        let (mode, reason) = (words::mode(self.mode, self.units), print::or_dash(&self.reason));
        let (handle, holder) = (self.handle.clone().into(), self.holder.clone().into());
        vec![handle, holder, mode.into(), since.into(), renewed.into(), left, reason.into()]
    }

    fn name(&self) -> String {
        self.handle.clone()
    }
}

impl Row for Vacating {
    const HEADINGS: &'static [&'static str] = &["HANDLE", "HOLDER", "MODE", "HOW IT ENDED", "FREE IN"];
    const EMPTY: &'static str = "nothing is vacating";

    fn cells(&self) -> Vec<Cell> {
        let (end, left) = (print::or_dash(&self.end), print::span_ms(self.remaining_ms));
        let cells = [self.handle.clone(), self.holder.clone(), words::mode(self.mode, self.units), end, left];
        cells.map(Cell::from).into()
    }

    fn name(&self) -> String {
        self.handle.clone()
    }
}

impl Row for Waiter {
    const HEADINGS: &'static [&'static str] =
        &["PLACE", "HOLDER", "MODE", "PRIORITY", "WAITED", "GIVES UP IN", "WAITS FOR"];
    const EMPTY: &'static str = "nobody waits";

    fn cells(&self) -> Vec<Cell> {
        let limit = self.limit_left_ms.map_or_else(|| "-".into(), print::span_ms);
        let cells = [
            self.place.to_string(),
            self.holder.clone(),
            words::mode(self.mode, self.units),
            if self.reserved { "reserved".into() } else { self.priority.to_string() },
            print::span_ms(self.waited_ms),
            limit,
            self.resources.join(" "),
        ];
        cells.map(Cell::from).into()
    }

    fn name(&self) -> String {
        self.lease.clone()
    }
}

impl Row for Past {
    const HEADINGS: &'static [&'static str] = &["HANDLE", "HOLDER", "MODE", "HELD FOR", "ENDED", "HOW"];
    const EMPTY: &'static str = "no claim is remembered";

    fn cells(&self) -> Vec<Cell> {
        let ended = print::ago_ms(crate::clock::wall_ms().saturating_sub(self.ended_wall_ms));
        let held = print::span_ms(self.held_ms);
        let (mode, end) = (words::mode(self.mode, self.units), self.end.clone());
        [self.handle.clone(), self.holder.clone(), mode, held, ended, end].map(Cell::from).into()
    }

    fn name(&self) -> String {
        self.handle.clone()
    }
}

/// Asks for one resource.
pub(super) async fn look(client: &Client, name: &str, what: &str) -> Result<Show, Failure> {
    let request = v1::ShowRequest { resource: name.into(), stale: false };
    Ok(client.show(request).await.map_err(|error| Failure::of(what, &error))?.into())
}

pub(crate) async fn show(caller: &Caller, args: Asked) -> Result<ExitCode, Failure> {
    let what = format!("cannot show {}", args.name);
    let look = async |client: &Client| look(client, &args.name, &what).await;
    if args.watch { again(caller, &what, look).await } else { once(caller, &what, look).await }
}

impl Show {
    /// Whether nobody has, wants or had it.
    pub(super) fn is_blank(&self) -> bool {
        self.state == "free" && !self.defined && self.past.is_empty()
    }
}

impl Draw for Show {
    fn draw(&self, page: &mut Page) {
        let capacity = match (self.capacity, self.defined) {
            (1, false) => "1".into(),
            (capacity, false) => format!("{capacity}, {} free", self.free_units),
            (capacity, true) => format!("{capacity} by definition, {} free", self.free_units),
        };
        page.facts(&[("name", self.name.clone()), ("state", self.state.clone()), ("capacity", capacity)]);
        section(page, "holders", self.holders_count, &self.holders);
        section(page, "vacating", self.vacating_count, &self.vacating);
        section(page, "line", self.waiting, &self.line);
        section(page, "before", self.past.len() as u64, &self.past);
    }

    fn names(&self) -> Vec<String> {
        self.holders.iter().map(|held| held.handle.clone()).collect()
    }
}

/// A table under its name, if there is anything in it.
fn section<T: Row>(page: &mut Page, name: &str, count: u64, rows: &[T]) {
    if rows.is_empty() {
        return;
    }
    let shown = rows.len() as u64;
    let more = if count > shown { format!(" (the first {shown} of {count})") } else { String::new() };
    page.line(&format!("\n{name}{more}"));
    page.table(2, rows);
}
