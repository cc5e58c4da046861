//! What a keeper knows of its leases, and what it decides: when to renew which, what an answer means, what is lost. It
//! reads no clock and sends nothing; it is told the time and tells what to send.

use crate::clock::BootTime;
use crate::fate::{Event, Fate, Loss};
use crate::timing::{Timing, safe_for};
use crate::v1::{RenewKind, RenewNotice, RenewPolicy};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Renewals are never closer together than this, however little time is left.
const PACE_MIN: Duration = Duration::from_millis(10);

/// All leases of a client.
#[derive(Debug, Default)]
pub(crate) struct Book {
    leases: BTreeMap<u64, Entry>,
}

/// One lease.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The TTL of the first answer; renewals keep its pace when less is left.
    first_ttl: Duration,
    /// The effective TTL of the newest answer, and when that was asked for.
    ttl: Duration,
    counts_from: BootTime,
    next: BootTime,
    /// Attempts since the newest answer.
    tries: u32,
    policy: RenewPolicy,
    touched: bool,
    /// Somebody asked for a renewal, perhaps with another TTL.
    wish_ms: Option<i64>,
    gate: Option<Gate>,
    in_line: bool,
    /// Nobody renews it any longer: it runs out by itself.
    is_left: bool,
    is_over: bool,
    is_final: bool,
    /// How many of its claims were broken while it lived on.
    broken: u64,
    stakes: Vec<Stake>,
    /// Whether more than one guard ever relied on it.
    is_shared: bool,
}

/// What one guard stands for.
#[derive(Clone, Debug)]
pub(crate) struct Stake {
    /// What it holds, as NAME@FENCE; nothing, if it stands for the lease alone.
    pub(crate) handles: Vec<String>,
    pub(crate) fate: Arc<Fate>,
    /// Claims that may have been broken, and until when each was vouched for since that was heard. Until all are, renewals
    /// of the lease promise it nothing.
    doubts: BTreeMap<String, Option<BootTime>>,
}

impl Stake {
    pub(crate) fn new(handles: Vec<String>, fate: Arc<Fate>) -> Self {
        Self { handles, fate, doubts: BTreeMap::new() }
    }

    fn promise(&self, until: BootTime) {
        if self.doubts.is_empty() {
            self.fate.extend(until);
            self.fate.hold();
        }
    }
}

/// Renewals stop when no progress was told for so long.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    timeout: Duration,
    /// When progress was told last.
    progress_nanos: Arc<AtomicU64>,
}

impl Gate {
    pub(crate) fn new(timeout: Duration, now: BootTime) -> Self {
        Self { timeout, progress_nanos: Arc::new(AtomicU64::new(now.nanos())) }
    }

    /// Progress was told.
    pub(crate) fn progressed(&self, now: BootTime) {
        self.progress_nanos.fetch_max(now.nanos(), Ordering::SeqCst);
    }

    fn is_shut(&self, now: BootTime) -> bool {
        now.since(BootTime::from_nanos(self.progress_nanos.load(Ordering::SeqCst))) > self.timeout
    }
}

/// One message of renewals.
#[derive(Debug, PartialEq)]
pub(crate) struct Renewals {
    pub(crate) kind: RenewKind,
    /// Each lease with its new TTL, 0 for those that keep theirs.
    pub(crate) leases: Vec<(u64, i64)>,
}

/// An answered grant or renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// When it was sent.
    pub(crate) sent: BootTime,
    /// The effective TTL that it told.
    pub(crate) ttl: Duration,
}

impl Entry {
    pub(crate) fn new(answer: Answer, gate: Option<Gate>) -> Self {
        let mut entry = Self {
            first_ttl: answer.ttl,
            ttl: answer.ttl,
            counts_from: answer.sent,
            next: answer.sent,
            tries: 0,
            policy: RenewPolicy::Auto,
            touched: false,
            wish_ms: None,
            gate,
            in_line: false,
            is_left: false,
            is_over: false,
            is_final: false,
            broken: 0,
            stakes: Vec::new(),
            is_shared: false,
        };
        entry.next = answer.sent + entry.pace();
        entry
    }

    /// The same while it waits in line: it is renewed, and there is nothing yet to lose.
    pub(crate) fn in_line(answer: Answer, gate: Option<Gate>) -> Self {
        Self { in_line: true, ..Self::new(answer, gate) }
    }

    pub(crate) fn safe_until(&self) -> BootTime {
        self.counts_from + safe_for(self.ttl)
    }

    fn pace(&self) -> Duration {
        Timing::of(self.ttl).renew.max(self.first_ttl / 20).max(PACE_MIN)
    }

    fn timing(&self) -> Timing {
        Timing::of(self.first_ttl.max(self.ttl))
    }

