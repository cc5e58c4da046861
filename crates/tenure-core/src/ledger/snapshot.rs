//! The ledger as bytes and back: a stream of length-delimited records in a fixed order, so that equal ledgers make equal
//! bytes. The wheel is not in it; it is rebuilt. Checksums and files are the server's business.

use super::claim::{Holding, Resource};
use super::lease::{Lease, Origin, Stake};
use super::{EndedClaim, EndedLease, Ledger};
use crate::event::{End, Event, Happening, Revision};
use crate::limits::FENCE_MAX;
use crate::names::LeaseId;
use crate::record::{Damage, fence, holder, lease_id, name, note, ttl};
use crate::time::Moment;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use prost::Message;
use xxhash_rust::xxh3::Xxh3;

/// No counter of a ledger comes this far, so none can run over: at a billion a second it would take a month.
const COUNTER_MAX: u64 = FENCE_MAX / 4;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Head(HeadRecord),
    #[prost(message, tag = "2")]
    Lease(LeaseRecord),
    #[prost(string, tag = "3")]
    ToSeat(String),
    #[prost(message, tag = "4")]
    EndedLease(EndedLeaseRecord),
    #[prost(message, tag = "5")]
    EndedClaim(EndedClaimRecord),
    #[prost(message, tag = "6")]
    Event(EventRecord),
}

#[derive(Clone, PartialEq, Message)]
struct HeadRecord {
    #[prost(uint64, tag = "1")]
    now_ms: u64,
    #[prost(uint64, tag = "2")]
    wall_ms: u64,
    #[prost(uint64, tag = "3")]
    revision: u64,
    #[prost(uint64, tag = "4")]
    fence: u64,
    #[prost(uint64, tag = "5")]
    arrival: u64,
    #[prost(uint64, tag = "6")]
    compacted_revision: u64,
    #[prost(uint32, tag = "7")]
    compacted_n: u32,
    /// How many records follow, so that a stream that was cut between two records is noticed.
    #[prost(uint64, tag = "8")]
    records: u64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    holder: String,
    #[prost(uint64, tag = "3")]
    ttl_ms: u64,
    #[prost(uint64, tag = "4")]
    deadline_ms: u64,
    #[prost(fixed64, tag = "5")]
    request: u64,
    #[prost(uint64, tag = "6")]
    granted_ms: u64,
    #[prost(uint64, tag = "7")]
    granted_wall_ms: u64,
    #[prost(bool, tag = "8")]
    by_acquire: bool,
    #[prost(message, repeated, tag = "9")]
    stakes: Vec<StakeRecord>,
}

/// A stake: holding if it has a fence, else waiting.
#[derive(Clone, PartialEq, Message)]
struct StakeRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(uint64, tag = "2")]
    fence: u64,
    #[prost(uint64, tag = "3")]
    since_ms: u64,
    #[prost(uint64, tag = "4")]
    since_wall_ms: u64,
    #[prost(uint64, tag = "5")]
    arrival: u64,
}

#[derive(Clone, PartialEq, Message)]
struct EndRecord {
    #[prost(enumeration = "EndKind", tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    by: String,
    #[prost(string, tag = "3")]
    reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
enum EndKind {
    Unspecified = 0,
    Released = 1,
    Expired = 2,
    Revoked = 3,
}

#[derive(Clone, PartialEq, Message)]
struct EndedLeaseRecord {
    #[prost(fixed64, tag = "1")]
    lease: u64,
    #[prost(string, tag = "2")]
    holder: String,
    #[prost(fixed64, tag = "3")]
    request: u64,
    #[prost(message, optional, tag = "4")]
    how: Option<EndRecord>,
    #[prost(uint64, tag = "5")]
    when_ms: u64,
    #[prost(uint64, tag = "6")]
    wall_ms: u64,
}

#[derive(Clone, PartialEq, Message)]
struct EndedClaimRecord {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(fixed64, tag = "2")]
    lease: u64,
    #[prost(string, tag = "3")]
    holder: String,
    #[prost(uint64, tag = "4")]
    fence: u64,
    #[prost(message, optional, tag = "5")]
    how: Option<EndRecord>,
    #[prost(uint64, tag = "6")]
    when_ms: u64,
    #[prost(uint64, tag = "7")]
    wall_ms: u64,
}

