//! How plans are drawn. The weights are such that everything happens often: lines form, claims collide, leases die.

use super::keyed::keyed;
use super::listed::listing;
use super::{
    Asking, Begin, CLASSES, Clock, Expecting, HOLDERS, LEASES, LIMITS_MS, Order, PREFIXES, Pick, Plan, Preset,
    RESOURCES, Request, SPANS_MS, Shown, TTLS_MS, Waiting, Wanting, Whom, Wish,
};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{collection, option};
use tenure_core::{Counts, Free, Kind, Policy, Proof, RequestNumber, Secret};

/// A history of up to so many entries.
pub(crate) fn plans(entries: usize) -> impl Strategy<Value = Vec<Plan>> {
    collection::vec(plan(), 1..=entries)
}

/// A history of up to so many entries, most of which are about keys.
pub(crate) fn key_plans(entries: usize) -> impl Strategy<Value = Vec<Plan>> {
    let order = prop_oneof![
        2 => begin().prop_map(Order::Grant).boxed(),
        1 => living().prop_map(|lease| Order::ReleaseLease(lease, Proof::Handle)).boxed(),
        1 => preset().prop_map(Order::SetClass).boxed(),
        20 => keyed().prop_map(Order::Keyed).boxed(),
    ];
    let clock = prop_oneof![
        6 => (0..90_u64).prop_map(Clock::Forward),
        1 => Just(Clock::Deadline),
    ];
    let plan = (clock, collection::vec(order, 0..6)).prop_map(|(clock, orders)| Plan { clock, orders });
    collection::vec(plan, 1..=entries)
}

/// A history of up to so many entries, most of which are about instances.
pub(crate) fn instance_plans(entries: usize) -> impl Strategy<Value = Vec<Plan>> {
    let on_a_lease = (living(), asking()).prop_map(|(lease, asking)| Order::AcquireOn(lease, asking));
    let order = prop_oneof![
        2 => begin().prop_map(Order::Grant).boxed(),
        2 => on_a_lease.boxed(),
        1 => living().prop_map(|lease| Order::ReleaseLease(lease, Proof::Handle)).boxed(),
        3 => renewals().boxed(),
        1 => keyed().prop_map(Order::Keyed).boxed(),
        1 => forced_ends().boxed(),
        24 => listing().prop_map(Order::Listed).boxed(),
    ];
    let clock = prop_oneof![
        6 => (0..90_u64).prop_map(Clock::Forward),
        1 => (90..5000_u64).prop_map(Clock::Forward),
        1 => (20_000..70_000_u64).prop_map(Clock::Forward),
        2 => Just(Clock::Deadline),
        1 => Just(Clock::BeforeDeadline),
    ];
    let plan = (clock, collection::vec(order, 0..6)).prop_map(|(clock, orders)| Plan { clock, orders });
    collection::vec(plan, 1..=entries)
}

fn plan() -> impl Strategy<Value = Plan> {
    let clock = prop_oneof![
        14 => Just(Clock::Forward(0)),
        12 => (1..90_u64).prop_map(Clock::Forward),
        2 => (90..1500_u64).prop_map(Clock::Forward),
        // Exactly what one step of priority is worth.
        1 => Just(Clock::Forward(10_000)),
        6 => Just(Clock::Deadline),
        2 => Just(Clock::BeforeDeadline),
        2 => (1..500_u64).prop_map(Clock::Back),
    ];
    (clock, collection::vec(an_order(), 0..6)).prop_map(|(clock, orders)| Plan { clock, orders })
}

fn an_order() -> impl Strategy<Value = Order> {
    let on_a_lease = (living(), asking()).prop_map(|(lease, asking)| Order::AcquireOn(lease, asking));
    let by = option::weighted(0.5, free());
    let transfer = (shown(), living(), by).prop_map(|(shown, to, by)| Order::Transfer(shown, to, by));
    // In boxes, because the trees of what was not drawn would be moved about as well.
    prop_oneof![
        20 => begins().boxed(),
        16 => on_a_lease.boxed(),
        8 => renewals().boxed(),
        6 => ends().boxed(),
        5 => forced_ends().boxed(),
        4 => transfer.boxed(),
        3 => about_the_rest().boxed(),
        5 => keyed().prop_map(Order::Keyed).boxed(),
        4 => listing().prop_map(Order::Listed).boxed(),
    ]
}

