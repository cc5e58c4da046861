//! An exclusive lock with fences as histories see it: leases claim it, wait for it, give it back, hand it on and lose it.
//!
//! What nobody orders is an operation with an unknown time: a lease that waits is granted the lock, a lease ends because its
//! time has come, a claim is broken. Each may take effect at any time after it can have, or never.

use super::{Model, Operation};
use std::collections::{BTreeMap, BTreeSet};

/// What an acquire answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The lease has the lock, with this fence.
    Granted(u64),
    /// The lease waits for it.
    Waiting,
    /// Another lease has it, with this fence.
    Taken(u64),
}

/// An operation on the lock, with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A lease claims the lock.
    Acquire {
        /// Which lease.
        lease: u64,
        /// The claim: retries of one claim have one number.
        claim: u64,
        /// What was answered.
        answer: Acquired,
    },
    /// A claim is granted at a time that no answer shows: it waited, or its answer was lost.
    Grant {
        /// Which lease.
        lease: u64,
        /// The claim.
        claim: u64,
        /// Its fence, if other answers show it.
        fence: Option<u64>,
    },
    /// A claim is given back.
    Release {
        /// Whose.
        lease: u64,
        /// With which fence.
        fence: u64,
        /// Whether it was, now or before; if false, the handle was stale.
        done: Option<bool>,
    },
    /// A lease leaves the line, or gives back what it was granted.
    Cancel {
        /// Which lease.
        lease: u64,
        /// Whether it had a claim.
        done: Option<bool>,
    },
    /// A claim is handed to another lease.
    Transfer {
        /// Whose.
        lease: u64,
        /// With which fence.
        fence: u64,
        /// To which lease.
        to: u64,
        /// The fence that the other lease has now, or none: the handle was stale.
        answer: Option<Option<u64>>,
    },
    /// Whether this fence is that of the holder.
    Verify {
        /// Which fence.
        fence: u64,
        /// What was answered.
        holds: bool,
    },
    /// Who has the lock: the lease, and its fence.
    Look {
        /// What was answered.
        holder: Option<(u64, u64)>,
    },
    /// A lease is renewed.
    Renew {
        /// Which.
        lease: u64,
        /// Whether it lives.
        lives: bool,
    },
    /// A lease ends because its time has come.
    End {
        /// Which.
        lease: u64,
    },
    /// Whoever has the lock loses it by somebody's order.
    Break,
}

/// Who has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    lease: u64,
    /// None: nobody has seen it yet.
    fence: Option<u64>,
}

/// The lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    held: Option<Held>,
    /// The highest fence that was seen.
    last: u64,
    /// Claims that were granted. None is granted again.
    granted: BTreeSet<u64>,
    /// Leases that ended while they had the lock.
    over: BTreeSet<u64>,
    /// Fences that were given back, and leases that gave back a claim before anybody had seen its fence.
    released: BTreeSet<u64>,
    unseen: BTreeSet<u64>,
}

impl State {
    fn holds(&self, lease: u64) -> bool {
        self.held.is_some_and(|held| held.lease == lease)
    }

    /// A fence was shown for the claim that has the lock. False: it has another one.
    fn shows(&mut self, fence: u64) -> bool {
        match &mut self.held {
            Some(Held { fence: Some(has), .. }) => *has == fence,
            Some(held) if fence > self.last => {
                (held.fence, self.last) = (Some(fence), fence);
                true
            }
            Some(_) | None => false,
        }
    }

    fn grant(&mut self, lease: u64, claim: u64) -> bool {
        if self.held.is_some() || self.over.contains(&lease) || !self.granted.insert(claim) {
            return false;
        }
        self.held = Some(Held { lease, fence: None });
        true
    }

    fn grant_with(&mut self, lease: u64, claim: u64, fence: Option<u64>) -> bool {
        self.grant(lease, claim) && fence.is_none_or(|fence| self.shows(fence))
    }

    fn release(&mut self, lease: u64, fence: u64) -> bool {
        if self.released.contains(&fence) || self.unseen.contains(&lease) && !self.holds(lease) {
            return true;
        }
        let is_holder = self.holds(lease) && self.shows(fence);
        if is_holder {
            self.held = None;
            self.released.insert(fence);
        }
        is_holder
    }

