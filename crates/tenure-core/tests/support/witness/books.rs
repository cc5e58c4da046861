//! The witness's own books: who lives, who holds, who waits and what is written, as events tell it. Whatever an event
//! may not tell is refused here.

use super::asked::Asked;
use super::instances::Instances;
use super::seen::Seen;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::{
    End, Event, Fence, Free, Happening, Holder, InstanceKey, Key, LeaseId, Leave, Mode, Moment, Name, Span, Units,
    Wait, limits,
};

/// All that the witness knows.
#[derive(Default)]
pub(super) struct Books {
    pub(super) alive: BTreeMap<LeaseId, Life>,
    pub(super) places: BTreeMap<Name, Place>,
    /// Claims that wait together, by the numbers of their arrivals.
    pub(super) groups: BTreeMap<u64, Group>,
    /// Every claim that was ever seated, by fence.
    pub(super) seated: BTreeMap<Fence, (LeaseId, Name)>,
    /// The lock-delay of each of them.
    delays: BTreeMap<Fence, Span>,
    pub(super) children: BTreeMap<LeaseId, BTreeSet<LeaseId>>,
    /// When claims will be broken, and how soon they are free then.
    pub(super) orders: BTreeMap<Fence, (Moment, Free)>,
    pub(super) keys: BTreeMap<Key, Written>,
    pub(super) instances: Instances,
    /// Changes of the keyspace, which begins with revision 1.
    pub(super) kv_changes: u64,
    arrivals: u64,
    /// Resources that something left in this change: whether they are kept is seen when it is over.
    left: BTreeSet<Name>,
    /// The capacities of resources that are gone by being superseded, until the change that comes of it.
    superseded: BTreeMap<Name, Units>,
    pub(super) seen: Seen,
}

/// What the witness knows of a living lease.
pub(super) struct Life {
    pub(super) holder: Holder,
    /// Until when somebody was told that it lives.
    pub(super) promised: Moment,
    /// Its deadline when it was last looked at.
    pub(super) deadline: Moment,
    pub(super) ends_at: Moment,
    pub(super) parent: Option<LeaseId>,
    pub(super) has_class: bool,
    pub(super) stakes: BTreeMap<Name, Staked>,
    pub(super) keys: BTreeSet<Key>,
    pub(super) instances: BTreeSet<InstanceKey>,
}

/// Holding, with this fence, or waiting since this arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Staked {
    Holding(Fence),
    Waiting(u64),
}

/// A resource that somebody holds or waits for, or that is defined.
pub(super) struct Place {
    pub(super) capacity: Units,
    /// Whether the capacity is not known from events.
    pub(super) is_guessed: bool,
    pub(super) defined: bool,
    pub(super) held: BTreeMap<Fence, Seat>,
    pub(super) vacating: BTreeMap<Fence, Stay>,
    /// Who waits, by order key.
    pub(super) line: BTreeSet<(i128, u64)>,
}

#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub(super) lease: LeaseId,
    pub(super) mode: Mode,
    lock_delay: Span,
}

#[derive(Clone, Copy)]
pub(super) struct Stay {
    pub(super) lease: LeaseId,
    pub(super) mode: Mode,
    pub(super) until: Moment,
}

/// Claims that wait together.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) lease: LeaseId,
    pub(super) key: (i128, u64),
    pub(super) wants: Vec<(Name, Mode)>,
    pub(super) since: Moment,
    pub(super) limit: Option<Moment>,
    lock_delay: Span,
}

pub(super) struct Written {
    pub(super) lease: Option<LeaseId>,
    pub(super) kv_revision: u64,
    pub(super) version: u64,
}

/// Until when a lease lives whose holder is told a TTL. To be told that there is no time left is no promise.
pub(super) fn promise(now: Moment, ttl_ms: u64) -> Moment {
    if ttl_ms == 0 { Moment::default() } else { Moment::from_millis(now.millis() + ttl_ms) }
}

/// Whether this makes room for one who supersedes it.
fn is_superseded(what: &Happening, early: &BTreeSet<Fence>) -> bool {
    match what {
        Happening::Vacated { how, .. } => *how == End::Superseded,
        Happening::Left { why, .. } => *why == Leave::Superseded,
        Happening::Freed { fence, .. } => early.contains(fence),
        _ => false,
    }
}

impl Place {
    fn new(capacity: Units) -> Self {
        let (held, vacating, line) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { capacity, is_guessed: false, defined: false, held, vacating, line }
    }

    fn is_there(&self) -> bool {
        self.defined || !(self.held.is_empty() && self.vacating.is_empty() && self.line.is_empty())
    }

