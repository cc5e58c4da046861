//! Resources: their capacity, who holds them, what is still vacating. What sits beside what is decided here and nowhere
//! else.

use super::line::Line;
use super::{Ledger, size};
use crate::command::Define;
use crate::event::{Event, Happening, Leave};
use crate::fence::Fence;
use crate::limits::{DEFINED_MAX, HOLDERS_MAX, WAITERS_MAX};
use crate::mode::{Epoch, Mode, Units};
use crate::names::{Holder, LeaseId, Name};
use crate::reply::{Outcome, Refusal, Reply};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A resource that somebody holds or waits for, or whose capacity was defined. Any other is free and not in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub(super) capacity: Units,
    /// Whether the capacity was ordered, so that it outlives the claims.
    pub(super) defined: bool,
    pub(super) holders: BTreeMap<Fence, LeaseId>,
    pub(super) vacating: BTreeSet<Fence>,
    pub(super) line: Line,
    /// What the holding and vacating claims take. An index.
    pub(super) tally: Tally,
    /// The claims of each holder that came with an epoch. An index.
    pub(super) epochs: BTreeMap<Holder, BTreeSet<(Epoch, Claim)>>,
}

/// Which claim of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// The one that holds it with this fence.
    Holding(Fence),
    /// The one that came to the line with this number.
    Waiting(u64),
    /// The one that held it with this fence and is vacating.
    Vacating(Fence),
}

/// Claims that are about to end, in the order in which they will: whoever takes their place does not count them.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) claims: Vec<(Name, Claim)>,
    fences: BTreeSet<Fence>,
    waiters: BTreeSet<u64>,
}

impl Outgoing {
    pub(super) fn new(claims: Vec<(Name, Claim)>) -> Self {
        let fences = claims.iter().filter_map(|(_, claim)| claim.fence()).collect();
        let waiters = claims.iter().filter_map(|(_, claim)| match claim {
            Claim::Waiting(arrival) => Some(*arrival),
            Claim::Holding(_) | Claim::Vacating(_) => None,
        });
        let waiters = waiters.collect();
        Self { claims, fences, waiters }
    }

    pub(super) fn has_waiter(&self, arrival: u64) -> bool {
        self.waiters.contains(&arrival)
    }

    pub(super) fn has_fence(&self, fence: Fence) -> bool {
        self.fences.contains(&fence)
    }
}

impl Claim {
    pub(super) const fn fence(self) -> Option<Fence> {
        match self {
            Self::Holding(fence) | Self::Vacating(fence) => Some(fence),
            Self::Waiting(_) => None,
        }
    }
}

/// What claims take of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    exclusive: usize,
    shared: usize,
    counted: usize,
    units: u64,
}

impl Tally {
    pub(super) fn add(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.exclusive += 1,
            Mode::Shared => self.shared += 1,
            Mode::Units(units) => {
                self.counted += 1;
                self.units += units.number();
            }
        }
    }

    pub(super) fn take(&mut self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.exclusive -= 1,
            Mode::Shared => self.shared -= 1,
            Mode::Units(units) => {
                self.counted -= 1;
                self.units -= units.number();
            }
        }
    }

    pub(super) const fn claims(&self) -> usize {
        self.exclusive + self.shared + self.counted
    }

    /// Whether one more claim fits beside these, with the units that there are.
    pub(super) fn fits(&self, mode: Mode, capacity: Units) -> bool {
        let units = match mode {
            Mode::Units(units) => units.number(),
            Mode::Exclusive | Mode::Shared => 0,
        };
        self.sits_beside(mode) && self.units + units <= capacity.number()
    }

    /// Exclusive sits alone, shared beside shared, counted beside counted.
    pub(super) fn sits_beside(&self, mode: Mode) -> bool {
        let beside = match mode {
            Mode::Exclusive => 0,
            Mode::Shared => self.shared,
            Mode::Units(_) => self.counted,
        };
        self.claims() == beside && beside < HOLDERS_MAX
    }
}

impl Default for Resource {
    fn default() -> Self {
        Self {
            capacity: Units::ONE,
            defined: false,
            holders: BTreeMap::new(),
            vacating: BTreeSet::new(),
            line: Line::default(),
            tally: Tally::default(),
            epochs: BTreeMap::new(),
        }
    }
}

impl Resource {
    /// How many units it has.
    pub const fn capacity(&self) -> Units {
        self.capacity
    }

    /// Whether its capacity was defined by an order.
    pub const fn is_defined(&self) -> bool {
        self.defined
    }

    /// The claims that hold it, oldest first.
    pub fn holders(&self) -> impl Iterator<Item = (Fence, LeaseId)> {
        self.holders.iter().map(|(fence, lease)| (*fence, *lease))
    }

    /// How many claims hold it.
    pub fn holder_count(&self) -> usize {
        self.holders.len()
    }