fn begins() -> impl Strategy<Value = Order> {
    prop_oneof![
        1 => begin().prop_map(Order::Grant),
        3 => (begin(), asking()).prop_map(|(begin, asking)| Order::AcquireNew(begin, asking)),
    ]
}

fn renewals() -> impl Strategy<Value = Order> {
    let new_ttl = || option::weighted(0.3, 0..TTLS_MS.len());
    let leases = collection::vec((living(), new_ttl()), 0..4);
    prop_oneof![
        3 => (leases, kind()).prop_map(|(leases, kind)| Order::Renew(leases, kind)),
        1 => (shown(), new_ttl(), kind()).prop_map(|(shown, ttl, kind)| Order::RenewHandle(shown, ttl, kind)),
    ]
}

fn ends() -> impl Strategy<Value = Order> {
    let which = collection::vec(0..4_usize, 1..4);
    prop_oneof![
        3 => (shown(), proof()).prop_map(|(shown, proof)| Order::Release(shown, proof)),
        1 => (living(), proof()).prop_map(|(lease, proof)| Order::ReleaseLease(lease, proof)),
        3 => (living(), which, request(), proof()).prop_map(|(lease, which, request, proof)| {
            Order::Cancel(lease, which, request, proof)
        }),
    ]
}

fn forced_ends() -> impl Strategy<Value = Order> {
    let from = || option::weighted(0.2, 1..=LEASES);
    let whom = prop_oneof![
        4 => living().prop_map(Whom::Lease),
        1 => (0..PREFIXES.len(), 0..PREFIXES.len()).prop_map(|(prefix, from)| Whom::Prefix(prefix, from)),
        1 => (0..=HOLDERS, from()).prop_map(|(by, from)| Whom::Holder(by, from)),
        1 => from().prop_map(Whom::Label),
    ];
    prop_oneof![
        2 => (whom, free()).prop_map(|(whom, free)| Order::Revoke(whom, free)),
        3 => (shown(), free(), a_delay()).prop_map(|(shown, free, delay)| Order::BreakOne(shown, free, delay)),
        2 => (resource(), free(), a_delay()).prop_map(|(name, free, delay)| Order::BreakAll(name, free, delay)),
    ]
}

fn about_the_rest() -> impl Strategy<Value = Order> {
    let units = option::weighted(0.7, 1..5_u64);
    prop_oneof![
        3 => (resource(), units).prop_map(|(name, units)| Order::Define(name, units)),
        2 => preset().prop_map(Order::SetClass),
    ]
}

pub(super) fn begin() -> impl Strategy<Value = Begin> {
    let lease = prop_oneof![
        6 => (0..LEASES as usize).prop_map(Pick::Free),
        2 => (1..=LEASES).prop_map(Pick::Any),
    ];
    let request = prop_oneof![12 => Just(Request::Own), 1 => Just(Request::Late), 1 => Just(Request::Foreign)];
    let ttl = option::weighted(0.9, 0..TTLS_MS.len());
    let class = option::weighted(0.3, 0..CLASSES.len());
    let grace = option::weighted(0.3, 0..SPANS_MS.len());
    let parts = (lease, request, ttl, class, grace, lifetime(), option::weighted(0.3, living()), any::<bool>());
    parts.prop_map(|(lease, request, ttl, class, grace, lifetime, parent, is_labelled)| Begin {
        lease,
        request,
        ttl,
        class,
        grace,
        lifetime,
        parent,
        is_labelled,
    })
}