    fn modes(&self) -> impl Iterator<Item = Mode> {
        self.held.values().map(|seat| seat.mode).chain(self.vacating.values().map(|stay| stay.mode))
    }

    /// S1: whether one more claim may sit beside those that are there.
    pub(super) fn fits(&self, mode: Mode) -> bool {
        let (mut count, mut taken, mut alike) = (0, 0, true);
        for other in self.modes() {
            count += 1;
            match (mode, other) {
                (Mode::Shared, Mode::Shared) => {}
                (Mode::Units(_), Mode::Units(units)) => taken += units.number(),
                _ => alike = false,
            }
        }
        let asked = if let Mode::Units(units) = mode { units.number() } else { 0 };
        alike && count < limits::HOLDERS_MAX && taken + asked <= self.capacity.number()
    }
}

impl Books {
    /// One visible change.
    pub(super) fn change(&mut self, asked: &Asked<'_>, change: &[Event]) {
        let root = super::tree::check(self, change);
        let free = self.forced(asked, change, root);
        self.seen.ended_together += u64::from(root.is_some() && change.len() > 2);
        let next = self.kv_changes + 2;
        let at = |what: &Happening| match what {
            Happening::Put { kv_revision, .. } | Happening::Deleted { kv_revision, .. } => Some(*kv_revision),
            _ => None,
        };
        let mut at = change.iter().filter_map(|event| at(&event.what)).peekable();
        self.kv_changes += u64::from(at.peek().is_some());
        assert!(at.all(|kv_revision| kv_revision == next), "the keys of a change share its next revision");
        let early: BTreeSet<Fence> = change.iter().filter_map(|event| self.freed_early(event)).collect();
        for event in change {
            self.happened(asked, change, free, event);
        }
        for name in std::mem::take(&mut self.left) {
            self.forget(&name);
        }
        if !change.iter().any(|event| is_superseded(&event.what, &early)) {
            self.superseded.clear();
        }
    }

    /// What is over with an entry.
    pub(super) fn entry_ends(&mut self) {
        self.superseded.clear();
    }

    /// How soon others may have what this change ends, as it was ordered now or before; the same for a whole tree.
    fn forced(&self, asked: &Asked<'_>, change: &[Event], root: Option<LeaseId>) -> Option<Free> {
        let mut how = None;
        for event in change {
            match &event.what {
                Happening::Vacated { fence, how: forced @ End::Revoked { .. }, .. } => {
                    if let Some((_, free)) = self.orders.get(fence).filter(|(at, _)| *at <= event.at) {
                        return Some(*free);
                    }
                    how = Some(forced);
                }
                Happening::Ended { lease, how: end, .. } if Some(*lease) == root => how = Some(end),
                _ => {}
            }
        }
        how.map_or(Some(Free::WhenVacated), |how| asked.free(how))
    }

    /// The fence of a vacating stake that is freed before its time.
    fn freed_early(&self, event: &Event) -> Option<Fence> {
        let Happening::Freed { resource, fence, .. } = &event.what else { return None };
        let stay = self.places.get(resource)?.vacating.get(fence)?;
        (stay.until > event.at).then_some(*fence)
    }

