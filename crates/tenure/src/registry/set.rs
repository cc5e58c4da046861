//! What a watcher knows of the instances that it watches, and for how long each may be used. It reads no clock and asks
//! nobody; it is told messages and the time.

use crate::clock::BootTime;
use crate::timing::safe_for;
use crate::v1;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How far apart questions about the service time are.
const ASK_MIN: Duration = Duration::from_millis(100);
const ASK_MAX: Duration = Duration::from_secs(60);

/// Service and id.
type Name = (String, String);

/// An instance, and until when it may be used without hearing of it again.
#[derive(Clone, Debug)]
pub struct Found {
    /// What is known of it. Its `valid_for_ms` is what was told once; `until` is what counts.
    pub instance: Arc<v1::Instance>,
    /// By this machine's clock.
    pub until: BootTime,
    /// The same in service time.
    pub(super) ends_ms: u64,
}

/// A question about the service time, and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    /// When it was asked. Service time was not later than the answer then.
    pub(super) asked: BootTime,
    pub(super) service_ms: u64,
}

impl Anchor {
    /// A time by this machine's clock that comes before that service time, though both clocks may differ in their rates.
    pub(super) fn before(self, service_ms: u64) -> BootTime {
        self.asked + safe_for(Duration::from_millis(service_ms.saturating_sub(self.service_ms)))
    }
}

impl Found {
    /// The first of its endpoints: the one that most use.
    pub fn endpoint(&self) -> &str {
        let details = self.instance.details.as_ref();
        details.and_then(|details| details.endpoints.first()).map_or("", String::as_str)
    }

    /// How much it can take, beside the others.
    pub fn weight(&self) -> u32 {
        self.instance.details.as_ref().and_then(|details| details.weight).unwrap_or(1)
    }

    /// Where it is; empty if it does not say.
    pub fn zone(&self) -> &str {
        self.instance.details.as_ref().map_or("", |details| details.zone.as_str())
    }

    pub(super) fn new(instance: v1::Instance, now_ms: u64, anchor: Anchor) -> Self {
        let ends_ms = now_ms.saturating_add(instance.valid_for_ms);
        Self { instance: Arc::new(instance), until: anchor.before(ends_ms), ends_ms }
    }

    fn name(&self) -> Name {
        (self.instance.service.clone(), self.instance.id.clone())
    }

    /// The later end counts.
    fn lasts(&mut self, ends_ms: u64, anchor: Anchor) {
        self.ends_ms = self.ends_ms.max(ends_ms);
        self.until = self.until.max(anchor.before(self.ends_ms));
    }
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// Also those whose time is over: the next message may say that they live.
    known: BTreeMap<Name, Found>,
    /// A snapshot of which not all parts have come.
    part: BTreeMap<Name, Found>,
    /// Those that were there before the set became empty.
    last_good: BTreeMap<Name, Found>,
    /// Resume after this.
    revision: u64,
    /// Whether a snapshot was ever complete.
    is_whole: bool,
    /// The last question about the service time.
    anchor: Option<Anchor>,
}

impl Set {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The next message is the first of a snapshot. What is known stays until that is complete.
    pub(super) fn begin_anew(&mut self) {
        (self.part, self.revision) = (BTreeMap::new(), 0);
    }

    /// A question about the service time was answered. Ends are told in service time, so that what is known lasts a little longer.
    pub(super) fn answered(&mut self, anchor: Anchor) {
        self.anchor = Some(anchor);
        let all = self.known.values_mut().chain(self.part.values_mut()).chain(self.last_good.values_mut());
        all.for_each(|found| found.lasts(0, anchor));
    }

    /// When the service time is asked for again: in a third of the shortest validity.
    pub(super) fn ask_at(&self, now: BootTime) -> Option<BootTime> {
        let anchor = self.anchor?;
        let shortest = self.next_end(now).map_or(ASK_MAX, |end| end.since(anchor.asked) / 3);
        Some(anchor.asked + shortest.clamp(ASK_MIN, ASK_MAX))
    }

