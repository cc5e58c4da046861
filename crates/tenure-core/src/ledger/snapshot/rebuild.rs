//! What a snapshot does not say is worked out here, and what contradicts itself is refused: a ledger that was read can
//! be trusted as one that was lived.

use super::super::keyspace::{At, Keyspace};
use super::super::lease::Stake;
use super::super::resource::{Claim, Resource};
use super::super::wheel::Due;
use super::super::{Holding, KeyValue, Ledger, keyspace, size};
use super::holdings;
use crate::fence::Fence;
use crate::limits::{ATTACHED_MAX, GENERATIONS_MAX};
use crate::mode::Mode;
use crate::names::{LeaseId, Name};
use crate::record::Damage;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Refuses a contradiction.
pub(super) fn check(holds: bool, otherwise: &str) -> Result<(), Damage> {
    if holds { Ok(()) } else { Err(Damage::new(otherwise)) }
}

impl Ledger {
    pub(super) fn rebuild(&mut self) -> Result<(), Damage> {
        let owners: Vec<_> = self.leases.values().filter_map(|lease| lease.owner.clone()).collect();
        owners.iter().for_each(|key| self.count_owned(key));
        self.defined = self.resources.values().filter(|resource| resource.defined).count();
        self.rebuild_families()?;
        self.rebuild_seats()?;
        self.rebuild_lines()?;
        self.rebuild_breaks()?;
        self.rebuild_keys()?;
        self.rebuild_instances()?;
        self.count_attached()?;
        self.check_suspects()?;
        self.rebuild_wheel();
        self.count_bytes();
        self.check_resources()
    }

    fn count_bytes(&mut self) {
        let leases = self.leases.values().map(|lease| {
            let held = holdings(lease).map(|(name, _)| name);
            size::of_lease(lease) + size::of_claims(held)
        });
        let waiting = self.waiters.values().flat_map(|waiter| waiter.wants.iter().map(|(name, _)| name));
        let vacating = self.vacating.values().map(|stake| &stake.resource);
        let defined = self.resources.iter().filter(|(_, resource)| resource.defined);
        let instances = self.registry.numbers.values().filter_map(|key| Some((key, self.instance(key)?)));
        let claims = size::of_claims(waiting.chain(vacating));
        let defined: usize = defined.map(|(name, _)| size::of_defined(name)).sum();
        let instances: usize = instances.map(|(key, instance)| size::of_instance(key, &instance.details)).sum();
        self.bytes = leases.sum::<usize>() + claims + defined + instances;
    }

    fn rebuild_families(&mut self) -> Result<(), Damage> {
        let parents: Vec<_> = self.leases.iter().filter_map(|(id, lease)| Some((*id, lease.parent?))).collect();
        for (id, parent) in parents {
            let parent = self.leases.get_mut(&parent);
            parent.ok_or_else(|| Damage::new("a child without a parent"))?.children.insert(id);
        }
        for id in self.leases.keys() {
            let generations = self.lineage(*id).take(GENERATIONS_MAX + 1).count();
            check(
                generations <= GENERATIONS_MAX,
                "a lease with more generations above it than may be, or its own parent",
            )?;
        }
        Ok(())
    }

    fn rebuild_seats(&mut self) -> Result<(), Damage> {
        let held = self.leases.values().flat_map(|lease| holdings(lease).map(|(_, holding)| holding.fence));
        let mut fences = BTreeSet::new();
        let all_differ = held.chain(self.vacating.keys().copied()).all(|fence| fences.insert(fence));
        check(all_differ, "a fence that is there twice")?;
        let ids: Vec<_> = self.leases.keys().copied().collect();
        for id in ids {
            let held: Vec<(Name, Holding)> =
                holdings(&self.leases[&id]).map(|(name, it)| (name.clone(), *it)).collect();
            for (name, holding) in &held {
                self.rebuild_seat(id, name, holding)?;
            }
            self.claims += held.len();
            self.leases.get_mut(&id).expect("it is there").index.holding = held.len();
        }
        let fences: Vec<_> = self.vacating.keys().copied().collect();
        for fence in fences {
            let stake = self.vacating[&fence].clone();
            let resource = self.seat_room(&stake.resource, fence, stake.mode)?;
            resource.note_epoch(&stake.holder, stake.epoch, Claim::Vacating(fence));
            resource.vacating.insert(fence);
        }
        Ok(())
    }

    fn rebuild_seat(&mut self, id: LeaseId, name: &Name, holding: &Holding) -> Result<(), Damage> {
        let holder = self.leases[&id].holder.clone();
        let resource = self.seat_room(name, holding.fence, holding.mode)?;
        resource.note_epoch(&holder, holding.epoch, Claim::Holding(holding.fence));
        resource.holders.insert(holding.fence, id);
        Ok(())
    }

    /// Counts a claim on a resource, if it can sit beside those that are counted already. Units may be more than the
    /// capacity, because that can be set lower at any time.
    fn seat_room(&mut self, name: &Name, fence: Fence, mode: Mode) -> Result<&mut Resource, Damage> {
        check(fence.number() <= self.fence, "a fence that was never given out")?;
        let resource = self.resources.entry(name.clone()).or_default();
        check(resource.tally.sits_beside(mode), "claims on a resource that cannot sit beside each other")?;
        resource.tally.add(mode);
        Ok(resource)
    }

