//! What somebody orders about the claims of others: revokes, breaks and transfers.

use super::{Group, Held, Model, Terms};
use tenure_core::{
    Break, End, Fence, Force, Free, Handle, Happening, LeaseId, Leave, Mode, Moment, Name, Outcome, Place, Priority,
    Refusal, Reply, Revoke, Seat, Span, Transfer, Which,
};

impl Model {
    pub(super) fn revoke(&mut self, revoke: &Revoke) -> Outcome {
        let leases = match &revoke.which {
            Which::Lease(lease) => match self.living(*lease) {
                Ok(_) => vec![*lease],
                Err(Refusal::Lapsed { how: End::Revoked { .. }, .. }) => Vec::new(),
                Err(refusal) => return Err(refusal),
            },
            Which::Prefix { prefix, from } => self.holding_under(prefix, from),
            Which::Holder { holder, from } => {
                self.leases_from(*from, |model, id| model.leases[&id].grant.holder == *holder)
            }
            Which::Label { label, from } => {
                self.leases_from(*from, |model, id| model.leases[&id].grant.labels.has(label))
            }
        };
        let mut count = 0;
        for lease in leases {
            // One that hung on another of them has ended with it.
            if self.leases.contains_key(&lease) {
                self.end(lease, &revoked(&revoke.force), revoke.force.free);
                count += 1;
            }
        }
        Ok(Reply::Revoked { count, next: None })
    }

    fn holding_under(&self, prefix: &str, from: &str) -> Vec<LeaseId> {
        let is_meant = |resource: &str| resource.starts_with(prefix) && resource >= from;
        let mut held: Vec<&Held> = self.held.iter().filter(|claim| is_meant(claim.resource.as_str())).collect();
        held.sort_by_key(|claim| (&claim.resource, claim.fence));
        held.into_iter().map(|claim| claim.lease).collect()
    }

    fn leases_from(&self, from: Option<LeaseId>, is_meant: impl Fn(&Self, LeaseId) -> bool) -> Vec<LeaseId> {
        let from_there = self.leases.keys().copied().filter(|id| Some(*id) >= from);
        from_there.filter(|id| is_meant(self, *id)).collect()
    }

    pub(super) fn break_claims(&mut self, order: &Break) -> Outcome {
        let is_meant = |fence: Fence| order.fence.is_none_or(|only| only == fence);
        let holders: Vec<Fence> = self.holders_of(&order.resource).iter().map(|claim| claim.fence).collect();
        let holders: Vec<Fence> = holders.into_iter().filter(|fence| is_meant(*fence)).collect();
        let frees_at_once = order.force.free == Free::Now && order.delay == Span::ZERO;
        let vacating = self.vacating_on(&order.resource).into_iter().map(|(fence, _)| fence);
        let vacating: Vec<Fence> = vacating.filter(|fence| frees_at_once && is_meant(*fence)).collect();
        if holders.is_empty() && vacating.is_empty() {
            return Err(self.nothing_to_break(&order.resource, order.fence));
        }
        let mut done = Vec::new();
        for fence in holders {
            match order.delay {
                Span::ZERO if self.held.iter().any(|claim| claim.fence == fence) => {
                    done.push(self.break_one(fence, &order.force).map_or(0, |until| self.ms_until(until)));
                }
                Span::ZERO => {}
                delay => done.push(self.order_break(fence, &order.force, delay)),
            }
        }
        for fence in vacating {
            self.freed(fence);
            done.push(0);
        }
        Ok(Reply::Broken { claims: done.len() as u64, free_in_ms: done.into_iter().max().unwrap_or(0) })
    }

    fn nothing_to_break(&self, resource: &Name, fence: Option<Fence>) -> Refusal {
        match fence {
            Some(fence) => self.stale(&Handle { resource: resource.clone(), fence }),
            None => Refusal::NotHeld { resource: resource.clone() },
        }
    }

    /// Breaks a claim, and says until when it stays as a vacating stake.
    pub(super) fn break_one(&mut self, fence: Fence, force: &Force) -> Option<Moment> {
        let (happened, until) = self.broken(fence, force, &[]);
        self.change(happened);
        until
    }

    fn broken(&mut self, fence: Fence, force: &Force, spared: &[LeaseId]) -> (Vec<Happening>, Option<Moment>) {
        let vacated = self.vacate(fence, &revoked(force), force.free);
        let Happening::Vacated { lease, until, .. } = vacated else { unreachable!("a vacated claim is told so") };
        let ended = self.end_if_idle(lease, &revoked(force), force.free, spared);
        ([vec![vacated], ended].concat(), until)
    }

