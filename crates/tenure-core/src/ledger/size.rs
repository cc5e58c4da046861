//! How many bytes the ledger takes without its keys, which are counted apart: about, but alike on every node. It refuses what
//! would make it larger than it may be, before anything is changed.

use super::Ledger;
use super::lease::Lease;
use crate::command::{Acquire, Grant, On};
use crate::limits::{
    CLAIM_COST_BYTES, INSTANCE_COST_BYTES, LEASE_COST_BYTES, LEDGER_BYTES_MAX, NOTE_BYTES_MAX, RESOURCE_COST_BYTES,
};
use crate::names::{Holder, Labels, Name, Note};
use crate::registry::{Details, InstanceKey};
use crate::reply::Refusal;

impl Ledger {
    /// About how many bytes leases, claims, defined resources and instances take. Keys and their values are not in it.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether so many bytes more may be taken.
    pub(super) fn has_room_for(&self, bytes: usize) -> Result<(), Refusal> {
        if self.bytes + bytes > LEDGER_BYTES_MAX {
            return Err(Refusal::Full { what: "bytes of leases, claims and instances".into(), max: LEDGER_BYTES_MAX });
        }
        Ok(())
    }
}

fn words(holder: &Holder, labels: &Labels, reason: &Note) -> usize {
    let labels: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    holder.as_str().len() + reason.as_str().len() + labels
}

/// A lease without what hangs on it.
pub(super) fn of_lease(lease: &Lease) -> usize {
    LEASE_COST_BYTES + words(&lease.holder, &lease.labels, &lease.reason)
}

/// The lease that a grant begins.
pub(super) fn of_grant(grant: &Grant) -> usize {
    LEASE_COST_BYTES + words(&grant.holder, &grant.labels, &grant.reason)
}

/// What an acquire adds: its claims, and its lease if that is new.
pub(super) fn of_acquire(acquire: &Acquire) -> usize {
    let claims: usize = acquire.wants.iter().map(|want| of_claim(&want.resource)).sum();
    claims + if let On::New(grant) = &acquire.on { of_grant(grant) } else { 0 }
}

/// A claim: holding, waiting or vacating. Its name is in its resource and in its lease.
pub(super) fn of_claim(name: &Name) -> usize {
    CLAIM_COST_BYTES + 2 * name.as_str().len()
}

/// The claims of an acquire.
pub(super) fn of_claims<'a>(names: impl IntoIterator<Item = &'a Name>) -> usize {
    names.into_iter().map(of_claim).sum()
}

/// A resource with a defined capacity, which is kept while it is free.
pub(super) fn of_defined(name: &Name) -> usize {
    RESOURCE_COST_BYTES + name.as_str().len()
}

/// An instance, with a note of each of its checks.
pub(super) fn of_instance(key: &InstanceKey, details: &Details) -> usize {
    INSTANCE_COST_BYTES + details.checks.len() * NOTE_BYTES_MAX + 2 * key.bytes() + details.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Define, Entry, Leader, Release, Wait};
    use crate::limits::RULES_MAX;
    use crate::mode::Units;
    use crate::names::LeaseId;
    use crate::registry::{Draft, Endpoint, Register};
    use crate::reply::{Outcome, Reply};
    use crate::request::Proof;
    use crate::time::{Moment, Ttl};
    use alloc::borrow::Cow;
    use alloc::vec;

    const FULL: Refusal =
        Refusal::Full { what: Cow::Borrowed("bytes of leases, claims and instances"), max: LEDGER_BYTES_MAX };

    fn order(ledger: &mut Ledger, command: Command) -> Outcome {
        let leader = Leader { term: 1, node: 1 };
        let entry =
            Entry { leader, now: Moment::from_millis(1), wall_ms: 1, rules: RULES_MAX, commands: vec![command] };
        ledger.apply(&entry).outcomes.pop().expect("a command is answered")
    }

    fn a_grant(lease: u64) -> Grant {
        let holder = Holder::parse("ann").expect("it is a holder");
        Grant::plain(
            LeaseId::from_number(lease).expect("it is an id"),
            holder,
            Ttl::from_millis(1000).expect("it is a TTL"),
            1,
        )
    }

    fn name(text: &str) -> Name {
        Name::parse(text).expect("it is a name")
    }

    /// A ledger in which so many bytes are free.
    fn with_room(bytes: usize) -> Ledger {
        Ledger { bytes: LEDGER_BYTES_MAX - bytes, ..Ledger::default() }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let grant = Command::Grant(a_grant(1));
        let acquire = Command::Acquire(Acquire::exclusive(On::New(a_grant(1)), name("db"), Wait::IN_LINE));
        let define = Command::Define(Define { resource: name("db"), capacity: Units::from_number(2) });
        let instance = InstanceKey::parse("web/a").expect("it is an instance");
        let endpoint = Endpoint::parse("http://10.0.0.1:80").expect("it is an endpoint");
        let details = Details::new(Draft::at(vec![endpoint])).expect("the rest need not be said");
        let on = On::New(a_grant(1));
        let register =
            Register { instance: instance.clone(), epoch: None, on, details: details.clone(), request: None };
        let (lease, claim) = (of_grant(&a_grant(1)), of_claim(&name("db")));
        let sizes = [
            (grant, lease),
            (acquire, lease + claim),
            (define, of_defined(&name("db"))),
            (Command::Register(register), lease + of_instance(&instance, &details)),
        ];
        for (command, bytes) in sizes {
            let mut ledger = with_room(bytes - 1);
            assert_eq!(order(&mut ledger, command.clone()), Err(FULL), "{command:?}");
            assert_eq!(ledger.bytes(), LEDGER_BYTES_MAX - bytes + 1, "and nothing was changed: {command:?}");
            let mut ledger = with_room(bytes);
            assert!(order(&mut ledger, command.clone()).is_ok(), "{command:?}");
            assert_eq!(ledger.bytes(), LEDGER_BYTES_MAX, "{command:?}");
        }
    }

    #[test]
    fn what_ends_makes_room() {
        let acquire = |lease| Command::Acquire(Acquire::exclusive(On::New(a_grant(lease)), name("db"), Wait::IN_LINE));
        let Command::Acquire(one) = acquire(1) else { unreachable!("it is an acquire") };
        let mut ledger = with_room(of_acquire(&one));
        let Ok(Reply::Seated(seat)) = order(&mut ledger, acquire(1)) else { unreachable!("it fits") };
        assert_eq!(order(&mut ledger, acquire(2)), Err(FULL));
        let release = Release { handle: seat.claims[0].clone(), proof: Proof::Handle };
        assert!(order(&mut ledger, Command::Release(release)).is_ok());
        assert!(order(&mut ledger, acquire(2)).is_ok());
    }
}
