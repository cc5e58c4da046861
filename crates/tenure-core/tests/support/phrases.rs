//! How scripts say what happened, how things ended and why something was refused: one phrase each.

use super::WALL_START_MS;
use super::cast::{Cast, key, list, mode, span, units};
use tenure_core::{End, Fence, Happening, LeaseId, Leave, Mode, Moment, Name, Occupied, Refusal, Ttl};

/// One event. What hung on a lease that ended with it, as `with` says, need not say whose it was, or that it ended so.
/// A TTL is said if it is another than the one that is to be expected of a lease.
pub(crate) fn happening(
    cast: &Cast,
    what: &Happening,
    with: Option<&End>,
    expected_ttl: impl Fn(LeaseId) -> Option<Ttl>,
) -> String {
    let subject = |lease: &LeaseId| if with.is_some() { String::new() } else { cast.label(*lease) + " " };
    match what {
        Happening::Granted { lease, holder, ttl_ms, parent, class } => {
            let under = parent.map_or(String::new(), |parent| format!(" under {}", cast.label(parent)));
            let class = class.as_ref().map_or(String::new(), |class| format!(" class {class}"));
            format!("granted lease {} for {}{class}{under}", cast.who(*lease, holder), span(*ttl_ms))
        }
        Happening::Queued { resource, lease, holder, mode } => {
            format!("{} joined the line of {resource}{}", cast.who(*lease, holder), as_mode(*mode))
        }
        Happening::Seated { resource, lease, holder, fence, mode, ttl_ms } => {
            let who = cast.who(*lease, holder);
            let ttl = other(expected_ttl(*lease), *ttl_ms);
            format!("granted {resource} to {who} fence {fence}{ttl}{}", as_mode(*mode))
        }
        Happening::Vacated { resource, lease, fence, how, until } => {
            let why = if with == Some(how) { String::new() } else { format!(", {}", end(cast, how)) };
            match (how, until) {
                (End::Transferred { to }, None) => format!("{}gave {resource}@{fence} to {to}", subject(lease)),
                (_, None) => format!("{}freed {resource}@{fence}{why}", subject(lease)),
                (_, Some(until)) => {
                    format!("{}vacating {resource}@{fence} until {}{why}", subject(lease), span(until.millis()))
                }
            }
        }
        Happening::Freed { resource, lease, fence } => {
            format!("freed {resource}@{fence}, vacated by {}", cast.label(*lease))
        }
        Happening::Breaking { resource, lease, fence, at, by, reason } => {
            let when = span(at.millis());
            format!("{resource}@{fence} of {} will be broken at {when} by {by}: {reason}", cast.label(*lease))
        }
        Happening::Left { resource, lease, why } => {
            format!("{}left the line of {resource}{}", subject(lease), leave(*why, with))
        }
        Happening::Ended { lease, holder, how } => {
            let who = cast.who(*lease, holder);
            match how {
                End::Revoked { by, reason } => format!("revoked {who} by {by}: {reason}"),
                End::ParentEnded { parent } => format!("ended {who} with {}", cast.label(*parent)),
                plain => format!("{} {who}", end(cast, plain)),
            }
        }
        Happening::Defined { resource, capacity: Some(capacity) } => {
            format!("defined {resource} as {}", units(*capacity))
        }
        Happening::Defined { resource, capacity: None } => format!("undefined {resource}"),
        Happening::ClassSet { class } => format!("set class {class}"),
        Happening::Put { key: put, lease, kv_revision, version } => {
            let on = lease.map_or(String::new(), |lease| format!(" on {}", cast.label(lease)));
            format!("put {}{on}, version {version}, kv {kv_revision}", key(put))
        }
        Happening::Deleted { key: deleted, .. } => format!("deleted {}", key(deleted)),
        instance => of_instance(cast, instance, with),
    }
}

/// A TTL is shown only where it is not the one that was to be expected.
pub(crate) fn other(expected: Option<Ttl>, ttl_ms: u64) -> String {
    if expected.is_some_and(|ttl| ttl.millis() == ttl_ms) { String::new() } else { format!(" for {}", span(ttl_ms)) }
}

/// The mode of a claim, unless it is exclusive.
fn as_mode(of: Mode) -> String {
    if of == Mode::Exclusive { String::new() } else { format!(", {}", mode(of)) }
}

