//! How scripts show what the ledger answered and what happened. One reply is one line (a renewal that worked is none),
//! one revision is one line.

use super::WALL_START_MS;
use std::collections::BTreeMap;
use tenure_core::{Acquire, Command, End, Event, Fence, Happening, LeaseId, Ledger, Moment, Name, On, Refusal, Ttl};
use tenure_core::{Holder, Outcome, Renewed, Reply};

/// The names that a script gives to leases.
#[derive(Default)]
pub(crate) struct Cast {
    labels: BTreeMap<LeaseId, String>,
}

impl Cast {
    /// The lease with this label: `#7` is number 7, other labels are numbered as they appear.
    pub(crate) fn lease(&mut self, label: &str) -> Option<LeaseId> {
        if let Some(number) = label.strip_prefix('#') {
            return number.parse().ok().and_then(LeaseId::from_number);
        }
        if let Some((id, _)) = self.labels.iter().find(|(_, known)| *known == label) {
            return Some(*id);
        }
        let id = super::id(self.labels.len() as u64 + 1);
        self.labels.insert(id, label.to_string());
        Some(id)
    }

    pub(crate) fn label(&self, lease: LeaseId) -> String {
        self.labels.get(&lease).cloned().unwrap_or_else(|| format!("#{}", lease.number()))
    }

    fn who(&self, lease: LeaseId, holder: &Holder) -> String {
        let label = self.label(lease);
        if label == holder.as_str() { label } else { format!("{label} of {holder}") }
    }
}

/// What one entry did, on its way to being shown.
pub(crate) struct Story<'a> {
    pub(crate) cast: &'a Cast,
    pub(crate) before: &'a Ledger,
    pub(crate) after: &'a Ledger,
    /// The events that no reply has told yet, by revision.
    pub(crate) untold: Vec<Vec<Event>>,
}

