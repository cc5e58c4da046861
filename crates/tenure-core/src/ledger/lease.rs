//! Leases: how they begin and go on. How they end is `ending.rs`.

use super::requests::Requests;
use super::wheel::Due;
use super::{Ledger, Suspect, registry, size};
use crate::actor::ApiKeyName;
use crate::command::{Grant, Renewal};
use crate::event::{Event, Happening};
use crate::fence::Fence;
use crate::limits::{CONTENDED_MAX, TTL_MS_DEFAULT};
use crate::mode::{Class, Counts, Epoch, Kind, Lifetime, Mode, Policy};
use crate::names::{Holder, Key, Labels, LeaseId, Name, Note};
use crate::registry::{InstanceKey, next_gap_ms};
use crate::reply::{Outcome, Refusal, Renewed, Reply};
use crate::request::Secret;
use crate::time::{Moment, Span, Ttl};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A life: whose, how long, and what hangs on it. What a plain renewal reads and writes comes first and lies together:
/// there may be millions of leases, and none of them is in the processor's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Lease {
    pub(super) deadline: Moment,
    pub(super) ttl: Ttl,
    pub(super) renewed: Moment,
    pub(super) renewed_wall_ms: u64,
    pub(super) parent: Option<LeaseId>,
    pub(super) class: Option<Name>,
    pub(super) lifetime: Option<Lifetime>,
    pub(super) index: Index,
    /// Its maximum lifetime cut the last extension short.
    pub(super) capped: bool,
    /// It was seated after waiting, and has not been renewed since.
    pub(super) unconfirmed: bool,
    pub(super) origin: Origin,
    /// It is of class `registration`. An index.
    pub(super) registers: bool,
    /// How many of its claims ended otherwise than by a release with the secret of its holder.
    pub(super) lost: u32,
    /// The usual time between its renewals, if it is of class `registration`; 0 if none was measured.
    pub(super) gap_ms: u64,
    /// Why it is kept although it is silent.
    pub(super) suspect: Option<Box<Suspect>>,
    /// Where the wheel has it: at its end or, after a renewal, before. An index.
    pub(super) armed: Moment,
    pub(super) grace: Span,
    /// From when a maximum lifetime counts.
    pub(super) lifetime_from: Option<Moment>,
    /// What hangs on it and on everything that hangs on it. An index.
    pub(super) carried: usize,
    pub(super) stakes: BTreeMap<Name, Stake>,
    pub(super) keys: BTreeSet<Key>,
    pub(super) instances: BTreeSet<InstanceKey>,
    pub(super) children: BTreeSet<LeaseId>,
    pub(super) holder: Holder,
    /// The API key that it was begun with.
    pub(super) owner: Option<ApiKeyName>,
    pub(super) request: u64,
    pub(super) requests: Requests,
    pub(super) labels: Labels,
    pub(super) reason: Note,
    pub(super) granted_wall_ms: u64,
}

/// What can be found out about a lease's stakes without looking at them all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// What it holds and others wait for.
    pub(super) contended: BTreeSet<Name>,
    /// When its claims will be broken, as ordered.
    pub(super) breaks: BTreeSet<(Moment, Fence)>,
    /// The arrivals with which it waits.
    pub(super) waits: BTreeSet<u64>,
    /// How many of its stakes hold.
    pub(super) holding: usize,
}

/// How a lease came to be, which tells whether it outlives its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// By a grant: it lives on without claims.
    Grant,
    /// By an acquire: it ends when its last claim is released.
    Acquire,
    /// By a registration: it ends when its last instance is taken out, unless something else hangs on it.
    Register,
}

/// A lease's claim on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stake {
    /// It holds the resource.
    Holding(Box<Holding>),
    /// It stands in line since this arrival.
    Waiting(u64),
}

