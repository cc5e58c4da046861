//! `tenure acquire`: claims on a new lease or a given one.

use super::wait::{self, NotGot};
use super::{Caller, lease_text, millis, stop_signal};
use crate::args::{Acquire, Output, Terms};
use crate::failure::Failure;
use crate::print;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tenure::timing::TTL_DEFAULT;
use tenure::v1::acquire_reply::State;
use tenure::{Client, Error, Hold, v1};

#[derive(Serialize)]
struct Claim {
    handle: String,
    name: String,
    fence: u64,
}

/// What was acquired. The first claim stands beside the lease, so that who claims one thing need not look further.
#[derive(Serialize)]
struct Held {
    #[serde(flatten)]
    first: Claim,
    lease: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    ttl_ms: u64,
    claims: Vec<Claim>,
}

pub(crate) async fn acquire(caller: &Caller, args: Acquire) -> Result<ExitCode, Failure> {
    let what = format!("cannot acquire {}", args.names.join(" "));
    if args.epoch.is_some() && args.terms.holder.is_none() && args.lease.is_none() {
        let why = "an epoch belongs to a holder, and without a name this one is never the same twice";
        return Err(Failure::usage(&what, why, "Say who starts again: --holder NAME."));
    }
    let client = caller.connect(&what).await?;
    let patience = args.wait;
    let request = request(args);
    let holder = request.grant.as_ref().map(|grant| grant.holder.clone());
    let reply = match patience {
        None => client.acquire(request).await.map_err(|error| Failure::of(&what, &error))?,
        Some(patience) => in_line(&client, &request, patience, &what).await?,
    };
    print_held(caller.output, &what, holder, &reply)
}

/// Acquires, in line if need be, for as long as `patience` lasts. What is held is then left to whoever types `renew`.
async fn in_line(
    client: &Client,
    request: &v1::AcquireRequest,
    patience: Duration,
    what: &str,
) -> Result<v1::AcquireReply, Failure> {
    let stopped = stop_signal().map_err(|error| Failure::before(what, &error.to_string(), "Try it without --wait."))?;
    match wait::get(client, client.ask(request).wait(patience).released_by_handle(), stopped).await {
        Ok(hold) => {
            let reply = reply(&hold);
            hold.leave();
            Ok(reply)
        }
        Err(NotGot::Failed(Error::WaitedOut)) => Err(Failure::held(what, "it did not become free in time")),
        Err(NotGot::Failed(error)) => Err(Failure::of(what, &error)),
        Err(NotGot::GivenUp { has_left: true, .. }) => {
            Err(Failure::interrupted(what, "it was stopped, and has left the line"))
        }
        Err(NotGot::GivenUp { .. }) => Err(Failure::unreachable(what, wait::MAY_STAY, "Look with `tenure ls`.")),
    }
}

fn reply(hold: &Hold) -> v1::AcquireReply {
    let claims = hold.claims().iter();
    let claims = claims.map(|claim| v1::Claim { resource: claim.resource.clone(), fence: claim.fence }).collect();
    let (lease, state) = (hold.lease(), Some(State::Fence(hold.fence())));
    let ttl_ms = u64::try_from(hold.ttl().as_millis()).unwrap_or(u64::MAX);
    v1::AcquireReply { lease, ttl_ms, revision: 0, state, claims }
}

/// Prints what a lease holds now.
pub(super) fn print_held(
    output: Output,
    what: &str,
    holder: Option<String>,
    reply: &v1::AcquireReply,
) -> Result<ExitCode, Failure> {
    let claim = |claim: &v1::Claim| Claim {
        handle: format!("{}@{}", claim.resource, claim.fence),
        name: claim.resource.clone(),
        fence: claim.fence,
    };
    let (Some(State::Fence(_)), Some(first)) = (reply.state, reply.claims.first()) else {
        return Err(Failure::puzzled(what));
    };
    let held = Held {
        first: claim(first),
        lease: lease_text(reply.lease),
        holder,
        ttl_ms: reply.ttl_ms,
        claims: reply.claims.iter().map(claim).collect(),
    };
    let handles: Vec<&str> = held.claims.iter().map(|claim| claim.handle.as_str()).collect();
    print::one(output, &handles.join("\n"), &held);
    Ok(ExitCode::SUCCESS)
}

fn request(args: Acquire) -> v1::AcquireRequest {
    v1::AcquireRequest {
        wants: args.names.into_iter().map(|name| args.share.want(name)).collect(),
        grant: if args.lease.is_none() { Some(grant(args.terms)) } else { None },
        lease: args.lease.unwrap_or_default(),
        priority: args.share.priority,
        lock_delay_ms: args.lock_delay.map_or(0, millis),
        epoch: args.epoch.unwrap_or_default(),
        ..v1::AcquireRequest::default()
    }
}

/// A new lease on these terms.
pub(super) fn grant(terms: Terms) -> v1::GrantRequest {
    let ttl = terms.ttl.or(if terms.class.is_none() { Some(TTL_DEFAULT) } else { None });
    let labels = terms.labels.into_iter().map(|label| (label.key, label.value));
    v1::GrantRequest {
        lease: tenure::draw_lease(),
        holder: terms.holder.unwrap_or_else(tenure::default_holder),
        ttl_ms: ttl.map_or(0, millis),
        request: rand::random(),
        class: terms.class.unwrap_or_default(),
        grace_ms: terms.grace.map(millis),
        lifetime_ms: terms.max_lifetime.map_or(0, millis),
        lifetime_while_others_wait: terms.while_others_wait,
        parent: terms.parent.unwrap_or_default(),
        labels: labels.collect::<BTreeMap<_, _>>(),
        reason: terms.reason,
    }
}
