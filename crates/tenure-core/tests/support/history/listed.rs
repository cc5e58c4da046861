//! Orders about instances: what is drawn of registrations, changes, drains, ends and findings, and the commands that it
//! becomes. Few ids, so that they collide; epochs grow with the revision, so that some come late.

use super::draw::{begin, free, living, request};
use super::{Begin, Pick, a_force, a_long_span};
use crate::support::{holder, ttl};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::{collection, option};
use tenure_core::{
    Ask, Check, Command, Deregister, Details, Draft, Drain, Edit, Endpoint, Epoch, Free, Grant, Health, InstanceKey,
    Ledger, Note, On, OnCritical, Probe, Register, RequestNumber, SetHealth, Source, UpdateInstance, Word,
};

pub(super) const INSTANCES: [&str; 4] = ["api/1", "api/2", "db/x/1", "db/x/2"];
const CHECKS: usize = 3;
const AFTER_MS: [u64; 3] = [0, 200, 2000];

#[derive(Clone, Debug)]
pub(super) enum Listing {
    Register {
        key: usize,
        on: Where,
        epoch: Option<u64>,
        says: Says,
        request: Option<RequestNumber>,
    },
    Update {
        key: usize,
        lease: Named,
        says: Says,
        endless: bool,
    },
    Drain(usize, Named, bool),
    Deregister(usize, Named, Option<Free>, Option<RequestNumber>),
    /// Without a health: the other one, so that it flaps.
    SetHealth {
        key: usize,
        lease: Named,
        check: usize,
        health: Option<Health>,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Where {
    /// One that is as drawn, or lives for long: who is held down is so for a minute.
    New(Box<Begin>, bool),
    /// The lease on which the instance is, if it is there.
    Own,
    Given(Pick),
}

/// Which lease an order names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    None,
    Own,
    Other(Pick),
}

/// What is said of an instance; nothing keeps it, or is as usual.
#[derive(Clone, Debug)]
pub(super) struct Says {
    checks: Option<Vec<usize>>,
    on_critical: Option<usize>,
    zone: Option<bool>,
    weight: Option<u32>,
}

pub(super) fn listing() -> impl Strategy<Value = Listing> {
    let key = || 0..INSTANCES.len();
    let on = prop_oneof![
        4 => (begin(), any::<bool>()).prop_map(|(begin, is_long)| Where::New(Box::new(begin), is_long)),
        1 => Just(Where::Own),
        3 => living().prop_map(Where::Given),
    ];
    let register = (key(), on, option::weighted(0.6, 0..12_u64), says(), request());
    let update = (key(), named(), says(), prop_oneof![9 => Just(false), 1 => Just(true)]);
    let health = prop_oneof![
        12 => Just(None),
        2 => Just(Some(Health::Passing)),
        1 => Just(Some(Health::Degraded)),
        1 => Just(Some(Health::Unknown)),
        2 => Just(Some(Health::Critical)),
    ];
    let of_lease = prop_oneof![12 => Just(Named::Own), 1 => living().prop_map(Named::Other)];
    let set = (
        prop_oneof![3 => Just(0_usize), 1 => key()],
        of_lease,
        prop_oneof![9 => Just(0), 2 => Just(1), 1 => Just(2), 1 => Just(CHECKS)],
        health,
    );
    prop_oneof![
        6 => register.prop_map(|(key, on, epoch, says, request)| Listing::Register { key, on, epoch, says, request }),
        2 => update.prop_map(|(key, lease, says, endless)| Listing::Update { key, lease, says, endless }),
        1 => (key(), named(), any::<bool>()).prop_map(|(key, lease, on)| Listing::Drain(key, lease, on)),
        1 => (key(), named(), option::weighted(0.3, free()), request()).prop_map(|(key, lease, force, request)| {
            Listing::Deregister(key, lease, force, request)
        }),
        14 => set.prop_map(|(key, lease, check, health)| Listing::SetHealth { key, lease, check, health }),
    ]
}

fn named() -> impl Strategy<Value = Named> {
    prop_oneof![2 => Just(Named::None), 4 => Just(Named::Own), 1 => living().prop_map(Named::Other)]
}

fn says() -> impl Strategy<Value = Says> {
    let checks = option::weighted(0.8, collection::vec(0..CHECKS, 0..3));
    let parts = (checks, option::weighted(0.6, 0..2 + AFTER_MS.len()), option::of(any::<bool>()), option::of(0..3_u32));
    parts.prop_map(|(checks, on_critical, zone, weight)| Says { checks, on_critical, zone, weight })
}

fn a_key(index: usize) -> InstanceKey {
    InstanceKey::parse(INSTANCES[index]).expect("the tests use good ids")
}

fn a_word(text: &str) -> Word {
    Word::parse(text).expect("the tests use good words")
}

fn a_check(index: usize) -> Check {
    let source = match index {
        0 => Source::Pushed { ttl: None },
        1 => Source::Pushed { ttl: Some(a_long_span(1000)) },
        _ => Source::Probed(Probe {
            endpoint: 0,
            ask: Ask::Http { path: "/healthz".into(), statuses: 200..=204 },
            interval: a_long_span(5000),
            timeout: a_long_span(500),
            degraded_after: 1,
            failures: 3,
            successes: 2,
        }),
    };
    Check { name: a_word(&format!("c{index}")), source }
}

impl Says {
    fn edit(&self) -> Edit {
        let each = |indexes: &Vec<usize>| {
            let mut indexes = indexes.clone();
            indexes.sort_unstable();
            indexes.dedup();
            indexes.into_iter().map(a_check).collect()
        };
        Edit {
            checks: self.checks.as_ref().map(each),
            on_critical: self.on_critical.map(|index| match index {
                0 => OnCritical::Mark,
                1 => OnCritical::Observe,
                after => OnCritical::RevokeAfter(a_long_span(AFTER_MS[after - 2])),
            }),
            zone: self.zone.map(|is_said| is_said.then(|| a_word("z1"))),
            weight: self.weight,
            ..Edit::default()
        }
    }

