//! How long instances are valid, for those who watch them. Renewals are no events, so this is worked out now and then, once
//! for all who watch a service, and only by a node that hears of the leader.

use crate::limits::{COUNTED_MAX, FRESH_ITEMS_MAX, FRESH_MAX, FRESH_MIN, FRESH_SERVICES_MAX, FRESH_SHARED};
use crate::node::Node;
use crate::unready::Unready;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;
use tenure_api::v1;
use tenure_core::{Instance, InstanceId, InstanceKey, Ledger, Moment, Name, Revision};
use tokio::sync::Mutex;

/// What was worked out, for everybody who asks at about the same time.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    services: Lock<BTreeMap<Name, Arc<Validity>>>,
    /// When it was last certain that this node hears of the leader, or leads, by its own clock: service time stands still on
    /// a leader that was cut off. One at a time works something out.
    heard: Mutex<Option<Duration>>,
}

/// How long the instances of a service are valid, from one moment on. Whoever is not named ends no sooner than `least`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Validity {
    /// When it was worked out, by this node's own clock.
    at: Duration,
    /// How long it was until the first of all ends.
    first_in: Duration,
    /// It holds for what was registered at this revision and not changed since.
    pub(super) revision: Revision,
    /// When the first of those ends that are not named. None: only those named are meant.
    least: Option<Moment>,
    /// When those that are named end.
    named: Vec<(InstanceId, Moment)>,
    /// When the first of all ends, who may be heard of at any moment.
    first: Option<Moment>,
}

impl Validity {
    /// What all instances of a service come to. Most of them are on time, so that it is enough to name those that are
    /// late; or very many of them are late, and then the others are named.
    fn of((at, now): (Duration, Moment), revision: Revision, ends: Vec<(InstanceId, Moment, bool)>) -> Self {
        let late_count = ends.iter().filter(|(_, _, is_late)| *is_late).count();
        let names_late = late_count * 2 <= ends.len() && late_count <= FRESH_ITEMS_MAX;
        let on_time = ends.iter().filter(|(_, _, is_late)| !is_late).map(|(_, end, _)| *end).min();
        let first = ends.iter().map(|(_, end, _)| *end).min();
        let named = ends.into_iter().filter(|(_, _, is_late)| *is_late == names_late);
        let named = named.map(|(id, end, _)| (id, end)).collect();
        let first_in = first.map_or(Duration::MAX, |end| Duration::from_millis(end.millis_since(now)));
        Self { at, first_in, revision, least: on_time.filter(|_| names_late), named, first }
    }

    /// For how long it is worth sharing.
    fn is_good(&self, at: Duration) -> bool {
        at.saturating_sub(self.at) <= (self.first_in / 4).clamp(FRESH_MIN, FRESH_SHARED)
    }

    /// When it should be told again: when half of the time of whoever ends first has passed. Who is late may be heard of
    /// at the last moment, and nobody should have run out of it by then.
    pub(super) fn again_in(&self, now: Moment) -> Duration {
        let half = self.first.map_or(FRESH_MAX, |end| Duration::from_millis(end.millis_since(now) / 2));
        half.clamp(FRESH_MIN, FRESH_MAX)
    }

    /// What watchers are told, in parts. What was put since it was worked out is told by its own validity.
    pub(super) fn told(&self, service: &Name, recent: &[(InstanceId, Moment)], now: Moment) -> Vec<v1::Fresh> {
        let is_recent = |id: &InstanceId| recent.iter().any(|(other, _)| other == id);
        let named = self.named.iter().filter(|(id, _)| !is_recent(id)).chain(recent);
        let items =
            named.map(|(id, end)| v1::FreshInstance { id: id.to_string(), valid_for_ms: end.millis_since(now) });
        let items: Vec<v1::FreshInstance> = items.collect();
        let service = service.to_string();
        match self.least {
            Some(least) => vec![v1::Fresh { service, valid_for_ms: least.millis_since(now), items }],
            None => {
                let part = |part: &[v1::FreshInstance]| v1::Fresh {
                    service: service.clone(),
                    valid_for_ms: 0,
                    items: part.to_vec(),
                };
                items.chunks(FRESH_ITEMS_MAX).map(part).collect()
            }
        }
    }
}