    /// Takes a message. A question was answered before.
    pub(super) fn apply(&mut self, reply: v1::WatchInstancesReply) {
        let anchor = self.anchor.expect("a watch begins with a question about the service time");
        let now_ms = reply.now_ms;
        let put = reply.put.into_iter().map(|instance| Found::new(instance, now_ms, anchor));
        let put = put.map(|found| (found.name(), found));
        if reply.snapshot {
            self.part.extend(put);
            if reply.last {
                let before = std::mem::replace(&mut self.known, std::mem::take(&mut self.part));
                self.note_emptied(before);
                self.is_whole = true;
            }
        } else {
            let before = if reply.removed.is_empty() { BTreeMap::new() } else { self.known.clone() };
            self.known.extend(put);
            for gone in reply.removed {
                self.known.remove(&(gone.service, gone.id));
            }
            self.note_emptied(before);
        }
        reply.fresh.iter().for_each(|fresh| self.freshen(fresh, now_ms, anchor));
        if reply.revision > 0 {
            self.revision = reply.revision;
        }
    }

    fn note_emptied(&mut self, before: BTreeMap<Name, Found>) {
        if !self.known.is_empty() {
            self.last_good.clear();
        } else if !before.is_empty() {
            self.last_good = before;
        }
    }

    /// The longer one counts.
    fn freshen(&mut self, fresh: &v1::Fresh, now_ms: u64, anchor: Anchor) {
        let first = (fresh.service.clone(), String::new());
        let of_service = |entry: &(&Name, &mut Found)| entry.0.0 == fresh.service;
        if fresh.valid_for_ms > 0 {
            let named: std::collections::BTreeSet<&str> = fresh.items.iter().map(|item| item.id.as_str()).collect();
            let all = self.known.range_mut(first..).take_while(of_service);
            for (_, found) in all.filter(|(name, _)| !named.contains(name.1.as_str())) {
                found.lasts(now_ms.saturating_add(fresh.valid_for_ms), anchor);
            }
        }
        for item in &fresh.items {
            if let Some(found) = self.known.get_mut(&(fresh.service.clone(), item.id.clone())) {
                found.lasts(now_ms.saturating_add(item.valid_for_ms), anchor);
            }
        }
    }

    /// Those that may be used now.
    pub(super) fn living(&self, now: BootTime, keeps_last_good: bool) -> Living {
        let alive = |set: &BTreeMap<Name, Found>| -> Vec<Found> {
            set.values().filter(|found| found.until > now).cloned().collect()
        };
        let is_last_good = keeps_last_good && self.known.is_empty();
        let found = alive(if is_last_good { &self.last_good } else { &self.known });
        let is_all = !is_last_good && found.len() == self.known.len();
        let told = (!is_all).then(|| self.known.values().cloned().collect());
        Living { found, is_last_good, told }
    }

    /// When the first of those ends that may be used now.
    pub(super) fn next_end(&self, now: BootTime) -> Option<BootTime> {
        let all = self.known.values().chain(self.last_good.values());
        all.map(|found| found.until).filter(|until| *until > now).min()
    }

    /// When it is time to ask elsewhere, if nothing is heard meanwhile: whoever serves this watch tells new validity when half
    /// of the old one has passed, and at three quarters it did not.
    pub(super) fn doubt_at(&self, heard: BootTime) -> Option<BootTime> {
        let last = self.known.values().map(|found| found.until).max().filter(|until| *until > heard)?;
        Some(heard + last.since(heard) * 3 / 4)
    }
}

/// Those that may be used at some moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Living {
    pub(super) found: Vec<Found>,
    /// The server says that there is none, and these are the last that were there.
    pub(super) is_last_good: bool,
    /// All that was told, also those whose time is over; none if they are the same.
    told: Option<Vec<Found>>,
}

impl Living {
    /// All that was told, also those whose time is over.
    pub(super) fn told(&self) -> &[Found] {
        self.told.as_ref().unwrap_or(&self.found)
    }

    /// Whether nothing else is told by this one, however long each is valid.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.is_last_good == other.is_last_good
            && are_alike(&self.found, &other.found)
            && (self.told.is_none() && other.told.is_none() || are_alike(self.told(), other.told()))
    }
}

fn are_alike(some: &[Found], others: &[Found]) -> bool {
    let is_like = |(one, other): (&Found, &Found)| {
        Arc::ptr_eq(&one.instance, &other.instance) || settled(&one.instance) == settled(&other.instance)
    };
    some.len() == others.len() && some.iter().zip(others).all(is_like)
}

/// The same without what counts by itself.
fn settled(instance: &v1::Instance) -> v1::Instance {
    let mut instance = v1::Instance { valid_for_ms: 0, held_down_ms: None, ..instance.clone() };
    instance.findings.iter_mut().for_each(|finding| finding.for_ms = 0);
    if let Some(suspect) = &mut instance.suspect {
        suspect.kept_ms = 0;
    }
    instance
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
