//! The guard against correlated loss: when far more leases of one cohort are silent than independent failures explain,
//! each that falls due is kept for a bounded time, once for each silence. There is no switch, only a judgement for each
//! lease. It never keeps a lease on which anything but instances hangs.

use crate::event::{Event, Happening};
use crate::ledger::Ledger;
use crate::ledger::lease::Lease;
use crate::ledger::wheel::Due;
use crate::limits::{COHORT_SHOWN_MAX, JUDGE_MAX, JUDGED_MS, JUDGED_PER_MS};
use crate::names::{LeaseId, Name};
use crate::registry::{InstanceKey, Judgement, Word, late_after_ms, suspect_for};
use crate::time::{Moment, Ttl};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The leases of class `registration`, under no other lease, with instances of one service in one zone. A lease counts
/// once, however many instances hang on it: they fall silent together whatever the reason.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Cohort {
    /// How many instances of this cohort each lease has. An index.
    pub(in crate::ledger) members: BTreeMap<LeaseId, u32>,
    /// What was judged last. It counts for a moment only.
    pub(in crate::ledger) judged: Option<Judgement>,
}

impl Cohort {
    /// What was judged a moment ago.
    pub(in crate::ledger) fn fresh(&self, now: Moment) -> Option<Judgement> {
        self.judged_within(JUDGED_MS, now)
    }

    /// What was judged so lately that it is good for a lease with this TTL. Within an eighth of it hardly any of a cohort
    /// becomes late.
    fn good_for(&self, ttl: Ttl, now: Moment) -> Option<Judgement> {
        self.judged_within(JUDGED_MS.min(ttl.millis() / 8), now)
    }

    /// The more there are to look at, the longer it lasts.
    fn judged_within(&self, ms: u64, now: Moment) -> Option<Judgement> {
        self.judged.filter(|judged| now.millis_since(judged.at) < ms.max(judged.members / JUDGED_PER_MS))
    }
}

/// Why a silent lease is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Until when it is kept if it stays silent.
    pub until: Moment,
    /// What was found when it fell due.
    pub judgement: Judgement,
}

impl Lease {
    /// Whether it has been silent for so long that its next renewal is late.
    pub fn is_late(&self, now: Moment) -> bool {
        now.millis_since(self.renewed) >= late_after_ms(self.gap_ms, self.ttl)
    }

    /// When it ends at the earliest, whether or not it is heard of. A suspect one that is heard of, and then no more, may
    /// end before it would have ended in silence.
    pub(super) fn lives_until(&self, now: Moment) -> Moment {
        match self.suspect {
            Some(_) => self.ends_at().min(now.after(self.ttl).plus(self.grace)),
            None => self.ends_at(),
        }
    }

    /// Whether nothing but instances hangs on it, and it is of the class that is guarded.
    fn is_guarded(&self) -> bool {
        !self.instances.is_empty() && self.may_be_suspect()
    }

    /// The same, also when its last instance is gone: that is not being heard of.
    pub(in crate::ledger) fn may_be_suspect(&self) -> bool {
        self.is_member() && self.carried == self.instances.len()
    }

    const fn is_member(&self) -> bool {
        self.registers && self.parent.is_none()
    }
}

impl Ledger {
    /// How the cohort of an instance stands now: what would be found if one of its leases fell due. One that is too large
    /// to be counted for a question is as it was judged last.
    pub fn cohort(&self, key: &InstanceKey, now: Moment) -> Option<Judgement> {
        let zone = &self.instance(key)?.details.zone;
        let cohort = self.registry.services.get(&key.service)?.zones.get(zone)?;
        if cohort.members.len() > COHORT_SHOWN_MAX { cohort.judged } else { Some(self.judge(cohort, now)) }
    }

    fn judge(&self, cohort: &Cohort, at: Moment) -> Judgement {
        let late = cohort.members.keys().filter(|id| self.leases[*id].is_late(at)).count() as u64;
        Judgement { at, members: cohort.members.len() as u64, late }
    }

    pub(in crate::ledger) fn join_cohort(&mut self, service: &Name, zone: Option<Word>, lease: LeaseId) {
        if self.leases[&lease].is_member() {
            let service = self.registry.services.get_mut(service).expect("an instance has a service");
            *service.zones.entry(zone).or_default().members.entry(lease).or_default() += 1;
        }
    }

