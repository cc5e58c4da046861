//! Random histories: plans that proptest can draw and shrink, and the entries that they become. Few leases, holders,
//! resources, keys and TTLs, so that they collide. What a plan points at is looked up in the ledger of its moment, so
//! that most orders are about something that is there.

mod draw;
mod keyed;
mod listed;

use super::{entry, holder, id, name, ttl};
use tenure_core::{
    Acquire, Break, Cancel, Class, Command, Counts, Define, Entry, Epoch, Fence, Force, Free, Grant, Handle, Holder,
    InstanceKey, Key, Kind, Label, Labels, LeaseId, Ledger, Lifetime, Mode, Name, Note, On, Policy, Priority, Proof,
    Release, ReleaseLease, Renew, RenewHandle, Renewal, RequestNumber, Revoke, Secret, Span, Transfer, Ttl, Units,
    Wait, Want, Which,
};

#[allow(unused_imports, reason = "each test binary uses its own part of this")]
pub(crate) use draw::{instance_plans, key_plans, plans};
#[allow(unused_imports, reason = "each test binary uses its own part of this")]
pub(crate) use keyed::{Looking, looking};

const LEASES: u64 = 7;
const HOLDERS: u64 = 2;
const RESOURCES: [&str; 3] = ["a", "b/b", "b/c"];
const KEYS: [&str; 5] = ["k", "k/1", "k/2", "k/3", "m"];
const CLASSES: [&str; 7] = ["c", "session", "reservation", "cache", "lock", "unknown", "registration"];
const TTLS_MS: [u64; 5] = [100, 250, 800, 3000, 30_000];
const SPANS_MS: [u64; 4] = [0, 60, 180, 500];
const LIMITS_MS: [u64; 4] = [0, 80, 400, 7_200_000];
const PREFIXES: [&str; 4] = ["", "b", "b/c", "x"];

/// All leases that a history may name.
pub(crate) fn all_leases() -> impl Iterator<Item = LeaseId> {
    (1..=LEASES).map(id)
}

/// All resources that a history may name.
pub(crate) fn all_resources() -> impl Iterator<Item = Name> {
    RESOURCES.into_iter().map(name)
}

/// All instances that a history may name.
pub(crate) fn all_instances() -> impl Iterator<Item = InstanceKey> {
    listed::INSTANCES.into_iter().map(|text| InstanceKey::parse(text).expect("the tests use good ids"))
}

/// One entry to be.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    clock: Clock,
    orders: Vec<Order>,
}

#[derive(Clone, Debug)]
enum Clock {
    Forward(u64),
    /// A stamp from before: the ledger's time stands still.
    Back(u64),
    /// Just to the next deadline.
    Deadline,
    /// As far as nothing is due.
    BeforeDeadline,
}

#[derive(Clone, Debug)]
enum Order {
    Grant(Begin),
    AcquireNew(Begin, Asking),
    AcquireOn(Pick, Asking),
    Renew(Vec<(Pick, Option<usize>)>, Kind),
    RenewHandle(Shown, Option<usize>, Kind),
    Release(Shown, Proof),
    ReleaseLease(Pick, Proof),
    Cancel(Pick, Vec<usize>, Option<RequestNumber>, Proof),
    Revoke(Whom, Free),
    BreakOne(Shown, Free, usize),
    BreakAll(usize, Free, usize),
    Transfer(Shown, Pick, Option<Free>),
    Define(usize, Option<u64>),
    SetClass(Preset),
    Keyed(keyed::Keyed),
    Listed(listed::Listing),
}

/// Which lease is meant.
#[derive(Clone, Copy, Debug)]
enum Pick {
    /// One that lives, counted from the first.
    Living(usize),
    /// One that does not live.
    Free(usize),
    /// Whichever has this number.
    Any(u64),
}

/// Which handle is shown.
#[derive(Clone, Copy, Debug)]
enum Shown {
    /// That of a holder, counted over all resources.
    Holding(usize),
    /// That of a vacating stake.
    Vacating(usize),
    /// One from before, of this resource.
    Ended(usize, usize),
    /// One that is yet to come.
    Unknown(usize),
}