/// An event; which fields are set depends on its kind.
#[derive(Clone, PartialEq, Message)]
struct EventRecord {
    #[prost(uint64, tag = "1")]
    revision: u64,
    #[prost(uint32, tag = "2")]
    n: u32,
    #[prost(bool, tag = "3")]
    last: bool,
    #[prost(uint64, tag = "4")]
    at_ms: u64,
    #[prost(uint64, tag = "5")]
    wall_ms: u64,
    #[prost(enumeration = "EventKind", tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    lease: u64,
    #[prost(string, tag = "8")]
    resource: String,
    #[prost(string, tag = "9")]
    holder: String,
    #[prost(uint64, tag = "10")]
    ttl_ms: u64,
    #[prost(uint64, tag = "11")]
    fence: u64,
    #[prost(message, optional, tag = "12")]
    how: Option<EndRecord>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
enum EventKind {
    Unspecified = 0,
    Granted = 1,
    Queued = 2,
    Seated = 3,
    Vacated = 4,
    Left = 5,
    Ended = 6,
}

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
        for (id, lease) in &self.leases {
            write(Kind::Lease(self.lease_record(*id, lease)));
        }
        for name in &self.to_seat {
            write(Kind::ToSeat(name.to_string()));
        }
        for ended in self.history.all_leases() {
            write(Kind::EndedLease(ended_lease_record(ended)));
        }
        for ended in self.history.all_claims() {
            write(Kind::EndedClaim(ended_claim_record(ended)));
        }
        for event in self.history.all_events() {
            write(Kind::Event(event_record(event)));
        }
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
        if head.fence > COUNTER_MAX || head.revision > COUNTER_MAX || head.arrival > COUNTER_MAX {
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
        let mut records = 0;
        while !bytes.is_empty() {
            ledger.read_record(next_record(&mut bytes)?)?;
            records += 1;
        }
        if records != head.records {
            return Err(Damage::new("a snapshot with fewer or more records than its head says"));
        }
        ledger.history.restore_compacted((Revision(head.compacted_revision), head.compacted_n));
        ledger.check_seating()?;
        Ok(ledger)
    }

    fn head(&self) -> HeadRecord {
        let (compacted_revision, compacted_n) = self.history.compacted();
        let ended = self.history.all_leases().count() + self.history.all_claims().count();
        let records = self.leases.len() + self.to_seat.len() + ended + self.history.all_events().count();
        HeadRecord {
            now_ms: self.now.millis(),
            wall_ms: self.wall_ms,
            revision: self.revision.0,
            fence: self.fence,
            arrival: self.arrival,
            compacted_revision: compacted_revision.0,
            compacted_n,
            records: records as u64,
        }
    }

    fn lease_record(&self, id: LeaseId, lease: &Lease) -> LeaseRecord {
        let stakes = lease.stakes.iter().map(|(name, stake)| {
            let resource = name.to_string();
            match stake {
                Stake::Waiting { arrival } => StakeRecord { resource, arrival: *arrival, ..StakeRecord::default() },
                Stake::Holding { fence } => {
                    let holding = self.resources.get(name).and_then(|resource| resource.holding);
                    let holding = holding.expect("every holding stake is its resource's holder");
                    StakeRecord {
                        resource,
                        fence: fence.number(),
                        since_ms: holding.since.millis(),
                        since_wall_ms: holding.since_wall_ms,
                        arrival: 0,
                    }
                }
            }
        });
        LeaseRecord {
            lease: id.number(),
            holder: lease.holder.to_string(),
            ttl_ms: lease.ttl.millis(),
            deadline_ms: lease.deadline.millis(),
            request: lease.request,
            granted_ms: lease.granted.millis(),
            granted_wall_ms: lease.granted_wall_ms,
            by_acquire: lease.origin == Origin::Acquire,
            stakes: stakes.collect(),
        }
    }

