//! Classes: named presets for leases. Six are built in; any can be defined or changed, for later grants and renewals.

use super::{Ledger, registry};
use crate::event::{Event, Happening};
use crate::limits::{CLASSES_MAX, TTL_MS_MAX, TTL_MS_MIN};
use crate::mode::{Class, Policy};
use crate::names::Name;
use crate::reply::{Outcome, Refusal, Reply};
use crate::time::{Span, Ttl};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The classes that everybody has until they are changed.
const BUILT_IN: [(&str, u64, Policy); 6] = [
    ("cache", 300_000, Policy::Never),
    ("election", 10_000, Policy::Auto),
    ("lock", 15_000, Policy::Auto),
    ("registration", 15_000, Policy::Auto),
    ("reservation", 3_600_000, Policy::Explicit),
    ("session", 600_000, Policy::Activity),
];

fn ttl(ms: u64) -> Ttl {
    Ttl::from_millis(ms).expect("built-in TTLs are in range")
}

fn built_in(name: &Name) -> Option<Class> {
    let (_, ttl_ms, renew) = BUILT_IN.iter().find(|(built_in, ..)| *built_in == name.as_str())?;
    Some(Class {
        name: name.clone(),
        ttl: ttl(*ttl_ms),
        ttl_min: ttl(TTL_MS_MIN),
        ttl_max: ttl(TTL_MS_MAX),
        renew: *renew,
        grace: Span::ZERO,
        lifetime: None,
    })
}

impl Class {
    /// Whether its leases may have this TTL.
    pub(super) fn accepts(&self, ttl: Ttl) -> Result<(), Refusal> {
        if (self.ttl_min..=self.ttl_max).contains(&ttl) {
            return Ok(());
        }
        Err(Refusal::TtlOfClass {
            class: self.name.clone(),
            ttl_ms: ttl.millis(),
            min_ms: self.ttl_min.millis(),
            max_ms: self.ttl_max.millis(),
        })
    }
}

impl Ledger {
    /// A class by its name.
    pub fn class(&self, name: &Name) -> Option<Class> {
        self.classes.get(name).cloned().or_else(|| built_in(name))
    }

    /// All classes, by name.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        let built_in = BUILT_IN.iter().map(|(name, ..)| {
            let name = Name::parse(name).expect("built-in names are names");
            let class = built_in(&name).expect("it is built in");
            (name, class)
        });
        let mut all: BTreeMap<Name, Class> = built_in.collect();
        all.extend(self.classes.iter().map(|(name, class)| (name.clone(), class.clone())));
        all.into_values()
    }

    pub(super) fn named_class(&self, name: &Name) -> Result<Class, Refusal> {
        self.class(name).ok_or_else(|| Refusal::NoClass { class: name.clone() })
    }

    /// Notes what renews the leases of class `registration`, of which there may be very many.
    pub(super) fn note_registration(&mut self) {
        let set = self.classes.get(registry::CLASS);
        self.registration_is_strict = set.is_some_and(|class| class.renew != Policy::Auto);
    }

    pub(super) fn set_class(&mut self, class: &Class, events: &mut Vec<Event>) -> Outcome {
        class.accepts(class.ttl)?;
        if self.class(&class.name).as_ref() == Some(class) {
            return Ok(Reply::ClassSet);
        }
        if !self.classes.contains_key(&class.name) && self.classes.len() >= CLASSES_MAX {
            return Err(Refusal::Full { what: "classes".into(), max: CLASSES_MAX });
        }
        self.classes.insert(class.name.clone(), class.clone());
        self.note_registration();
        self.happened(alloc::vec![Happening::ClassSet { class: class.name.clone() }], events);
        Ok(Reply::ClassSet)
    }
}