    fn happened(&mut self, asked: &Asked<'_>, change: &[Event], free: Option<Free>, event: &Event) {
        let now = event.at;
        match &event.what {
            Happening::Granted { lease, holder, ttl_ms, parent, class } => {
                let until = promise(now, *ttl_ms);
                let life = Life {
                    holder: holder.clone(),
                    promised: until,
                    deadline: until,
                    ends_at: until,
                    parent: *parent,
                    has_class: class.is_some(),
                    stakes: BTreeMap::new(),
                    keys: BTreeSet::new(),
                    instances: BTreeSet::new(),
                };
                if let Some(parent) = parent {
                    assert!(self.alive.contains_key(parent), "a parent lives");
                    self.children.entry(*parent).or_default().insert(*lease);
                }
                assert!(self.alive.insert(*lease, life).is_none(), "a living lease is not granted again");
            }
            Happening::Queued { resource, lease, holder, mode } => {
                let arrival = self.arrive(asked, change, *lease, event);
                self.life(*lease, holder).stakes.insert(resource.clone(), Staked::Waiting(arrival));
                let group = &self.groups[&arrival];
                assert!(group.wants.contains(&(resource.clone(), *mode)), "whoever waits waits for what it asked for");
                let key = group.key;
                self.place(asked, event, *lease, resource).line.insert(key);
            }
            Happening::Seated { resource, lease, holder, fence, mode, ttl_ms } => {
                assert!(self.alive.contains_key(lease), "S14: a dead waiter is never seated");
                let lock_delay = self.take_seat(asked, change, event, *lease, resource);
                let transferred = asked.transfers.contains_key(&(event.revision, *lease));
                let place = self.place(asked, event, *lease, resource);
                assert!(transferred || place.fits(*mode), "S1: {resource} has room for {mode}");
                place.held.insert(*fence, Seat { lease: *lease, mode: *mode, lock_delay });
                let together = place.held.len() > 1;
                self.seen.shared += u64::from(together);
                let highest = self.seated.last_key_value().map(|(fence, _)| *fence);
                assert!(highest < Some(*fence), "S5: fences strictly increase");
                self.seated.insert(*fence, (*lease, resource.clone()));
                self.delays.insert(*fence, lock_delay);
                let life = self.life(*lease, holder);
                life.stakes.insert(resource.clone(), Staked::Holding(*fence));
                life.promised = life.promised.max(promise(now, *ttl_ms));
            }
            Happening::Vacated { resource, lease, fence, how, until } => {
                self.orders.remove(fence);
                self.vacated(*lease, resource, *fence, how, *until, free, now);
            }
            Happening::Freed { resource, lease, fence } => {
                let place = self.places.get_mut(resource).expect("what is freed was vacating");
                let stay = place.vacating.remove(fence).expect("what is freed was vacating");
                assert_eq!(stay.lease, *lease, "a vacating stake remembers its lease");
                let in_time = stay.until <= now || asked.frees(resource);
                assert!(in_time, "S3: {resource} is kept until {} and was freed at {now}", stay.until);
                self.seen.freed += 1;
                self.left.insert(resource.clone());
            }
            Happening::Breaking { resource, lease, fence, at, .. } => {
                assert_eq!(self.seated.get(fence), Some(&(*lease, resource.clone())), "a break names its claim");
                self.orders.insert(*fence, (*at, asked.next_break()));
            }
            Happening::Left { resource, lease, why } => self.left(*lease, resource, *why, now),
            Happening::Ended { lease, holder, how } => self.ended(*lease, holder, how, now),
            Happening::Defined { resource, capacity } => {
                let place = self.places.entry(resource.clone()).or_insert_with(|| Place::new(Units::ONE));
                place.defined = capacity.is_some();
                place.capacity = capacity.unwrap_or(place.capacity);
                place.is_guessed &= capacity.is_none();
                self.left.insert(resource.clone());
            }
            Happening::ClassSet { .. } => {}
            Happening::Put { key, lease, kv_revision, version } => self.put(key, *lease, *kv_revision, *version),
            Happening::Deleted { key, lease, .. } => self.deleted(key, *lease),
            of_instance => self.happened_to_instance(of_instance, now),
        }
    }

    fn happened_to_instance(&mut self, what: &Happening, now: Moment) {
        match what {
            Happening::Registered { instance, lease, holder, epoch } => {
                self.life(*lease, holder).instances.insert(instance.clone());
                self.instances.registered(instance, *lease, *epoch, &mut self.seen);
            }
            Happening::Deregistered { instance, lease, how } => {
                let life = self.alive.get_mut(lease).expect("an instance hangs on a living lease");
                assert!(life.instances.remove(instance), "an instance hangs on its own lease");
                self.instances.deregistered(instance, *lease, how, &mut self.seen);
            }
            other => self.instances.happened(other, now, &mut self.seen),
        }
    }

    fn life(&mut self, lease: LeaseId, holder: &Holder) -> &mut Life {
        let life = self.alive.get_mut(&lease).expect("only a living lease claims anything");
        assert_eq!(&life.holder, holder, "events name the holder of their lease");
        life
    }

    /// The resource of an event; a new one has the capacity that its first claim expects, or that was there before what
    /// it supersedes was gone.
    fn place(&mut self, asked: &Asked<'_>, event: &Event, lease: LeaseId, name: &Name) -> &mut Place {
        let acquire = asked.acquires.get(&(event.revision, lease));
        let want = acquire.and_then(|acquire| acquire.wants.iter().find(|want| want.resource == *name));
        let had = self.superseded.get(name).copied().filter(|_| acquire.is_some_and(|it| it.epoch.is_some()));
        let capacity = want.and_then(|want| want.capacity).or(had).unwrap_or(Units::ONE);
        // Who breaks what is vacating frees it like one who supersedes it; only the latter goes on with the capacity.
        let is_guessed = had.is_some_and(|had| had != Units::ONE) && asked.breaks(name);
        self.places.entry(name.clone()).or_insert_with(|| Place { is_guessed, ..Place::new(capacity) })
    }