    /// The fences of the claims that are vacating, oldest first.
    pub fn vacating(&self) -> impl Iterator<Item = Fence> {
        self.vacating.iter().copied()
    }

    /// How many wait for it.
    pub fn waiting(&self) -> u64 {
        self.line.len() as u64
    }

    /// The waiters by the numbers of their arrivals, next first.
    pub fn arrivals(&self) -> impl Iterator<Item = u64> {
        self.line.iter().map(|(_, arrival)| arrival)
    }

    /// The units that are taken, by claims that hold it or are vacating.
    pub const fn units_taken(&self) -> u64 {
        self.tally.units
    }

    /// Whether one more may stand in its line.
    pub(super) fn may_be_joined(&self) -> Result<(), Refusal> {
        if self.line.len() >= WAITERS_MAX {
            return Err(Refusal::Full { what: "waiters in one line".into(), max: WAITERS_MAX });
        }
        Ok(())
    }

    /// Whether nothing keeps it in the ledger.
    fn is_gone(&self) -> bool {
        !self.defined && self.tally.claims() == 0 && self.line.is_empty()
    }

    pub(super) fn note_epoch(&mut self, holder: &Holder, epoch: Option<Epoch>, claim: Claim) {
        if let Some(epoch) = epoch {
            self.epochs.entry(holder.clone()).or_default().insert((epoch, claim));
        }
    }

    pub(super) fn drop_epoch(&mut self, holder: &Holder, epoch: Option<Epoch>, claim: Claim) {
        let Some(epoch) = epoch else { return };
        let of_holder = self.epochs.get_mut(holder).expect("every epoch is in the index");
        let was_there = of_holder.remove(&(epoch, claim));
        assert!(was_there, "every claim with an epoch is in the index");
        if of_holder.is_empty() {
            self.epochs.remove(holder);
        }
    }
}

impl Mode {
    /// Whether a claim in this mode can ever sit on a resource of this capacity.
    pub(super) fn is_within(self, capacity: Units, name: &Name) -> Result<(), Refusal> {
        match self {
            Self::Units(asked) if asked > capacity => Err(Refusal::TooBig { resource: name.clone(), capacity, asked }),
            Self::Exclusive | Self::Shared | Self::Units(_) => Ok(()),
        }
    }
}

impl Ledger {
    pub(super) fn define(&mut self, define: &Define, events: &mut Vec<Event>) -> Outcome {
        let name = &define.resource;
        let before = self.resources.get(name).filter(|resource| resource.defined).map(|resource| resource.capacity);
        if before != define.capacity {
            if before.is_none() && self.defined >= DEFINED_MAX {
                return Err(Refusal::Full { what: "defined resources".into(), max: DEFINED_MAX });
            }
            if before.is_none() {
                self.has_room_for(size::of_defined(name))?;
            }
            self.redefine(name, define.capacity, events);
        }
        let capacity = self.resources.get(name).map_or(Units::ONE, |resource| resource.capacity);
        Ok(Reply::Defined { capacity })
    }

    fn redefine(&mut self, name: &Name, capacity: Option<Units>, events: &mut Vec<Event>) {
        let resource = self.resources.entry(name.clone()).or_default();
        let (was, is) = (usize::from(resource.defined), usize::from(capacity.is_some()));
        self.defined = self.defined - was + is;
        self.bytes = self.bytes - was * size::of_defined(name) + is * size::of_defined(name);
        resource.defined = capacity.is_some();
        resource.capacity = capacity.unwrap_or(resource.capacity);
        self.happened(alloc::vec![Happening::Defined { resource: name.clone(), capacity }], events);
        if capacity.is_some() {
            self.turn_away_too_big(name, events);
            self.look(name);
        }
        self.forget_if_gone(name);
    }

    /// Whoever asks for more than there is would block the line for ever.
    fn turn_away_too_big(&mut self, name: &Name, events: &mut Vec<Event>) {
        let resource = &self.resources[name];
        self.work.took(resource.line.len());
        let asks_too_much = |arrival: &u64| {
            let mut wants = self.waiters[arrival].wants.iter().filter(|(wanted, _)| wanted == name);
            wants.any(|(_, mode)| mode.is_within(resource.capacity, name).is_err())
        };
        let too_big: Vec<_> = resource.arrivals().filter(asks_too_much).collect();
        for arrival in too_big {
            // It may have gone with the tree of the one before.
            if self.waiters.contains_key(&arrival) {
                self.wait_ends(arrival, Leave::TooBig, events);
            }
        }
    }

    /// A resource without claims, waiters and definition is free, and free ones are not kept.
    pub(super) fn forget_if_gone(&mut self, name: &Name) {
        if self.resources.get(name).is_some_and(Resource::is_gone) {
            self.resources.remove(name);
        }
    }
}