/// A claim that holds its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its fence.
    pub fence: Fence,
    /// How it shares the resource.
    pub mode: Mode,
    /// Since when, in service time.
    pub since: Moment,
    /// Since when, by the wall clock of the leader of that time.
    pub since_wall_ms: u64,
    /// How long it stays as a vacating stake after an abnormal end.
    pub lock_delay: Span,
    /// The epoch in which its holder claimed it.
    pub epoch: Option<Epoch>,
    /// The number of the request that made it; 0 if it had none.
    pub request: u64,
    /// With which a release has to come so that the resource is free at once. It is never shown.
    pub secret: Option<Secret>,
}

impl Lease {
    /// Whose lease it is.
    pub const fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The API key that it was begun with; none without keys.
    pub const fn owner(&self) -> Option<&ApiKeyName> {
        self.owner.as_ref()
    }

    /// How long it lives without a renewal.
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// Until when it was promised to its holder.
    pub const fn deadline(&self) -> Moment {
        self.deadline
    }

    /// How long it stays held and renewable after its deadline.
    pub const fn grace(&self) -> Span {
        self.grace
    }

    /// When it ends unless it is renewed.
    pub fn ends_at(&self) -> Moment {
        let ends_at = self.deadline.plus(self.grace);
        self.suspect.as_ref().map_or(ends_at, |suspect| ends_at.max(suspect.until))
    }

    /// Why it is kept although it is silent, if it is.
    pub fn suspect(&self) -> Option<&Suspect> {
        self.suspect.as_deref()
    }

    /// The usual time between its renewals in milliseconds, if it is of class `registration` and was renewed.
    pub fn gap_ms(&self) -> Option<u64> {
        Some(self.gap_ms).filter(|ms| *ms > 0)
    }

    /// The class whose policy it follows.
    pub const fn class(&self) -> Option<&Name> {
        self.class.as_ref()
    }

    /// How long it may be renewed at all.
    pub const fn lifetime(&self) -> Option<Lifetime> {
        self.lifetime
    }

    /// Whether its maximum lifetime cut the last extension short.
    pub const fn is_final(&self) -> bool {
        self.capped
    }

    /// How many of its claims ended while it lived on, but for those that were released with the secret of its holder.
    pub const fn lost(&self) -> u32 {
        self.lost
    }

    /// The lease that it ends with.
    pub const fn parent(&self) -> Option<LeaseId> {
        self.parent
    }

    /// What is said about it.
    pub const fn labels(&self) -> &Labels {
        &self.labels
    }

    /// What it is for.
    pub const fn reason(&self) -> &Note {
        &self.reason
    }

    /// When it began, by the wall clock of the leader of that time.
    pub const fn granted_wall_ms(&self) -> u64 {
        self.granted_wall_ms
    }

    /// When it was last renewed, in service time.
    pub const fn renewed(&self) -> Moment {
        self.renewed
    }

    /// When it was last renewed, by the wall clock of the leader of that time.
    pub const fn renewed_wall_ms(&self) -> u64 {
        self.renewed_wall_ms
    }

    /// The resources that it holds or waits for, by name.
    pub fn stakes(&self) -> impl Iterator<Item = (&Name, &Stake)> {
        self.stakes.iter()
    }

    /// Its claim on a resource that it holds.
    pub fn holding(&self, resource: &Name) -> Option<&Holding> {
        match self.stakes.get(resource) {
            Some(Stake::Holding(holding)) => Some(holding),
            _ => None,
        }
    }

    /// The keys that hang on it, in order.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    /// The instances that hang on it, in order.
    pub fn instances(&self) -> impl Iterator<Item = &InstanceKey> {
        self.instances.iter()
    }

    /// The leases that end with it, by id.
    pub fn children(&self) -> impl Iterator<Item = LeaseId> {
        self.children.iter().copied()
    }

    /// How many things hang on it and on its descendants.
    pub const fn carried(&self) -> usize {
        self.carried
    }