    /// The lease may have ended a moment ago.
    pub(super) fn leave_cohort(&mut self, service: &Name, zone: &Option<Word>, lease: LeaseId) {
        let service = self.registry.services.get_mut(service).expect("an instance has a service");
        let Some(cohort) = service.zones.get_mut(zone) else { return };
        if let Some(instances) = cohort.members.get_mut(&lease) {
            *instances -= 1;
            if *instances == 0 {
                cohort.members.remove(&lease);
            }
        }
        if cohort.members.is_empty() {
            service.zones.remove(zone);
        }
    }

    /// The cohort by which a lease that falls due is judged: that of its first instance. None if it is not guarded, has
    /// been given its time already, or may not be renewed any longer in any case.
    fn judged_by(&self, id: LeaseId) -> Option<(&Name, &Option<Word>, Ttl)> {
        let lease = self.leases.get(&id)?;
        if !lease.is_guarded() || lease.suspect.is_some() || lease.capped {
            return None;
        }
        let key = lease.instances.first()?;
        self.instance(key).map(|instance| (&key.service, &instance.details.zone, lease.ttl))
    }

    /// How many leases have to be looked at before this one may end.
    pub(in crate::ledger) fn looks_to_judge(&self, due: Due) -> usize {
        let Due::Lease(id) = due else { return 0 };
        let Some((service, zone, ttl)) = self.judged_by(id) else { return 0 };
        let cohort = &self.registry.services[service].zones[zone];
        if cohort.good_for(ttl, self.now).is_some() { 0 } else { cohort.members.len() }
    }

    /// Whether this entry may look at so many leases more. The first cohort may be as large as it is.
    pub(in crate::ledger) fn may_judge(&mut self, looks: usize) -> bool {
        let may = looks <= self.work.judges || self.work.judges == JUDGE_MAX;
        self.work.judges = if may { self.work.judges.saturating_sub(looks) } else { self.work.judges };
        may
    }

    /// Keeps a lease that is due, if so many of its cohort are silent that one failure explains it better.
    pub(in crate::ledger) fn keep_as_suspect(&mut self, id: LeaseId, events: &mut Vec<Event>) -> bool {
        let Some((service, zone, ttl)) = self.judged_by(id) else { return false };
        let (service, zone) = (service.clone(), zone.clone());
        let cohort = &self.registry.services[&service].zones[&zone];
        let judgement = cohort.good_for(ttl, self.now).unwrap_or_else(|| self.judge(cohort, self.now));
        let cohort = self.registry.services.get_mut(&service).and_then(|it| it.zones.get_mut(&zone));
        cohort.expect("it was just looked at").judged = Some(judgement);
        let lease = &self.leases[&id];
        let kept = lease.deadline.plus(suspect_for(ttl));
        // However silent it is, it lives no longer than if it were heard of.
        let until = self.lifetime_ends(lease).map_or(kept, |ends| ends.min(kept));
        if !judgement.is_correlated() || until <= self.now {
            return false;
        }
        let lease = self.leases.get_mut(&id).expect("only a living lease falls due");
        lease.suspect = Some(Box::new(Suspect { until, judgement }));
        self.wheel.rearm(lease.armed, Due::Lease(id), lease.ends_at());
        lease.armed = lease.ends_at();
        let suspected = lease.instances.iter().map(|key| Happening::Suspected {
            instance: key.clone(),
            lease: id,
            until,
            judgement,
        });
        let suspected = suspected.collect();
        self.happened(suspected, events);
        true
    }

    /// A lease was heard of again: it ends when it says, no later.
    pub(in crate::ledger) fn clear_suspect(&mut self, id: LeaseId) {
        let lease = self.leases.get_mut(&id).expect("only a living lease is heard of");
        if lease.suspect.take().is_some() {
            self.wheel.rearm(lease.armed, Due::Lease(id), lease.ends_at());
            lease.armed = lease.ends_at();
            self.cleared.push((id, lease.instances.iter().cloned().collect()));
        }
    }

    /// Tells who was heard of again.
    pub(in crate::ledger) fn tell_cleared(&mut self, events: &mut Vec<Event>) {
        for (lease, instances) in core::mem::take(&mut self.cleared) {
            // Some may have ended since, and that is told.
            let live = instances.into_iter().filter(|key| self.instance(key).is_some_and(|it| it.lease == lease));
            let cleared: Vec<_> = live.map(|instance| Happening::Cleared { instance, lease }).collect();
            if !cleared.is_empty() {
                self.happened(cleared, events);
            }
        }
    }
}
