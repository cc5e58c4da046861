//! Ends: of leases with all that hangs on them, and of single claims. What was promised to a holder is kept free until
//! then, unless somebody says `now`.

use super::lease::{Lease, Origin, Stake};
use super::resource::Claim;
use super::seating::Waiter;
use super::wheel::Due;
use super::{EndedClaim, EndedLease, Holding, Ledger, size};
use crate::actor::ApiKeyName;
use crate::command::{Force, Free, ReleaseLease, Revoke, Which};
use crate::event::{End, Event, Happening, Leave};
use crate::fence::Fence;
use crate::mode::{Epoch, Mode};
use crate::names::{Holder, Key, LeaseId, Name};
use crate::reply::{Outcome, Reply};
use crate::request::Proof;
use crate::time::Moment;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Bound;

/// An ended claim that keeps its resource from others until the deadline that was promised to its holder, or until the
/// end of its lock-delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vacating {
    /// The resource.
    pub resource: Name,
    /// The lease that held it.
    pub lease: LeaseId,
    /// Whose lease it was.
    pub holder: Holder,
    /// How it shares the resource.
    pub mode: Mode,
    /// The epoch in which its holder claimed it.
    pub epoch: Option<Epoch>,
    /// When it is over.
    pub until: Moment,
    /// The API key that its lease was begun with.
    pub owner: Option<ApiKeyName>,
}

/// The end that something comes to, and how soon others may have what it held.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) how: End,
    pub(super) free: Free,
    /// Of a release: what it showed.
    proof: Proof,
}

impl Ending {
    pub(super) const fn plain(how: End) -> Self {
        Self { how, free: Free::WhenVacated, proof: Proof::Handle }
    }

    pub(super) const fn released(proof: Proof) -> Self {
        Self { how: End::Released, free: Free::WhenVacated, proof }
    }

    pub(super) fn forced(force: &Force) -> Self {
        let how = End::Revoked { by: force.by.clone(), reason: force.reason.clone() };
        Self { how, free: force.free, proof: Proof::Handle }
    }

    /// Until when a claim of a lease with this deadline stays as a vacating stake.
    fn vacates_until(&self, now: Moment, deadline: Moment, holding: &Holding) -> Option<Moment> {
        let promised = match (&self.how, self.free) {
            (_, Free::Now) => return None,
            // Only its holder knows that it has stopped.
            (End::Released, _) if !self.proof.frees(holding.secret) => deadline,
            (End::Released | End::Superseded | End::WaitedOut | End::Transferred { .. }, _) => return None,
            // Whoever is found not to work is not waited for; only the fence protects what it was doing.
            (End::Unhealthy, _) => return None,
            (End::Expired | End::MaxLifetime, _) => now,
            (End::Revoked { .. } | End::ParentEnded { .. }, _) => deadline,
        };
        Some(promised.max(now.plus(holding.lock_delay))).filter(|until| *until > now)
    }
}

impl Ledger {
    pub(super) fn release_lease(&mut self, release: &ReleaseLease, events: &mut Vec<Event>) -> Outcome {
        let id = release.lease;
        if self.leases.contains_key(&id) {
            let before = events.len();
            self.end(id, &Ending::released(release.proof), events);
            return Ok(self.released(&events[before..]));
        }
        match self.history.lease(id) {
            Some(ended) if ended.how == End::Released => Ok(Reply::AlreadyReleased),
            _ => Err(self.no_lease(id)),
        }
    }

    pub(super) fn revoke(&mut self, revoke: &Revoke, events: &mut Vec<Event>) -> Outcome {
        let ending = Ending::forced(&revoke.force);
        match &revoke.which {
            Which::Lease(lease) => self.revoke_one(*lease, &ending, events),
            Which::Prefix { prefix, from } => Ok(self.revoke_prefix(prefix, from, &ending, events)),
            Which::Holder { holder, from } => {
                Ok(self.revoke_those(*from, |lease| lease.holder == *holder, &ending, events))
            }
            Which::Label { label, from } => {
                Ok(self.revoke_those(*from, |lease| lease.labels.has(label), &ending, events))
            }
        }
    }

    fn revoke_one(&mut self, id: LeaseId, ending: &Ending, events: &mut Vec<Event>) -> Outcome {
        if self.leases.contains_key(&id) {
            self.end(id, ending, events);
            return Ok(Reply::Revoked { count: 1, next: None });
        }
        match self.history.lease(id) {
            Some(ended) if matches!(ended.how, End::Revoked { .. }) => Ok(Reply::Revoked { count: 0, next: None }),
            _ => Err(self.no_lease(id)),
        }
    }