    /// The kind of renewal that it is to have, if any.
    fn kind(&self) -> Option<RenewKind> {
        match self.policy {
            _ if self.is_over || self.is_left => None,
            _ if self.wish_ms.is_some() => Some(RenewKind::Explicit),
            _ if self.in_line => Some(RenewKind::Auto),
            RenewPolicy::Auto | RenewPolicy::Unspecified => Some(RenewKind::Auto),
            RenewPolicy::Activity if self.touched => Some(RenewKind::Touch),
            RenewPolicy::Activity | RenewPolicy::Explicit | RenewPolicy::Never => None,
        }
    }

    /// When something is to be done about it.
    fn due(&self) -> Option<BootTime> {
        let renewal = self.kind().map(|_| self.next);
        let alive = self.stakes.iter().filter(|stake| !stake.fate.is_lost());
        renewal.into_iter().chain(alive.map(|stake| stake.fate.safe_until())).min()
    }

    /// Whether it goes into a message that is sent now: when it is due, or when half of its pace is over anyway.
    fn joins(&self, now: BootTime) -> bool {
        let half = self.counts_from + self.pace() / 2;
        now >= self.next || (self.tries == 0 && now >= half)
    }

    fn attempt(&mut self, now: BootTime, jitter: Duration) {
        self.tries += 1;
        let timing = self.timing();
        match self.tries {
            1 => self.next = now + timing.first_retry.max(PACE_MIN),
            _ => {
                self.next = now + timing.retry.max(PACE_MIN) + jitter;
                self.endanger();
            }
        }
    }

    fn endanger(&self) {
        self.stakes.iter().for_each(|stake| stake.fate.endanger());
    }

    /// Why its time is over, if it is over without a word from the server.
    fn loss(&self, now: BootTime) -> Loss {
        match &self.gate {
            Some(gate) if gate.is_shut(now) => Loss::NoProgress,
            _ if self.is_final || self.kind().is_none() => Loss::TimeOver,
            _ => Loss::Unanswered,
        }
    }
}

impl Book {
    pub(crate) fn insert(&mut self, lease: u64, entry: Entry) {
        self.leases.insert(lease, entry);
    }

    /// A lease is given back, with all that hangs on it.
    pub(crate) fn remove(&mut self, lease: u64) {
        for stake in self.leases.remove(&lease).into_iter().flat_map(|entry| entry.stakes) {
            stake.fate.lose(Loss::GivenBack);
        }
    }

    /// A lease is not renewed any longer, and not given back either.
    pub(crate) fn leave(&mut self, lease: u64) {
        if let Some(entry) = self.leases.get_mut(&lease) {
            entry.is_left = true;
        }
    }

    /// Whether somebody holds a resource on this lease.
    pub(crate) fn holds(&self, lease: u64, resource: &str) -> bool {
        let stakes = self.leases.get(&lease).map_or(&[][..], |entry| &entry.stakes);
        let of = |handle: &String| handle.rsplit_once('@').is_some_and(|(name, _)| name == resource);
        stakes.iter().any(|stake| !stake.fate.is_lost() && stake.handles.iter().any(of))
    }

    /// What is told to the guard of this lease, if it is renewed.
    pub(crate) fn kept(&self, lease: u64) -> Option<Arc<Fate>> {
        let entry = self.leases.get(&lease).filter(|entry| !entry.is_over && !entry.is_left)?;
        entry.stakes.first().map(|stake| stake.fate.clone())
    }

    /// Whether more than one guard ever relied on this lease.
    pub(crate) fn is_shared(&self, lease: u64) -> bool {
        self.leases.get(&lease).is_some_and(|entry| entry.is_shared)
    }

    pub(crate) fn contains(&self, lease: u64) -> bool {
        self.leases.contains_key(&lease)
    }

    /// Until when a lease may be relied on, and its effective TTL.
    pub(crate) fn promise(&self, lease: u64) -> Option<(BootTime, Duration)> {
        self.leases.get(&lease).map(|entry| (entry.safe_until(), entry.ttl))
    }

    pub(crate) fn is_over(&self, lease: u64) -> bool {
        self.leases.get(&lease).is_none_or(|entry| entry.is_over)
    }

    /// What is held under a lease has got a guard of its own.
    pub(crate) fn stake(&mut self, lease: u64, stake: Stake) {
        let Some(entry) = self.leases.get_mut(&lease) else { return };
        entry.in_line = false;
        stake.fate.extend(entry.safe_until());
        entry.is_shared |= !entry.stakes.is_empty();
        entry.stakes.push(stake);
    }

    /// A guard is gone, and its lease lives on: kept for the sake of other guards, if there are any.
    pub(crate) fn unstake(&mut self, lease: u64, fate: &Arc<Fate>) {
        let Some(entry) = self.leases.get_mut(&lease) else { return };
        entry.stakes.retain(|stake| !Arc::ptr_eq(&stake.fate, fate));
        if entry.stakes.is_empty() && !entry.in_line {
            self.leases.remove(&lease);
        }
    }