    fn details(&self) -> Details {
        let endpoint = Endpoint::parse("http://10.0.0.7:8080").expect("the tests use good endpoints");
        let plain = Draft { checks: vec![a_check(0)], ..Draft::at(vec![endpoint]) };
        let plain = Details::new(plain).expect("the tests use good details");
        plain.edited(&self.edit()).expect("the tests use good details")
    }
}

impl Named {
    fn lease(self, ledger: &Ledger, key: &InstanceKey) -> Option<tenure_core::LeaseId> {
        match self {
            Self::None => None,
            Self::Own => Some(ledger.instance(key).map_or(super::id(1), tenure_core::Instance::lease)),
            Self::Other(pick) => Some(pick.id(ledger)),
        }
    }
}

impl Listing {
    pub(super) fn command(&self, ledger: &Ledger) -> Command {
        match self {
            Self::Register { key, on, epoch, says, request } => {
                let instance = a_key(*key);
                let on = match on {
                    Where::New(begin, false) => On::New(begin.grant(ledger)),
                    Where::New(begin, true) => On::New(Grant { ttl: Some(ttl(3_600_000)), ..begin.grant(ledger) }),
                    Where::Own => On::Given(Named::Own.lease(ledger, &instance).expect("it is named")),
                    Where::Given(pick) => On::Given(pick.id(ledger)),
                };
                let newest = ledger.revision().0 / 4 + 2;
                let epoch = epoch.and_then(|behind| Epoch::from_number(newest.saturating_sub(behind / 3).max(1)));
                let request = request.filter(|_| matches!(on, On::Given(_)));
                Command::Register(Register { instance, epoch, on, details: says.details(), request })
            }
            Self::Update { key, lease, says, endless } => {
                let instance = a_key(*key);
                let lease = lease.lease(ledger, &instance);
                let endpoints = endless.then(Vec::new);
                Command::UpdateInstance(UpdateInstance { instance, lease, edit: Edit { endpoints, ..says.edit() } })
            }
            Self::Drain(key, lease, on) => {
                let instance = a_key(*key);
                let lease = lease.lease(ledger, &instance);
                let reason = Note::parse("drained").expect("the tests use good notes");
                Command::Drain(Drain { instance, lease, on: *on, by: holder("ops"), reason })
            }
            Self::Deregister(key, lease, free, request) => {
                let instance = a_key(*key);
                let lease = lease.lease(ledger, &instance);
                let force = free.map(|free| a_force(free, "deregistered"));
                Command::Deregister(Deregister { instance, lease, force, request: *request })
            }
            Self::SetHealth { key, lease, check, health } => {
                let instance = a_key(*key);
                let lease = lease.lease(ledger, &instance).unwrap_or(super::id(1));
                // Most instances have one check of three, so another is asked for if there is only one.
                let of = ledger.instance(&instance).map_or(0, |it| it.details().checks.len());
                let there =
                    ledger.instance(&instance).and_then(|it| it.details().checks.get(check % of.max(1)).cloned());
                let name = there.filter(|_| *check < CHECKS).map_or(a_word("none"), |check| check.name);
                let is = ledger.instance(&instance).map(tenure_core::Instance::health);
                let other = if is == Some(Health::Passing) { Health::Critical } else { Health::Passing };
                let health = health.unwrap_or(other);
                let note = Note::parse("found").expect("the tests use good notes");
                Command::SetHealth(SetHealth { instance, lease, check: name, health, note })
            }
        }
    }
}