    fn read_record(&mut self, kind: Kind) -> Result<(), Damage> {
        match kind {
            Kind::Head(_) => return Err(Damage::new("a snapshot with two heads")),
            Kind::Lease(record) => self.read_lease(&record)?,
            Kind::ToSeat(text) => {
                let name = name(&text)?;
                let listed = self.resources.get_mut(&name).map(|resource| &mut resource.listed);
                match listed {
                    Some(listed) if !*listed => *listed = true,
                    // A listed resource may have lost its last waiter since; it is then in the list alone.
                    None => self.resources.entry(name.clone()).or_default().listed = true,
                    Some(_) => return Err(Damage::new("a resource that is listed twice for seating")),
                }
                self.to_seat.push_back(name);
            }
            Kind::EndedLease(record) => self.history.remember_lease(EndedLease {
                lease: lease_id(record.lease)?,
                holder: holder(&record.holder)?,
                request: record.request,
                how: read_end(record.how)?,
                when: Moment::from_millis(record.when_ms),
                wall_ms: record.wall_ms,
            }),
            Kind::EndedClaim(record) => self.history.remember_claim(EndedClaim {
                resource: name(&record.resource)?,
                lease: lease_id(record.lease)?,
                holder: holder(&record.holder)?,
                fence: fence(record.fence)?,
                how: read_end(record.how)?,
                when: Moment::from_millis(record.when_ms),
                wall_ms: record.wall_ms,
            }),
            Kind::Event(record) => self.history.remember_events(&[read_event(record)?]),
        }
        Ok(())
    }

    fn read_lease(&mut self, record: &LeaseRecord) -> Result<(), Damage> {
        let id = lease_id(record.lease)?;
        let deadline = Moment::from_millis(record.deadline_ms);
        let mut stakes = BTreeMap::new();
        for stake in &record.stakes {
            if stakes.insert(name(&stake.resource)?, self.read_stake(id, stake)?).is_some() {
                return Err(Damage::new("a lease with two claims on one resource"));
            }
        }
        let lease = Lease {
            holder: holder(&record.holder)?,
            ttl: ttl(record.ttl_ms)?,
            deadline,
            request: record.request,
            granted: Moment::from_millis(record.granted_ms),
            granted_wall_ms: record.granted_wall_ms,
            origin: if record.by_acquire { Origin::Acquire } else { Origin::Grant },
            stakes,
            armed: deadline,
        };
        self.wheel.arm(deadline, id);
        match self.leases.insert(id, lease) {
            None => Ok(()),
            Some(_) => Err(Damage::new("a lease that is there twice")),
        }
    }

    fn read_stake(&mut self, id: LeaseId, record: &StakeRecord) -> Result<Stake, Damage> {
        let resource: &mut Resource = self.resources.entry(name(&record.resource)?).or_default();
        if record.fence == 0 {
            if resource.line.holds(record.arrival) || record.arrival > self.arrival {
                return Err(Damage::new("a waiter whose arrival is not its own"));
            }
            resource.line.join(record.arrival, id);
            return Ok(Stake::Waiting { arrival: record.arrival });
        }
        let fence = fence(record.fence)?;
        if resource.holding.is_some() || record.fence > self.fence {
            return Err(Damage::new("a resource with two holders, or a fence that was never given out"));
        }
        resource.holding = Some(Holding {
            lease: id,
            fence,
            since: Moment::from_millis(record.since_ms),
            since_wall_ms: record.since_wall_ms,
        });
        Ok(Stake::Holding { fence })
    }

    /// A resource that nobody holds is listed for seating.
    fn check_seating(&self) -> Result<(), Damage> {
        if self.resources.values().any(|resource| resource.holding.is_none() && !resource.listed) {
            return Err(Damage::new("a resource that is neither held nor listed for seating"));
        }
        Ok(())
    }
}

fn next_record(bytes: &mut &[u8]) -> Result<Kind, Damage> {
    let record = Record::decode_length_delimited(bytes)?;
    record.kind.ok_or_else(|| Damage::new("a snapshot record of a kind that this build does not know"))
}

fn end_record(how: &End) -> EndRecord {
    match how {
        End::Released => EndRecord { kind: EndKind::Released.into(), ..EndRecord::default() },
        End::Expired => EndRecord { kind: EndKind::Expired.into(), ..EndRecord::default() },
        End::Revoked { by, reason } => {
            EndRecord { kind: EndKind::Revoked.into(), by: by.to_string(), reason: reason.to_string() }
        }
    }
}