    /// A resource that nothing keeps is free, and has no capacity of its own.
    fn forget(&mut self, name: &Name) {
        if self.places.get(name).is_some_and(|place| !place.is_there()) {
            let gone = self.places.remove(name).expect("it was just there");
            self.superseded.insert(name.clone(), gone.capacity);
        }
    }

    /// The arrival of a group that joins its lines in this change.
    fn arrive(&mut self, asked: &Asked<'_>, change: &[Event], lease: LeaseId, event: &Event) -> u64 {
        let (at, now) = ((event.revision, lease), event.at);
        let wants = change.iter().filter_map(|event| match &event.what {
            Happening::Queued { resource, lease: who, mode, .. } if *who == lease => Some((resource.clone(), *mode)),
            _ => None,
        });
        let wants: Vec<_> = wants.collect();
        let is_first = event.what.resource() == Some(&wants[0].0);
        if !is_first {
            return self.arrivals;
        }
        self.arrivals += 1;
        // An acquire that finds its claim in line already names the same change as the transfer that put it there.
        let (order, limit, lock_delay) = match (asked.acquires.get(&at), asked.transfers.get(&at)) {
            (Some(acquire), None) => {
                let names = acquire.wants.iter().map(|want| (&want.resource, want.mode));
                assert!(names.eq(wants.iter().map(|(name, mode)| (name, *mode))), "all is waited for, or nothing");
                let limit = match acquire.wait {
                    Wait::InLine { limit: Some(limit) } => Some(now.plus(limit)),
                    Wait::InLine { limit: None } if wants.len() > 1 => {
                        Some(Moment::from_millis(now.millis() + limits::WAIT_MS_DEFAULT))
                    }
                    Wait::InLine { limit: None } => None,
                    Wait::Never => panic!("who does not want to wait does not wait"),
                };
                (acquire.priority.order_ms(now), limit, acquire.lock_delay)
            }
            (_, Some(transfer)) => (i128::MIN, None, self.delays[&transfer.handle.fence]),
            (None, None) => panic!("a line is joined by a command, and its reply names the change"),
        };
        let key = (order, self.arrivals);
        self.groups.insert(self.arrivals, Group { lease, key, wants, since: now, limit, lock_delay });
        self.arrivals
    }

