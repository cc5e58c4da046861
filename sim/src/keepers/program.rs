//! A program: it takes, waits for, gives up, releases and relies on resources, with leases that it begins and with leases of the
//! claims' own.

use super::TTL_MAX;
use super::judge::{Entry, Judge, holder};
use crate::dice::Dice;
use crate::machine::Site;
use crate::mix::{choose, name};
use std::time::Duration;
use tenure::clock::Clock;
use tenure::{Ask, Client, Hold, Lease};
use tenure_core::{LeaseId, Mode, Name};
use tokio::time::{sleep, timeout};

/// The names of what clients with keepers claim, and no others, begin so.
pub(super) const PREFIX: &str = "kept/";

/// Resources that are claimed exclusively, and one that is also shared.
const LOCKS: [&str; 6] = ["kept/a", "kept/b", "kept/c", "kept/d", "kept/e", "kept/f"];
const ROOM: &str = "kept/room";

/// Most claims are for one lock, and after so long for another one: what is left behind is not claimed again by chance.
const FOCUS: Duration = Duration::from_secs(5);

/// How long a program waits for what may not come before it does something else.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Program {
    pub(super) number: usize,
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) dice: Dice,
    pub(super) judge: Judge,
    pub(super) site: Site,
    /// When to stop asking for more.
    pub(super) until: Duration,
}

/// A guard, and its place with the judge.
struct Held {
    // It leaves the judge's list before it is dropped: from then on the program does not rely on it.
    _entry: Entry,
    hold: Hold,
}

#[derive(Clone, Copy)]
enum Does {
    Claim,
    ClaimTwo,
    Release,
    Drop,
    Rely,
    Rest,
}

impl Program {
    pub(super) async fn live(self) {
        while self.site.now() < self.until {
            sleep(self.dice.ms(1, 1_500)).await;
            if self.dice.one_in(3) { self.hold_one().await } else { self.live_on_a_lease().await }
        }
    }

    fn ttl(&self) -> Duration {
        let max = if self.dice.one_in(2) { TTL_MAX } else { TTL_MAX / 3 };
        self.dice.ms(1_500, max.as_millis() as u64)
    }

    /// A claim with a lease of its own, held for a while.
    async fn hold_one(&self) {
        let (resource, mode) = self.want();
        let ask = self.client.lease(resource).ttl(self.ttl()).holder(holder(self.number));
        let Some(held) = self.acquire(ask, None, vec![(resource, mode)]).await else { return };
        let leave = self.site.now() + self.dice.ms(100, 12_000);
        while self.site.now() < leave && held.hold.ensure().is_ok() {
            sleep(self.dice.ms(10, 700)).await;
        }
        self.give_back(held).await;
    }

    /// A lease, and several claims that come and go with it.
    async fn live_on_a_lease(&self) {
        let begin = self.client.begin().ttl(self.ttl()).holder(holder(self.number)).begin();
        let Ok(lease) = begin.await else { return };
        let id = LeaseId::from_number(lease.lease()).expect("a lease has an id");
        self.site.book.acknowledged(id);
        self.site.note(&format!("keeper-{} has begun lease {id}", self.number));
        let mut held: Vec<Held> = Vec::new();
        // Some leases live for most of the run, so that late messages find them.
        let steps = if self.dice.one_in(2) { self.dice.between(3, 12) } else { self.dice.between(20, 60) };
        // Some hold what they have until they lose it.
        let eagerness = self.dice.between(0, 3);
        for _ in 0..steps {
            self.step(&lease, &mut held, eagerness).await;
            held.retain(|held| held.hold.ensure().is_ok());
            if lease.ensure().is_err() || self.site.now() >= self.until {
                break;
            }
        }
        // Sometimes the lease goes first, and everything with it.
        if self.dice.one_in(2) {
            held.clear();
        }
        // What is not heard of in time is given back all the same.
        let _ = timeout(PATIENCE, lease.release()).await;
    }

