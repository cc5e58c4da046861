//! Leases: how they begin, go on and end. What hangs on a lease ends with it, in the same step.

use super::Ledger;
use crate::command::{Grant, Outcome, Refusal, Renew, RenewHandle, Renewal, Renewed, Reply, Revoke};
use crate::event::{End, Event, Happening};
use crate::fence::Fence;
use crate::limits::LEASES_MAX;
use crate::names::{Holder, LeaseId, Name};
use crate::time::{Moment, Ttl};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A life: whose, how long, and what hangs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub(super) holder: Holder,
    pub(super) ttl: Ttl,
    pub(super) deadline: Moment,
    pub(super) request: u64,
    pub(super) granted: Moment,
    pub(super) granted_wall_ms: u64,
    pub(super) origin: Origin,
    pub(super) stakes: BTreeMap<Name, Stake>,
    /// Where the wheel has it: at its deadline or, after a renewal, before. Not state.
    pub(super) armed: Moment,
}

/// How a lease came to be, which tells whether it outlives its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// By a grant: it lives on without claims.
    Grant,
    /// By an acquire: it ends when its last claim is released.
    Acquire,
}

/// A lease's claim on one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stake {
    /// It holds the resource.
    Holding {
        /// With this fence.
        fence: Fence,
    },
    /// It stands in line.
    Waiting {
        /// The order key of its place.
        arrival: u64,
    },
}

impl Lease {
    /// Whose lease it is.
    pub const fn holder(&self) -> &Holder {
        &self.holder
    }

    /// How long it lives without a renewal.
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// When it ends unless it is renewed.
    pub const fn deadline(&self) -> Moment {
        self.deadline
    }

    /// When it began, by the wall clock of the leader of that time.
    pub const fn granted_wall_ms(&self) -> u64 {
        self.granted_wall_ms
    }

    /// The resources that it holds or waits for, by name.
    pub fn stakes(&self) -> impl Iterator<Item = (&Name, Stake)> {
        self.stakes.iter().map(|(name, stake)| (name, *stake))
    }

    /// What a holder may count from now on: never more than what is left, because a retry moves no deadline.
    pub(super) fn effective_ttl_ms(&self, now: Moment) -> u64 {
        self.ttl.millis().min(self.deadline.millis_since(now))
    }

    /// What its end costs: itself and all that hangs on it.
    pub(super) fn weight(&self) -> usize {
        1 + self.stakes.len()
    }
}

impl Ledger {
    pub(super) fn grant(&mut self, grant: &Grant, events: &mut Vec<Event>) -> Outcome {
        if self.is_retry(grant)? {
            return Ok(self.granted(grant.lease));
        }
        let begun = self.begin(grant, Origin::Grant);
        self.happened(alloc::vec![begun], events);
        Ok(self.granted(grant.lease))
    }

    fn granted(&self, id: LeaseId) -> Reply {
        let lease = self.leases.get(&id).expect("a lease lives after its grant");
        Reply::Granted { lease: id, ttl_ms: lease.effective_ttl_ms(self.now), revision: self.revision }
    }

    /// Whether this grant was made before. Refuses one that may not be made at all.
    pub(super) fn is_retry(&self, grant: &Grant) -> Result<bool, Refusal> {
        if let Some(lease) = self.leases.get(&grant.lease) {
            return if lease.holder == grant.holder && lease.request == grant.request {
                Ok(true)
            } else {
                Err(Refusal::Exists { lease: grant.lease, holder: lease.holder.clone() })
            };
        }
        if let Some(ended) = self.history.lease(grant.lease) {
            // A late retry must not raise a lease from the dead; another request may use the id again.
            if ended.holder == grant.holder && ended.request == grant.request {
                return Err(ended.refusal());
            }
        }
        if self.leases.len() >= LEASES_MAX {
            return Err(Refusal::Full { what: "leases", max: LEASES_MAX });
        }
        Ok(false)
    }

    pub(super) fn begin(&mut self, grant: &Grant, origin: Origin) -> Happening {
        let deadline = self.now.after(grant.ttl);
        let lease = Lease {
            holder: grant.holder.clone(),
            ttl: grant.ttl,
            deadline,
            request: grant.request,
            granted: self.now,
            granted_wall_ms: self.wall_ms,
            origin,
            stakes: BTreeMap::new(),
            armed: deadline,
        };
        self.wheel.arm(deadline, grant.lease);
        self.leases.insert(grant.lease, lease);
        Happening::Granted { lease: grant.lease, holder: grant.holder.clone(), ttl: grant.ttl }
    }

    pub(super) fn renew(&mut self, renew: &Renew) -> Reply {
        Reply::Renewed(renew.leases.iter().map(|renewal| self.renew_one(*renewal)).collect())
    }

    pub(super) fn renew_one(&mut self, renewal: Renewal) -> Result<Renewed, Refusal> {
        let now = self.now;
        let Some(lease) = self.leases.get_mut(&renewal.lease) else { return Err(self.no_lease(renewal.lease)) };
        lease.ttl = renewal.ttl.unwrap_or(lease.ttl);
        lease.deadline = lease.deadline.max(now.after(lease.ttl));
        Ok(Renewed { lease: renewal.lease, ttl: lease.ttl })
    }

    pub(super) fn renew_handle(&mut self, renew: &RenewHandle) -> Outcome {
        let lease = self.behind(&renew.handle)?;
        let renewed = self.renew_one(Renewal { lease, ttl: renew.ttl })?;
        Ok(Reply::HandleRenewed(renewed))
    }

    pub(super) fn revoke(&mut self, revoke: &Revoke, events: &mut Vec<Event>) -> Outcome {
        if self.leases.contains_key(&revoke.lease) {
            let how = End::Revoked { by: revoke.by.clone(), reason: revoke.reason.clone() };
            self.end(revoke.lease, &how, events);
            return Ok(Reply::Revoked);
        }
        match self.history.lease(revoke.lease) {
            Some(ended) if matches!(ended.how, End::Revoked { .. }) => Ok(Reply::Revoked),
            _ => Err(self.no_lease(revoke.lease)),
        }
    }

    /// Why a lease is not there: how it ended, if that is remembered.
    pub(super) fn no_lease(&self, lease: LeaseId) -> Refusal {
        match self.history.lease(lease) {
            Some(ended) => ended.refusal(),
            None => Refusal::NoLease { lease },
        }
    }

    /// Ends a lease and all that hangs on it, at one revision.
    pub(super) fn end(&mut self, id: LeaseId, how: &End, events: &mut Vec<Event>) {
        let lease = self.leases.remove(&id).expect("only a living lease can end");
        self.wheel.disarm(lease.armed, id);
        let mut happenings = Vec::with_capacity(lease.weight());
        for (resource, stake) in &lease.stakes {
            happenings.push(self.unstake(id, &lease.holder, resource, *stake, how));
        }
        happenings.push(Happening::Ended { lease: id, holder: lease.holder.clone(), how: how.clone() });
        self.happened(happenings, events);
        self.history.remember_lease(super::EndedLease {
            lease: id,
            holder: lease.holder,
            request: lease.request,
            how: how.clone(),
            when: self.now,
            wall_ms: self.wall_ms,
        });
    }
}