impl Freshness {
    /// How long the instances of a service are valid, worked out at a revision that is not before `floor`.
    pub(super) async fn of(&self, node: &Node, service: &Name, floor: Revision) -> Result<Arc<Validity>, Unready> {
        if let Some(known) = self.known(node, service, floor) {
            return Ok(known);
        }
        let mut heard = self.heard.lock().await;
        // Somebody else may have worked it out meanwhile.
        if let Some(known) = self.known(node, service, floor) {
            return Ok(known);
        }
        let asked = node.monotonic();
        let is_certain = heard.is_some_and(|at| asked.saturating_sub(at) < FRESH_SHARED);
        if !is_certain || node.read_stale(Ledger::revision) < floor {
            node.read(|_, _| ()).await?;
            *heard = Some(asked);
        }
        let validity = Arc::new(work_out(node, service));
        let mut services = self.services();
        if services.len() >= FRESH_SERVICES_MAX {
            services.retain(|_, known| known.is_good(validity.at));
        }
        if services.len() < FRESH_SERVICES_MAX {
            services.insert(service.clone(), validity.clone());
        }
        Ok(validity)
    }

    fn known(&self, node: &Node, service: &Name, floor: Revision) -> Option<Arc<Validity>> {
        let at = node.monotonic();
        self.services().get(service).filter(|known| known.revision >= floor && known.is_good(at)).cloned()
    }