    async fn step(&self, lease: &Lease, held: &mut Vec<Held>, eagerness: u64) {
        let does = [
            (4, Does::Claim),
            (1, Does::ClaimTwo),
            (eagerness * held.len() as u64, Does::Release),
            (eagerness.div_ceil(3) * held.len() as u64, Does::Drop),
            (3, Does::Rely),
            (1, Does::Rest),
        ];
        match choose(&self.dice, &does) {
            Does::Claim => held.extend(self.claim(lease).await),
            Does::ClaimTwo => {
                let (one, other) = futures::future::join(self.claim(lease), self.claim(lease)).await;
                held.extend(one.into_iter().chain(other));
            }
            Does::Release => {
                let one = held.swap_remove(self.dice.between(0, held.len() as u64 - 1) as usize);
                self.give_back(one).await;
            }
            Does::Drop => drop(held.swap_remove(self.dice.between(0, held.len() as u64 - 1) as usize)),
            Does::Rely => {
                for _ in 0..self.dice.between(1, 8) {
                    sleep(self.dice.ms(1, 600)).await;
                    held.retain(|held| held.hold.ensure().is_ok());
                }
            }
            Does::Rest => sleep(self.dice.ms(100, 2_500)).await,
        }
    }

    /// A resource, and how it is wanted.
    fn want(&self) -> (&'static str, Mode) {
        let newest = (self.site.now().as_millis() / FOCUS.as_millis()) as usize;
        if self.dice.one_in(6) {
            (ROOM, if self.dice.one_in(3) { Mode::Exclusive } else { Mode::Shared })
        } else {
            let lock = if self.dice.one_in(5) { self.dice.between(0, LOCKS.len() as u64 - 1) as usize } else { newest };
            (LOCKS[lock % LOCKS.len()], Mode::Exclusive)
        }
    }

    /// A claim with a lease; sometimes what was given up is asked for again at once.
    async fn claim(&self, lease: &Lease) -> Option<Held> {
        let wants = self.wants();
        loop {
            let got = self.claim_with(lease, wants.clone()).await;
            if got.is_some() || lease.ensure().is_err() || self.site.now() >= self.until || self.dice.one_in(2) {
                return got;
            }
        }
    }

    fn wants(&self) -> Vec<(&'static str, Mode)> {
        let (one, other) = (self.want(), self.want());
        let is_fit = other.1 == Mode::Exclusive && other.0 != one.0;
        if is_fit && self.dice.one_in(5) { vec![one, other] } else { vec![one] }
    }

    async fn claim_with(&self, lease: &Lease, wants: Vec<(&'static str, Mode)>) -> Option<Held> {
        let mut ask = lease.claim(wants[0].0);
        if wants[0].1 == Mode::Shared {
            ask = ask.shared();
        }
        for (resource, _) in &wants[1..] {
            ask = ask.and(*resource);
        }
        self.acquire(ask, Some(lease.lease()), wants).await
    }

    /// Asks, waits or not, and gives up early now and then.
    async fn acquire(&self, mut ask: Ask, lease: Option<u64>, wants: Vec<(&'static str, Mode)>) -> Option<Held> {
        if lease.is_none() && wants[0].1 == Mode::Shared {
            ask = ask.shared();
        }
        if !self.dice.one_in(3) {
            ask = ask.wait(self.dice.ms(100, 5_000));
        }
        let names: Vec<Name> = wants.iter().map(|(resource, _)| name(resource)).collect();
        let modes: Vec<Mode> = wants.iter().map(|(_, mode)| *mode).collect();
        let asked = self.judge.asked(self.number, lease, names);
        let got = if self.dice.one_in(3) {
            timeout(self.dice.ms(20, 3_000), ask.acquire()).await.ok()?
        } else {
            ask.acquire().await
        };
        let hold = got.ok()?;
        let entry = self.judge.got(self.number, &hold, &modes, &self.clock);
        drop(asked);
        Some(Held { _entry: entry, hold })
    }

    async fn give_back(&self, held: Held) {
        let Held { _entry: entry, hold } = held;
        // The program has stopped to rely on it.
        drop(entry);
        let fences: Vec<u64> = hold.claims().iter().map(|claim| claim.fence).collect();
        if let Ok(Ok(())) = timeout(PATIENCE, hold.release()).await {
            let released = fences.into_iter().filter_map(tenure_core::Fence::from_number);
            released.for_each(|fence| self.site.book.released(fence));
        }
    }
}
