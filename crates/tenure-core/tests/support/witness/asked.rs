//! What the commands of an entry asked for, where events alone do not tell it: with which terms somebody claims or waits,
//! and whether what is forced is free at once.

use std::collections::BTreeMap;
use tenure_core::{Acquire, Command, End, Entry, Free, Holder, LeaseId, Name, Outcome, Reply, Revision, Transfer};

/// What one entry asked for, as far as the events alone do not tell it.
pub(super) struct Asked<'a> {
    entry: &'a Entry,
    pub(super) acquires: BTreeMap<(Revision, LeaseId), &'a Acquire>,
    pub(super) transfers: BTreeMap<(Revision, LeaseId), &'a Transfer>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(entry: &'a Entry, outcomes: &[Outcome]) -> Self {
        let mut asked = Self { entry, acquires: BTreeMap::new(), transfers: BTreeMap::new() };
        for (command, outcome) in entry.commands.iter().zip(outcomes) {
            let at = match outcome {
                Ok(Reply::Seated(seat)) => (seat.revision, seat.lease),
                Ok(Reply::Waiting(place)) => (place.revision, place.lease),
                _ => continue,
            };
            // A retry may answer with the revision of what it repeats.
            match command {
                Command::Acquire(acquire) => drop(asked.acquires.entry(at).or_insert(acquire)),
                Command::Transfer(transfer) => drop(asked.transfers.entry(at).or_insert(transfer)),
                _ => {}
            }
        }
        asked
    }

    /// Whether somebody ordered, in this entry, an end by these words that frees at once.
    pub(super) fn now(&self, how: &End) -> bool {
        let End::Revoked { by, reason } = how else { return false };
        self.entry.commands.iter().any(|command| {
            let force = match command {
                Command::Revoke(revoke) => Some(&revoke.force),
                Command::Break(order) => Some(&order.force),
                Command::Transfer(transfer) => transfer.force.as_ref(),
                _ => None,
            };
            force.is_some_and(|force| force.free == Free::Now && force.by == *by && force.reason == *reason)
        })
    }

    /// Whether a vacating stake on a resource may be gone before its time.
    pub(super) fn frees(&self, name: &Name) -> bool {
        self.entry.commands.iter().any(|command| match command {
            Command::Break(order) => order.resource == *name && order.force.free == Free::Now,
            Command::Acquire(acquire) => acquire.epoch.is_some(),
            _ => false,
        })
    }

    pub(super) fn free_of_break(&self, name: &Name, by: &Holder) -> Free {
        let of =
            |command: &&Command| matches!(command, Command::Break(it) if it.resource == *name && it.force.by == *by);
        match self.entry.commands.iter().rfind(of) {
            Some(Command::Break(order)) => order.force.free,
            _ => panic!("a break is ordered by a command"),
        }
    }
}