fn leave(why: Leave, with: Option<&End>) -> &'static str {
    match (why, with) {
        (Leave::LeaseEnded, Some(_)) => "",
        (Leave::LeaseEnded, None) => " (its lease ended)",
        (Leave::WaitedOut, Some(End::WaitedOut)) | (Leave::Superseded, Some(End::Superseded)) => "",
        (Leave::Cancelled, _) => " (cancelled)",
        (Leave::WaitedOut, _) => " (waited out)",
        (Leave::Superseded, _) => " (superseded)",
        (Leave::TooBig, _) => " (too big)",
        (Leave::Transferred, _) => " (transferred)",
    }
}

/// How a claim or a lease ended.
pub(crate) fn end(cast: &Cast, how: &End) -> String {
    match how {
        End::Released => "released".into(),
        End::Expired => "expired".into(),
        End::Revoked { by, reason } => format!("revoked by {by}: {reason}"),
        End::ParentEnded { parent } => format!("ended with {}", cast.label(*parent)),
        End::Superseded => "superseded".into(),
        End::MaxLifetime => "outlived".into(),
        End::WaitedOut => "waited out".into(),
        End::Unhealthy => "unhealthy".into(),
        End::Transferred { to } => format!("transferred to {to}"),
    }
}

/// Why something was refused.
pub(crate) fn refusal(cast: &Cast, refusal: &Refusal) -> String {
    let label = |lease: &LeaseId| cast.label(*lease);
    let why = match refusal {
        Refusal::Exists { lease, holder } => format!("lease {} exists and belongs to {holder}", label(lease)),
        Refusal::NoLease { lease } => format!("there is no lease {}", label(lease)),
        Refusal::Lapsed { lease, how, when, wall_ms } => {
            format!("lease {} lapsed at {}, {}", label(lease), at(*when, *wall_ms), end(cast, how))
        }
        Refusal::OwnParent { lease } => format!("lease {} cannot be its own parent", label(lease)),
        Refusal::NoClass { class } => format!("there is no class {class}"),
        Refusal::TtlOfClass { class, ttl_ms, min_ms, max_ms } => {
            format!("class {class} allows {} to {}, not {}", span(*min_ms), span(*max_ms), span(*ttl_ms))
        }
        Refusal::NotRenewable { lease, class, policy } => {
            format!("lease {} is of class {class}, renewal {policy}", label(lease))
        }
        taken @ Refusal::Taken { .. } => self::taken(taken),
        stale @ Refusal::Stale { .. } => self::stale(cast, stale),
        Refusal::NoClaim { lease, resource } => format!("lease {} has no claim on {resource}", label(lease)),
        Refusal::OtherMode { lease, resource, has, asked } => {
            format!("lease {} has a claim on {resource} that is {}, not {}", label(lease), mode(*has), mode(*asked))
        }
        Refusal::Answered { lease, number } => {
            format!("request {number} about lease {} was answered before", label(lease))
        }
        Refusal::Claimed { lease, resource } => format!("lease {} has a claim on {resource} already", label(lease)),
        Refusal::OtherCapacity { resource, capacity, expected } => {
            format!("{resource} has {}, not {expected}", units(*capacity))
        }
        Refusal::TooBig { resource, capacity, asked } => {
            format!("{resource} has {}, and {asked} are asked for", units(*capacity))
        }
        Refusal::WouldDeadlock { resource, circle } => {
            let circle: Vec<_> = circle.iter().map(ToString::to_string).collect();
            format!("waiting for {resource} would be a deadlock of {}", list(&circle))
        }
        Refusal::WaitTooLong { asked_ms, max_ms } => {
            format!("several resources are waited for {} at most, not {}", span(*max_ms), span(*asked_ms))
        }
        Refusal::OlderEpoch { holder, resource, asked, current } => {
            format!("{holder} has claimed {resource} in epoch {current}, and {asked} is older")
        }
        Refusal::NotHeld { resource } => format!("nobody holds {resource}"),
        Refusal::NoKey { key: missing } => format!("there is no key {}", key(missing)),
        Refusal::Compacted { compacted } => format!("what was before kv {compacted} is forgotten"),
        Refusal::NotYet { kv_revision } => format!("the keyspace has come to kv {kv_revision} only"),
        Refusal::NoInstance { instance, ended } => {
            let ended = ended.as_ref().map_or("none is remembered".into(), |(how, when, wall_ms)| {
                format!("the last one ended at {}, {}", at(*when, *wall_ms), end(cast, how))
            });
            format!("there is no instance {instance}, {ended}")
        }
        Refusal::InstanceExists { instance, holder, epoch, remaining_ms } => {
            let epoch = epoch.map_or(String::new(), |epoch| format!(" in epoch {epoch}"));
            format!("{instance} belongs to {holder}{epoch} for {}", span(*remaining_ms))
        }
        Refusal::OlderInstance { instance, asked, current } => {
            format!("{instance} was registered in epoch {current}, and {asked} is older")
        }
        Refusal::OtherLease { instance, lease, holder } => {
            format!("{instance} does not hang on {}, it belongs to {holder}", label(lease))
        }
        Refusal::NoCheck { instance, check } => format!("{instance} has no check {check}"),
        Refusal::BadInstance { instance, why } => format!("{instance} cannot be so: {why}"),
        Refusal::Full { what, max } => format!("no room, {what} at most {max}"),
        Refusal::Overloaded { what, max } => format!("too much at once, {what} at most {max}"),
        Refusal::Denied { .. } | Refusal::TooManyLeases { .. } => refusal.to_string(),
    };
    format!("refused: {why}")
}

