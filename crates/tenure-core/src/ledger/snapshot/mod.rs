//! The ledger as bytes and back: a stream of length-delimited records in a fixed order, so that equal ledgers make equal
//! bytes. Indexes and the wheel are not in it; they are rebuilt. Checksums and files are the server's business.

mod claims;
mod events;
mod past;
mod rebuild;
mod records;
mod registry;

use super::lease::{Lease, Stake};
use super::{Ledger, Resource};
use crate::event::Revision;
use crate::limits::{COUNTER_MAX, RULES_MAX};
use crate::mode::Units;
use crate::record::{Damage, check_rules, class_record};
use crate::time::Moment;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use prost::Message;
use records::{HeadRecord, Kind, Record, ResourceRecord};
use xxhash_rust::xxh3::Xxh3;

impl Ledger {
    /// Writes the whole ledger to `sink`, piece by piece.
    pub fn write_snapshot(&self, mut sink: impl FnMut(&[u8])) {
        let mut buffer = Vec::new();
        let mut write = |kind: Kind| {
            buffer.clear();
            Record { kind: Some(kind) }.encode_length_delimited(&mut buffer).expect("a vector grows as needed");
            sink(&buffer);
        };
        write(Kind::Head(self.head()));
        self.classes.values().for_each(|class| write(Kind::Class(class_record(class))));
        for (name, resource) in self.resources.iter().filter(|(_, resource)| is_written(resource)) {
            write(Kind::Resource(ResourceRecord::of(name, resource)));
        }
        self.leases.iter().for_each(|(id, lease)| write(Kind::Lease(lease.record(*id))));
        self.waiters.iter().for_each(|(arrival, waiter)| write(Kind::Waiter(waiter.record(*arrival))));
        self.vacating.iter().for_each(|(fence, stake)| write(Kind::Vacating(stake.record(*fence))));
        self.breaks.iter().for_each(|(fence, order)| write(Kind::Break(order.record(*fence))));
        self.keyspace.keys.iter().for_each(|(key, value)| write(Kind::Key(value.record(key))));
        for (key, versions) in &self.keyspace.past.versions {
            versions.iter().for_each(|version| write(Kind::Past(version.record(key))));
        }
        self.instance_records().for_each(|instance| write(Kind::Instance(instance)));
        self.judged_records().for_each(|judged| write(Kind::Judged(judged)));
        self.to_seat.iter().for_each(|(_, arrival)| write(Kind::ToSeat(*arrival)));
        self.history.all_leases().for_each(|ended| write(Kind::EndedLease(ended.record())));
        self.history.all_claims().for_each(|ended| write(Kind::EndedClaim(ended.record())));
        self.history.all_epochs().for_each(|ended| write(Kind::EndedEpoch(ended.record())));
        self.history.all_instances().for_each(|ended| write(Kind::EndedInstance(ended.record())));
        self.history.all_events().for_each(|event| write(Kind::Event(events::event_record(event))));
    }

    /// Equal ledgers have equal hashes, on every node and in every build that applies the same rules.
    pub fn state_hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        self.write_snapshot(|bytes| hash.update(bytes));
        hash.digest()
    }

    /// Reads a ledger back. Whatever the bytes are, it is read whole or refused.
    pub fn read_snapshot(mut bytes: &[u8]) -> Result<Self, Damage> {
        let head = match next_record(&mut bytes)? {
            Kind::Head(head) => head,
            _ => return Err(Damage::new("a snapshot that does not start with its head")),
        };
        check_rules(head.rules)?;
        let counters = [head.fence, head.revision, head.arrival, head.kv_revision, head.registered];
        if counters.iter().any(|counter| *counter > COUNTER_MAX) {
            return Err(Damage::new("a counter that no ledger reaches"));
        }
        let mut ledger = Self {
            now: Moment::from_millis(head.now_ms),
            wall_ms: head.wall_ms,
            revision: Revision(head.revision),
            fence: head.fence,
            arrival: head.arrival,
            ..Self::default()
        };
        ledger.registry.last = head.registered;
        ledger.keyspace.revision = head.kv_revision;
        (ledger.keyspace.past.compacted, ledger.keyspace.past.cleared) = (head.kv_compacted, head.kv_cleared);
        let mut records = 0;
        while !bytes.is_empty() {
            ledger.read_record(next_record(&mut bytes)?)?;
            records += 1;
        }
        if records != head.records {
            return Err(Damage::new("a snapshot with fewer or more records than its head says"));
        }
        let of_keys = (Revision(head.keys_compacted_revision), head.keys_compacted_n);
        ledger.history.restore_compacted((Revision(head.compacted_revision), head.compacted_n), of_keys);
        ledger.rebuild()?;
        Ok(ledger)
    }

    fn head(&self) -> HeadRecord {
        let ((compacted_revision, compacted_n), (keys_compacted_revision, keys_compacted_n)) = self.history.compacted();
        let resources = self.resources.values().filter(|resource| is_written(resource)).count();
        let living = self.classes.len() + resources + self.leases.len() + self.waiters.len();
        let things = self.vacating.len() + self.breaks.len() + self.keyspace.keys.len() + self.to_seat.len();
        let past: usize = self.keyspace.past.versions.values().map(VecDeque::len).sum();
        let instances = self.instance_count() + self.judged_records().count();
        let ended = self.history.all_leases().count() + self.history.all_claims().count();
        let ended = ended + self.history.all_epochs().count() + self.history.all_instances().count();
        HeadRecord {
            now_ms: self.now.millis(),
            wall_ms: self.wall_ms,
            revision: self.revision.0,
            fence: self.fence,
            arrival: self.arrival,
            compacted_revision: compacted_revision.0,
            compacted_n,
            keys_compacted_revision: keys_compacted_revision.0,
            keys_compacted_n,
            records: (living + things + past + instances + ended + self.history.all_events().count()) as u64,
            rules: RULES_MAX,
            kv_revision: self.keyspace.revision,
            kv_compacted: self.keyspace.past.compacted,
            kv_cleared: self.keyspace.past.cleared,
            registered: self.registry.last,
        }
    }
}

/// Whether a resource has anything that its claims do not tell.
fn is_written(resource: &Resource) -> bool {
    resource.defined || resource.capacity != Units::ONE
}

fn next_record(bytes: &mut &[u8]) -> Result<Kind, Damage> {
    let record = Record::decode_length_delimited(bytes)?;
    record.kind.ok_or_else(|| Damage::new("a snapshot record of a kind that this build does not know"))
}

/// The claims that a lease holds, by name.
fn holdings(lease: &Lease) -> impl Iterator<Item = (&crate::names::Name, &super::Holding)> {
    lease.stakes.iter().filter_map(|(name, stake)| match stake {
        Stake::Holding(holding) => Some((name, &**holding)),
        Stake::Waiting(_) => None,
    })
}