    /// Revokes the leases that hold resources under a prefix, as many as one entry may end.
    fn revoke_prefix(&mut self, prefix: &str, from: &str, ending: &Ending, events: &mut Vec<Event>) -> Reply {
        let mut count = 0;
        let mut at: Bound<String> = Bound::Included(prefix.max(from).to_string());
        loop {
            let start = at.as_ref().map(String::as_str);
            let next = self.resources.range::<str, _>((start, Bound::Unbounded)).next();
            let Some((name, resource)) = next.filter(|(name, _)| name.as_str().starts_with(prefix)) else {
                return Reply::Revoked { count, next: None };
            };
            if !self.work.may_look() {
                return Reply::Revoked { count, next: Some(name.to_string()) };
            }
            let (name, holders) = (name.clone(), resource.holders.values().copied().collect::<Vec<_>>());
            self.work.took(holders.len());
            for id in holders {
                // Its tree may have ended with the one before.
                let Some(lease) = self.leases.get(&id) else { continue };
                if !self.work.may_end(1 + lease.carried) {
                    return Reply::Revoked { count, next: Some(name.to_string()) };
                }
                self.end(id, ending, events);
                count += 1;
            }
            at = Bound::Excluded(name.to_string());
        }
    }

    /// Revokes the leases of a kind, as many as one entry may end.
    fn revoke_those(
        &mut self,
        from: Option<LeaseId>,
        is_meant: impl Fn(&Lease) -> bool,
        ending: &Ending,
        events: &mut Vec<Event>,
    ) -> Reply {
        let mut count = 0;
        let mut at = from.map_or(Bound::Unbounded, Bound::Included);
        loop {
            let Some((id, lease)) = self.leases.range((at, Bound::Unbounded)).next() else {
                return Reply::Revoked { count, next: None };
            };
            let id = *id;
            let is_meant = is_meant(lease);
            if !self.work.may_look() || is_meant && !self.work.may_end(1 + lease.carried) {
                return Reply::Revoked { count, next: Some(id.number().to_string()) };
            }
            if is_meant {
                self.end(id, ending, events);
                count += 1;
            }
            at = Bound::Excluded(id);
        }
    }

    /// Ends a lease and all that hangs on it, at one revision.
    pub(super) fn end(&mut self, id: LeaseId, ending: &Ending, events: &mut Vec<Event>) {
        let mut happenings = Vec::new();
        self.end_tree(id, ending, &mut happenings);
        self.happened(happenings, events);
    }

    pub(super) fn end_tree(&mut self, root: LeaseId, ending: &Ending, happenings: &mut Vec<Happening>) {
        let tree = self.tree(root);
        let keys: BTreeSet<Key> = tree.iter().flat_map(|id| self.leases[id].keys.iter().cloned()).collect();
        happenings.extend(self.erase(&keys));
        self.leave_parent(root);
        let with_root = Ending { how: End::ParentEnded { parent: root }, free: ending.free, proof: Proof::Handle };
        for id in tree {
            self.end_lease(id, if id == root { ending } else { &with_root }, happenings);
        }
    }

    fn leave_parent(&mut self, id: LeaseId) {
        let lease = &self.leases[&id];
        let (parent, things) = (lease.parent, lease.carried + 1);
        self.detach(parent, things);
        if let Some(parent) = parent.and_then(|parent| self.leases.get_mut(&parent)) {
            parent.children.remove(&id);
        }
    }

    fn end_lease(&mut self, id: LeaseId, ending: &Ending, happenings: &mut Vec<Happening>) {
        let lease = self.leases.remove(&id).expect("only a living lease can end");
        self.wheel.disarm(lease.armed, Due::Lease(id));
        self.disown(lease.owner.as_ref());
        self.claims -= lease.stakes.len();
        self.bytes -= size::of_lease(&lease);
        for (name, stake) in &lease.stakes {
            happenings.push(match stake {
                Stake::Holding(holding) => {
                    let until = ending.vacates_until(self.now, lease.deadline, holding);
                    self.vacate(id, (&lease.holder, lease.owner.as_ref()), name, holding, until, &ending.how)
                }
                Stake::Waiting(arrival) => {
                    // A waiter for several resources leaves all their lines at the first of them.
                    if self.waiters.contains_key(arrival) {
                        let waiter = self.leave_lines(*arrival, &lease.holder);
                        waiter.wants.iter().for_each(|(name, _)| self.forget_if_gone(name));
                    }
                    Happening::Left { resource: name.clone(), lease: id, why: Leave::LeaseEnded }
                }
            });
        }
        for key in &lease.instances {
            happenings.push(self.unlist(key, &lease.holder, &ending.how));
        }
        happenings.push(Happening::Ended { lease: id, holder: lease.holder.clone(), how: ending.how.clone() });
        self.history.remember_lease(EndedLease {
            lease: id,
            holder: lease.holder,
            request: lease.request,
            how: ending.how.clone(),
            when: self.now,
            wall_ms: self.wall_ms,
        });
    }