    /// When the next thing is to be done.
    pub(crate) fn due(&self) -> Option<BootTime> {
        self.leases.values().filter_map(Entry::due).min()
    }

    /// What is to be renewed now, in as few messages as there are kinds of renewals. `chance`, from 0 to 1, draws repeated
    /// attempts of many clients apart.
    pub(crate) fn renewals(&mut self, now: BootTime, chance: f64) -> Vec<Renewals> {
        let is_due = |entry: &Entry| entry.kind().is_some() && now >= entry.next;
        if !self.leases.values().any(is_due) {
            return Vec::new();
        }
        let mut by_kind: BTreeMap<i32, Vec<(u64, i64)>> = BTreeMap::new();
        for (lease, entry) in &mut self.leases {
            let Some(kind) = entry.kind().filter(|_| entry.joins(now)) else { continue };
            let jitter = entry.timing().retry.mul_f64(chance / 2.0);
            if entry.gate.as_ref().is_some_and(|gate| !entry.in_line && gate.is_shut(now)) {
                entry.next = now + entry.timing().retry.max(PACE_MIN);
                entry.endanger();
                continue;
            }
            entry.attempt(now, jitter);
            by_kind.entry(kind.into()).or_default().push((*lease, entry.wish_ms.unwrap_or_default()));
        }
        let message = |(kind, leases)| Renewals { kind: RenewKind::try_from(kind).unwrap_or_default(), leases };
        by_kind.into_iter().map(message).collect()
    }

    /// How long the least patient of these leases waits for an answer before it is tried elsewhere.
    pub(crate) fn answer_time(&self, leases: &[(u64, i64)]) -> Duration {
        let times = leases.iter().filter_map(|(lease, _)| self.leases.get(lease)).map(|entry| entry.timing());
        times.map(|timing| timing.first_retry).min().unwrap_or_default()
    }

    /// Whether one of these leases was tried before without an answer.
    pub(crate) fn is_retry(&self, leases: &[(u64, i64)]) -> bool {
        leases.iter().filter_map(|(lease, _)| self.leases.get(lease)).any(|entry| entry.tries > 1)
    }

    /// A renewal was answered. It tells which handles have to be asked about, because claims were broken.
    pub(crate) fn renewed(
        &mut self,
        lease: u64,
        answer: Answer,
        kind: RenewKind,
        notice: Option<&RenewNotice>,
    ) -> Vec<String> {
        let Some(entry) = self.leases.get_mut(&lease).filter(|entry| !entry.is_over) else { return Vec::new() };
        if answer.ttl.is_zero() {
            return Vec::new();
        }
        entry.tries = 0;
        entry.touched &= kind != RenewKind::Touch;
        let has_new_ttl = kind == RenewKind::Explicit && entry.wish_ms.take().is_some_and(|ttl_ms| ttl_ms > 0);
        if has_new_ttl || entry.first_ttl.is_zero() {
            entry.first_ttl = answer.ttl;
        }
        if answer.sent + safe_for(answer.ttl) > entry.safe_until() {
            (entry.ttl, entry.counts_from) = (answer.ttl, answer.sent);
        }
        // Also if it moved nothing, the next one is not due before its time.
        entry.next = entry.counts_from.max(answer.sent) + entry.pace();
        let is_doubtful = notice.is_some_and(|notice| notice.lost > entry.broken);
        for stake in entry.stakes.iter_mut().filter(|stake| is_doubtful && !stake.fate.is_lost()) {
            // What may have been broken is not promised anything by this answer.
            stake.doubts = stake.handles.iter().map(|handle| (handle.clone(), None)).collect();
        }
        entry.stakes.iter().for_each(|stake| stake.promise(answer.sent + safe_for(answer.ttl)));
        entry.notice(notice);
        if is_doubtful { self.doubtful(lease) } else { Vec::new() }
    }

    /// The claims of a lease that may have been broken, and were not vouched for since.
    pub(crate) fn doubtful(&self, lease: u64) -> Vec<String> {
        let stakes = self.leases.get(&lease).into_iter().flat_map(|entry| &entry.stakes);
        let doubts = stakes.filter(|stake| !stake.fate.is_lost()).flat_map(|stake| &stake.doubts);
        doubts.filter(|(_, vouched)| vouched.is_none()).map(|(handle, _)| handle.clone()).collect()
    }