    fn services(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Validity>>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at all instances of a service, letting the ledger go now and then. What changes meanwhile is told to whoever
/// watches by its own validity.
fn work_out(node: &Node, service: &Name) -> Validity {
    let (at, now, revision) = (node.monotonic(), node.service_time_about(), node.read_stale(Ledger::revision));
    let mut ends = Vec::new();
    let mut from = Some(String::new());
    while let Some(first) = from {
        from = node.read_stale(|ledger| {
            let mut each = ledger.instances(service, &first).peekable();
            let looked_at = each.by_ref().take(COUNTED_MAX);
            ends.extend(looked_at.map(|(id, instance)| {
                let end = ledger.valid_until(instance);
                (id.clone(), end, is_late(ledger, instance, end, now))
            }));
            each.peek().map(|(id, _)| id.to_string())
        });
    }
    Validity::of((at, now), revision, ends)
}

/// Whether less than half of what an instance is given by a renewal is left.
fn is_late(ledger: &Ledger, instance: &Instance, end: Moment, now: Moment) -> bool {
    let ttl_ms = ledger.lease(instance.lease()).map_or(0, |lease| lease.ttl().millis());
    end.millis_since(now) < ttl_ms / 2
}

/// When an instance ends unless it is renewed, if it lives.
pub(super) fn end(ledger: &Ledger, key: &InstanceKey) -> Option<Moment> {
    ledger.instance(key).map(|instance| ledger.valid_until(instance))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    fn id(text: &str) -> InstanceId {
        InstanceId::parse(text).unwrap()
    }

    fn validity(ends: &[(&str, u64, bool)]) -> Validity {
        let ends = ends.iter().map(|(name, end, is_late)| (id(name), at(*end), *is_late)).collect();
        Validity::of((Duration::from_secs(9), at(1_000)), Revision(7), ends)
    }

    fn told(validity: &Validity, recent: &[(&str, u64)], now: u64) -> Vec<(u64, Vec<(String, u64)>)> {
        let recent: Vec<_> = recent.iter().map(|(name, end)| (id(name), at(*end))).collect();
        let told = validity.told(&Name::parse("s").unwrap(), &recent, at(now));
        let items = |fresh: v1::Fresh| fresh.items.into_iter().map(|item| (item.id, item.valid_for_ms)).collect();
        told.into_iter().map(|fresh| (fresh.valid_for_ms, items(fresh))).collect()
    }

    #[test]
    fn those_on_time_are_told_by_the_least_of_them_and_the_late_by_name() {
        let most = validity(&[("a", 11_000, false), ("b", 9_000, false), ("c", 4_000, true)]);
        assert_eq!(told(&most, &[], 1_000), [(8_000, vec![("c".into(), 3_000)])]);
        assert_eq!(told(&most, &[], 2_500), [(6_500, vec![("c".into(), 1_500)])], "told later it is less");
        assert_eq!(most.again_in(at(1_000)), Duration::from_millis(1_500), "the late one may be heard of");
    }

    #[test]
    fn when_most_are_late_those_on_time_are_named_and_nobody_else_is_meant() {
        let few = validity(&[("a", 11_000, false), ("b", 3_000, true), ("c", 4_000, true)]);
        assert_eq!(told(&few, &[], 1_000), [(0, vec![("a".into(), 10_000)])]);
        let none = validity(&[("b", 3_000, true)]);
        assert_eq!(told(&none, &[], 1_000), [], "there is nothing to say of whoever has not renewed");
    }

    #[test]
    fn what_was_put_since_is_told_by_its_own_validity() {
        let known = validity(&[("a", 61_000, false), ("b", 61_000, false)]);
        assert_eq!(told(&known, &[("new", 6_000)], 1_000), [(60_000, vec![("new".into(), 5_000)])]);
        let late = validity(&[("a", 61_000, false), ("b", 61_000, false), ("c", 9_000, true)]);
        let both = told(&late, &[("c", 6_000)], 1_000);
        assert_eq!(both, [(60_000, vec![("c".into(), 5_000)])], "what is newer counts, even if it is less");
    }

    #[test]
    fn when_very_many_are_late_those_on_time_are_named_in_parts() {
        let names: Vec<String> = (0..FRESH_ITEMS_MAX * 4).map(|n| format!("i{n}")).collect();
        let with_late = |late: usize| {
            let each = names.iter().enumerate();
            let ends: Vec<_> =
                each.map(|(n, name)| (name.as_str(), if n < late { 1_500 } else { 9_000 }, n < late)).collect();
            told(&validity(&ends), &[], 1_000)
        };
        let few = with_late(FRESH_ITEMS_MAX);
        assert_eq!((few.len(), few[0].0, few[0].1.len()), (1, 8_000, FRESH_ITEMS_MAX));
        let many = with_late(FRESH_ITEMS_MAX + 1);
        assert_eq!(many.len(), 3);
        assert!(many.iter().all(|(least, items)| *least == 0 && items.iter().all(|(_, left)| *left == 8_000)));
        assert_eq!(many.iter().map(|(_, items)| items.len()).sum::<usize>(), FRESH_ITEMS_MAX * 3 - 1);
    }

    #[test]
    fn it_is_shared_for_a_moment_only() {
        let after = |ms: u64| Duration::from_millis(9_000 + ms);
        let slow = validity(&[("a", 61_000, false)]);
        assert!(slow.is_good(after(1_000)) && !slow.is_good(after(1_001)));
        let quick = validity(&[("a", 3_000, false)]);
        assert!(quick.is_good(after(500)) && !quick.is_good(after(501)), "a quarter of what is left");
        assert_eq!(quick.again_in(at(1_000)), Duration::from_secs(1));
        let late = validity(&[("a", 1_100, true)]);
        assert!(late.is_good(after(250)) && !late.is_good(after(251)), "but it is not worked out all the time");
        assert_eq!(late.again_in(at(1_000)), FRESH_MIN);
        assert_eq!(validity(&[]).again_in(at(1_000)), FRESH_MAX);
    }
}