    fn rebuild_lines(&mut self) -> Result<(), Damage> {
        let arrivals: Vec<_> = self.waiters.keys().copied().collect();
        for arrival in arrivals {
            check(arrival <= self.arrival, "a waiter whose arrival is not its own")?;
            let waiter = self.waiters[&arrival].clone();
            let lease = self.leases.get_mut(&waiter.lease).ok_or_else(|| Damage::new("a waiter without a lease"))?;
            lease.index.waits.insert(arrival);
            for (name, mode) in &waiter.wants {
                let before = lease.stakes.insert(name.clone(), Stake::Waiting(arrival));
                check(before.is_none(), "a lease with two claims on one resource")?;
                let resource = self.resources.entry(name.clone()).or_default();
                check(mode.is_within(resource.capacity, name).is_ok(), "a waiter that asks for more than there is")?;
                resource.line.join((waiter.order_ms, arrival));
                resource.note_epoch(&lease.holder, waiter.epoch, Claim::Waiting(arrival));
            }
            self.claims += waiter.wants.len();
        }
        for (name, resource) in self.resources.iter().filter(|(_, resource)| !resource.line.is_empty()) {
            for id in resource.holders.values() {
                self.leases.get_mut(id).expect("it holds this").index.contended.insert(name.clone());
            }
        }
        Ok(())
    }

    fn rebuild_breaks(&mut self) -> Result<(), Damage> {
        for (fence, order) in &self.breaks {
            let held_by = self.resources.get(&order.resource).and_then(|resource| resource.holders.get(fence));
            check(held_by == Some(&order.lease), "an order to break what is not held")?;
            let lease = self.leases.get_mut(&order.lease).expect("it holds this");
            lease.index.breaks.insert((order.at, *fence));
        }
        Ok(())
    }

    fn rebuild_keys(&mut self) -> Result<(), Damage> {
        let Keyspace { revision, keys, bytes, past } = &mut self.keyspace;
        check(*revision > 0, "a keyspace without a revision")?;
        let forgotten = past.compacted.unwrap_or_default();
        check(forgotten <= *revision && past.cleared <= forgotten, "a keyspace that has forgotten what is to come")?;
        let is_sound = |value: &KeyValue| {
            value.create_revision <= value.mod_revision && value.mod_revision <= *revision && value.version > 0
        };
        let mut changes = Vec::new();
        for (key, value) in keys.iter() {
            check(is_sound(value), "a key whose revisions cannot be")?;
            *bytes += keyspace::weight(key, &value.value);
            changes.push((value.at(), key.clone()));
            if let Some(id) = value.lease {
                let lease =
                    self.leases.get_mut(&id).ok_or_else(|| Damage::new("a key on a lease that is not there"))?;
                lease.keys.insert(key.clone());
            }
        }
        for (key, versions) in &past.versions {
            let next = keys.get(key).map_or(At { revision: *revision + 1, n: 0 }, KeyValue::at);
            let in_order = versions.iter().map(|version| version.at).chain([next]).is_sorted_by(|a, b| a < b);
            let is_sound = versions.iter().flat_map(|version| &version.is).all(is_sound);
            let is_over = keys.contains_key(key) || versions.back().is_some_and(|version| version.is.is_none());
            check(in_order && is_sound && is_over, "a key whose past cannot be")?;
            changes.extend(versions.iter().map(|version| (version.at, key.clone())));
        }
        let all_differ = changes.iter().all(|(at, key)| past.restore(*at, key));
        check(all_differ, "two changes of keys in one place")?;
        past.weigh();
        Ok(())
    }

    fn count_attached(&mut self) -> Result<(), Damage> {
        let each = self.leases.iter();
        let things: Vec<_> = each
            .map(|(id, lease)| {
                (*id, lease.stakes.len() + lease.keys.len() + lease.children.len() + lease.instances.len())
            })
            .collect();
        for (id, things) in things {
            self.carry(id, things);
        }
        let most = self.leases.values().map(|lease| lease.carried).max().unwrap_or_default();
        check(most <= ATTACHED_MAX, "a lease tree that carries more than it may")
    }

    fn rebuild_wheel(&mut self) {
        for (id, lease) in &mut self.leases {
            lease.armed = lease.ends_at();
            self.wheel.arm(lease.armed, Due::Lease(*id));
        }
        self.arm_instances();
        for (arrival, waiter) in &self.waiters {
            waiter.limit.iter().for_each(|limit| self.wheel.arm(*limit, Due::Wait(*arrival)));
        }
        self.vacating.iter().for_each(|(fence, stake)| self.wheel.arm(stake.until, Due::Free(*fence)));
        self.breaks.iter().for_each(|(fence, order)| self.wheel.arm(order.at, Due::Break(*fence)));
    }

    /// Every resource is there for a reason, and nobody who could sit is overlooked.
    fn check_resources(&self) -> Result<(), Damage> {
        for resource in self.resources.values() {
            let has_reason = resource.defined || resource.tally.claims() > 0 || !resource.line.is_empty();
            check(has_reason, "a resource that nobody has anything to do with")?;
        }
        for (arrival, waiter) in &self.waiters {
            let key = (waiter.order_ms, *arrival);
            check(
                self.to_seat.contains(&key) || !self.can_sit(key, waiter),
                "a waiter who could sit and is overlooked",
            )?;
        }
        Ok(())
    }
}