#[derive(Clone, Debug)]
struct Begin {
    lease: Pick,
    request: Request,
    ttl: Option<usize>,
    class: Option<usize>,
    grace: Option<usize>,
    lifetime: Option<(usize, Counts)>,
    parent: Option<Pick>,
    is_labelled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Request {
    /// The one of the lease's life: a retry while it lives, a new life after its end.
    Own,
    /// That of the life before: a late retry.
    Late,
    /// That of somebody else.
    Foreign,
}

#[derive(Clone, Debug)]
struct Asking {
    /// Resources, the first of each counts.
    wants: Vec<Wanting>,
    wait: Waiting,
    priority: i32,
    lock_delay: usize,
    /// How far behind the newest epoch, which grows with the fences.
    epoch: Option<u64>,
    /// Its number, if it is on a given lease. Few are drawn, so that many come twice.
    request: Option<RequestNumber>,
    secret: Option<Secret>,
}

#[derive(Clone, Debug)]
struct Wanting {
    resource: usize,
    mode: Wish,
    capacity: Expecting,
}

#[derive(Clone, Copy, Debug)]
enum Expecting {
    Nothing,
    /// What the resource has, or several units if it is not there.
    Fitting,
    Exactly(u64),
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    /// What most want of this resource, so that sharing happens.
    Usual,
    Exclusive,
    Shared,
    Units(u64),
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    Never,
    Unlimited,
    Limited(usize),
}

#[derive(Clone, Debug)]
enum Whom {
    Lease(Pick),
    Prefix(usize, usize),
    Holder(u64, Option<u64>),
    Label(Option<u64>),
}

#[derive(Clone, Debug)]
struct Preset {
    class: usize,
    ttl: usize,
    shortest: usize,
    longest: usize,
    renew: Policy,
    grace: usize,
    lifetime: Option<(usize, Counts)>,
}

impl Plan {
    /// The entry that this plan is for a ledger: handles and deadlines are taken from what is there.
    pub(crate) fn entry(&self, ledger: &Ledger) -> Entry {
        let now_ms = ledger.now().millis();
        let next_ms = ledger.next_deadline().map_or(now_ms, |next| next.millis().max(now_ms));
        let at_ms = match self.clock {
            Clock::Forward(ms) => now_ms + ms,
            Clock::Back(ms) => now_ms.saturating_sub(ms),
            Clock::Deadline => next_ms,
            Clock::BeforeDeadline => next_ms.saturating_sub(1),
        };
        entry(at_ms, self.orders.iter().map(|order| order.command(ledger)).collect())
    }
}

impl Order {
    fn command(&self, ledger: &Ledger) -> Command {
        match self {
            Self::Grant(begin) => Command::Grant(begin.grant(ledger)),
            Self::AcquireNew(begin, asking) => Command::Acquire(asking.acquire(ledger, On::New(begin.grant(ledger)))),
            Self::AcquireOn(lease, asking) => Command::Acquire(asking.acquire(ledger, On::Given(lease.id(ledger)))),
            Self::Renew(leases, kind) => {
                let each = leases.iter().map(|(lease, ttl)| Renewal { lease: lease.id(ledger), ttl: ttl.map(a_ttl) });
                Command::Renew(Renew { leases: each.collect(), kind: *kind })
            }
            Self::RenewHandle(shown, ttl, kind) => {
                Command::RenewHandle(RenewHandle { handle: shown.handle(ledger), ttl: ttl.map(a_ttl), kind: *kind })
            }
            Self::Release(shown, proof) => Command::Release(Release { handle: shown.handle(ledger), proof: *proof }),
            Self::ReleaseLease(lease, proof) => {
                Command::ReleaseLease(ReleaseLease { lease: lease.id(ledger), proof: *proof })
            }
            Self::Cancel(lease, which, request, proof) => {
                let resources = a_cancel(ledger, lease.id(ledger), which);
                let (lease, request, proof) = (lease.id(ledger), *request, *proof);
                Command::Cancel(Cancel { lease, resources, request, proof })
            }
            Self::Revoke(whom, free) => {
                Command::Revoke(Revoke { which: whom.which(ledger), force: a_force(*free, "revoked") })
            }
            Self::BreakOne(shown, free, delay) => {
                let Handle { resource, fence } = shown.handle(ledger);
                let force = a_force(*free, "broken");
                Command::Break(Break { resource, fence: Some(fence), force, delay: a_span(*delay) })
            }
            Self::BreakAll(resource, free, delay) => {
                let (resource, force) = (a_resource(*resource), a_force(*free, "broken"));
                Command::Break(Break { resource, fence: None, force, delay: a_span(*delay) })
            }
            Self::Transfer(shown, to, free) => {
                let force = free.map(|free| a_force(free, "transferred"));
                Command::Transfer(Transfer { handle: shown.handle(ledger), to: to.id(ledger), force })
            }
            Self::Define(resource, units) => Command::Define(Define {
                resource: a_resource(*resource),
                capacity: units.and_then(Units::from_number),
            }),
            Self::SetClass(preset) => Command::SetClass(preset.class()),
            Self::Keyed(keyed) => keyed.command(ledger),
            Self::Listed(listing) => listing.command(ledger),
        }
    }
}

impl Pick {
    fn number(self, ledger: &Ledger) -> u64 {
        let nth = |nth: usize, wanted: bool| {
            let lives = |number: &u64| ledger.lease(id(*number)).is_some() == wanted;
            let numbers: Vec<u64> = (1..=LEASES).filter(lives).collect();
            numbers.get(nth % numbers.len().max(1)).copied().unwrap_or(1)
        };
        match self {
            Self::Living(n) => nth(n, true),
            Self::Free(n) => nth(n, false),
            Self::Any(number) => number,
        }
    }

