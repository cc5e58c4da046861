//! Claims once they stand: the handles that show them, how they are given back, and how a lease stands with a resource.

use super::Ledger;
use super::ending::Ending;
use super::lease::{Holding, Stake};
use crate::command::{Cancel, Release};
use crate::event::{End, Event, Happening, Leave};
use crate::fence::{Fence, Handle};
use crate::names::{LeaseId, Name};
use crate::reply::{Outcome, Refusal, Reply};
use alloc::vec::Vec;

impl Ledger {
    /// The lease behind a handle, or why the handle is stale.
    pub fn behind(&self, handle: &Handle) -> Result<LeaseId, Refusal> {
        self.holder_of(&handle.resource, handle.fence).ok_or_else(|| self.stale(handle))
    }

    /// The lease that holds a resource with this fence.
    pub(super) fn holder_of(&self, name: &Name, fence: Fence) -> Option<LeaseId> {
        self.resources.get(name)?.holders.get(&fence).copied()
    }

    pub(super) fn stale(&self, handle: &Handle) -> Refusal {
        let first = self.resources.get(&handle.resource).and_then(|resource| resource.holders.first_key_value());
        let current = first.map(|(fence, lease)| (self.leases[lease].holder.clone(), *fence));
        let ended = self.history.claim(handle).map(|ended| (ended.how.clone(), ended.when, ended.wall_ms));
        Refusal::Stale { handle: handle.clone(), current, ended }
    }

    /// The claim behind a current handle.
    pub(super) fn claim(&self, id: LeaseId, name: &Name) -> Holding {
        *self.leases[&id].holding(name).expect("the lease behind a handle holds its resource")
    }

    /// How a lease stands with resources: seated in all, in line for one, or why neither.
    pub fn standing(&self, id: LeaseId, names: &[Name]) -> Outcome {
        let Some(lease) = self.leases.get(&id) else { return Err(self.no_lease(id)) };
        match names.iter().find(|name| !lease.stakes.contains_key(*name)) {
            Some(name) => Err(Refusal::NoClaim { lease: id, resource: name.clone() }),
            None => Ok(self.staked(id, names)),
        }
    }

    pub(super) fn release(&mut self, release: &Release, events: &mut Vec<Event>) -> Outcome {
        let before = events.len();
        match self.behind(&release.handle) {
            Ok(lease) => {
                let ending = Ending::released(release.proof);
                let mut happenings = alloc::vec![self.let_go(lease, &release.handle.resource, &ending)];
                self.end_if_empty(lease, &ending, None, &mut happenings);
                self.happened(happenings, events);
                self.touch(lease);
                Ok(self.released(&events[before..]))
            }
            // A retry of a release finds that it worked.
            Err(Refusal::Stale { ended: Some((End::Released, ..)), .. }) => Ok(Reply::Released { free_in_ms: 0 }),
            Err(stale) => Err(stale),
        }
    }

    /// The reply to a release, by what it changed.
    pub(super) fn released(&self, changes: &[Event]) -> Reply {
        let until = |event: &Event| match event.what {
            Happening::Vacated { until, .. } => until,
            _ => None,
        };
        let free_at = changes.iter().filter_map(until).max();
        Reply::Released { free_in_ms: free_at.map_or(0, |free_at| free_at.millis_since(self.now)) }
    }

    pub(super) fn cancel(&mut self, cancel: &Cancel, events: &mut Vec<Event>) -> Outcome {
        let id = cancel.lease;
        let Some(lease) = self.leases.get(&id) else { return Err(self.no_lease(id)) };
        let mut names = cancel.resources.clone();
        match cancel.request {
            // Other requests made the rest of the claims, or none has come yet, and then none will be made.
            Some(request) => names.retain(|name| self.request_of(id, name) == Some(request.number())),
            None => {
                if let Some(name) = names.iter().find(|name| !lease.stakes.contains_key(*name)) {
                    return Err(Refusal::NoClaim { lease: id, resource: name.clone() });
                }
            }
        }
        let ending = Ending::released(cancel.proof);
        let mut happenings = Vec::new();
        for name in &names {
            match self.leases[&id].stakes.get(name) {
                Some(Stake::Holding(_)) => happenings.push(self.let_go(id, name, &ending)),
                Some(Stake::Waiting(arrival)) => happenings.extend(self.leave(*arrival, Leave::Cancelled).1),
                // It left with another resource that it was asked for together with.
                None => {}
            }
        }
        if !happenings.is_empty() {
            self.end_if_empty(id, &ending, None, &mut happenings);
            self.happened(happenings, events);
        }
        self.touch(id);
        if let Some(request) = cancel.request {
            self.note_answered(id, request, &Ok(Reply::Cancelled));
        }
        Ok(Reply::Cancelled)
    }

    /// The number of the request that made a claim of a lease; 0 if it had none, and none if there is no such claim.
    pub(super) fn request_of(&self, id: LeaseId, name: &Name) -> Option<u64> {
        Some(match self.leases[&id].stakes.get(name)? {
            Stake::Holding(holding) => holding.request,
            Stake::Waiting(arrival) => self.waiters[arrival].request,
        })
    }
}
