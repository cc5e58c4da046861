//! Leases by themselves: lease grant|ls|show|release. Their revocation is `revoke.rs`.

use super::acquire::grant as grant_request;
use super::again::{again, once};
use super::revoke::revoke;
use super::{Caller, lease_or_none, lease_text, words};
use crate::args::{Lease as Asked, LeaseFilter, Terms};
use crate::clock;
use crate::failure::Failure;
use crate::page::{Cell, Left, List, Page, Row};
use crate::print::{self, Draw};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use tenure::v1::show_lease_reply::State;
use tenure::{Client, v1};

#[derive(Serialize)]
struct Lease {
    lease: String,
    holder: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    api_key: String,
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    class: String,
    ttl_ms: u64,
    remaining_ms: u64,
    grace_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    granted_wall_ms: u64,
    renewed_wall_ms: u64,
    lifetime_ms: u64,
    lifetime_while_others_wait: bool,
    is_final: bool,
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    holds: Vec<String>,
    waits: Vec<String>,
    attached: u64,
    children: u64,
    keys: u64,
}

impl Lease {
    fn new(item: v1::Lease) -> Self {
        Self {
            state: words::state(&item).into(),
            lease: lease_text(item.lease),
            holder: item.holder,
            api_key: item.api_key,
            class: item.class,
            ttl_ms: item.ttl_ms,
            remaining_ms: item.remaining_ms,
            grace_ms: item.grace_ms,
            parent: lease_or_none(item.parent),
            granted_wall_ms: item.granted_wall_ms,
            renewed_wall_ms: item.renewed_wall_ms,
            lifetime_ms: item.lifetime_ms,
            lifetime_while_others_wait: item.lifetime_while_others_wait,
            is_final: item.is_final,
            labels: item.labels,
            reason: item.reason,
            holds: item.holds,
            waits: item.waits,
            attached: item.attached,
            children: item.children,
            keys: item.keys,
        }
    }

    fn left(&self) -> Left {
        Left { remaining_ms: self.remaining_ms, of_ms: self.ttl_ms }
    }

    /// Everything about it that is worth a line.
    fn facts(&self, page: &Page) -> Vec<(&'static str, String)> {
        let ago = |wall_ms: u64| print::ago_ms(clock::wall_ms().saturating_sub(wall_ms));
        let left = print::span_ms(self.remaining_ms);
        let mut facts = vec![
            ("lease", self.lease.clone()),
            ("holder", self.holder.clone()),
            ("state", self.state.clone()),
            ("until", format!("{}{left} left of {}", page.bar(self.left()), print::span_ms(self.ttl_ms))),
            ("granted", format!("{} ({})", ago(self.granted_wall_ms), clock::local(self.granted_wall_ms))),
            ("renewed", format!("{} ({})", ago(self.renewed_wall_ms), clock::local(self.renewed_wall_ms))),
        ];
        let while_others_wait = if self.lifetime_while_others_wait { " while others wait" } else { "" };
        let lifetime = match self.lifetime_ms {
            0 => String::new(),
            ms if self.is_final => format!("{}{while_others_wait}; no renewal moves it further", print::span_ms(ms)),
            ms => format!("{}{while_others_wait}", print::span_ms(ms)),
        };
        let counted = |number: u64, one: &str, several: &str| match number {
            0 => String::new(),
            number => print::count(number, one, several),
        };
        let more = [
            ("what for", self.reason.clone()),
            ("API key", self.api_key.clone()),
            ("class", self.class.clone()),
            ("labels", words::labels(&self.labels)),
            ("grace", if self.grace_ms == 0 { String::new() } else { print::span_ms(self.grace_ms) }),
            ("lifetime", lifetime),
            ("parent", self.parent.clone().unwrap_or_default()),
            ("holds", self.holds.join(" ")),
            ("waits for", self.waits.join(" ")),
            ("children", counted(self.children, "lease", "leases")),
            ("keys", counted(self.keys, "key", "keys")),
        ];
        facts.extend(more.into_iter().filter(|(_, value)| !value.is_empty()));
        facts
    }
}

impl Row for Lease {
    const HEADINGS: &'static [&'static str] =
        &["LEASE", "HOLDER", "STATE", "CLASS", "TTL", "LEFT", "HOLDS", "WAITS FOR"];
    const EMPTY: &'static str = "no lease lives";

    fn cells(&self) -> Vec<Cell> {
        let some = |names: &[String]| print::or_dash(&names.join(" "));
        let [lease, holder, state] = [&self.lease, &self.holder, &self.state].map(|text| text.as_str().into());
        let (class, ttl) = (print::or_dash(&self.class).into(), print::span_ms(self.ttl_ms).into());
        let left = Cell::Left(self.left());
        let keys = (self.keys > 0).then(|| print::count(self.keys, "key", "keys"));
        let holds: Vec<String> = self.holds.iter().cloned().chain(keys).collect();
        vec![lease, holder, state, class, ttl, left, some(&holds).into(), some(&self.waits).into()]
    }

    fn name(&self) -> String {
        self.lease.clone()
    }
}