fn read_end(record: Option<EndRecord>) -> Result<End, Damage> {
    let record = record.ok_or_else(|| Damage::new("an end that does not say how"))?;
    match record.kind() {
        EndKind::Released => Ok(End::Released),
        EndKind::Expired => Ok(End::Expired),
        EndKind::Revoked => Ok(End::Revoked { by: holder(&record.by)?, reason: note(&record.reason)? }),
        EndKind::Unspecified => Err(Damage::new("an end of a kind that this build does not know")),
    }
}

fn ended_lease_record(ended: &EndedLease) -> EndedLeaseRecord {
    EndedLeaseRecord {
        lease: ended.lease.number(),
        holder: ended.holder.to_string(),
        request: ended.request,
        how: Some(end_record(&ended.how)),
        when_ms: ended.when.millis(),
        wall_ms: ended.wall_ms,
    }
}

fn ended_claim_record(ended: &EndedClaim) -> EndedClaimRecord {
    EndedClaimRecord {
        resource: ended.resource.to_string(),
        lease: ended.lease.number(),
        holder: ended.holder.to_string(),
        fence: ended.fence.number(),
        how: Some(end_record(&ended.how)),
        when_ms: ended.when.millis(),
        wall_ms: ended.wall_ms,
    }
}

fn event_record(event: &Event) -> EventRecord {
    let mut record = EventRecord {
        revision: event.revision.0,
        n: event.n,
        last: event.last,
        at_ms: event.at.millis(),
        wall_ms: event.wall_ms,
        lease: event.what.lease().number(),
        resource: event.what.resource().map_or_else(String::new, ToString::to_string),
        ..EventRecord::default()
    };
    let kind = match &event.what {
        Happening::Granted { holder, ttl, .. } => {
            record.holder = holder.to_string();
            record.ttl_ms = ttl.millis();
            EventKind::Granted
        }
        Happening::Queued { holder, .. } => {
            record.holder = holder.to_string();
            EventKind::Queued
        }
        Happening::Seated { holder, fence, ttl, .. } => {
            record.holder = holder.to_string();
            record.fence = fence.number();
            record.ttl_ms = ttl.millis();
            EventKind::Seated
        }
        Happening::Vacated { fence, how, .. } => {
            record.fence = fence.number();
            record.how = Some(end_record(how));
            EventKind::Vacated
        }
        Happening::Left { .. } => EventKind::Left,
        Happening::Ended { holder, how, .. } => {
            record.holder = holder.to_string();
            record.how = Some(end_record(how));
            EventKind::Ended
        }
    };
    record.set_kind(kind);
    record
}

fn read_event(record: EventRecord) -> Result<Event, Damage> {
    let lease = lease_id(record.lease)?;
    let what = match record.kind() {
        EventKind::Granted => Happening::Granted { lease, holder: holder(&record.holder)?, ttl: ttl(record.ttl_ms)? },
        EventKind::Queued => {
            Happening::Queued { resource: name(&record.resource)?, lease, holder: holder(&record.holder)? }
        }
        EventKind::Seated => Happening::Seated {
            resource: name(&record.resource)?,
            lease,
            holder: holder(&record.holder)?,
            fence: fence(record.fence)?,
            ttl: ttl(record.ttl_ms)?,
        },
        EventKind::Vacated => Happening::Vacated {
            resource: name(&record.resource)?,
            lease,
            fence: fence(record.fence)?,
            how: read_end(record.how)?,
        },
        EventKind::Left => Happening::Left { resource: name(&record.resource)?, lease },
        EventKind::Ended => Happening::Ended { lease, holder: holder(&record.holder)?, how: read_end(record.how)? },
        EventKind::Unspecified => return Err(Damage::new("an event of a kind that this build does not know")),
    };
    Ok(Event {
        revision: Revision(record.revision),
        n: record.n,
        last: record.last,
        at: Moment::from_millis(record.at_ms),
        wall_ms: record.wall_ms,
        what,
    })
}
