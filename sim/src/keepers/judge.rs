//! The judge of guards: at every step of a keeper it compares all guards that say that they hold a resource, and every few
//! hundred milliseconds it compares the guards with the newest ledger.

use super::TTL_MAX;
use super::wire::Uplink;
use crate::dice::Dice;
use crate::machine::Site;
use crate::mix::sit_together;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tenure::clock::{BootTime, Clock};
use tenure::{Hold, Standing};
use tenure_core::{Ledger, Mode, Name, Stake};
use tokio::sync::watch;
use tokio::time::sleep;

/// After so much calm service time a claim without a guard and without a request is a ghost, if its lease has others that are wanted
/// and lives on for them: what is given back is said again every 2 s at least, to another server if one is silent. With servers in
/// trouble that takes some rounds.
const GHOST_MS_MAX: u64 = 8_000;

/// The same of a lease without others. It is renewed no longer and runs out after its TTL, and after another one if it was granted the
/// resource meanwhile.
const LONE_GHOST_MS_MAX: u64 = 2 * TTL_MAX.as_millis() as u64 + 2_000;

/// Service time is calm for a client when its network and its process have been well for so long: the keeper has had time to say
/// again what was lost before.
const CALM_AFTER_MS: u64 = 2_500;

/// Clocks differ by up to 1 % each, and a keeper learns what a ledger knew up to a look before.
const RATES: f64 = 1.02;

/// The holder of all leases of a client.
pub(super) fn holder(client: usize) -> String {
    format!("keeper-{client}")
}

/// Judges guards. Clones judge together.
#[derive(Clone)]
pub(super) struct Judge {
    site: Site,
    pages: Arc<Mutex<Pages>>,
}

#[derive(Default)]
struct Pages {
    last: u64,
    guards: BTreeMap<u64, Guard>,
    asks: BTreeMap<u64, Asked>,
    /// Claims without a guard and without a request, by lease and resource, and for how much calm service time, in milliseconds.
    ghosts: BTreeMap<(u64, Name), u64>,
    /// What was reported is not reported again.
    reported: BTreeSet<String>,
    /// Clients whose keeper runs.
    running: BTreeMap<usize, Running>,
    /// The service time of the newest look.
    looked_ms: u64,
}

/// A client whose keeper runs.
struct Running {
    uplink: Uplink,
    /// For how much service time it has been well, in milliseconds.
    well_ms: u64,
    /// How much of the time since the look before was calm.
    calm_ms: u64,
}

impl Running {
    fn look(&mut self, elapsed_ms: u64) {
        self.well_ms = if self.uplink.is_calm() { self.well_ms + elapsed_ms } else { 0 };
        self.calm_ms = elapsed_ms.min(self.well_ms.saturating_sub(CALM_AFTER_MS));
    }
}

/// What a guard says of one claim.
struct Guard {
    client: usize,
    resource: Name,
    fence: u64,
    mode: Mode,
    clock: Clock,
    standing: watch::Receiver<Standing>,
    promises: watch::Receiver<BootTime>,
    /// Since when the newest ledger does not have the claim.
    gone_since: Option<Duration>,
}

/// What a program has asked for and has no answer to.
struct Asked {
    client: usize,
    /// None: on a lease of its own.
    lease: Option<u64>,
    resources: Vec<Name>,
}

/// A place in the judge's list, until it is dropped.
pub(super) struct Entry {
    judge: Judge,
    numbers: Vec<u64>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut pages = self.judge.pages();
        for number in &self.numbers {
            pages.guards.remove(number);
            pages.asks.remove(number);
        }
    }
}

impl Guard {
    /// What `ensure` says at this moment.
    fn is_valid(&self) -> bool {
        !matches!(*self.standing.borrow(), Standing::Lost(_)) && *self.promises.borrow() > self.clock.now()
    }
}

impl Judge {
    pub(super) fn new(site: Site) -> Self {
        Self { site, pages: Arc::default() }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().expect("no task panics while it judges")
    }

    /// A keeper is run from now on.
    pub(super) fn begins(&self, client: usize, uplink: Uplink) {
        self.pages().running.insert(client, Running { uplink, well_ms: 0, calm_ms: 0 });
    }

    pub(super) fn ends(&self, client: usize) {
        self.pages().running.remove(&client);
    }

    /// A program asks for resources.
    pub(super) fn asked(&self, client: usize, lease: Option<u64>, resources: Vec<Name>) -> Entry {
        let mut pages = self.pages();
        pages.last += 1;
        let number = pages.last;
        pages.asks.insert(number, Asked { client, lease, resources });
        Entry { judge: self.clone(), numbers: vec![number] }
    }

    /// A program has a guard.
    pub(super) fn got(&self, client: usize, hold: &Hold, modes: &[Mode], clock: &Clock) -> Entry {
        let mut numbers = Vec::new();
        for (claim, mode) in hold.claims().iter().zip(modes) {
            let (handle, lease, ttl) = (claim.handle(), hold.lease(), hold.ttl());
            self.site.note(&format!("keeper-{client} holds {handle} with lease {lease:016x} for {ttl:?}"));
            self.site.book.fence(self.site.now(), claim.fence, &claim.resource);
            let mut pages = self.pages();
            pages.last += 1;
            let guard = Guard {
                client,
                resource: Name::parse(&claim.resource).expect("a server names no other resources"),
                fence: claim.fence,
                mode: *mode,
                clock: clock.clone(),
                standing: hold.standing(),
                promises: hold.promises(),
                gone_since: None,
            };
            numbers.push(pages.last);
            let number = pages.last;
            pages.guards.insert(number, guard);
        }
        self.compare();
        Entry { judge: self.clone(), numbers }
    }