    fn id(self, ledger: &Ledger) -> LeaseId {
        id(self.number(ledger))
    }
}

impl Shown {
    fn handle(self, ledger: &Ledger) -> Handle {
        let nth = |handles: Vec<(Name, Fence)>, n: usize| handles.get(n % handles.len().max(1)).cloned();
        let there = || ledger.resources_from("");
        let found = match self {
            Self::Holding(n) => {
                let all = there().flat_map(|(name, it)| it.holders().map(move |(fence, _)| (name.clone(), fence)));
                nth(all.collect(), n)
            }
            Self::Vacating(n) => {
                let all = there().flat_map(|(name, it)| it.vacating().map(move |fence| (name.clone(), fence)));
                nth(all.collect(), n)
            }
            Self::Ended(resource, n) => {
                let resource = a_resource(resource);
                nth(ledger.ended_claims(&resource).map(|it| (resource.clone(), it.fence)).collect(), n)
            }
            Self::Unknown(_) => None,
        };
        let (resource, fence) = found.unwrap_or_else(|| {
            let next = Fence::from_number(ledger.last_fence() + 1).expect("tests give out few fences");
            let (Self::Unknown(at) | Self::Ended(at, _)) = self else { return (a_resource(0), next) };
            (a_resource(at), next)
        });
        Handle { resource, fence }
    }
}

impl Begin {
    fn grant(&self, ledger: &Ledger) -> Grant {
        let number = self.lease.number(ledger);
        let lives = ledger.ended_lease(id(number)).map_or(0, |ended| ended.request);
        let (by, request) = match self.request {
            Request::Own => (number % HOLDERS, lives + 1),
            Request::Late => (number % HOLDERS, lives),
            Request::Foreign => (HOLDERS, lives + 1),
        };
        let labels = self.is_labelled.then_some(("team", "red"));
        Grant {
            lease: id(number),
            holder: a_holder(by),
            request,
            ttl: self.ttl.map(a_ttl),
            class: self.class.map(|class| name(CLASSES[class])),
            grace: self.grace.map(a_span),
            lifetime: self.lifetime.map(a_lifetime),
            parent: self.parent.filter(|_| ledger.lease_count() > 0).map(|parent| parent.id(ledger)),
            labels: Labels::parse(labels).expect("the tests use good labels"),
            reason: Note::parse("tests").expect("the tests use good notes"),
        }
    }
}

impl Asking {
    fn acquire(&self, ledger: &Ledger, on: On) -> Acquire {
        let mut wants: Vec<Want> = Vec::new();
        for want in self.wants.iter().map(|want| want.want(ledger)) {
            if wants.iter().all(|other| other.resource != want.resource) {
                wants.push(want);
            }
        }
        let wait = match self.wait {
            Waiting::Never => Wait::Never,
            Waiting::Unlimited => Wait::IN_LINE,
            Waiting::Limited(limit) => Wait::InLine { limit: Some(a_long_span(LIMITS_MS[limit])) },
        };
        let priority = Priority::from_number(self.priority).expect("the tests use good priorities");
        let newest = ledger.last_fence() + 1;
        let epoch = self.epoch.and_then(|behind| Epoch::from_number(newest.saturating_sub(behind).max(1)));
        let request = self.request.filter(|_| matches!(on, On::Given(_)));
        let (lock_delay, secret) = (a_span(self.lock_delay), self.secret);
        Acquire { on, wants, wait, priority, lock_delay, epoch, request, secret }
    }
}

impl Wanting {
    fn want(&self, ledger: &Ledger) -> Want {
        let units = |number: u64| Mode::Units(Units::from_number(number).expect("the tests use good units"));
        let mode = match (self.mode, self.resource) {
            (Wish::Exclusive, _) | (Wish::Usual, 0) => Mode::Exclusive,
            (Wish::Shared, _) | (Wish::Usual, 1) => Mode::Shared,
            (Wish::Units(number), _) => units(number),
            (Wish::Usual, _) => units(1),
        };
        let resource = a_resource(self.resource);
        let capacity = match self.capacity {
            Expecting::Nothing => None,
            Expecting::Fitting => Some(ledger.resource(&resource).map_or(3, |it| it.capacity().number())),
            Expecting::Exactly(number) => Some(number),
        };
        Want { resource, mode, capacity: capacity.and_then(Units::from_number) }
    }
}

impl Whom {
    fn which(&self, ledger: &Ledger) -> Which {
        match self {
            Self::Lease(lease) => Which::Lease(lease.id(ledger)),
            Self::Prefix(prefix, from) => {
                Which::Prefix { prefix: PREFIXES[*prefix].into(), from: PREFIXES[*from].into() }
            }
            Self::Holder(by, from) => Which::Holder { holder: a_holder(*by), from: from.map(id) },
            Self::Label(from) => {
                let label = Label::parse("team", "red").expect("the tests use good labels");
                Which::Label { label, from: from.map(id) }
            }
        }
    }
}

impl Preset {
    fn class(&self) -> Class {
        Class {
            name: name(CLASSES[self.class]),
            ttl: a_ttl(self.ttl),
            ttl_min: a_ttl(self.shortest),
            ttl_max: a_ttl(self.longest),
            renew: self.renew,
            grace: a_span(self.grace),
            lifetime: self.lifetime.map(a_lifetime),
        }
    }
}

/// The resources of some of a lease's claims, and the first resource if it has none.
fn a_cancel(ledger: &Ledger, lease: LeaseId, which: &[usize]) -> Vec<Name> {
    let stakes: Vec<Name> = match ledger.lease(lease) {
        Some(it) => it.stakes().map(|(name, _)| name.clone()).collect(),
        None => Vec::new(),
    };
    let mut resources: Vec<Name> = Vec::new();
    for nth in which {
        let resource = stakes.get(*nth % (stakes.len() + 1)).cloned().unwrap_or_else(|| a_resource(0));
        if !resources.contains(&resource) {
            resources.push(resource);
        }
    }
    resources
}

fn a_resource(index: usize) -> Name {
    name(RESOURCES[index])
}

fn a_holder(number: u64) -> Holder {
    holder(&format!("h{number}"))
}

fn a_key(index: usize) -> Key {
    Key::parse(KEYS[index].as_bytes()).expect("the tests use good keys")
}

fn a_ttl(index: usize) -> Ttl {
    ttl(TTLS_MS[index])
}

fn a_span(index: usize) -> Span {
    a_long_span(SPANS_MS[index])
}

fn a_long_span(ms: u64) -> Span {
    Span::at_most(ms, u64::MAX).expect("no span is longer")
}

fn a_lifetime((span, counts): (usize, Counts)) -> Lifetime {
    Lifetime { span: ttl(TTLS_MS[span]).into(), counts }
}

fn a_force(free: Free, why: &str) -> Force {
    // Its words tell whether it waits, so that an end tells what its order was.
    let why = if free == Free::Now { format!("{why} now") } else { why.to_string() };
    Force { by: holder("ops"), reason: Note::parse(&why).expect("the tests use good notes"), free }
}
