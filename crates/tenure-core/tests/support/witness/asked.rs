//! What the commands of an entry asked for, where events alone do not tell it: with which terms somebody claims or waits,
//! and whether what is forced is free at once.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use tenure_core::{Acquire, Command, End, Entry, Free, LeaseId, Name, Outcome, Reply, Revision, Span, Transfer};

/// What one entry asked for, as far as the events alone do not tell it.
pub(super) struct Asked<'a> {
    entry: &'a Entry,
    pub(super) acquires: BTreeMap<(Revision, LeaseId), &'a Acquire>,
    pub(super) transfers: BTreeMap<(Revision, LeaseId), &'a Transfer>,
    /// How soon each of the claims will be free that are to be broken later, in the order in which it was ordered.
    breaks_to_come: RefCell<VecDeque<Free>>,
}

impl<'a> Asked<'a> {
    pub(super) fn new(entry: &'a Entry, outcomes: &[Outcome]) -> Self {
        let breaks =
            entry.commands.iter().zip(outcomes).flat_map(|(command, outcome)| match (command.plain(), outcome) {
                (Command::Break(order), Ok(Reply::Broken { claims, .. })) if order.delay > Span::ZERO => {
                    std::iter::repeat_n(order.force.free, usize::try_from(*claims).expect("claims are few"))
                }
                _ => std::iter::repeat_n(Free::Now, 0),
            });
        let breaks_to_come = RefCell::new(breaks.collect());
        let mut asked = Self { entry, acquires: BTreeMap::new(), transfers: BTreeMap::new(), breaks_to_come };
        for (command, outcome) in entry.commands.iter().zip(outcomes) {
            let at = match outcome {
                Ok(Reply::Seated(seat)) => (seat.revision, seat.lease),
                Ok(Reply::Waiting(place)) => (place.revision, place.lease),
                _ => continue,
            };
            // A retry may answer with the revision of what it repeats.
            match command.plain() {
                Command::Acquire(acquire) => drop(asked.acquires.entry(at).or_insert(acquire)),
                Command::Transfer(transfer) => drop(asked.transfers.entry(at).or_insert(transfer)),
                _ => {}
            }
        }
        asked
    }

    /// When what is ended by these words is free. Not known if both was ordered by the same words in this entry.
    pub(super) fn free(&self, how: &End) -> Option<Free> {
        let End::Revoked { by, reason } = how else { return Some(Free::WhenVacated) };
        let forces = self.entry.commands.iter().filter_map(|command| match command.plain() {
            Command::Revoke(revoke) => Some(&revoke.force),
            Command::Break(order) if order.delay == Span::ZERO => Some(&order.force),
            Command::Transfer(transfer) => transfer.force.as_ref(),
            Command::Deregister(deregister) => deregister.force.as_ref(),
            _ => None,
        });
        let mut frees = forces.filter(|force| force.by == *by && force.reason == *reason).map(|force| force.free);
        let first = frees.next().expect("who ends something has ordered it");
        frees.all(|free| free == first).then_some(first)
    }

    /// What was ordered for the next break that will be done later.
    pub(super) fn next_break(&self) -> Free {
        let next = self.breaks_to_come.borrow_mut().pop_front();
        next.expect("whatever will be broken was ordered, and the reply counts it")
    }

    /// Whether a vacating stake on a resource may be gone before its time.
    pub(super) fn frees(&self, name: &Name) -> bool {
        self.entry.commands.iter().any(|command| match command.plain() {
            Command::Break(order) => order.resource == *name && order.force.free == Free::Now,
            Command::Acquire(acquire) => acquire.epoch.is_some(),
            _ => false,
        })
    }

    /// Whether somebody ordered, in this entry, to break what is on a resource at once.
    pub(super) fn breaks(&self, name: &Name) -> bool {
        let of = |command: &Command| matches!(command.plain(), Command::Break(it) if it.resource == *name && it.delay == Span::ZERO);
        self.entry.commands.iter().any(of)
    }
}