pub(crate) async fn lease(caller: &Caller, asked: Asked) -> Result<ExitCode, Failure> {
    match asked {
        Asked::Grant(terms) => grant(caller, *terms).await,
        Asked::Ls(filter) => ls(caller, filter).await,
        Asked::Show { lease } => show(caller, lease).await,
        Asked::Release { lease } => release(caller, lease).await,
        Asked::Revoke(args) => revoke(caller, args).await,
    }
}

#[derive(Serialize)]
struct Granted {
    lease: String,
    holder: String,
    ttl_ms: u64,
}

async fn grant(caller: &Caller, terms: Terms) -> Result<ExitCode, Failure> {
    let what = "cannot grant a lease";
    let client = caller.connect(what).await?;
    let request = grant_request(terms);
    let holder = request.holder.clone();
    let reply = client.grant(request).await.map_err(|error| Failure::of(what, &error))?;
    let granted = Granted { lease: lease_text(reply.lease), holder, ttl_ms: reply.ttl_ms };
    print::one(caller.output, &granted.lease, &granted);
    Ok(ExitCode::SUCCESS)
}

async fn ls(caller: &Caller, filter: LeaseFilter) -> Result<ExitCode, Failure> {
    let what = "cannot list leases";
    let request = v1::ListLeasesRequest {
        holder: filter.holder.unwrap_or_default(),
        label: filter.label.map(|label| v1::Label { key: label.key, value: label.value }),
        class: filter.class.unwrap_or_default(),
        holds_prefix: filter.holds.unwrap_or_default(),
        ..v1::ListLeasesRequest::default()
    };
    let look = async |client: &Client| {
        let leases = all(client, request.clone(), what).await?;
        Ok(List(leases.into_iter().map(Lease::new).collect()))
    };
    if filter.watch { again(caller, what, look).await } else { once(caller, what, look).await }
}

/// All leases that were asked for, page by page.
async fn all(client: &Client, mut request: v1::ListLeasesRequest, what: &str) -> Result<Vec<v1::Lease>, Failure> {
    let mut leases = Vec::new();
    loop {
        let page = client.list_leases(request.clone()).await.map_err(|error| Failure::of(what, &error))?;
        leases.extend(page.items);
        if page.next == 0 {
            return Ok(leases);
        }
        request.from = page.next;
    }
}

/// A living lease with the names of what hangs on it.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    lease: Lease,
    child_leases: Vec<String>,
    key_names: Vec<String>,
}

#[derive(Serialize)]
struct Ended {
    lease: String,
    holder: String,
    state: &'static str,
    how: String,
    ended_wall_ms: u64,
}

async fn show(caller: &Caller, lease: u64) -> Result<ExitCode, Failure> {
    let what = format!("cannot show lease {}", lease_text(lease));
    let client = caller.connect(&what).await?;
    let request = v1::ShowLeaseRequest { lease, stale: false };
    let reply = client.show_lease(request).await.map_err(|error| Failure::of(&what, &error))?;
    match reply.state.ok_or_else(|| Failure::puzzled(&what))? {
        State::Living(item) => {
            let shown = Shown {
                lease: Lease::new(item),
                child_leases: reply.children.into_iter().map(lease_text).collect(),
                key_names: reply.keys.iter().map(|key| words::text(key)).collect(),
            };
            print::draw(caller.output, &shown);
        }
        State::Ended(item) => {
            let end = item.end.unwrap_or_default();
            let ended = Ended {
                lease: lease_text(item.lease),
                holder: item.holder,
                state: "ended",
                how: words::end(&end),
                ended_wall_ms: end.wall_ms,
            };
            print::draw(caller.output, &ended);
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Draw for Shown {
    fn draw(&self, page: &mut Page) {
        let mut facts = self.lease.facts(page);
        let named = |names: &[String], fact: &mut String| *fact = format!("{fact}: {}", names.join(" "));
        for (name, fact) in &mut facts {
            match *name {
                "children" => named(&self.child_leases, fact),
                "keys" => named(&self.key_names, fact),
                _ => {}
            }
        }
        page.facts(&facts);
    }

    fn names(&self) -> Vec<String> {
        vec![self.lease.lease.clone()]
    }
}

impl Draw for Ended {
    fn draw(&self, page: &mut Page) {
        let ago = print::ago_ms(clock::wall_ms().saturating_sub(self.ended_wall_ms));
        page.facts(&[
            ("lease", self.lease.clone()),
            ("holder", self.holder.clone()),
            ("state", self.state.into()),
            ("how", self.how.clone()),
            ("when", format!("{ago} ({})", clock::local(self.ended_wall_ms))),
        ]);
    }

    fn names(&self) -> Vec<String> {
        vec![self.lease.clone()]
    }
}

async fn release(caller: &Caller, lease: u64) -> Result<ExitCode, Failure> {
    let what = format!("cannot release lease {}", lease_text(lease));
    let client = caller.connect(&what).await?;
    let request = v1::ReleaseLeaseRequest { lease, ..v1::ReleaseLeaseRequest::default() };
    client.release_lease(request).await.map_err(|error| Failure::of(&what, &error))?;
    Ok(ExitCode::SUCCESS)
}