    /// Keeps the order to break a claim later, and says how long it takes until nothing of it is left.
    fn order_break(&mut self, fence: Fence, force: &Force, delay: Span) -> u64 {
        let at = self.now.plus(delay);
        let claim = self.held.iter_mut().find(|claim| claim.fence == fence).expect("only what is held is broken");
        claim.breaks = Some((at, force.clone()));
        let breaking = Happening::Breaking {
            resource: claim.resource.clone(),
            lease: claim.lease,
            fence,
            at,
            by: force.by.clone(),
            reason: force.reason.clone(),
        };
        let promised = self.leases[&claim.lease].deadline.max(at.plus(claim.terms.lock_delay));
        self.change(vec![breaking]);
        match force.free {
            Free::WhenVacated => self.ms_until(promised),
            Free::Now => delay.millis(),
        }
    }

    pub(super) fn transfer(&mut self, transfer: &Transfer) -> Outcome {
        let claim = self.current(&transfer.handle)?.clone();
        let (to, resource) = (transfer.to, &claim.resource);
        self.living(to)?;
        let waits = self.groups_of(to).into_iter().find(|group| group.mode_on(resource).is_some()).cloned();
        let holds = self.held_by(to).into_iter().any(|held| held.resource == *resource);
        if claim.lease == to || holds || waits.as_ref().is_some_and(|group| group.wants.len() > 1) {
            return Err(Refusal::Claimed { lease: to, resource: resource.clone() });
        }
        if let (Some(_), Mode::Units(asked)) = (&transfer.force, claim.mode)
            && asked > self.capacity(resource)
        {
            // A reserved seat that never fits would block its line for ever.
            let capacity = self.capacity(resource);
            return Err(Refusal::TooBig { resource: resource.clone(), capacity, asked });
        }
        let change_hands = |model: &mut Self| {
            let left = waits.as_ref().map(|group| model.take_out(group.arrival, Leave::Transferred).1);
            match &transfer.force {
                None => model.hand_over(&claim, to, left.unwrap_or_default()),
                Some(force) => model.reserve(&claim, to, force, left.unwrap_or_default()),
            }
        };
        self.no_circle(to, resource, &change_hands)?;
        Ok(change_hands(self))
    }

    fn hand_over(&mut self, claim: &Held, to: LeaseId, mut happened: Vec<Happening>) -> Reply {
        let how = End::Transferred { to: self.holder(to) };
        happened.push(self.vacate(claim.fence, &how, Free::WhenVacated));
        let wants = [(claim.resource.clone(), claim.mode)];
        let terms = self.terms_for(claim, to);
        let (handles, seated) = self.sit(to, &wants, terms);
        happened.extend(seated);
        self.leases.get_mut(&to).expect("it lives").unconfirmed = true;
        happened.extend(self.end_if_idle(claim.lease, &End::Released, Free::WhenVacated, &self.lineage(to)));
        self.change(happened);
        self.touch(claim.lease);
        Reply::Seated(Seat { lease: to, claims: handles, ttl_ms: self.ttl_ms(to), revision: self.revision })
    }

    fn reserve(&mut self, claim: &Held, to: LeaseId, force: &Force, mut happened: Vec<Happening>) -> Reply {
        self.arrival += 1;
        self.groups.push(Group {
            order_ms: i128::MIN,
            arrival: self.arrival,
            lease: to,
            wants: vec![(claim.resource.clone(), claim.mode)],
            terms: self.terms_for(claim, to),
            priority: Priority::default(),
            since: self.stamp(),
            until: None,
        });
        happened.push(Happening::Queued {
            resource: claim.resource.clone(),
            lease: to,
            holder: self.holder(to),
            mode: claim.mode,
        });
        happened.extend(self.broken(claim.fence, force, &self.lineage(to)).0);
        self.change(happened);
        let place = self.place(to, &claim.resource);
        Reply::Waiting(Place { lease: to, place, ttl_ms: self.ttl_ms(to), revision: self.revision })
    }

    /// An epoch is a holder's own count, so another holder does not inherit it.
    fn terms_for(&self, claim: &Held, to: LeaseId) -> Terms {
        let is_same = self.holder(claim.lease) == self.holder(to);
        let epoch = claim.terms.epoch.filter(|_| is_same);
        Terms { epoch, request: 0, secret: None, ..claim.terms }
    }
}

fn revoked(force: &Force) -> End {
    End::Revoked { by: force.by.clone(), reason: force.reason.clone() }
}