    /// Order of lines, no barging. Takes whoever is seated out of its lines, and returns the lock-delay of its claims.
    fn take_seat(&mut self, asked: &Asked<'_>, change: &[Event], event: &Event, lease: LeaseId, name: &Name) -> Span {
        let seated = |name: &Name| {
            let is_it = |what: &Happening| matches!(what, Happening::Seated { resource, .. } if resource == name);
            change.iter().any(|event| event.what.lease() == Some(lease) && is_it(&event.what))
        };
        match self.alive[&lease].stakes.get(name).copied() {
            Some(Staked::Holding(fence)) => panic!("{lease} holds {name} already, with fence {fence}"),
            Some(Staked::Waiting(arrival)) => {
                let group = self.groups[&arrival].clone();
                for (name, _) in &group.wants {
                    assert!(seated(name), "who waits for several is seated in all at once");
                    let line = &mut self.places.get_mut(name).expect("a line is in a resource").line;
                    // Of several, the first that is seated takes the whole group out.
                    if line.contains(&group.key) {
                        assert_eq!(line.first(), Some(&group.key), "the first in the line of {name} is seated");
                        line.remove(&group.key);
                    }
                }
                let is_last = group.wants.last().is_some_and(|(last, _)| last == name);
                if is_last {
                    self.groups.remove(&arrival);
                }
                self.seen.seated_from_line += 1;
                group.lock_delay
            }
            None => {
                let at = (event.revision, lease);
                if let (Some(acquire), None) = (asked.acquires.get(&at), asked.transfers.get(&at)) {
                    let own = acquire.priority.order_ms(event.at);
                    let line = self.places.get(name).map(|place| &place.line);
                    let before = line.and_then(|line| line.first()).is_none_or(|(order, _)| *order > own);
                    assert!(before, "nobody takes {name} from those who stand in line before");
                    self.seen.overtaken += u64::from(line.is_some_and(|line| !line.is_empty()));
                    return acquire.lock_delay;
                }
                let transfer = asked.transfers.get(&at).expect("a seat is asked for, waited for or given");
                assert!(transfer.force.is_none(), "only a holder gives its claim away at once");
                self.seen.transferred += 1;
                self.delays[&transfer.handle.fence]
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "these are the parts of one event")]
    fn vacated(
        &mut self,
        lease: LeaseId,
        name: &Name,
        fence: Fence,
        how: &End,
        until: Option<Moment>,
        free: Option<Free>,
        now: Moment,
    ) {
        let life = self.alive.get_mut(&lease).expect("only a living lease has claims");
        assert_eq!(life.stakes.remove(name), Some(Staked::Holding(fence)), "a claim ends with its own fence");
        let promised = life.promised;
        let place = self.places.get_mut(name).expect("what is vacated was held");
        let seat = place.held.remove(&fence).expect("what is vacated was held");
        assert_eq!(seat.lease, lease, "only the holder vacates");
        let delayed = now.plus(seat.lock_delay);
        // What is known is the least: a touch earlier in this entry may have moved the deadline, and makes no event.
        let least = match how {
            // Without the secret of the claim, a release is like an end by force. Which of the two it was, the model knows.
            End::Released => until.map(|_| delayed.max(promised)),
            End::Superseded | End::WaitedOut | End::Transferred { .. } | End::Unhealthy => None,
            _ if free == Some(Free::Now) => None,
            End::Expired | End::MaxLifetime => Some(delayed),
            End::Revoked { .. } | End::ParentEnded { .. } => Some(delayed.max(promised)),
        };
        match (least, until) {
            (None, until) => assert_eq!(until, None, "what was given back or taken at once is free: {name}@{fence}"),
            // Both was ordered by the same words.
            (Some(_), None) if free.is_none() => {}
            (Some(least), until) => {
                let is_kept = until.unwrap_or(now) >= least;
                assert!(is_kept, "S3: {name}@{fence} is kept free until {least}, not until {until:?}");
            }
        }
        if let Some(until) = until {
            assert!(until > now, "a stake that is over is not kept");
            place.vacating.insert(fence, Stay { lease, mode: seat.mode, until });
            self.seen.vacating += 1;
        }
        self.left.insert(name.clone());
    }

    fn left(&mut self, lease: LeaseId, name: &Name, why: Leave, now: Moment) {
        let life = self.alive.get_mut(&lease).expect("only a living lease waits");
        let Some(Staked::Waiting(arrival)) = life.stakes.remove(name) else { panic!("who leaves a line stood in it") };
        let group = self.groups.get_mut(&arrival).expect("who leaves a line stood in it");
        let key = group.key;
        assert!(why != Leave::WaitedOut || group.limit.is_some_and(|limit| limit <= now), "nobody leaves before time");
        group.wants.retain(|(wanted, _)| wanted != name);
        if group.wants.is_empty() {
            self.groups.remove(&arrival);
        }
        let place = self.places.get_mut(name).expect("a line is in a resource");
        assert!(place.line.remove(&key), "who leaves a line stood in it");
        self.seen.left_line += 1;
        self.left.insert(name.clone());
    }

    /// S3, S8, S9.
    fn ended(&mut self, lease: LeaseId, holder: &Holder, how: &End, now: Moment) {
        let life = self.alive.remove(&lease).expect("S8: a lease ends exactly once");
        assert_eq!(&life.holder, holder, "an end names the holder of its lease");
        let is_bare = life.stakes.is_empty() && life.keys.is_empty() && life.instances.is_empty();
        assert!(is_bare, "S9: all that hangs on a lease ends with it");
        self.seen.ended(how);
        assert!(!self.children.contains_key(&lease), "S9: children end before their parents");
        if let Some(parent) = life.parent {
            let siblings = self.children.get_mut(&parent).expect("a child is known to its parent");
            siblings.remove(&lease);
            if siblings.is_empty() {
                self.children.remove(&parent);
            }
        }
        if matches!(how, End::Expired | End::MaxLifetime) {
            let kept = life.promised.max(life.ends_at);
            assert!(kept <= now, "S3: {lease} was promised {kept} and expired at {now}");
        }
    }

    fn put(&mut self, key: &Key, lease: Option<LeaseId>, kv_revision: u64, version: u64) {
        let before = self.keys.insert(key.clone(), Written { lease, kv_revision, version });
        assert_eq!(version, before.as_ref().map_or(0, |before| before.version) + 1, "versions are counted");
        if let Some(life) = before.and_then(|before| before.lease).and_then(|lease| self.alive.get_mut(&lease)) {
            life.keys.remove(key);
        }
        if let Some(lease) = lease {
            let life = self.alive.get_mut(&lease).expect("a key hangs on a living lease");
            life.keys.insert(key.clone());
        }
    }

    fn deleted(&mut self, key: &Key, lease: Option<LeaseId>) {
        let gone = self.keys.remove(key).expect("only what is there is deleted");
        assert_eq!(gone.lease, lease, "a deleted key says where it hung");
        if let Some(life) = lease.and_then(|lease| self.alive.get_mut(&lease)) {
            life.keys.remove(key);
        }
    }
}