fn asking() -> impl Strategy<Value = Asking> {
    let wants = prop_oneof![
        4 => collection::vec(wanting(), 1..=1),
        2 => collection::vec(wanting(), 1..=3),
    ];
    let wait = prop_oneof![
        5 => Just(Waiting::Unlimited),
        2 => Just(Waiting::Never),
        2 => (0..LIMITS_MS.len()).prop_map(Waiting::Limited),
    ];
    let priority = prop_oneof![8 => Just(0), 1 => Just(1), 1 => Just(-1)];
    let lock_delay = prop_oneof![2 => Just(0_usize), 1 => 0..SPANS_MS.len()];
    let epoch = option::weighted(0.4, 0..5_u64);
    let parts = (wants, wait, priority, lock_delay, epoch, request(), secret());
    parts.prop_map(|(wants, wait, priority, lock_delay, epoch, request, secret)| Asking {
        wants,
        wait,
        priority,
        lock_delay,
        epoch,
        request,
        secret,
    })
}

pub(super) fn request() -> impl Strategy<Value = Option<RequestNumber>> {
    let number = (1..9_u64, 0..6_u64);
    option::weighted(
        0.5,
        number.prop_map(|(number, back)| {
            RequestNumber::new(number, number.saturating_sub(back)).expect("the tests use good numbers")
        }),
    )
}

fn secret() -> impl Strategy<Value = Option<Secret>> {
    (0..3_u64).prop_map(Secret::new)
}

fn proof() -> impl Strategy<Value = Proof> {
    prop_oneof![4 => secret().prop_map(Proof::of), 1 => Just(Proof::Nothing)]
}

fn wanting() -> impl Strategy<Value = Wanting> {
    let mode = prop_oneof![
        6 => Just(Wish::Usual),
        1 => Just(Wish::Exclusive),
        1 => Just(Wish::Shared),
        3 => (1..4_u64).prop_map(Wish::Units),
    ];
    let capacity = prop_oneof![
        6 => Just(Expecting::Nothing),
        6 => Just(Expecting::Fitting),
        1 => (1..4_u64).prop_map(Expecting::Exactly),
    ];
    (resource(), mode, capacity).prop_map(|(resource, mode, capacity)| Wanting { resource, mode, capacity })
}

fn preset() -> impl Strategy<Value = Preset> {
    let renew = prop_oneof![Just(Policy::Auto), Just(Policy::Activity), Just(Policy::Explicit), Just(Policy::Never)];
    let span = 0..SPANS_MS.len();
    let parts = (0..2_usize, 1..4_usize, 0..3_usize, 2..TTLS_MS.len(), renew, span, lifetime());
    parts.prop_map(|(class, ttl, shortest, longest, renew, grace, lifetime)| Preset {
        class,
        ttl,
        shortest,
        longest,
        renew,
        grace,
        lifetime,
    })
}

fn lifetime() -> impl Strategy<Value = Option<(usize, Counts)>> {
    let counts = prop_oneof![Just(Counts::Always), Just(Counts::WhileOthersWait)];
    option::weighted(0.25, (0..TTLS_MS.len(), counts))
}

pub(super) fn living() -> impl Strategy<Value = Pick> {
    let lease = (0..LEASES as usize).prop_map(Pick::Living);
    prop_oneof![9 => lease, 1 => (1..=LEASES).prop_map(Pick::Any)]
}

fn shown() -> impl Strategy<Value = Shown> {
    prop_oneof![
        12 => (0..8_usize).prop_map(Shown::Holding),
        2 => (0..8_usize).prop_map(Shown::Vacating),
        1 => (resource(), 0..16_usize).prop_map(|(name, nth)| Shown::Ended(name, nth)),
        1 => resource().prop_map(Shown::Unknown),
    ]
}

fn resource() -> impl Strategy<Value = usize> {
    0..RESOURCES.len()
}

fn a_delay() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0_usize), 1 => 0..SPANS_MS.len()]
}

pub(super) fn free() -> impl Strategy<Value = Free> {
    prop_oneof![2 => Just(Free::WhenVacated), 1 => Just(Free::Now)]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![2 => Just(Kind::Auto), 1 => Just(Kind::Touch), 1 => Just(Kind::Explicit)]
}