    /// How many keys hang on it.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Whether only its TTL says how long a renewal extends it, and a renewal has nothing else to tell.
    fn is_plain(&self, registers_plainly: bool) -> bool {
        (self.class.is_none() || self.registers && registers_plainly)
            && self.suspect.is_none()
            && self.parent.is_none()
            && self.lifetime.is_none()
            && self.index.contended.is_empty()
            && self.index.breaks.is_empty()
            && self.lost == 0
    }

    fn note_renewal(&mut self, ttl: Option<Ttl>, now: Moment, wall_ms: u64) {
        if self.registers {
            self.gap_ms = next_gap_ms(self.gap_ms, now.millis_since(self.renewed).min(self.ttl.millis()));
        }
        self.ttl = ttl.unwrap_or(self.ttl);
        self.renewed = now;
        self.renewed_wall_ms = wall_ms;
        self.unconfirmed = false;
    }

    /// What a holder may count from now on: never more than what is left, because a retry moves no deadline.
    pub(super) fn effective_ttl_ms(&self, now: Moment) -> u64 {
        self.ttl.millis().min(self.deadline.millis_since(now))
    }
}

impl Ledger {
    pub(super) fn grant(&mut self, grant: &Grant, events: &mut Vec<Event>) -> Outcome {
        if !self.is_retry(grant)? {
            self.may_begin(grant)?;
            if let Some(parent) = grant.parent {
                self.room_in_tree(parent, 1)?;
            }
            let begun = self.begin(grant, Origin::Grant);
            self.happened(alloc::vec![begun], events);
        }
        let ttl_ms = self.leases[&grant.lease].effective_ttl_ms(self.now);
        Ok(Reply::Granted { lease: grant.lease, ttl_ms, revision: self.revision })
    }

    /// Whether this grant was made before. Refuses one that would take another's id or raise a lease from the dead.
    pub(super) fn is_retry(&self, grant: &Grant) -> Result<bool, Refusal> {
        if let Some(lease) = self.leases.get(&grant.lease) {
            return if lease.holder == grant.holder && lease.request == grant.request {
                Ok(true)
            } else {
                Err(Refusal::Exists { lease: grant.lease, holder: lease.holder.clone() })
            };
        }
        match self.history.lease(grant.lease) {
            // Another request may use the id again.
            Some(ended) if ended.holder == grant.holder && ended.request == grant.request => Err(ended.refusal()),
            _ => Ok(false),
        }
    }

    /// Whether a new lease may begin on these terms, and there is room for it.
    pub(super) fn may_begin(&self, grant: &Grant) -> Result<(), Refusal> {
        self.may_begin_so(grant)?;
        self.has_room_for_lease(grant)
    }

    /// Whether there is room for one more lease.
    pub(super) fn has_room_for_lease(&self, grant: &Grant) -> Result<(), Refusal> {
        self.may_begin_another()?;
        self.has_room_for(size::of_grant(grant))
    }

    /// Whether a new lease may begin on these terms.
    pub(super) fn may_begin_so(&self, grant: &Grant) -> Result<(), Refusal> {
        if let Some(parent) = grant.parent {
            if parent == grant.lease {
                return Err(Refusal::OwnParent { lease: parent });
            }
            if !self.leases.contains_key(&parent) {
                return Err(self.no_lease(parent));
            }
        }
        if let Some(name) = &grant.class {
            let class = self.named_class(name)?;
            grant.ttl.map_or(Ok(()), |ttl| class.accepts(ttl))?;
        }
        grant.parent.map_or(Ok(()), |parent| self.may_bear(parent))
    }

