//! Which checks there are to probe: all of them when a leadership begins, then what the events tell. Only what has changed
//! is looked at.

use super::{Prober, Watched};
use crate::limits::{FOLLOWED_EVENTS_MAX, PROBE_LOOKS_MAX, PROBE_SPREAD_MAX};
use std::time::Duration;
use tenure_core::{Event, Happening, Instance, InstanceKey, Ledger, Revision, Source};

impl Prober {
    /// Looks at every instance, a page at a time, so that nobody waits for it.
    pub(super) async fn look_at_all(&mut self) {
        self.at = (self.node.read_stale(Ledger::revision), u32::MAX);
        let mut from = Some((String::new(), String::new()));
        while let Some((service, id)) = from.take() {
            let (page, next) = self.node.read_stale(|ledger| page(ledger, &service, &id));
            for key in page {
                self.sync(&key, over_the_interval);
            }
            from = next;
            tokio::task::yield_now().await;
        }
        // Those that are known and are not there any longer.
        let known: Vec<InstanceKey> = self.instances.keys().cloned().collect();
        let gone = self.node.read_stale(|ledger| -> Vec<_> {
            known.into_iter().filter(|key| ledger.instance(key).is_none()).collect()
        });
        gone.iter().for_each(|key| self.sync(key, over_the_interval));
    }

    /// Takes in what has happened since it last looked.
    pub(super) async fn follow(&mut self) {
        loop {
            let Ok((changed, at)) = self.node.read_stale(|ledger| changed(ledger, self.at)) else {
                return self.look_at_all().await;
            };
            if at == self.at {
                return;
            }
            self.at = at;
            changed.iter().for_each(|key| self.sync(key, soon));
        }
    }

    /// Watches what an instance has to be probed by now. What stays as it was keeps its place and its counts; the first probe
    /// of what is new is due within `spread` of its interval.
    fn sync(&mut self, key: &InstanceKey, spread: fn(Duration) -> Duration) {
        let mut wanted =
            self.node.read_stale(|ledger| ledger.instance(key).map(|it| checks(key, it)).unwrap_or_default());
        let known = self.instances.remove(key).unwrap_or_default();
        let mut numbers = Vec::with_capacity(wanted.len());
        for number in known {
            let watched = &self.checks[&number];
            match wanted.iter().position(|check| check.is_same(watched)) {
                Some(at) => {
                    wanted.remove(at);
                    numbers.push(number);
                }
                None => drop(self.checks.remove(&number)),
            }
        }
        for check in wanted {
            let interval = Duration::from_millis(check.probe.interval.millis());
            numbers.push(self.add(check, spread(interval)));
        }
        if !numbers.is_empty() {
            self.instances.insert(key.clone(), numbers);
        }
    }
}

/// Of all that are there when a leadership begins, no more are due at once than later.
fn over_the_interval(interval: Duration) -> Duration {
    interval
}

/// Nobody uses a new one before it was probed.
fn soon(interval: Duration) -> Duration {
    interval.min(PROBE_SPREAD_MAX)
}

impl Watched {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let what = |it: &Self| (it.lease, it.epoch, it.name.clone(), it.endpoint.clone(), it.probe.clone());
        what(self) == what(other)
    }
}

/// The probed checks of an instance.
pub(super) fn checks(key: &InstanceKey, instance: &Instance) -> Vec<Watched> {
    let probed = instance.details().checks.iter().filter_map(|check| match &check.source {
        Source::Probed(probe) => Some((check, probe)),
        Source::Pushed { .. } => None,
    });
    let watched = probed.map(|(check, probe)| Watched {
        instance: key.clone(),
        lease: instance.lease(),
        epoch: instance.epoch(),
        name: check.name.clone(),
        endpoint: instance.details().endpoints[probe.endpoint].clone(),
        probe: probe.clone(),
        score: Default::default(),
        is_slow: false,
        due: Duration::ZERO,
    });
    watched.collect()
}

/// Instances with something to probe, from a service and an id on, and where to go on.
fn page(ledger: &Ledger, service: &str, id: &str) -> (Vec<InstanceKey>, Option<(String, String)>) {
    let mut found = Vec::new();
    let mut left = PROBE_LOOKS_MAX;
    for (name, _) in ledger.services_from(service) {
        let first = if name.as_str() == service { id } else { "" };
        for (id, instance) in ledger.instances(name, first) {
            if left == 0 {
                return (found, Some((name.as_str().into(), id.as_str().into())));
            }
            left -= 1;
            if instance.details().checks.iter().any(|check| matches!(check.source, Source::Probed(_))) {
                found.push(InstanceKey { service: name.clone(), id: id.clone() });
            }
        }
    }
    (found, None)
}

/// The instances that came, changed or went after a place in the stream of events, and where that page ends.
fn changed(ledger: &Ledger, at: (Revision, u32)) -> Result<(Vec<InstanceKey>, (Revision, u32)), Revision> {
    let mut end = at;
    let mut keys = Vec::new();
    for Event { revision, n, what, .. } in ledger.events_beside_keys_after(at)?.take(FOLLOWED_EVENTS_MAX) {
        end = (*revision, *n);
        if let Happening::Registered { instance, .. }
        | Happening::Updated { instance, .. }
        | Happening::Deregistered { instance, .. } = what
        {
            keys.push(instance.clone());
        }
    }
    Ok((keys, end))
}
