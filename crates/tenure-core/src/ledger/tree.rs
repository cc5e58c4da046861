//! Parents and children. A tree ends as one, so what it carries is counted on every lease above.

use super::Ledger;
use crate::limits::{ATTACHED_MAX, GENERATIONS_MAX};
use crate::names::LeaseId;
use crate::reply::Refusal;
use alloc::vec::Vec;

impl Ledger {
    /// The lease and its ancestors, nearest first.
    pub(super) fn lineage(&self, id: LeaseId) -> impl Iterator<Item = LeaseId> {
        core::iter::successors(Some(id), |id| self.leases[id].parent)
    }

    /// How many generations a lease stands on, itself included.
    pub(super) fn generation(&self, id: LeaseId) -> usize {
        self.lineage(id).count()
    }

    /// Whether `id` is `ancestor`, or hangs on it.
    pub(super) fn hangs_on(&self, id: LeaseId, ancestor: LeaseId) -> bool {
        self.lineage(id).any(|each| each == ancestor)
    }

    pub(super) fn root(&self, id: LeaseId) -> LeaseId {
        self.lineage(id).last().expect("a lineage starts with the lease itself")
    }

    /// Whether the tree of a lease may carry so many more things.
    pub(super) fn room_in_tree(&self, id: LeaseId, more: usize) -> Result<(), Refusal> {
        if self.leases[&self.root(id)].carried + more > ATTACHED_MAX {
            return Err(Refusal::Full { what: "things attached to one lease tree".into(), max: ATTACHED_MAX });
        }
        Ok(())
    }

    /// Whether a lease may have a child.
    pub(super) fn may_bear(&self, parent: LeaseId) -> Result<(), Refusal> {
        if self.generation(parent) >= GENERATIONS_MAX {
            return Err(Refusal::Full { what: "generations of leases".into(), max: GENERATIONS_MAX });
        }
        Ok(())
    }

    /// Counts things that are attached to a lease now, for it and everything it hangs on. A suspect one was heard of by that:
    /// from then on it ends when it says, whatever hangs on it.
    pub(super) fn attach(&mut self, id: LeaseId, things: usize) {
        if self.leases[&id].suspect.is_some() {
            self.extend(id);
        }
        self.carry(id, things);
    }

    /// Counts things that hang on a lease.
    pub(super) fn carry(&mut self, id: LeaseId, things: usize) {
        self.count_up(Some(id), |carried| *carried += things);
    }

    /// Counts things that hang on a lease no longer.
    pub(super) fn detach(&mut self, id: Option<LeaseId>, things: usize) {
        self.count_up(id, |carried| *carried -= things);
    }

    fn count_up(&mut self, mut next: Option<LeaseId>, count: impl Fn(&mut usize)) {
        while let Some(id) = next {
            let lease = self.leases.get_mut(&id).expect("a parent lives as long as its children");
            count(&mut lease.carried);
            next = lease.parent;
        }
    }

    /// A lease and all that hang on it, children before their parents.
    pub(super) fn tree(&self, root: LeaseId) -> Vec<LeaseId> {
        let mut order = Vec::new();
        self.add_tree(root, &mut order);
        order
    }

    /// Recursion is as deep as generations go.
    fn add_tree(&self, id: LeaseId, order: &mut Vec<LeaseId>) {
        for child in &self.leases[&id].children {
            self.add_tree(*child, order);
        }
        order.push(id);
    }
}