    pub(super) fn begin(&mut self, grant: &Grant, origin: Origin) -> Happening {
        let class = grant.class.as_ref().and_then(|name| self.class(name));
        if let Some(parent) = grant.parent {
            self.touch(parent);
            self.attach(parent, 1);
            let parent = self.leases.get_mut(&parent).expect("a child begins under a living lease");
            parent.children.insert(grant.lease);
        }
        let owner = self.own();
        let lease = Lease { owner, ..self.new_lease(grant, class.as_ref(), origin) };
        self.bytes += size::of_lease(&lease);
        self.leases.insert(grant.lease, lease);
        self.extend(grant.lease);
        let lease = self.leases.get_mut(&grant.lease).expect("it was just put there");
        lease.armed = lease.ends_at();
        self.wheel.arm(lease.armed, Due::Lease(grant.lease));
        Happening::Granted {
            lease: grant.lease,
            holder: grant.holder.clone(),
            ttl_ms: lease.effective_ttl_ms(self.now),
            parent: grant.parent,
            class: grant.class.clone(),
        }
    }

    /// What the grant says, else what its class says, else plain. It has no time yet.
    fn new_lease(&self, grant: &Grant, class: Option<&Class>, origin: Origin) -> Lease {
        let default_ttl = || Ttl::from_millis(TTL_MS_DEFAULT).expect("the default TTL is in range");
        Lease {
            holder: grant.holder.clone(),
            owner: None,
            request: grant.request,
            requests: Requests::default(),
            ttl: grant.ttl.or(class.map(|class| class.ttl)).unwrap_or_else(default_ttl),
            deadline: Moment::default(),
            grace: grant.grace.or(class.map(|class| class.grace)).unwrap_or_default(),
            class: grant.class.clone(),
            lifetime: grant.lifetime.or(class.and_then(|class| class.lifetime)),
            lifetime_from: (origin != Origin::Acquire).then_some(self.now),
            parent: grant.parent,
            labels: grant.labels.clone(),
            reason: grant.reason.clone(),
            granted_wall_ms: self.wall_ms,
            renewed: self.now,
            renewed_wall_ms: self.wall_ms,
            origin,
            capped: false,
            unconfirmed: false,
            registers: grant.class.as_ref().is_some_and(|class| class.as_str() == registry::CLASS),
            lost: 0,
            gap_ms: 0,
            suspect: None,
            stakes: BTreeMap::new(),
            keys: BTreeSet::new(),
            instances: BTreeSet::new(),
            children: BTreeSet::new(),
            index: Index::default(),
            carried: 0,
            armed: self.now,
        }
    }

    /// Moves a deadline to one TTL from now, as far as its lifetime and its parent allow, and never earlier.
    pub(super) fn extend(&mut self, id: LeaseId) {
        let lease = &self.leases[&id];
        let asked = self.now.after(lease.ttl);
        let lifetime = self.lifetime_ends(lease);
        let parent = lease.parent.map(|parent| self.leases[&parent].deadline);
        let allowed = [Some(asked), lifetime, parent].into_iter().flatten().min().unwrap_or(asked);
        let lease = self.leases.get_mut(&id).expect("only a living lease is extended");
        lease.deadline = lease.deadline.max(allowed);
        lease.capped = lifetime.is_some_and(|ends| ends < asked);
        if lease.suspect.is_some() {
            self.clear_suspect(id);
        }
    }

    /// Past which moment no renewal moves a deadline, by what is known now.
    pub(super) fn lifetime_ends(&self, lease: &Lease) -> Option<Moment> {
        let (lifetime, from) = (lease.lifetime?, lease.lifetime_from?);
        let from = match lifetime.counts {
            Counts::Always => from,
            Counts::WhileOthersWait => from.max(self.others(lease).longest?),
        };
        Some(from.plus(lifetime.span))
    }

    /// Who waits for what a lease holds.
    fn others(&self, lease: &Lease) -> Others {
        let mut others = Others::default();
        for name in lease.index.contended.iter().take(CONTENDED_MAX) {
            let line = &self.resources[name].line;
            others.count += line.len() as u64;
            let longest = line.longest().map(|arrival| self.waiters[&arrival].since);
            others.longest = others.longest.into_iter().chain(longest).min();
        }
        others
    }

