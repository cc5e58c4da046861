//! Counts what random histories were answered and what happened in them, so that a test can tell that it tested
//! something.

use super::few_cases;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{
    Applied, Command, End, Entry, Event, Hang, Happening, Leave, Ledger, Name, Occupied, Op, OpDone, Part, Range,
    Refusal, Renewed, Reply, SortBy, Stake, Txn, TxnDone, Way, Within,
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
    "answer AlreadyReleased",
    "answer Cancelled",
    "answer Revoked",
    "answer Broken",
    "answer Defined",
    "answer ClassSet",
    "answer Put",
    "answer Deleted",
    "answer Txn",
    "answer Compacted",
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
    "refusal Answered",
    "refusal Claimed",
    "refusal OtherCapacity",
    "refusal TooBig",
    "refusal WouldDeadlock",
    "refusal WaitTooLong",
    "refusal OlderEpoch",
    "refusal NotHeld",
    "refusal NoKey",
    "refusal Compacted",
    "refusal NotYet",
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

/// What transactions must have done.
const IN_TXNS: &[&str] = &[
    "txn whose conditions held",
    "txn whose conditions did not hold",
    "txn within, held",
    "txn within, not held",
    "txn two within one another",
    "txn that looks at keys",
    "txn that looks at what it wrote",
    "txn that looks at the past",
    "txn that puts",
    "txn that tells what it overwrote",
    "txn that deletes several",
    "txn that deletes nothing",
    "txn that tells what it deleted",
    "txn that changes nothing",
    "txn that changes several keys",
    "txn that hangs a key on a lease",
    "txn that changes a key twice",
    "txn refused",
];

/// What histories of instances must have seen.
const IN_REGISTRY: &[&str] = &[
    "answer Registered",
    "answer Updated",
    "answer Drained",
    "answer Deregistered",
    "answer HealthSet",
    "refusal NoInstance",
    "refusal InstanceExists",
    "refusal OlderInstance",
    "refusal OtherLease",
    "refusal NoCheck",
    "refusal BadInstance",
    "event Registered",
    "event Updated",
    "event Drained",
    "event HealthChanged",
    "event Deregistered",
    "lease Unhealthy",
    "claim Unhealthy",
    "instance replaced",
    "instance gone stale",
    "instance ended with others",
];

/// What happens to instances too seldom to wait for it; the scripts have it.
const RARE: &[&str] = &["event Undrained", "instance held down", "instance let up"];

/// What looks at keys must have seen.
const IN_RANGES: &[&str] = &[
    "range of the present",
    "range of the past",
    "range of the compacted revision",
    "range of what is compacted",
    "range of what is to come",
    "range with more",
    "range sorted up",
    "range sorted down",
    "range sorted after its limit",
    "range by revisions",
    "range of keys only",
    "range of the count only",
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
        if few_cases() {
            return;
        }
        let (watched, seen): (BTreeSet<_>, BTreeSet<_>) =
            (EVERYTHING.iter().chain(IN_TXNS).collect(), self.0.keys().collect());
        assert_eq!(watched.difference(&seen).collect::<Vec<_>>(), Vec::<&&&str>::new(), "never put to the test");
        let watched = watched.into_iter().chain(IN_REGISTRY).chain(RARE).collect();
        assert_eq!(seen.difference(&watched).collect::<Vec<_>>(), Vec::<&&&str>::new(), "not watched for");
    }

    /// Fails if something about instances was never seen.
    pub(crate) fn assert_all_about_instances_was_seen(&self) {
        if few_cases() {
            return;
        }
        let missing = IN_REGISTRY.iter().filter(|what| !self.0.contains_key(*what));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "never put to the test");
    }

    /// Fails if something about keys was never seen.
    pub(crate) fn assert_all_about_keys_was_seen(&self) {
        if few_cases() {
            return;
        }
        let missing = IN_TXNS.iter().chain(IN_RANGES).filter(|what| !self.0.contains_key(*what));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "never put to the test");
    }

    /// Whether keys were denied what they may not do, and were allowed what they may.
    pub(crate) fn assert_rights_were_seen(&self) {
        if few_cases() {
            return;
        }
        let rights = ["refusal Denied", "refusal TooManyLeases", "event Seated", "event Put", "event Registered"];
        let missing = rights.iter().filter(|what| !self.0.contains_key(*what));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "never put to the test");
    }

    fn see_those(&mut self, notable: &[(bool, &'static str)]) {
        notable.iter().filter(|(is_so, _)| *is_so).for_each(|(_, what)| self.see(what));
    }

    /// Counts what a look at keys was answered.
    pub(crate) fn range(&mut self, ledger: &Ledger, range: &Range, found: &Result<OpDone, Refusal>) {
        let at =
            range.revision.and_then(|at| u64::try_from(at).ok()).filter(|at| (1..ledger.kv_revision()).contains(at));
        let compacted = ledger.kv_compacted();
        let way = |way: Option<Way>| range.sort.is_some_and(|sort| sort.way == way && sort.by != SortBy::Key);
        let more = match found {
            Ok(OpDone::Range { ranged, .. }) => ranged.more,
            Ok(other) => panic!("a range was answered by {other:?}"),
            Err(Refusal::Compacted { .. }) => return self.see("range of what is compacted"),
            Err(Refusal::NotYet { .. }) => return self.see("range of what is to come"),
            Err(other) => panic!("a range was refused by {other:?}"),
        };
        self.see_those(&[
            (at.is_none(), "range of the present"),
            (at.is_some(), "range of the past"),
            (at.is_some() && at == compacted, "range of the compacted revision"),
            (more, "range with more"),
            (way(Some(Way::Up)), "range sorted up"),
            (way(Some(Way::Down)), "range sorted down"),
            (way(None) && more, "range sorted after its limit"),
            (range.modified != Within::ANY || range.created != Within::ANY, "range by revisions"),
            (range.part == Part::KeysOnly, "range of keys only"),
            (range.part == Part::CountOnly, "range of the count only"),
        ]);
    }

    /// Counts what a transaction did, and those within it.
    fn txn(&mut self, txn: &Txn, done: &TxnDone, depth: usize) {
        let ops = if done.held { &txn.then } else { &txn.otherwise };
        self.see_those(&[
            (depth == 0 && done.held, "txn whose conditions held"),
            (depth == 0 && !done.held, "txn whose conditions did not hold"),
            (depth > 0 && done.held, "txn within, held"),
            (depth > 0 && !done.held, "txn within, not held"),
            (depth > 1, "txn two within one another"),
        ]);
        let mut wrote = false;
        for (op, done) in ops.iter().zip(&done.ops) {
            match (op, done) {
                (Op::Range(range), OpDone::Range { kv_revision, .. }) => self.see_those(&[
                    (true, "txn that looks at keys"),
                    (wrote && range.revision.is_none(), "txn that looks at what it wrote"),
                    (
                        range.revision.is_some_and(|at| at > 0 && at.unsigned_abs() < *kv_revision),
                        "txn that looks at the past",
                    ),
                ]),
                (Op::Put { put, .. }, OpDone::Put { prev, .. }) => self.see_those(&[
                    (true, "txn that puts"),
                    (prev.is_some(), "txn that tells what it overwrote"),
                    (matches!(put.lease, Hang::On(_)), "txn that hangs a key on a lease"),
                ]),
                (Op::Delete { .. }, OpDone::Deleted { count, prev, .. }) => self.see_those(&[
                    (*count > 1, "txn that deletes several"),
                    (*count == 0, "txn that deletes nothing"),
                    (!prev.is_empty(), "txn that tells what it deleted"),
                ]),
                (Op::Txn(txn), OpDone::Txn(done)) => self.txn(txn, done, depth + 1),
                (op, done) => panic!("{op:?} was answered by {done:?}"),
            }
            wrote |= matches!(op, Op::Put { .. });
        }
    }

    /// Counts what one entry did to a ledger.
    pub(crate) fn entry(&mut self, before: &Ledger, entry: &Entry, applied: &Applied) {
        for (command, outcome) in entry.commands.iter().zip(&applied.outcomes) {
            if let Command::Txn(txn) = command.plain() {
                match outcome {
                    Ok(Reply::Txn(done)) => self.txn(txn, done, 0),
                    _ => self.see("txn refused"),
                }
            }
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
            Reply::Txn(done) if done.kv_revision == before.kv_revision() => self.see("txn that changes nothing"),
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
        self.see_those(&notable);
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
                Happening::HealthChanged { check, held_until, .. } => self
                    .see_those(&[(held_until.is_some(), "instance held down"), (check.is_none(), "instance let up")]),
                _ => {}
            }
        }
        let count = |is_so: fn(&Happening) -> bool| change.iter().filter(|event| is_so(&event.what)).count();
        let ended = count(|what| matches!(what, Happening::Ended { .. }));
        let deleted = count(|what| matches!(what, Happening::Deleted { .. }));
        let deregistered = count(|what| matches!(what, Happening::Deregistered { .. }));
        let put = count(|what| matches!(what, Happening::Put { .. }));
        let changed: BTreeSet<_> = change.iter().filter_map(|event| event.what.key()).collect();
        let from_line = change.iter().filter(|event| waited(before, &event.what)).count();
        let notable = [
            (deregistered > 0 && count(|what| matches!(what, Happening::Registered { .. })) > 0, "instance replaced"),
            (deregistered > 1, "instance ended with others"),
            (ended > 1, "ended with its children"),
            (ended > 0 && deleted > 0, "ended with its keys"),
            (put > 0 && put + deleted > 1, "txn that changes several keys"),
            (changed.len() < put + deleted, "txn that changes a key twice"),
            (from_line > 0, "seated from a line"),
            (from_line > 1, "several seated from their lines at once"),
        ];
        self.see_those(&notable);
    }

    /// Counts what an entry left behind.
    pub(crate) fn state(&mut self, after: &Ledger) {
        let shared: Vec<&Name> =
            after.resources_from("").filter(|(_, it)| it.holder_count() > 1).map(|(name, _)| name).collect();
        shared.iter().for_each(|_| self.see("several hold one resource"));
        let instances = after.services_from("").flat_map(|(_, service)| service.instances());
        let mut findings = instances.flat_map(|(_, instance)| instance.findings());
        if findings.any(|(_, finding)| finding.note.as_str().starts_with("it was not told")) {
            self.see("instance gone stale");
        }
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
        Reply::Released { .. } => "answer Released",
        Reply::AlreadyReleased => "answer AlreadyReleased",
        Reply::Cancelled => "answer Cancelled",
        Reply::Revoked { .. } => "answer Revoked",
        Reply::Broken { .. } => "answer Broken",
        Reply::Defined { .. } => "answer Defined",
        Reply::ClassSet => "answer ClassSet",
        Reply::Put { .. } => "answer Put",
        Reply::Deleted { .. } => "answer Deleted",
        Reply::Txn(_) => "answer Txn",
        Reply::Compacted { .. } => "answer Compacted",
        Reply::Registered(_) => "answer Registered",
        Reply::Updated { .. } => "answer Updated",
        Reply::Drained { .. } => "answer Drained",
        Reply::Deregistered { .. } => "answer Deregistered",
        Reply::HealthSet { .. } => "answer HealthSet",
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
        Refusal::Answered { .. } => "refusal Answered",
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
        Refusal::NoInstance { .. } => "refusal NoInstance",
        Refusal::InstanceExists { .. } => "refusal InstanceExists",
        Refusal::OlderInstance { .. } => "refusal OlderInstance",
        Refusal::OtherLease { .. } => "refusal OtherLease",
        Refusal::NoCheck { .. } => "refusal NoCheck",
        Refusal::BadInstance { .. } => "refusal BadInstance",
        Refusal::Full { .. } => "refusal Full",
        Refusal::Overloaded { .. } => "refusal Overloaded",
        Refusal::Denied { .. } => "refusal Denied",
        Refusal::TooManyLeases { .. } => "refusal TooManyLeases",
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
        Happening::Registered { .. } => "event Registered",
        Happening::Updated { .. } => "event Updated",
        Happening::Drained { .. } => "event Drained",
        Happening::Undrained { .. } => "event Undrained",
        Happening::HealthChanged { .. } => "event HealthChanged",
        Happening::Deregistered { .. } => "event Deregistered",
        Happening::Suspected { .. } => "event Suspected",
        Happening::Cleared { .. } => "event Cleared",
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
        End::Unhealthy => "lease Unhealthy",
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
        End::Unhealthy => "claim Unhealthy",
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