    /// A handle was asked about, and its claim is still held.
    pub(crate) fn vouched(&mut self, lease: u64, handle: &str, answer: Answer) {
        let Some(entry) = self.leases.get_mut(&lease) else { return };
        for stake in &mut entry.stakes {
            if let Some(vouched) = stake.doubts.get_mut(handle) {
                *vouched = Some(answer.sent + safe_for(answer.ttl));
            }
            // All of what one guard stands for, and none longer than the others.
            let all: Option<Vec<BootTime>> = stake.doubts.values().copied().collect();
            if let Some(until) = all.and_then(|all| all.into_iter().min()) {
                stake.doubts.clear();
                stake.promise(until);
            }
        }
    }

    /// All that was broken so far is known.
    pub(crate) fn settled(&mut self, lease: u64, broken: u64) {
        if let Some(entry) = self.leases.get_mut(&lease) {
            entry.broken = entry.broken.max(broken);
        }
    }

    /// A handle was asked about, and its claim is over.
    pub(crate) fn broken(&mut self, lease: u64, handle: &str, loss: &Loss) {
        let Some(entry) = self.leases.get_mut(&lease) else { return };
        for stake in entry.stakes.iter().filter(|stake| stake.handles.iter().any(|other| other == handle)) {
            stake.fate.lose(loss.clone());
        }
    }

    /// The class of a lease does not take the renewal that was tried; that is how it is meant to be.
    pub(crate) fn not_renewable(&mut self, lease: u64, policy: RenewPolicy) {
        if let Some(entry) = self.leases.get_mut(&lease) {
            entry.policy = policy;
            entry.tries = 0;
            entry.wish_ms = None;
        }
    }

    /// An attempt failed, and nobody has to wait for its answer any longer.
    pub(crate) fn unanswered(&mut self, leases: &[(u64, i64)], now: BootTime, pause: Duration) {
        for (lease, _) in leases {
            if let Some(entry) = self.leases.get_mut(lease).filter(|entry| entry.tries > 0) {
                let again = now + entry.timing().retry.max(PACE_MIN).max(pause);
                entry.next = if pause.is_zero() { entry.next.min(again) } else { again };
                entry.endanger();
            }
        }
    }

    /// What was wished for cannot be.
    pub(crate) fn refused(&mut self, lease: u64) {
        if let Some(entry) = self.leases.get_mut(&lease) {
            entry.wish_ms = None;
        }
    }

    /// The server says that a lease is over.
    pub(crate) fn ended(&mut self, lease: u64, loss: &Loss) {
        if let Some(entry) = self.leases.get_mut(&lease) {
            entry.is_over = true;
            entry.stakes.iter().for_each(|stake| stake.fate.lose(loss.clone()));
        }
    }

    /// Ends what may not be relied on any longer.
    pub(crate) fn lapse(&mut self, now: BootTime) {
        for entry in self.leases.values_mut().filter(|entry| !entry.is_over && !entry.stakes.is_empty()) {
            let loss = entry.loss(now);
            let due = entry.stakes.iter().filter(|stake| now >= stake.fate.safe_until());
            due.for_each(|stake| stake.fate.lose(loss.clone()));
            entry.is_over = entry.stakes.iter().all(|stake| stake.fate.is_lost());
        }
        self.leases.retain(|_, entry| !(entry.is_left && entry.is_over));
    }

    /// A renewal is to be sent at once: somebody asked for it, or a seat is to be confirmed.
    pub(crate) fn hurry(&mut self, lease: u64, now: BootTime, wish_ms: Option<i64>) {
        if let Some(entry) = self.leases.get_mut(&lease) {
            // A TTL that somebody wished for is not forgotten for somebody who has no wish.
            entry.wish_ms = wish_ms.max(entry.wish_ms);
            (entry.next, entry.tries) = (now, 0);
        }
    }

    /// Something was done with a lease.
    pub(crate) fn touch(&mut self, lease: u64, now: BootTime) {
        if let Some(entry) = self.leases.get_mut(&lease).filter(|entry| !entry.touched) {
            entry.touched = true;
            entry.next = entry.next.max(now);
        }
    }

    /// Every lease is over, because nobody keeps them any longer.
    pub(crate) fn abandon(&mut self) {
        for stake in self.leases.values().flat_map(|entry| &entry.stakes) {
            stake.fate.lose(Loss::KeeperGone);
        }
    }
}

impl Entry {
    fn notice(&mut self, notice: Option<&RenewNotice>) {
        let Some(notice) = notice else { return };
        let tell = |event: &Event| self.stakes.iter().for_each(|stake| stake.fate.tell(event.clone()));
        if notice.waiting > 0 {
            tell(&Event::Waiting { count: notice.waiting, longest: Duration::from_millis(notice.longest_wait_ms) });
        }
        if let Some(within_ms) = notice.breaks_in_ms {
            tell(&Event::Breaking { within: Duration::from_millis(within_ms) });
        }
        if notice.is_final && !self.is_final {
            tell(&Event::Final);
        }
        self.is_final = notice.is_final;
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
