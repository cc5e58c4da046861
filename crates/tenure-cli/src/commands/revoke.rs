//! `tenure lease revoke`: ends leases, and says what stays vacating and for how long.

use super::{Caller, lease_text};
use crate::args::{Output, Revoke};
use crate::failure::Failure;
use crate::print;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use tenure::v1::revoke_request::Which;
use tenure::{Client, Error, v1};

/// Events asked for in one page of the history.
const EVENTS_MAX: u32 = 1000;

/// Resources that people are told of one by one.
const TOLD_MAX: usize = 10;

#[derive(Serialize)]
struct Revoked {
    leases: u64,
    /// How long each resource stays vacating.
    vacating_ms: BTreeMap<String, u64>,
}

pub(crate) async fn revoke(caller: &Caller, args: Revoke) -> Result<ExitCode, Failure> {
    let which = which(&args)
        .ok_or_else(|| Failure::usage("cannot revoke", "nothing was named", "Say which: see `tenure lease ls`."))?;
    let what = format!("cannot revoke {}", named(&which));
    let client = caller.connect(&what).await?;
    let status = client.status(v1::StatusRequest {}).await.map_err(|error| Failure::of(&what, &error))?;
    let by = tenure::default_holder();
    let mut request = v1::RevokeRequest {
        which: Some(which),
        by: by.clone(),
        reason: args.reason,
        from: String::new(),
        now: args.now,
    };
    let mut leases = 0;
    loop {
        let reply = client.revoke(request.clone()).await.map_err(|error| match leases {
            0 => Failure::of(&what, &error),
            _ => halfway("cannot revoke the rest", leases, &error),
        })?;
        leases += reply.count;
        if reply.next.is_empty() {
            break;
        }
        request.from = reply.next;
    }
    let vacating_ms = vacating(&client, &by, status.revision).await;
    let vacating_ms = vacating_ms.map_err(|error| halfway("cannot say what stays vacating", leases, &error))?;
    tell(caller.output, &Revoked { leases, vacating_ms }, args.now);
    Ok(ExitCode::SUCCESS)
}

/// What is said when something was done already.
fn halfway(what: &str, leases: u64, error: &Error) -> Failure {
    let why = format!("{} revoked, and then {error}", print::count(leases, "lease is", "leases are"));
    Failure::new(what, &why, "See what is left with `tenure lease ls` and `tenure resource ls`.")
}

fn which(args: &Revoke) -> Option<Which> {
    let which = &args.which;
    which
        .lease
        .map(Which::Lease)
        .or_else(|| which.prefix.clone().map(Which::Prefix))
        .or_else(|| which.holder.clone().map(Which::Holder))
        .or_else(|| which.label.clone().map(|label| Which::Label(v1::Label { key: label.key, value: label.value })))
}

fn named(which: &Which) -> String {
    match which {
        Which::Lease(lease) => format!("lease {}", lease_text(*lease)),
        Which::Prefix(prefix) => format!("what is held under {prefix}"),
        Which::Holder(holder) => format!("the leases of {holder}"),
        Which::Label(label) => format!("the leases with {}={}", label.key, label.value),
    }
}

/// How long each resource stays vacating after what this order ended since then, children included.
async fn vacating(client: &Client, by: &str, since: u64) -> Result<BTreeMap<String, u64>, Error> {
    let mut vacating = BTreeMap::new();
    let mut roots = BTreeSet::new();
    let mut request = v1::HistoryRequest { limit: EVENTS_MAX, ..v1::HistoryRequest::default() };
    loop {
        let page = client.history(request.clone()).await?;
        // Newest first, so that the end of a root comes before what ended with it.
        for event in page.events.iter().filter(|event| event.revision > since) {
            let Some(end) = &event.end else { continue };
            let is_ours = end.by == by || roots.contains(&end.parent);
            if is_ours && event.kind == "ended" {
                roots.insert(event.lease);
            }
            if let (true, Some(until_ms)) = (is_ours, event.until_ms) {
                let left = vacating.entry(event.resource.clone()).or_default();
                *left = until_ms.saturating_sub(page.now_ms).max(*left);
            }
        }
        let is_all = page.events.last().is_none_or(|oldest| oldest.revision <= since);
        match page.next {
            Some(next) if !is_all => request.before = Some(next),
            _ => return Ok(vacating),
        }
    }
}

fn tell(output: Output, revoked: &Revoked, now: bool) {
    if output != Output::Table {
        return print::one(output, &revoked.leases.to_string(), revoked);
    }
    print::say(&format!("{} revoked", print::count(revoked.leases, "lease", "leases")));
    for (name, ms) in revoked.vacating_ms.iter().take(TOLD_MAX) {
        print::say(&format!("{name} stays vacating for {}, as was promised to its holder", print::span_ms(*ms)));
    }
    if revoked.vacating_ms.len() > TOLD_MAX {
        print::say(&format!("and {} more do so", revoked.vacating_ms.len() - TOLD_MAX));
    }
    if let Some(name) = revoked.vacating_ms.keys().next() {
        let name = print::quoted(name);
        print::say(&format!("free it at once with: tenure break {name} --now --reason TEXT"));
    }
    if now {
        print::say("only the fence protects what the old holders were doing");
    }
}
