//! What the witness knows of instances, as events tell it: who is registered, with which epoch, and how well it is shown
//! to be.

use super::Witness;
use super::seen::Seen;
use std::collections::{BTreeMap, VecDeque};
use tenure_core::{
    End, Epoch, Event, Happening, Health, Instance, InstanceKey, LeaseId, Moment, OnCritical, Source, limits,
};

#[derive(Default)]
pub(super) struct Instances {
    living: BTreeMap<InstanceKey, Known>,
    /// The epochs of those that ended last, as many as are remembered.
    epochs: BTreeMap<InstanceKey, VecDeque<Epoch>>,
    /// Which ended in the change before, so that it is seen who took their place.
    superseded: Option<InstanceKey>,
}

struct Known {
    lease: LeaseId,
    epoch: Option<Epoch>,
    drains: bool,
    /// Until when its lease is kept although it is silent.
    suspect_until: Option<Moment>,
}

impl Instances {
    pub(super) fn registered(&mut self, key: &InstanceKey, lease: LeaseId, epoch: Option<Epoch>, seen: &mut Seen) {
        let known = Known { lease, epoch, drains: false, suspect_until: None };
        assert!(self.living.insert(key.clone(), known).is_none(), "an id is given to one instance at a time");
        let highest = self.epochs.get(key).into_iter().flatten().max().copied();
        assert!(epoch.is_none() || epoch >= highest, "{key} does not come back with a lower epoch than {highest:?}");
        seen.registered += 1;
        seen.replaced += u64::from(self.superseded.take().as_ref() == Some(key));
    }

    pub(super) fn deregistered(&mut self, key: &InstanceKey, lease: LeaseId, how: &End, seen: &mut Seen) {
        let known = self.living.remove(key).expect("S8: an instance ends exactly once");
        assert_eq!(known.lease, lease, "an end names the lease of its instance");
        let epochs = self.epochs.entry(key.clone()).or_default();
        epochs.extend(known.epoch);
        while epochs.len() > limits::ENDED_INSTANCES_PER_ID_MAX - 1 {
            epochs.pop_front();
        }
        self.superseded = (*how == End::Superseded).then(|| key.clone());
        seen.deregistered += 1;
    }

    pub(super) fn happened(&mut self, what: &Happening, now: Moment, seen: &mut Seen) {
        let Some(key) = what.instance() else { panic!("nobody watches for {what:?}") };
        let known = self.living.get_mut(key).expect("only to the living something happens");
        assert_eq!(what.lease(), Some(known.lease), "an event names the lease of its instance");
        match what {
            Happening::Drained { .. } => assert!(!std::mem::replace(&mut known.drains, true), "it did not drain"),
            Happening::Undrained { .. } => assert!(std::mem::replace(&mut known.drains, false), "it drained"),
            Happening::Suspected { until, judgement, .. } => {
                assert!(judgement.is_correlated(), "nobody is kept without a reason: {judgement:?}");
                assert!(*until > now && until.millis() - now.millis() <= limits::SUSPECT_MS_MAX, "it is kept so long");
                assert_eq!(known.suspect_until.replace(*until), None, "it is kept once for each silence");
            }
            Happening::Cleared { .. } => assert!(known.suspect_until.take().is_some(), "it was suspect"),
            Happening::HealthChanged { held_until, overall, .. } => {
                assert!(
                    held_until.is_none_or(|until| until > now && *overall == Health::Degraded),
                    "held, so degraded"
                );
                seen.held_down += u64::from(held_until.is_some());
            }
            _ => {}
        }
    }
}

/// What falls due first with an instance.
pub(super) fn first_due(instance: &Instance) -> Option<Moment> {
    let stale = instance.findings().filter_map(|(check, finding)| match check.source {
        Source::Pushed { ttl: Some(ttl) } if finding.health <= Health::Degraded => Some(finding.told.plus(ttl)),
        _ => None,
    });
    stale.chain(instance.held_until()).chain(instance.revoked_at()).min()
}

impl Witness {
    /// S21: what ends by itself ends no earlier than anybody was told that it is valid.
    pub(super) fn validity_is_kept(&mut self, events: &[Event]) {
        let ends_by_itself =
            |event: &Event| matches!(event.what, Happening::Ended { how: End::Expired | End::MaxLifetime, .. });
        for change in events.chunk_by(|a, b| a.revision == b.revision) {
            let is_by_itself = change.iter().any(ends_by_itself);
            for event in change {
                let Happening::Deregistered { instance, lease, .. } = &event.what else { continue };
                let told = self.valid.remove(&(instance.clone(), *lease)).unwrap_or_default();
                assert!(!is_by_itself || told <= event.at, "{instance} ended at {}, valid until {told}", event.at);
            }
        }
        let ledger = &self.ledger;
        for key in self.books.instances.living.keys() {
            let instance = ledger.instance(key).expect("the ledger has the instances that came and did not go");
            let valid = self.valid.entry((key.clone(), instance.lease())).or_default();
            *valid = (*valid).max(ledger.valid_until(instance));
        }
    }

    /// What the ledger shows of instances is what its events told.
    pub(super) fn instances_agree(&self) {
        let (ledger, books) = (&self.ledger, &self.books.instances);
        assert_eq!(ledger.instance_count(), books.living.len(), "instances are counted");
        let services = ledger.services_from("").inspect(|(_, it)| assert!(it.instance_count() > 0, "nobody is there"));
        let shown = services.flat_map(|(service, it)| {
            let key = move |id: &tenure_core::InstanceId| InstanceKey { service: service.clone(), id: id.clone() };
            it.instances().map(move |(id, instance)| (key(id), instance))
        });
        let mut count = 0;
        for (key, instance) in shown {
            count += 1;
            let known = books.living.get(&key).expect("the ledger has the instances that came and did not go");
            assert_eq!(instance.lease(), known.lease, "{key} hangs where it was registered");
            assert_eq!(instance.draining().is_some(), known.drains, "{key} drains as told");
            let suspect = ledger.lease(known.lease).and_then(|lease| lease.suspect()).map(|suspect| suspect.until);
            assert_eq!(suspect, known.suspect_until, "{key} is suspect as told");
            let lease = ledger.lease(known.lease).expect("an instance has a lease");
            let holds_more = suspect.is_some() && lease.carried() > lease.instances().count();
            assert!(!holds_more, "S19: {key} is suspect, and something else hangs on its lease");
            let worst = instance.findings().map(|(_, finding)| finding.health).max().unwrap_or(Health::Passing);
            let worst = if instance.details().on_critical == OnCritical::Observe { Health::Passing } else { worst };
            assert!(instance.overall() >= worst, "{key} is shown no better than its checks say");
            assert_eq!(instance.critical_since().is_some(), worst == Health::Critical, "{key} is critical since then");
            let routed = !known.drains && matches!(instance.overall(), Health::Passing | Health::Degraded);
            assert_eq!(instance.is_routed(), routed, "{key} is routed to if it is well and does not drain");
        }
        assert_eq!(count, books.living.len(), "no service is left out");
    }
}