impl Story<'_> {
    /// The lines that answer one command. What a reply tells is not told again as an event.
    pub(crate) fn answer(&mut self, command: &Command, outcome: &Outcome) -> Vec<String> {
        match (command, outcome) {
            (Command::Renew(renew), Ok(Reply::Renewed(answers))) => {
                assert_eq!(renew.leases.len(), answers.len(), "each lease has its own answer");
                let each = renew.leases.iter().zip(answers);
                each.filter_map(|(asked, answer)| match answer {
                    Ok(renewed) => {
                        assert_eq!(asked.lease, renewed.lease, "the answers come in the order asked");
                        self.renewed(asked.ttl, renewed)
                    }
                    Err(refusal) => Some(self.refusal(refusal)),
                })
                .collect()
            }
            (Command::RenewHandle(renew), Ok(Reply::HandleRenewed(renewed))) => {
                self.renewed(renew.ttl, renewed).into_iter().collect()
            }
            (_, Err(refusal)) => vec![self.refusal(refusal)],
            (Command::Grant(grant), Ok(Reply::Granted { lease, ttl_ms, revision })) => {
                let begun = Happening::Granted { lease: *lease, holder: grant.holder.clone(), ttl: grant.ttl };
                let fresh = self.tell(*revision, &[begun]);
                let line =
                    format!("granted lease {}{}", self.cast.who(*lease, &grant.holder), other(grant.ttl, *ttl_ms));
                vec![if fresh { line } else { line + ", as before" }]
            }
            (Command::Acquire(acquire), Ok(reply)) => vec![self.acquired(acquire, reply)],
            (Command::Release(_), Ok(Reply::Released)) => vec!["released".into()],
            (Command::Cancel(_), Ok(Reply::Cancelled)) => vec!["cancelled".into()],
            (Command::Revoke(_), Ok(Reply::Revoked)) => vec!["revoked".into()],
            (command, reply) => panic!("{command:?} was answered by {reply:?}"),
        }
    }

    /// The lines for the events that no reply told.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.untold.iter().map(|change| self.change(change)).collect()
    }

    fn renewed(&self, asked: Option<Ttl>, renewed: &Renewed) -> Option<String> {
        let had = self.before.lease(renewed.lease).map(tenure_core::Lease::ttl);
        let expected = asked.or(had).expect("only a living lease is renewed");
        (expected != renewed.ttl)
            .then(|| format!("renewed {}{}", self.cast.label(renewed.lease), other(expected, renewed.ttl.millis())))
    }

    fn acquired(&mut self, acquire: &Acquire, reply: &Reply) -> String {
        let resource = acquire.resource.clone();
        let (lease, ttl_ms, revision) = match reply {
            Reply::Seated(seat) => (seat.lease, seat.ttl_ms, seat.revision),
            Reply::Waiting { lease, ttl_ms, revision, .. } => (*lease, *ttl_ms, *revision),
            reply => panic!("an acquire was answered by {reply:?}"),
        };
        let living = self.after.lease(lease).or_else(|| self.before.lease(lease));
        let (holder, asked) = match &acquire.on {
            On::New(grant) => (grant.holder.clone(), grant.ttl),
            On::Given(_) => {
                let living = living.expect("a claim hangs on a living lease");
                (living.holder().clone(), living.ttl())
            }
        };
        let ttl = living.map_or(asked, tenure_core::Lease::ttl);
        let (line, staked) = match reply {
            Reply::Seated(seat) => {
                let line = format!("granted {resource} to {} fence {}", self.cast.who(lease, &holder), seat.fence);
                (line, Happening::Seated { resource, lease, holder: holder.clone(), fence: seat.fence, ttl })
            }
            Reply::Waiting { place, .. } => {
                (format!("waiting, place {place}"), Happening::Queued { resource, lease, holder: holder.clone() })
            }
            reply => panic!("an acquire was answered by {reply:?}"),
        };
        let begun = Happening::Granted { lease, holder, ttl };
        let is_new = matches!(acquire.on, On::New(_));
        let how = if is_new && self.tell(revision, &[begun, staked.clone()]) {
            ""
        } else if self.tell(revision, &[staked]) {
            if is_new { ", on the lease it has" } else { "" }
        } else {
            ", as before"
        };
        format!("{line}{}{how}", other(asked, ttl_ms))
    }

    /// Takes a change out of the untold ones, if it is exactly this.
    fn tell(&mut self, revision: tenure_core::Revision, change: &[Happening]) -> bool {
        let same = |told: &Vec<Event>| told[0].revision == revision && told.iter().map(|event| &event.what).eq(change);
        let found = self.untold.iter().position(same);
        found.map(|at| self.untold.remove(at)).is_some()
    }

    fn change(&self, change: &[Event]) -> String {
        let end = change.iter().find_map(|event| match &event.what {
            Happening::Ended { how, .. } => Some(how),
            _ => None,
        });
        // The end of a lease comes last in the stream and first in the sentence.
        let (ended, hanging): (Vec<_>, Vec<_>) =
            change.iter().map(|event| &event.what).partition(|what| matches!(what, Happening::Ended { .. }));
        let phrases: Vec<_> = ended.into_iter().chain(hanging).map(|what| self.happening(what, end)).collect();
        phrases.join(", ")
    }

    /// One phrase. What hung on an ended lease need not say whose it was, or how it ended.
    fn happening(&self, what: &Happening, end: Option<&End>) -> String {
        let label = |lease: &LeaseId| self.cast.label(*lease);
        match what {
            Happening::Granted { lease, holder, ttl } => {
                format!("granted lease {} for {}", self.cast.who(*lease, holder), span(ttl.millis()))
            }
            Happening::Queued { resource, lease, holder } => {
                format!("{} joined the line of {resource}", self.cast.who(*lease, holder))
            }
            Happening::Seated { resource, lease, holder, fence, ttl } => {
                let has = self.after.lease(*lease).map_or(*ttl, tenure_core::Lease::ttl);
                format!(
                    "granted {resource} to {} fence {fence}{}",
                    self.cast.who(*lease, holder),
                    other(has, ttl.millis())
                )
            }
            Happening::Vacated { resource, fence, how, .. } if end == Some(how) => freed(resource, *fence),
            Happening::Vacated { resource, lease, fence, how } => {
                format!("{} {}, {}", label(lease), freed(resource, *fence), self.end(how))
            }
            Happening::Left { resource, .. } if end.is_some() => format!("left the line of {resource}"),
            Happening::Left { resource, lease } => format!("{} left the line of {resource}", label(lease)),
            Happening::Ended { lease, holder, how } => {
                let who = self.cast.who(*lease, holder);
                match how {
                    End::Revoked { by, reason } => format!("revoked {who} by {by}: {reason}"),
                    plain => format!("{} {who}", self.end(plain)),
                }
            }
        }
    }

    fn end(&self, how: &End) -> String {
        match how {
            End::Released => "released".into(),
            End::Expired => "expired".into(),
            End::Revoked { by, reason } => format!("revoked by {by}: {reason}"),
        }
    }

    fn refusal(&self, refusal: &Refusal) -> String {
        let label = |lease: &LeaseId| self.cast.label(*lease);
        let why = match refusal {
            Refusal::Exists { lease, holder } => format!("lease {} exists and belongs to {holder}", label(lease)),
            Refusal::NoLease { lease } => format!("there is no lease {}", label(lease)),
            Refusal::Lapsed { lease, how, when, wall_ms } => {
                format!("lease {} lapsed at {}, {}", label(lease), at(*when, *wall_ms), self.end(how))
            }
            Refusal::Taken { resource, holder, fence, remaining_ms, waiting } => {
                let held = fence.map_or(", next in line".into(), |fence| format!(" fence {fence}"));
                format!("{resource} is taken by {holder}{held} for {}, {waiting} waiting", span(*remaining_ms))
            }
            Refusal::Stale { handle, current, ended } => {
                let ended = ended.as_ref().map_or("its end is not remembered".into(), |(how, when, wall_ms)| {
                    format!("ended at {}, {}", at(*when, *wall_ms), self.end(how))
                });
                let current = current
                    .as_ref()
                    .map_or("nobody holds it now".into(), |(holder, fence)| format!("now {holder} fence {fence}"));
                format!("{handle} is stale, {ended}; {current}")
            }
            Refusal::NoClaim { lease, resource } => format!("lease {} has no claim on {resource}", label(lease)),
            Refusal::Full { what, max } => format!("no room, {what} at most {max}"),
        };
        format!("refused: {why}")
    }
}

fn freed(resource: &Name, fence: Fence) -> String {
    format!("freed {resource}@{fence}")
}

/// A TTL is shown only where it is not the one that was to be expected.
fn other(expected: Ttl, ttl_ms: u64) -> String {
    if expected.millis() == ttl_ms { String::new() } else { format!(" for {}", span(ttl_ms)) }
}

fn at(when: Moment, wall_ms: u64) -> String {
    let odd = wall_ms != WALL_START_MS + when.millis();
    span(when.millis()) + if odd { " by another wall clock" } else { "" }
}

/// A span or a moment as scripts write it.
pub(crate) fn span(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}
