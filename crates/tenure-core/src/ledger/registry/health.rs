//! How well instances are: what their checks found, what follows from it, and what flapping costs.

use super::Instance;
use crate::event::{End, Event, Happening};
use crate::ledger::Ledger;
use crate::ledger::ending::Ending;
use crate::names::Note;
use crate::registry::{Health, InstanceKey};
use crate::time::Moment;
use alloc::vec::Vec;

impl Instance {
    /// Draws the consequences of a change in what the checks say.
    pub(super) fn settle(&mut self, was: Health, now: Moment) {
        let is = self.health();
        if is == was {
            return;
        }
        self.critical_since = (is == Health::Critical).then_some(now);
        // On its way it may have been degraded for a while: it has fallen all the same.
        if is == Health::Critical && self.rose {
            self.rose = false;
            self.penalty = self.penalty.fallen(now);
        }
        self.rose |= is == Health::Passing;
        if is == Health::Passing {
            // Who is held down stays so, whatever it is in the meantime.
            self.held_until = self.penalty.held_until(now).max(self.held_until);
        }
    }
}

impl Ledger {
    /// Takes in what a check found. Only what is new is told.
    pub(super) fn find(&mut self, key: &InstanceKey, at: usize, health: Health, note: Note, events: &mut Vec<Event>) {
        let (now, wall_ms) = (self.now, self.wall_ms);
        let is_new = self.change_instance(key, |instance| {
            let was = instance.health();
            let finding = &mut instance.findings[at];
            let is_new = finding.health != health;
            (finding.health, finding.note, finding.told) = (health, note, now);
            if is_new {
                (finding.since, finding.since_wall_ms) = (now, wall_ms);
                instance.settle(was, now);
            }
            is_new
        });
        if is_new {
            self.tell_health(key, Some(at), events);
        }
    }

    fn tell_health(&mut self, key: &InstanceKey, check: Option<usize>, events: &mut Vec<Event>) {
        let instance = self.living(key);
        let check = check.map(|at| (instance.details.checks[at].name.clone(), instance.findings[at].health));
        let changed = Happening::HealthChanged {
            instance: key.clone(),
            lease: instance.lease,
            check,
            overall: instance.overall(),
            held_until: instance.shown_held(),
        };
        self.happened(alloc::vec![changed], events);
    }

    /// A pushed status was not repeated in time.
    pub(in crate::ledger) fn go_stale(&mut self, number: u64, check: u8, events: &mut Vec<Event>) {
        let key = self.numbered(number).clone();
        let note = Note::parse("it was not told again in time").expect("it is a note");
        self.find(&key, usize::from(check), Health::Critical, note, events);
    }

    /// An instance was held down for long enough.
    pub(in crate::ledger) fn let_up(&mut self, number: u64, events: &mut Vec<Event>) {
        let key = self.numbered(number).clone();
        let was_shown = self.change_instance(&key, |instance| {
            let was_shown = instance.shown_held().is_some();
            instance.held_until = None;
            was_shown
        });
        if was_shown {
            self.tell_health(&key, None, events);
        }
    }

    /// An instance was critical for longer than it may be.
    pub(in crate::ledger) fn end_unhealthy(&mut self, number: u64, events: &mut Vec<Event>) {
        self.end(self.lease_of_instance(number), &Ending::plain(End::Unhealthy), events);
    }
}
