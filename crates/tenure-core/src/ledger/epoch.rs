//! Epochs: a holder that restarts with a higher one supersedes its old claims at once; one that comes late with a lower
//! one is refused.

use super::Ledger;
use super::ending::Ending;
use super::resource::{Claim, Outgoing};
use crate::command::{Acquire, On};
use crate::event::{End, Event, Leave};
use crate::fence::Fence;
use crate::limits::SUPERSEDED_MAX;
use crate::mode::{Epoch, Mode};
use crate::names::{Holder, LeaseId, Name};
use crate::reply::Refusal;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Ledger {
    /// How many claims with an epoch a holder has on what it asks for.
    pub(super) fn claims_with_epochs(&self, acquire: &Acquire, holder: &Holder) -> usize {
        let wanted = acquire.wants.iter().filter_map(|want| self.resources.get(&want.resource));
        wanted.filter_map(|resource| resource.epochs.get(holder)).map(BTreeSet::len).sum()
    }

    /// What an acquire in this epoch supersedes; refused if its holder was there in a higher one.
    pub(super) fn superseded(
        &self,
        acquire: &Acquire,
        id: LeaseId,
        holder: &Holder,
        asked: Epoch,
    ) -> Result<Outgoing, Refusal> {
        let mut claims = Vec::new();
        for want in &acquire.wants {
            let name = &want.resource;
            let living = self.resources.get(name).and_then(|resource| resource.epochs.get(holder));
            let ended = self.history.epoch(name, holder);
            let highest = living.and_then(|of_holder| of_holder.last()).map(|(epoch, _)| *epoch);
            if let Some(current) = ended.into_iter().chain(highest).max().filter(|it| *it > asked) {
                return Err(Refusal::OlderEpoch {
                    holder: holder.clone(),
                    resource: name.clone(),
                    asked: asked.number(),
                    current: current.number(),
                });
            }
            let older = living.into_iter().flatten().filter(|(epoch, _)| *epoch < asked).map(|(_, claim)| *claim);
            let mut older: Vec<_> = older.filter(|claim| self.lease_of(*claim, name) != id).collect();
            older.sort_by_key(|claim| self.rank(*claim));
            claims.extend(older.into_iter().map(|claim| (name.clone(), claim)));
        }
        if claims.len() > SUPERSEDED_MAX {
            return Err(Refusal::Full { what: "claims that one acquire supersedes".into(), max: SUPERSEDED_MAX });
        }
        Ok(Outgoing::new(claims))
    }

    fn lease_of(&self, claim: Claim, name: &Name) -> LeaseId {
        match claim {
            Claim::Holding(fence) => self.resources[name].holders[&fence],
            Claim::Waiting(arrival) => self.waiters[&arrival].lease,
            Claim::Vacating(fence) => self.vacating[&fence].lease,
        }
    }

    /// Holders by fence, then waiters by their order, then what is vacating.
    fn rank(&self, claim: Claim) -> (u8, i128, u64) {
        match claim {
            Claim::Holding(fence) => (0, 0, fence.number()),
            Claim::Waiting(arrival) => (1, self.waiters[&arrival].order_ms, arrival),
            Claim::Vacating(fence) => (2, 0, fence.number()),
        }
    }

    /// The modes of the superseded claims that hold a resource or are vacating it.
    pub(super) fn superseded_modes<'a>(
        &'a self,
        superseded: &'a Outgoing,
        name: &'a Name,
    ) -> impl Iterator<Item = Mode> + 'a {
        let of_resource = superseded.claims.iter().filter(move |(resource, _)| resource == name);
        of_resource.filter_map(move |(_, claim)| match claim {
            Claim::Holding(fence) => {
                let lease = &self.leases[&self.resources[name].holders[fence]];
                lease.holding(name).map(|holding| holding.mode)
            }
            Claim::Vacating(fence) => Some(self.vacating[fence].mode),
            Claim::Waiting(_) => None,
        })
    }

    /// Ends what was superseded. Only the fence protects what the old holder was doing.
    pub(super) fn supersede(&mut self, superseded: &Outgoing, acquire: &Acquire, events: &mut Vec<Event>) {
        let spared = match &acquire.on {
            On::New(grant) => grant.parent,
            On::Given(lease) => Some(*lease),
        };
        for want in &acquire.wants {
            let name = &want.resource;
            let claims = superseded.claims.iter().filter(|(resource, _)| resource == name).map(|(_, claim)| *claim);
            claims.clone().for_each(|claim| self.supersede_one(name, claim, spared, events));
            // What was vacating, and what has come to be so because its parent was superseded before it.
            let fences: BTreeSet<Fence> = claims.filter_map(Claim::fence).collect();
            for fence in fences {
                if self.vacating.contains_key(&fence) {
                    self.free(fence, events);
                }
            }
        }
    }

    fn supersede_one(&mut self, name: &Name, claim: Claim, spared: Option<LeaseId>, events: &mut Vec<Event>) {
        let ending = Ending::plain(End::Superseded);
        let (id, mut happenings) = match claim {
            Claim::Vacating(_) => return,
            // The claim may be gone with a tree that ended a moment ago.
            Claim::Holding(fence) => match self.holder_of(name, fence) {
                Some(id) => (id, alloc::vec![self.let_go(id, name, &ending)]),
                None => return,
            },
            Claim::Waiting(arrival) if self.waiters.contains_key(&arrival) => {
                let (waiter, left) = self.leave(arrival, Leave::Superseded);
                (waiter.lease, left)
            }
            Claim::Waiting(_) => return,
        };
        self.end_if_empty(id, &ending, spared, &mut happenings);
        self.happened(happenings, events);
    }
}
