//! How claims and leases end by themselves or by their holders' will, and what stays behind.

use super::{Group, Model, Origin};
use tenure_core::{
    Cancel, End, EndedClaim, EndedLease, Fence, Free, Handle, Happening, LeaseId, Leave, Moment, Name, Outcome, Proof,
    Refusal, Reply, Vacating,
};

impl Model {
    /// Ends a lease with its whole tree, at one revision.
    pub(super) fn end(&mut self, root: LeaseId, how: &End, free: Free) {
        let happened = self.end_tree(root, how, free);
        self.change(happened);
    }

    pub(super) fn end_tree(&mut self, root: LeaseId, how: &End, free: Free) -> Vec<Happening> {
        let tree = self.children_first(root);
        let mut happened = self.delete_if(|_, lease| lease.is_some_and(|lease| tree.contains(&lease)));
        for lease in tree {
            let how = if lease == root { how.clone() } else { End::ParentEnded { parent: root } };
            happened.extend(self.end_stakes(lease, &how, free));
            let hung = self.instances.iter().filter(|(_, listed)| listed.lease == lease);
            let hung: Vec<_> = hung.map(|(key, _)| key.clone()).collect();
            happened.extend(hung.iter().map(|key| self.gone(key, &how)));
            let ended = self.leases.remove(&lease).expect("it was found in the tree");
            let holder = ended.grant.holder;
            let remembered = EndedLease {
                lease,
                holder: holder.clone(),
                request: ended.grant.request,
                how: how.clone(),
                when: self.now,
                wall_ms: self.wall_ms,
            };
            self.ended_leases.insert(lease, remembered);
            happened.push(Happening::Ended { lease, holder, how });
        }
        happened
    }

    fn children_first(&self, root: LeaseId) -> Vec<LeaseId> {
        let children = self.leases.iter().filter(|(_, lease)| lease.grant.parent == Some(root));
        let mut tree: Vec<LeaseId> = children.flat_map(|(child, _)| self.children_first(*child)).collect();
        tree.push(root);
        tree
    }

    fn end_stakes(&mut self, lease: LeaseId, how: &End, free: Free) -> Vec<Happening> {
        let holding = self.held_by(lease).into_iter().map(|claim| (claim.resource.clone(), Some(claim.fence)));
        let wants = self.groups_of(lease).into_iter().flat_map(|group| &group.wants);
        let mut stakes: Vec<(Name, Option<Fence>)> =
            holding.chain(wants.map(|(resource, _)| (resource.clone(), None))).collect();
        stakes.sort();
        self.groups.retain(|group| group.lease != lease);
        let end = |(resource, fence): (Name, Option<Fence>)| match fence {
            Some(fence) => self.vacate(fence, how, free),
            None => Happening::Left { resource, lease, why: Leave::LeaseEnded },
        };
        stakes.into_iter().map(end).collect()
    }

    /// Ends a holding claim. It stays as a vacating stake if its holder may still count on it.
    pub(super) fn vacate(&mut self, fence: Fence, how: &End, free: Free) -> Happening {
        let at = self.held.iter().position(|claim| claim.fence == fence).expect("only what is held is vacated");
        let claim = self.held.remove(at);
        let lease = self.leases.get_mut(&claim.lease).expect("what is held hangs on a living lease");
        let secret = claim.terms.secret;
        let by_holder = matches!((how, self.proof), (End::Released, Proof::Secret(shown)) if secret == Some(shown));
        lease.lost += u64::from(!by_holder);
        let is_free = match self.proof {
            Proof::Handle => secret.is_none(),
            Proof::Secret(shown) => secret.is_none() || secret == Some(shown),
            Proof::Nothing => false,
        };
        let (holder, owner) = (lease.grant.holder.clone(), lease.owner.clone());
        let promised = match (free, how) {
            (Free::Now, _) => None,
            (_, End::Released) if !is_free => Some(lease.deadline),
            (_, End::Released | End::Superseded | End::WaitedOut | End::Transferred { .. } | End::Unhealthy) => None,
            (_, End::Revoked { .. } | End::ParentEnded { .. }) => Some(lease.deadline),
            (_, End::Expired | End::MaxLifetime) => Some(self.now),
        };
        // A lock-delay of nothing adds nothing: that is now, which is no later than what counts below.
        let until = promised.map(|base| base.max(self.now.plus(claim.terms.lock_delay)));
        let until = until.filter(|until| *until > self.now);
        if let Some(until) = until {
            let stake = Vacating {
                resource: claim.resource.clone(),
                lease: claim.lease,
                holder: holder.clone(),
                mode: claim.mode,
                epoch: claim.terms.epoch,
                until,
                owner,
            };
            self.vacating.insert(fence, stake);
        }
        self.ended_claims.push(EndedClaim {
            resource: claim.resource.clone(),
            fence,
            lease: claim.lease,
            holder,
            mode: claim.mode,
            epoch: claim.terms.epoch,
            since: claim.since.at,
            since_wall_ms: claim.since.wall_ms,
            how: how.clone(),
            when: self.now,
            wall_ms: self.wall_ms,
        });
        Happening::Vacated { resource: claim.resource, lease: claim.lease, fence, how: how.clone(), until }
    }

    /// The end of a vacating stake.
    pub(super) fn freed(&mut self, fence: Fence) {
        let stake = self.vacating.remove(&fence).expect("only what vacates is freed");
        self.change(vec![Happening::Freed { resource: stake.resource, lease: stake.lease, fence }]);
    }

