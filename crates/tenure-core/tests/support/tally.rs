//! Counts what random histories were answered and what happened in them, so that a test can tell that it tested
//! something.

use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{
    Applied, End, Entry, Event, Happening, Leave, Ledger, Name, Occupied, Refusal, Renewed, Reply, Stake,
};

/// How often each thing was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(BTreeMap<&'static str, u64>);

/// All that random histories must have seen. A limit that they cannot reach is not among it.
const EVERYTHING: &[&str] = &[
    "answer Granted",
    "answer Seated",
    "answer Waiting",
    "answer Renewed",
    "answer HandleRenewed",
    "answer Released",
    "answer Cancelled",
    "answer Revoked",
    "answer Broken",
    "answer Defined",
    "answer ClassSet",
    "answer Put",
    "answer Deleted",
    "refusal Exists",
    "refusal NoLease",
    "refusal Lapsed",
    "refusal OwnParent",
    "refusal NoClass",
    "refusal TtlOfClass",
    "refusal NotRenewable",
    "refusal Taken, held",
    "refusal Taken, vacating",
    "refusal Taken, in line",
    "refusal Stale",
    "refusal NoClaim",
    "refusal OtherMode",
    "refusal Claimed",
    "refusal OtherCapacity",
    "refusal TooBig",
    "refusal WouldDeadlock",
    "refusal WaitTooLong",
    "refusal OlderEpoch",
    "refusal NotHeld",
    "refusal NoKey",
    "event Granted",
    "event Queued",
    "event Seated",
    "event Vacated",
    "event Freed",
    "event Breaking",
    "event Left",
    "event Ended",
    "event Defined",
    "event ClassSet",
    "event Put",
    "event Deleted",
    "lease Released",
    "lease Expired",
    "lease Revoked",
    "lease ParentEnded",
    "lease Superseded",
    "lease MaxLifetime",
    "lease WaitedOut",
    "claim Released",
    "claim Expired",
    "claim Revoked",
    "claim ParentEnded",
    "claim Superseded",
    "claim MaxLifetime",
    "claim Transferred",
    "left Cancelled",
    "left LeaseEnded",
    "left WaitedOut",
    "left Superseded",
    "left TooBig",
    "left Transferred",
    "renewed for the last time",
    "renewed while others wait",
    "renewed before a break",
    "renewed when overdue",
    "renewed in the entry of its end",
    "seated from a line",
    "several seated from their lines at once",
    "several hold one resource",
    "stays as a vacating stake",
    "ended with its children",
    "ended with its keys",
];

impl Tally {
    fn see(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Fails if something was never seen, or if something is seen that nobody watches for.
    pub(crate) fn assert_everything_was_seen(&self) {
        let (watched, seen): (BTreeSet<_>, BTreeSet<_>) = (EVERYTHING.iter().collect(), self.0.keys().collect());
        assert_eq!(watched.difference(&seen).collect::<Vec<_>>(), Vec::<&&&str>::new(), "never put to the test");
        assert_eq!(seen.difference(&watched).collect::<Vec<_>>(), Vec::<&&&str>::new(), "not watched for");
    }

    /// Counts what one entry did to a ledger.
    pub(crate) fn entry(&mut self, before: &Ledger, entry: &Entry, applied: &Applied) {
        for outcome in &applied.outcomes {
            match outcome {
                Ok(reply) => self.reply(before, entry, reply),
                Err(refusal) => self.see(of_refusal(refusal)),
            }
        }
        for change in applied.events.chunk_by(|a, b| a.revision == b.revision) {
            self.change(before, change);
        }
    }

    fn reply(&mut self, before: &Ledger, entry: &Entry, reply: &Reply) {
        self.see(of_reply(reply));
        match reply {
            Reply::HandleRenewed(renewed) => self.renewed(before, entry, renewed),
            Reply::Renewed(answers) => {
                for answer in answers {
                    match answer {
                        Ok(renewed) => self.renewed(before, entry, renewed),
                        Err(refusal) => self.see(of_refusal(refusal)),
                    }
                }
            }
            _ => {}
        }
    }

    fn renewed(&mut self, before: &Ledger, entry: &Entry, renewed: &Renewed) {
        let lease = before.lease(renewed.lease).expect("only the living are renewed");
        let notable = [
            (renewed.is_final, "renewed for the last time"),
            (renewed.waiting > 0, "renewed while others wait"),
            (renewed.breaks_in_ms.is_some(), "renewed before a break"),
            (lease.deadline() <= entry.now, "renewed when overdue"),
            (lease.ends_at() <= entry.now, "renewed in the entry of its end"),
        ];
        notable.into_iter().filter(|(is_so, _)| *is_so).for_each(|(_, what)| self.see(what));
    }

    fn change(&mut self, before: &Ledger, change: &[Event]) {
        for event in change {
            self.see(of_happening(&event.what));
            match &event.what {
                Happening::Ended { how, .. } => self.see(of_lease_end(how)),
                Happening::Left { why, .. } => self.see(of_leave(*why)),
                Happening::Vacated { how, until, .. } => {
                    self.see(of_claim_end(how));
                    until.iter().for_each(|_| self.see("stays as a vacating stake"));
                }
                _ => {}
            }
        }
        let count = |is_so: fn(&Happening) -> bool| change.iter().filter(|event| is_so(&event.what)).count();
        let ended = count(|what| matches!(what, Happening::Ended { .. }));
        let deleted = count(|what| matches!(what, Happening::Deleted { .. }));
        let from_line = change.iter().filter(|event| waited(before, &event.what)).count();
        let notable = [
            (ended > 1, "ended with its children"),
            (ended > 0 && deleted > 0, "ended with its keys"),
            (from_line > 0, "seated from a line"),
            (from_line > 1, "several seated from their lines at once"),
        ];
        notable.into_iter().filter(|(is_so, _)| *is_so).for_each(|(_, what)| self.see(what));
    }

    /// Counts what an entry left behind.
    pub(crate) fn state(&mut self, after: &Ledger) {
        let shared: Vec<&Name> =
            after.resources_from("").filter(|(_, it)| it.holder_count() > 1).map(|(name, _)| name).collect();
        shared.iter().for_each(|_| self.see("several hold one resource"));
    }
}

/// Whether this is the seat of somebody who waited for it before the entry.
fn waited(before: &Ledger, what: &Happening) -> bool {
    let Happening::Seated { resource, lease, .. } = what else { return false };
    let stakes = before.lease(*lease).into_iter().flat_map(|lease| lease.stakes());
    stakes.into_iter().any(|(name, stake)| name == resource && matches!(stake, Stake::Waiting(_)))
}

fn of_reply(reply: &Reply) -> &'static str {
    match reply {
        Reply::Granted { .. } => "answer Granted",
        Reply::Seated(_) => "answer Seated",
        Reply::Waiting(_) => "answer Waiting",
        Reply::Renewed(_) => "answer Renewed",
        Reply::HandleRenewed(_) => "answer HandleRenewed",
        Reply::Released => "answer Released",
        Reply::Cancelled => "answer Cancelled",
        Reply::Revoked { .. } => "answer Revoked",
        Reply::Broken { .. } => "answer Broken",
        Reply::Defined { .. } => "answer Defined",
        Reply::ClassSet => "answer ClassSet",
        Reply::Put { .. } => "answer Put",
        Reply::Deleted { .. } => "answer Deleted",
        Reply::Txn(_) => "answer Txn",
        Reply::Compacted { .. } => "answer Compacted",
    }
}