    /// Takes a holding claim out of its resource, or leaves it there as a vacating stake. Its lease is the caller's
    /// business.
    fn vacate(
        &mut self,
        id: LeaseId,
        (holder, owner): (&Holder, Option<&ApiKeyName>),
        name: &Name,
        holding: &Holding,
        until: Option<Moment>,
        how: &End,
    ) -> Happening {
        let (fence, mode, epoch) = (holding.fence, holding.mode, holding.epoch);
        if let Some(ordered) = self.breaks.remove(&fence) {
            self.wheel.disarm(ordered.at, Due::Break(fence));
        }
        let resource = self.resources.get_mut(name).expect("every stake is in a resource");
        resource.holders.remove(&fence);
        resource.drop_epoch(holder, epoch, Claim::Holding(fence));
        match until {
            Some(until) => {
                resource.vacating.insert(fence);
                resource.note_epoch(holder, epoch, Claim::Vacating(fence));
                let (resource, holder, owner) = (name.clone(), holder.clone(), owner.cloned());
                self.vacating.insert(fence, Vacating { resource, lease: id, holder, mode, epoch, until, owner });
                self.wheel.arm(until, Due::Free(fence));
            }
            None => {
                resource.tally.take(mode);
                self.bytes -= size::of_claim(name);
                self.look(name);
                self.forget_if_gone(name);
            }
        }
        self.history.remember_claim(EndedClaim {
            resource: name.clone(),
            lease: id,
            holder: holder.clone(),
            fence,
            mode,
            epoch,
            since: holding.since,
            since_wall_ms: holding.since_wall_ms,
            how: how.clone(),
            when: self.now,
            wall_ms: self.wall_ms,
        });
        Happening::Vacated { resource: name.clone(), lease: id, fence, how: how.clone(), until }
    }

    /// A vacating stake is over: its time has come, or somebody will not wait for it.
    pub(super) fn free(&mut self, fence: Fence, events: &mut Vec<Event>) {
        let stake = self.vacating.remove(&fence).expect("only what is vacating becomes free");
        self.wheel.disarm(stake.until, Due::Free(fence));
        self.bytes -= size::of_claim(&stake.resource);
        let resource = self.resources.get_mut(&stake.resource).expect("every stake is in a resource");
        resource.vacating.remove(&fence);
        resource.tally.take(stake.mode);
        resource.drop_epoch(&stake.holder, stake.epoch, Claim::Vacating(fence));
        self.look(&stake.resource);
        self.forget_if_gone(&stake.resource);
        let freed = Happening::Freed { resource: stake.resource, lease: stake.lease, fence };
        self.happened(alloc::vec![freed], events);
    }

    /// Takes a holding claim off a lease that may live on.
    pub(super) fn let_go(&mut self, id: LeaseId, name: &Name, ending: &Ending) -> Happening {
        let lease = self.leases.get_mut(&id).expect("every stake hangs on a living lease");
        let Some(Stake::Holding(holding)) = lease.stakes.remove(name) else { unreachable!("the stake holds {name}") };
        lease.index.holding -= 1;
        lease.index.contended.remove(name);
        let by_holder = ending.how == End::Released && ending.proof.is_of(holding.secret);
        lease.lost = lease.lost.saturating_add(u32::from(!by_holder));
        if let Some(ordered) = self.breaks.get(&holding.fence) {
            lease.index.breaks.remove(&(ordered.at, holding.fence));
        }
        let (deadline, holder, owner) = (lease.deadline, lease.holder.clone(), lease.owner.clone());
        self.claims -= 1;
        self.detach(Some(id), 1);
        let until = ending.vacates_until(self.now, deadline, &holding);
        self.vacate(id, (&holder, owner.as_ref()), name, &holding, until, &ending.how)
    }

    /// Takes a waiter out of all its lines and off its lease, which may live on.
    pub(super) fn leave(&mut self, arrival: u64, why: Leave) -> (Waiter, Vec<Happening>) {
        let id = self.waiters[&arrival].lease;
        let lease = self.leases.get_mut(&id).expect("every waiter's lease lives");
        lease.index.waits.remove(&arrival);
        let holder = lease.holder.clone();
        let waiter = self.leave_lines(arrival, &holder);
        let lease = self.leases.get_mut(&id).expect("every waiter's lease lives");
        for (name, _) in &waiter.wants {
            lease.stakes.remove(name);
        }
        self.claims -= waiter.wants.len();
        self.detach(Some(id), waiter.wants.len());
        waiter.wants.iter().for_each(|(name, _)| self.forget_if_gone(name));
        let left =
            waiter.wants.iter().map(|(resource, _)| Happening::Left { resource: resource.clone(), lease: id, why });
        let left = left.collect();
        (waiter, left)
    }

    /// A lease that was made for its claims ends with the last of them, at the same revision, unless `spared` hangs on
    /// it: nobody ends by what is done for it.
    pub(super) fn end_if_empty(
        &mut self,
        id: LeaseId,
        ending: &Ending,
        spared: Option<LeaseId>,
        happenings: &mut Vec<Happening>,
    ) {
        let lease = &self.leases[&id];
        let is_over = lease.origin == Origin::Acquire && lease.stakes.is_empty();
        if is_over && !spared.is_some_and(|spared| self.hangs_on(spared, id)) {
            self.end_tree(id, ending, happenings);
        }
    }

    /// A waiter leaves without a seat, by nobody's will.
    pub(super) fn wait_ends(&mut self, arrival: u64, why: Leave, events: &mut Vec<Event>) {
        let (waiter, mut happenings) = self.leave(arrival, why);
        self.end_if_empty(waiter.lease, &Ending::plain(End::WaitedOut), None, &mut happenings);
        self.happened(happenings, events);
    }
}