fn taken(refusal: &Refusal) -> String {
    let Refusal::Taken { resource, holder, state, fence, remaining_ms, waiting, .. } = refusal else {
        panic!("{refusal:?} is not about a taken resource")
    };
    let fence = fence.map_or(String::new(), |fence: Fence| format!(" fence {fence}"));
    let held = match state {
        Occupied::Held => format!("taken by {holder}{fence}"),
        Occupied::Vacating => format!("still vacating after {holder}{fence}"),
        Occupied::InLine => format!("taken by {holder}{fence}, next in line"),
    };
    format!("{resource} is {held} for {}, {waiting} waiting", span(*remaining_ms))
}

fn stale(cast: &Cast, refusal: &Refusal) -> String {
    let Refusal::Stale { handle, current, ended } = refusal else { panic!("{refusal:?} is not about a handle") };
    let ended = ended.as_ref().map_or("its end is not remembered".into(), |(how, when, wall_ms)| {
        format!("ended at {}, {}", at(*when, *wall_ms), end(cast, how))
    });
    let current =
        current.as_ref().map_or("nobody holds it now".into(), |(holder, fence)| format!("now {holder} fence {fence}"));
    format!("{handle} is stale, {ended}; {current}")
}

fn at(when: Moment, wall_ms: u64) -> String {
    let odd = wall_ms != WALL_START_MS + when.millis();
    span(when.millis()) + if odd { " by another wall clock" } else { "" }
}

/// What is shown of a claim: its resource, and its mode unless it is exclusive.
pub(crate) fn claim(resource: &Name, of: Mode) -> String {
    if of == Mode::Exclusive { resource.to_string() } else { format!("{resource} ({})", mode(of)) }
}

/// What happened to an instance. Only who hears of it from elsewhere is told whose it is.
fn of_instance(cast: &Cast, what: &Happening, with: Option<&End>) -> String {
    let instance = what.instance().map(ToString::to_string).unwrap_or_default();
    match what {
        Happening::Registered { lease, holder, epoch, .. } => {
            let epoch = epoch.map_or(String::new(), |epoch| format!(" epoch {}", epoch.number()));
            format!("registered {instance} on {}{epoch}", cast.who(*lease, holder))
        }
        Happening::Updated { .. } => format!("updated {instance}"),
        Happening::Drained { by, reason, .. } => format!("drained {instance} by {by}: {reason}"),
        Happening::Undrained { by, reason, .. } => format!("undrained {instance} by {by}: {reason}"),
        Happening::HealthChanged { check, overall, held_until, .. } => {
            let check = check.as_ref().map_or(String::new(), |(name, health)| format!("{name} {health}, "));
            let held = held_until.map_or(String::new(), |until| format!(", held down until {}", span(until.millis())));
            format!("{instance}: {check}overall {overall}{held}")
        }
        Happening::Deregistered { how, .. } if with == Some(how) => format!("deregistered {instance}"),
        Happening::Deregistered { how, .. } => format!("deregistered {instance}, {}", end(cast, how)),
        Happening::Suspected { until, judgement, .. } => {
            let (late, members, enough) = (judgement.late, judgement.members, judgement.threshold());
            format!(
                "suspected {instance} until {}, {late} of {members} late, {enough} are enough",
                span(until.millis())
            )
        }
        Happening::Cleared { .. } => format!("cleared {instance}"),
        other => panic!("{other:?} happened to no instance"),
    }
}