fn of_refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Exists { .. } => "refusal Exists",
        Refusal::NoLease { .. } => "refusal NoLease",
        Refusal::Lapsed { .. } => "refusal Lapsed",
        Refusal::OwnParent { .. } => "refusal OwnParent",
        Refusal::NoClass { .. } => "refusal NoClass",
        Refusal::TtlOfClass { .. } => "refusal TtlOfClass",
        Refusal::NotRenewable { .. } => "refusal NotRenewable",
        Refusal::Taken { state: Occupied::Held, .. } => "refusal Taken, held",
        Refusal::Taken { state: Occupied::Vacating, .. } => "refusal Taken, vacating",
        Refusal::Taken { state: Occupied::InLine, .. } => "refusal Taken, in line",
        Refusal::Stale { .. } => "refusal Stale",
        Refusal::NoClaim { .. } => "refusal NoClaim",
        Refusal::OtherMode { .. } => "refusal OtherMode",
        Refusal::Claimed { .. } => "refusal Claimed",
        Refusal::OtherCapacity { .. } => "refusal OtherCapacity",
        Refusal::TooBig { .. } => "refusal TooBig",
        Refusal::WouldDeadlock { .. } => "refusal WouldDeadlock",
        Refusal::WaitTooLong { .. } => "refusal WaitTooLong",
        Refusal::OlderEpoch { .. } => "refusal OlderEpoch",
        Refusal::NotHeld { .. } => "refusal NotHeld",
        Refusal::NoKey { .. } => "refusal NoKey",
        Refusal::Compacted { .. } => "refusal Compacted",
        Refusal::NotYet { .. } => "refusal NotYet",
        Refusal::Full { .. } => "refusal Full",
    }
}

fn of_happening(what: &Happening) -> &'static str {
    match what {
        Happening::Granted { .. } => "event Granted",
        Happening::Queued { .. } => "event Queued",
        Happening::Seated { .. } => "event Seated",
        Happening::Vacated { .. } => "event Vacated",
        Happening::Freed { .. } => "event Freed",
        Happening::Breaking { .. } => "event Breaking",
        Happening::Left { .. } => "event Left",
        Happening::Ended { .. } => "event Ended",
        Happening::Defined { .. } => "event Defined",
        Happening::ClassSet { .. } => "event ClassSet",
        Happening::Put { .. } => "event Put",
        Happening::Deleted { .. } => "event Deleted",
    }
}

fn of_lease_end(how: &End) -> &'static str {
    match how {
        End::Released => "lease Released",
        End::Expired => "lease Expired",
        End::Revoked { .. } => "lease Revoked",
        End::ParentEnded { .. } => "lease ParentEnded",
        End::Superseded => "lease Superseded",
        End::MaxLifetime => "lease MaxLifetime",
        End::WaitedOut => "lease WaitedOut",
        End::Transferred { .. } => "lease Transferred",
    }
}

fn of_claim_end(how: &End) -> &'static str {
    match how {
        End::Released => "claim Released",
        End::Expired => "claim Expired",
        End::Revoked { .. } => "claim Revoked",
        End::ParentEnded { .. } => "claim ParentEnded",
        End::Superseded => "claim Superseded",
        End::MaxLifetime => "claim MaxLifetime",
        End::WaitedOut => "claim WaitedOut",
        End::Transferred { .. } => "claim Transferred",
    }
}

fn of_leave(why: Leave) -> &'static str {
    match why {
        Leave::Cancelled => "left Cancelled",
        Leave::LeaseEnded => "left LeaseEnded",
        Leave::WaitedOut => "left WaitedOut",
        Leave::Superseded => "left Superseded",
        Leave::TooBig => "left TooBig",
        Leave::Transferred => "left Transferred",
    }
}