    /// The claims that guards stand for, as resource and fence.
    pub(super) fn handles(&self) -> Vec<(Name, u64)> {
        self.pages().guards.values().map(|guard| (guard.resource.clone(), guard.fence)).collect()
    }

    /// Of guards of different clients, only those are valid at the same moment that can hold a resource at once.
    pub(super) fn compare(&self) {
        let mut broken = Vec::new();
        {
            let mut pages = self.pages();
            let mut valid: BTreeMap<&Name, Vec<&Guard>> = BTreeMap::new();
            for guard in pages.guards.values().filter(|guard| guard.is_valid()) {
                valid.entry(&guard.resource).or_default().push(guard);
            }
            for (resource, guards) in valid {
                for (at, one) in guards.iter().enumerate() {
                    let others = guards[..at].iter().filter(|other| other.client != one.client);
                    for other in others.filter(|other| !sit_together(&[one.mode, other.mode], 1)) {
                        broken.push(format!(
                            "{resource} is held by keeper-{} with fence {} and by keeper-{} with fence {}, by their guards",
                            other.client, other.fence, one.client, one.fence
                        ));
                    }
                }
            }
            broken.retain(|what| pages.reported.insert(what.clone()));
        }
        broken.iter().for_each(|what| self.site.broken("S2", what));
    }

    /// Compares the guards with the newest ledger, until no keeper runs.
    pub(super) async fn watch(self, dice: Dice) {
        loop {
            sleep(dice.ms(150, 400)).await;
            if self.pages().running.is_empty() {
                return;
            }
            let newest =
                self.site.net.nodes().into_iter().map(|(_, node)| node).max_by_key(|node| node.status().applied);
            if let Some(node) = newest {
                let broken = node.read_stale(|ledger| self.pages().look(ledger, self.site.now()));
                broken.iter().for_each(|(promise, what)| self.site.broken(promise, what));
            }
        }
    }
}

impl Pages {
    fn look(&mut self, ledger: &Ledger, now: Duration) -> Vec<(&'static str, String)> {
        let mut broken = Vec::new();
        for guard in self.guards.values_mut() {
            let Guard { client, resource: name, fence, .. } = &*guard;
            let resource = ledger.resource(name);
            if resource.is_some_and(|resource| resource.holders().any(|(held, _)| held.number() == *fence)) {
                guard.gone_since = None;
                continue;
            }
            let since = guard.gone_since.unwrap_or(now);
            if guard.is_valid() {
                // A copy that is behind does not have it yet.
                let has_ended = ledger.ended_claims(name).any(|ended| ended.fence.number() == *fence);
                let is_vacating = resource.is_some_and(|it| it.vacating().any(|held| held.number() == *fence));
                if has_ended && !is_vacating {
                    broken.push(("S2", format!("keeper-{client} relies on {name}@{fence}, which others may have")));
                }
                // The answer to a repeated acquire has what is left of the TTL, and a renewal promises all of it.
                if now.saturating_sub(since) > TTL_MAX.mul_f64(RATES) {
                    broken.push(("S2", format!("keeper-{client} relies on {name}@{fence}, which ended a TTL ago")));
                }
            }
            guard.gone_since = Some(since);
        }
        broken.extend(self.ghosts(ledger));
        broken.retain(|(_, what)| self.reported.insert(what.clone()));
        broken
    }

    /// Claims of living clients that no guard stands for, and that no program asks for.
    fn ghosts(&mut self, ledger: &Ledger) -> Vec<(&'static str, String)> {
        let (mut seen, mut broken, now_ms) = (BTreeMap::new(), Vec::new(), ledger.now().millis());
        let elapsed_ms = now_ms.saturating_sub(self.looked_ms);
        self.looked_ms = now_ms;
        self.running.values_mut().for_each(|client| client.look(elapsed_ms));
        for (id, lease) in ledger.leases_from(None) {
            let of = |(client, _): &(&usize, &Running)| lease.holder().as_str() == holder(**client);
            let Some((client, running)) = self.running.iter().find(of) else { continue };
            let lives_on = lease.stakes().any(|(name, stake)| self.is_wanted(*client, id.number(), name, stake));
            let most_ms = if lives_on { GHOST_MS_MAX } else { LONE_GHOST_MS_MAX };
            for (name, stake) in lease.stakes() {
                if self.is_wanted(*client, id.number(), name, stake) {
                    continue;
                }
                let place = (id.number(), name.clone());
                let calm_ms = self.ghosts.get(&place).map_or(0, |calm_ms| calm_ms + running.calm_ms);
                if calm_ms > most_ms {
                    broken
                        .push(("S12", format!("lease {id} of keeper-{client} claims {name}, and nothing asks for it")));
                }
                seen.insert(place, calm_ms);
            }
        }
        self.ghosts = seen;
        broken
    }

    fn is_wanted(&self, client: usize, lease: u64, name: &Name, stake: &Stake) -> bool {
        let has_guard = |guard: &Guard| match stake {
            Stake::Holding(holding) => guard.fence == holding.fence.number(),
            Stake::Waiting(_) => false,
        };
        let asks = |asked: &Asked| {
            asked.client == client && asked.lease.is_none_or(|on| on == lease) && asked.resources.contains(name)
        };
        self.guards.values().any(has_guard) || self.asks.values().any(asks)
    }
}