    /// What happens after a lease let go of some claims: if it was made for them and has no other, it ends as well.
    /// Those that are spared live on, because what is about to be claimed hangs on them.
    pub(super) fn end_if_idle(&mut self, id: LeaseId, how: &End, free: Free, spared: &[LeaseId]) -> Vec<Happening> {
        let is_idle = self.held_by(id).is_empty() && self.groups_of(id).is_empty();
        if self.leases[&id].origin == Origin::Acquire && is_idle && !spared.contains(&id) {
            return self.end_tree(id, how, free);
        }
        Vec::new()
    }

    /// A waiting group leaves all its lines.
    pub(super) fn leave(&mut self, arrival: u64, why: Leave, how: &End, spared: &[LeaseId]) {
        let (lease, mut happened) = self.take_out(arrival, why);
        happened.extend(self.end_if_idle(lease, how, Free::WhenVacated, spared));
        self.change(happened);
    }

    /// Takes a waiting group out of all its lines.
    pub(super) fn take_out(&mut self, arrival: u64, why: Leave) -> (LeaseId, Vec<Happening>) {
        let at = self.groups.iter().position(|group| group.arrival == arrival).expect("only who waits leaves");
        let Group { lease, wants, .. } = self.groups.remove(at);
        (lease, wants.into_iter().map(|(resource, _)| Happening::Left { resource, lease, why }).collect())
    }

    pub(super) fn release(&mut self, handle: &Handle) -> Outcome {
        let lease = match self.current(handle) {
            Ok(claim) => claim.lease,
            Err(_) if self.ended_claim(handle).is_some_and(|claim| claim.how == End::Released) => {
                return Ok(Reply::Released { free_in_ms: 0 });
            }
            Err(stale) => return Err(stale),
        };
        let before = self.events.len();
        let mut happened = vec![self.vacate(handle.fence, &End::Released, Free::WhenVacated)];
        happened.extend(self.end_if_idle(lease, &End::Released, Free::WhenVacated, &[]));
        self.change(happened);
        self.touch(lease);
        Ok(self.released(before))
    }

    /// The reply to a release whose changes are the events after so many.
    fn released(&self, before: usize) -> Reply {
        let vacated = self.events[before..].iter().filter_map(|event| match event.what {
            Happening::Vacated { until, .. } => until.map(|until| self.ms_until(until)),
            _ => None,
        });
        Reply::Released { free_in_ms: vacated.max().unwrap_or(0) }
    }

    pub(super) fn release_lease(&mut self, lease: LeaseId) -> Outcome {
        let before = self.events.len();
        match self.living(lease) {
            Ok(_) => self.end(lease, &End::Released, Free::WhenVacated),
            Err(Refusal::Lapsed { how: End::Released, .. }) => return Ok(Reply::AlreadyReleased),
            Err(refusal) => return Err(refusal),
        }
        Ok(self.released(before))
    }

    pub(super) fn cancel(&mut self, cancel: &Cancel) -> Outcome {
        let lease = cancel.lease;
        self.living(lease)?;
        let mut resources = cancel.resources.clone();
        if let Some(request) = cancel.request {
            self.note_answered(lease, request);
            resources.retain(|resource| self.made_by(lease, resource) == Some(request.number()));
        } else if let Some(resource) = resources.iter().find(|resource| self.stake(lease, resource).is_none()) {
            return Err(Refusal::NoClaim { lease, resource: (*resource).clone() });
        }
        let mut happened = Vec::new();
        for resource in &resources {
            match self.stake(lease, resource) {
                Some(Stake::Holding(fence)) => happened.push(self.vacate(fence, &End::Released, Free::WhenVacated)),
                Some(Stake::Waiting(arrival)) => happened.extend(self.take_out(arrival, Leave::Cancelled).1),
                None => {}
            }
        }
        if !happened.is_empty() {
            happened.extend(self.end_if_idle(lease, &End::Released, Free::WhenVacated, &[]));
            self.change(happened);
        }
        self.touch(lease);
        Ok(Reply::Cancelled)
    }

    /// The number of the request that made a claim; 0 if it had none.
    pub(super) fn made_by(&self, lease: LeaseId, resource: &Name) -> Option<u64> {
        let holding = self.holders_of(resource).into_iter().find(|claim| claim.lease == lease);
        let waiting = self.line(resource).into_iter().find(|group| group.lease == lease);
        holding.map(|claim| claim.terms.request).or(waiting.map(|group| group.terms.request))
    }

    pub(super) fn stake(&self, lease: LeaseId, resource: &Name) -> Option<Stake> {
        let holding = self.holders_of(resource).into_iter().find(|claim| claim.lease == lease);
        let waiting = self.line(resource).into_iter().find(|group| group.lease == lease);
        match (holding, waiting) {
            (Some(claim), _) => Some(Stake::Holding(claim.fence)),
            (_, Some(group)) => Some(Stake::Waiting(group.arrival)),
            _ => None,
        }
    }

    /// How long until a moment, or nothing if it is over.
    pub(super) fn ms_until(&self, moment: Moment) -> u64 {
        moment.millis_since(self.now)
    }
}

/// What a lease has on a resource.
#[derive(Clone, Copy)]
pub(super) enum Stake {
    Holding(Fence),
    Waiting(u64),
}
