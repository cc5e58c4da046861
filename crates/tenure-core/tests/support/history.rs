//! Random histories: plans that proptest can draw and shrink, and the entries that they become. Few leases, holders,
//! resources and TTLs, so that they collide.

use super::{entry, holder, id, name, ttl};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{collection, option};
use tenure_core::{
    Acquire, Cancel, Command, Entry, Fence, Grant, Handle, Ledger, Note, On, Release, Renew, RenewHandle, Renewal,
    Revoke, Ttl, Wait,
};

const RESOURCES: [&str; 3] = ["a", "b/b", "b/c"];
const TTLS_MS: [u64; 4] = [100, 150, 400, 1000];

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
}

#[derive(Clone, Debug)]
enum Order {
    Grant(Begin),
    AcquireNew(Begin, usize, bool),
    AcquireOn(u64, usize, bool),
    Renew(Vec<(u64, Option<usize>)>),
    RenewHandle(usize, u64, Option<usize>),
    Release(usize, u64),
    Cancel(u64, usize),
    Revoke(u64),
}

#[derive(Clone, Debug)]
struct Begin {
    lease: u64,
    request: Request,
    ttl: usize,
}

#[derive(Clone, Debug)]
enum Request {
    /// The one of the lease's life: a retry while it lives, a new life after its end.
    Own,
    /// That of the life before: a late retry.
    Late,
    /// That of somebody else.
    Foreign,
}

/// A history of up to so many entries.
pub(crate) fn plans(entries: usize) -> impl Strategy<Value = Vec<Plan>> {
    collection::vec(plan(), 1..=entries)
}

fn plan() -> impl Strategy<Value = Plan> {
    let clock = prop_oneof![
        4 => Just(Clock::Forward(0)),
        6 => (1..120_u64).prop_map(Clock::Forward),
        2 => (120..2000_u64).prop_map(Clock::Forward),
        4 => Just(Clock::Deadline),
        1 => (1..500_u64).prop_map(Clock::Back),
    ];
    (clock, collection::vec(an_order(), 0..6)).prop_map(|(clock, orders)| Plan { clock, orders })
}

fn an_order() -> impl Strategy<Value = Order> {
    let lease = || 1..7_u64;
    let resource = || 0..RESOURCES.len();
    let new_ttl = || option::weighted(0.3, 0..TTLS_MS.len());
    let begin = || {
        let request = prop_oneof![8 => Just(Request::Own), 1 => Just(Request::Late), 1 => Just(Request::Foreign)];
        let parts = (lease(), request, 0..TTLS_MS.len());
        parts.prop_map(|(lease, request, ttl)| Begin { lease, request, ttl })
    };
    prop_oneof![
        2 => begin().prop_map(Order::Grant),
        6 => (begin(), resource(), any::<bool>()).prop_map(|(begin, name, wait)| Order::AcquireNew(begin, name, wait)),
        4 => (lease(), resource(), any::<bool>()).prop_map(|(lease, name, wait)| Order::AcquireOn(lease, name, wait)),
        3 => collection::vec((lease(), new_ttl()), 0..4).prop_map(Order::Renew),
        1 => (resource(), 0..3_u64, new_ttl()).prop_map(|(name, back, ttl)| Order::RenewHandle(name, back, ttl)),
        2 => (resource(), 0..3_u64).prop_map(|(name, back)| Order::Release(name, back)),
        2 => (lease(), resource()).prop_map(|(lease, name)| Order::Cancel(lease, name)),
        1 => lease().prop_map(Order::Revoke),
    ]
}

impl Plan {
    /// The entry that this plan is for a ledger: handles and deadlines are taken from what is there.
    pub(crate) fn entry(&self, ledger: &Ledger) -> Entry {
        let now_ms = ledger.now().millis();
        let at_ms = match self.clock {
            Clock::Forward(ms) => now_ms + ms,
            Clock::Back(ms) => now_ms.saturating_sub(ms),
            Clock::Deadline => ledger.next_deadline().map_or(now_ms, |next| next.millis().max(now_ms)),
        };
        entry(at_ms, self.orders.iter().map(|order| order.command(ledger)).collect())
    }
}

impl Order {
    fn command(&self, ledger: &Ledger) -> Command {
        let resource = |index: &usize| name(RESOURCES[*index]);
        let wait = |in_line: &bool| if *in_line { Wait::InLine } else { Wait::Never };
        match self {
            Self::Grant(begin) => Command::Grant(begin.grant(ledger)),
            Self::AcquireNew(begin, at, in_line) => Command::Acquire(Acquire {
                on: On::New(begin.grant(ledger)),
                resource: resource(at),
                wait: wait(in_line),
            }),
            Self::AcquireOn(lease, at, in_line) => {
                Command::Acquire(Acquire { on: On::Given(id(*lease)), resource: resource(at), wait: wait(in_line) })
            }
            Self::Renew(leases) => {
                let each = leases.iter().map(|(lease, ttl)| Renewal { lease: id(*lease), ttl: ttl.map(a_ttl) });
                Command::Renew(Renew { leases: each.collect() })
            }
            Self::RenewHandle(at, back, ttl) => {
                Command::RenewHandle(RenewHandle { handle: a_handle(ledger, *at, *back), ttl: ttl.map(a_ttl) })
            }
            Self::Release(at, back) => Command::Release(Release { handle: a_handle(ledger, *at, *back) }),
            Self::Cancel(lease, at) => Command::Cancel(Cancel { lease: id(*lease), resource: resource(at) }),
            Self::Revoke(lease) => {
                let reason = Note::parse("").expect("a note may be empty");
                Command::Revoke(Revoke { lease: id(*lease), by: holder("ops"), reason })
            }
        }
    }
}

impl Begin {
    fn grant(&self, ledger: &Ledger) -> Grant {
        let lives = ledger.ended_lease(id(self.lease)).map_or(0, |ended| ended.request);
        let (by, request) = match self.request {
            Request::Own => (self.lease % 3, lives + 1),
            Request::Late => (self.lease % 3, lives),
            Request::Foreign => (3, lives + 1),
        };
        Grant { lease: id(self.lease), holder: holder(&format!("h{by}")), ttl: a_ttl(self.ttl), request }
    }
}

fn a_ttl(index: usize) -> Ttl {
    ttl(TTLS_MS[index])
}

/// The handle of a resource's holder, or one from before, or one that is yet to come.
fn a_handle(ledger: &Ledger, resource: usize, back: u64) -> Handle {
    let resource = name(RESOURCES[resource]);
    let current = ledger.resource(&resource).and_then(|it| it.holding()).map(|holding| holding.fence.number());
    let number = current.unwrap_or(ledger.last_fence() + 1).saturating_sub(back).max(1);
    Handle { resource, fence: Fence::from_number(number).expect("tests give out few fences") }
}
