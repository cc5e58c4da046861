//! What a run is made of: which features are used, how often, and how clients' messages fare. Each seed draws its own mix, so
//! that some runs have much of a few features, and some have a little of all (swarm testing).

use crate::dice::Dice;
use tenure_core::{Mode, Name, Units, Want};

/// Resources that are only ever claimed exclusively, so that their histories can be checked.
const LOCKS: [&str; 3] = ["db/leader", "jobs/nightly", "gpu/0"];

/// A resource that is claimed exclusively or shared.
const ROOM: &str = "room/a";

/// A resource that is claimed by units, and how many it has.
const POOL: &str = "pool/b";
const POOL_UNITS: u64 = 3;

/// How often features are used; 0 is never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Claims that share, or take some units.
    pub(crate) shared: u64,
    pub(crate) counted: u64,
    /// Claims of several resources.
    pub(crate) several: u64,
    /// Claims that do not wait.
    pub(crate) hasty: u64,
    /// Claims with an epoch.
    pub(crate) epochs: u64,
    /// Claims on a given lease, and what becomes of them.
    pub(crate) given: u64,
    pub(crate) cancels: u64,
    pub(crate) transfers: u64,
    /// Keys, and those that hang on leases.
    pub(crate) keys: u64,
    pub(crate) leased: u64,
    /// Instances of services.
    pub(crate) instances: u64,
    /// Disks that fail or are full.
    pub(crate) disks: u64,
    pub(crate) post: Post,
    /// Leases that end with others, and leases of several classes.
    pub(crate) trees: u64,
    pub(crate) classes: u64,
    /// Clients whose node forwards their commands; the others look for the leader.
    pub(crate) forwards: u64,
}

/// What befalls the messages of clients: one in so many, or none if 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Post {
    /// Lost on the way there.
    pub(crate) loses: u64,
    /// Seconds late.
    pub(crate) delays: u64,
    /// Delivered twice, the second time up to seconds later.
    pub(crate) repeats: u64,
    /// Done, and the answer is lost.
    pub(crate) forgets: u64,
}

impl Mix {
    /// One resource at a time, exclusively, over a network that loses nothing of clients.
    pub(crate) const PLAIN: Self = Self {
        shared: 0,
        counted: 0,
        several: 0,
        hasty: 0,
        epochs: 0,
        given: 0,
        cancels: 0,
        transfers: 0,
        keys: 0,
        leased: 0,
        instances: 0,
        disks: 0,
        post: Post { loses: 0, delays: 0, repeats: 0, forgets: 0 },
        trees: 0,
        classes: 0,
        forwards: 0,
    };

    pub(crate) fn draw(dice: &Dice) -> Self {
        let weight = || if dice.one_in(3) { 0 } else { dice.between(1, 4) };
        let one_in = || if dice.one_in(3) { 0 } else { dice.between(4, 40) };
        Self {
            shared: weight(),
            counted: weight(),
            several: weight(),
            hasty: weight(),
            epochs: weight(),
            given: weight(),
            cancels: weight(),
            transfers: weight(),
            keys: weight(),
            leased: weight(),
            instances: weight(),
            disks: weight(),
            post: Post { loses: one_in(), delays: one_in(), repeats: one_in(), forgets: one_in() },
            trees: weight(),
            classes: weight(),
            forwards: weight(),
        }
    }
}

/// One of some things, as often as its weight says. Something must have one.
pub(crate) fn choose<T: Copy>(dice: &Dice, from: &[(u64, T)]) -> T {
    let all: u64 = from.iter().map(|(weight, _)| weight).sum();
    let mut left = dice.between(1, all);
    for (weight, each) in from {
        if left <= *weight {
            return *each;
        }
        left -= weight;
    }
    unreachable!("the weights make up the whole")
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("this is a name")
}

pub(crate) fn locks() -> Vec<Name> {
    LOCKS.iter().map(|text| name(text)).collect()
}

/// Whether a resource is only ever claimed exclusively.
pub(crate) fn is_lock(resource: &Name) -> bool {
    LOCKS.contains(&resource.as_str())
}

/// Everything that is claimed.
pub(crate) fn resources() -> Vec<Name> {
    let mut resources = locks();
    resources.extend([name(ROOM), name(POOL)]);
    resources
}

/// How many units a resource has.
pub(crate) fn capacity(resource: &str) -> u64 {
    if resource == POOL { POOL_UNITS } else { 1 }
}

#[derive(Clone, Copy)]
enum Kind {
    Lock,
    Shared,
    Alone,
    Counted,
    Several,
}

/// What a client claims next.
pub(crate) fn wants(mix: &Mix, dice: &Dice) -> Vec<Want> {
    let want = |resource: Name, mode| Want { resource, mode, capacity: None };
    let lock = |at: u64| want(name(LOCKS[at as usize % LOCKS.len()]), Mode::Exclusive);
    let first = dice.between(0, LOCKS.len() as u64 - 1);
    let kinds = [
        (4, Kind::Lock),
        (mix.shared, Kind::Shared),
        (mix.shared.div_ceil(2), Kind::Alone),
        (mix.counted, Kind::Counted),
        (mix.several, Kind::Several),
    ];
    match choose(dice, &kinds) {
        Kind::Lock => vec![lock(first)],
        Kind::Shared => vec![want(name(ROOM), Mode::Shared)],
        Kind::Alone => vec![want(name(ROOM), Mode::Exclusive)],
        Kind::Counted => {
            let units = |number| Units::from_number(number).expect("a resource may have so many");
            let capacity = Some(units(POOL_UNITS));
            vec![Want { capacity, ..want(name(POOL), Mode::Units(units(dice.between(1, POOL_UNITS)))) }]
        }
        Kind::Several if mix.shared > 0 && dice.one_in(2) => vec![lock(first), want(name(ROOM), Mode::Shared)],
        Kind::Several => vec![lock(first), lock(first + 1)],
    }
}

/// Whether claims in these modes can hold a resource at once.
pub(crate) fn sit_together(modes: &[Mode], capacity: u64) -> bool {
    let units = modes.iter().map(|mode| if let Mode::Units(units) = mode { units.number() } else { 0 });
    let is_alone = modes.len() < 2 || !modes.contains(&Mode::Exclusive);
    let shares = modes.iter().filter(|mode| **mode == Mode::Shared).count();
    is_alone && (shares == 0 || shares == modes.len()) && units.sum::<u64>() <= capacity
}