    /// A cancel of what a lease holds gives it back.
    fn cancel(&mut self, lease: u64) {
        if let Some(held) = self.held.filter(|held| held.lease == lease) {
            self.held = None;
            match held.fence {
                Some(fence) => self.released.insert(fence),
                None => self.unseen.insert(lease),
            };
        }
    }

    fn transfer(&mut self, lease: u64, fence: u64, to: u64) -> bool {
        let is_holder = self.holds(lease) && self.shows(fence) && !self.over.contains(&to);
        if is_holder {
            self.held = Some(Held { lease: to, fence: None });
        }
        is_holder
    }

    fn acquire(&mut self, lease: u64, claim: u64, answer: Acquired) -> bool {
        match answer {
            Acquired::Granted(fence) => (self.holds(lease) || self.grant(lease, claim)) && self.shows(fence),
            Acquired::Waiting => !self.holds(lease),
            Acquired::Taken(fence) => !self.holds(lease) && self.shows(fence),
        }
    }
}

/// The lock.
pub struct Lock;

impl Model for Lock {
    type Act = Act;
    type State = State;

    fn step(state: &State, act: &Act) -> Option<State> {
        let mut after = state.clone();
        let fits = match *act {
            Act::Acquire { lease, claim, answer } => after.acquire(lease, claim, answer),
            Act::Grant { lease, claim, fence } => after.grant_with(lease, claim, fence),
            Act::Release { lease, fence, done } => {
                let did = after.release(lease, fence);
                done.is_none_or(|done| done == did)
            }
            Act::Cancel { lease, done } => {
                let holds = after.holds(lease);
                if done != Some(false) {
                    after.cancel(lease);
                    // A lease that is made for its claim ends with it; the claim has its number.
                    after.granted.insert(lease);
                }
                !holds || done != Some(false)
            }
            Act::Transfer { lease, fence, to, answer } => {
                let did = after.transfer(lease, fence, to);
                answer.is_none_or(|answer| match answer {
                    Some(fence) => did && after.shows(fence),
                    None => !did,
                })
            }
            Act::Verify { fence, holds } => after.shows(fence) == holds,
            Act::Look { holder: None } => state.held.is_none(),
            Act::Look { holder: Some((lease, fence)) } => after.holds(lease) && after.shows(fence),
            Act::Renew { lease, lives } => {
                if lives {
                    !state.over.contains(&lease)
                } else {
                    !state.holds(lease)
                }
            }
            Act::End { lease } => {
                let holds = after.holds(lease);
                if holds {
                    after.held = None;
                    after.over.insert(lease);
                }
                true
            }
            Act::Break => {
                after.held = None;
                true
            }
        };
        fits.then_some(after)
    }

    fn only_reads(act: &Act) -> bool {
        matches!(act, Act::Verify { .. } | Act::Look { .. } | Act::Renew { lives: true, .. })
    }
}

/// Leaves out grants that no answer shows, and says the fences of those that are shown: fences grow, so that settles the order
/// in which claims were granted.
pub fn without_noise(mut history: Vec<Operation<Act>>) -> Vec<Operation<Act>> {
    let (mut fences, mut shown) = (BTreeMap::<u64, BTreeSet<u64>>::new(), BTreeSet::new());
    for operation in &history {
        match operation.act {
            Act::Acquire { lease, answer: Acquired::Granted(fence), .. }
            | Act::Look { holder: Some((lease, fence)) }
            | Act::Transfer { to: lease, answer: Some(Some(fence)), .. } => {
                fences.entry(lease).or_default().insert(fence);
            }
            Act::Acquire { answer: Acquired::Taken(fence), .. } | Act::Verify { fence, holds: true } => {
                shown.insert(fence);
            }
            _ => {}
        }
    }
    let owned: BTreeSet<u64> = fences.values().flatten().copied().collect();
    let all_owned = shown.is_subset(&owned);
    let is_shown = |act: &Act| !matches!(act, Act::Grant { lease, .. } if all_owned && !fences.contains_key(lease));
    history.retain(|operation| is_shown(&operation.act));
    for operation in &mut history {
        // A lease that is made for its claim has one claim, of its own number, and so one fence.
        if let Act::Grant { lease, claim, fence } = &mut operation.act
            && lease == claim
            && let Some(known) = fences.get(lease)
            && known.len() == 1
        {
            *fence = known.first().copied();
        }
    }
    history
}