    /// Renews a lease that nothing binds but its TTL and that has nothing to tell, which most are: one look is enough.
    pub(super) fn renew_plain(&mut self, renewal: Renewal) -> Option<Renewed> {
        // A class may bound TTLs, so that another one is looked at.
        let registers_plainly = !self.registration_is_strict && renewal.ttl.is_none();
        let lease = self.leases.get_mut(&renewal.lease).filter(|lease| lease.is_plain(registers_plainly))?;
        self.timing.slack.note(lease.deadline, lease.ttl, self.now);
        lease.note_renewal(renewal.ttl, self.now, self.wall_ms);
        lease.deadline = lease.deadline.max(self.now.after(lease.ttl));
        Some(Renewed {
            lease: renewal.lease,
            ttl_ms: lease.effective_ttl_ms(self.now),
            is_final: false,
            waiting: 0,
            longest_wait_ms: 0,
            breaks_in_ms: None,
            lost: 0,
        })
    }

    pub(super) fn renew_one(&mut self, renewal: Renewal, kind: Kind) -> Result<Renewed, Refusal> {
        let Some(lease) = self.leases.get(&renewal.lease) else { return Err(self.no_lease(renewal.lease)) };
        if lease.class.is_some() {
            self.may_renew(lease, renewal, kind)?;
        }
        self.timing.slack.note(lease.deadline, lease.ttl, self.now);
        self.renew_as_asked(renewal);
        Ok(self.renewal_facts(renewal.lease))
    }

    /// Whether its class allows this renewal. While it waits, and once after it was seated, any is allowed.
    fn may_renew(&self, lease: &Lease, renewal: Renewal, kind: Kind) -> Result<(), Refusal> {
        let Some(name) = &lease.class else { return Ok(()) };
        let class = self.named_class(name)?;
        let stands_in_line = lease.unconfirmed || !lease.index.waits.is_empty();
        if !stands_in_line && !class.renew.allows(kind) {
            let policy = class.renew;
            return Err(Refusal::NotRenewable { lease: renewal.lease, class: class.name, policy });
        }
        renewal.ttl.map_or(Ok(()), |ttl| class.accepts(ttl))
    }

    fn renew_as_asked(&mut self, renewal: Renewal) {
        if self.leases[&renewal.lease].suspect.is_some() {
            // How long it is valid was said by its TTL so far, and it may ask for a shorter one.
            self.extend(renewal.lease);
        }
        let lease = self.leases.get_mut(&renewal.lease).expect("only a living lease is renewed");
        lease.note_renewal(renewal.ttl, self.now, self.wall_ms);
        self.extend(renewal.lease);
    }

    fn renewal_facts(&self, id: LeaseId) -> Renewed {
        let lease = &self.leases[&id];
        let others = self.others(lease);
        let first_break = lease.index.breaks.first();
        Renewed {
            lease: id,
            ttl_ms: lease.effective_ttl_ms(self.now),
            is_final: lease.capped,
            waiting: others.count,
            longest_wait_ms: others.longest.map_or(0, |since| self.now.millis_since(since)),
            breaks_in_ms: first_break.map(|(at, _)| at.millis_since(self.now)),
            lost: lease.lost.into(),
        }
    }

    /// Something was done with a lease: one whose class lives by activity is renewed.
    pub(super) fn touch(&mut self, id: LeaseId) {
        let Some(class) = self.leases.get(&id).and_then(|lease| lease.class.as_ref()) else { return };
        if self.class(class).is_some_and(|class| class.renew == Policy::Activity) {
            self.renew_as_asked(Renewal { lease: id, ttl: None });
        }
    }

    /// Why a lease is not there: how it ended, if that is remembered.
    pub(super) fn no_lease(&self, lease: LeaseId) -> Refusal {
        match self.history.lease(lease) {
            Some(ended) => ended.refusal(),
            None => Refusal::NoLease { lease },
        }
    }
}

/// Who waits for what a lease holds: how many, and since when the longest of them.
#[derive(Default)]
struct Others {
    count: u64,
    longest: Option<Moment>,
}
