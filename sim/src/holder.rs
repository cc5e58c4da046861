//! Holders: clients that count from the moment they sent, keep trying whatever happens, and stop before they must.

use crate::book::{Belief, Book};
use crate::client::Client;
use crate::dice::Dice;
use crate::ground::true_time;
use crate::mix::{self, Mix};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::{
    Acquire, Command, End, Epoch, Grant, Handle, Holder, Kind, LeaseId, Mode, Name, On, Outcome, Priority, Proof,
    Refusal, Release, Renew, Renewal, Renewed, Reply, Seat, Span, Ttl, Wait, Want, limits,
};
use tokio::time::{Instant, sleep, timeout};

/// The clock rates of holder and grantor may differ by twice this; see `safe_until` in the design.
const RHO: f64 = 0.01;

pub(crate) struct Person {
    pub(crate) number: usize,
    pub(crate) resources: Vec<Name>,
    pub(crate) client: Client,
    pub(crate) dice: Dice,
    pub(crate) mix: Mix,
    /// Whether it does whatever the mix says, or claims one resource at a time.
    pub(crate) swarms: bool,
    /// How often it has begun.
    pub(crate) epoch: AtomicU64,
    pub(crate) book: Book,
    pub(crate) origin: Instant,
    /// How fast this holder's own clock runs.
    pub(crate) rate: f64,
    /// When to stop asking for more.
    pub(crate) until: Duration,
}

/// Claims of one lease, from the first try to the end.
struct Tenancy {
    grant: Grant,
    ttl_ms: u64,
    wants: Vec<Want>,
    wait: Wait,
    epoch: Option<Epoch>,
    /// The true time until which this holder may believe, by its own clock and margin.
    safe_until: Duration,
    /// Whether a renewal was ever answered. Before that it may run out while the first try is still on its way.
    is_kept: bool,
}

impl Person {
    /// Claims, holds and gives back, again and again.
    pub(crate) async fn live(self) {
        while self.now() < self.until {
            sleep(self.dice.ms(1, 2_000)).await;
            if self.dice.one_in(4) {
                self.forget_one().await;
            } else {
                self.hold_one().await;
            }
        }
    }

    fn now(&self) -> Duration {
        true_time(self.origin)
    }

    fn grant(&self, ttl_ms: u64) -> Grant {
        let lease = LeaseId::from_number((self.dice.next() >> 1).max(1)).expect("a positive 63-bit number is an id");
        let holder = Holder::parse(&format!("holder-{}", self.number)).expect("this is a name");
        Grant::plain(lease, holder, Ttl::from_millis(ttl_ms).expect("in range"), self.dice.next())
    }

    async fn ask(&self, command: Command, patience: Duration) -> Option<Outcome> {
        self.client.ask(command, patience).await
    }

    /// A lease that is never renewed: it must not end early, which the world checks on the ledger's own events.
    async fn forget_one(&self) {
        let grant = self.grant(self.dice.between(100, 6_000));
        for _ in 0..50 {
            let answer = self.ask(Command::Grant(grant.clone()), Duration::from_secs(1)).await;
            match answer {
                Some(Ok(Reply::Granted { lease, .. })) => {
                    self.book.acknowledged(lease);
                    return self.book.note(self.now(), &format!("{} forgets {lease}", self.number));
                }
                // A retry may come after the end of what the first try began.
                Some(Err(Refusal::Lapsed { .. })) => return,
                Some(other) => return self.book.broken("S12", self.now(), &format!("a grant was answered {other:?}")),
                None => sleep(self.dice.ms(10, 300)).await,
            }
        }
    }

    async fn hold_one(&self) {
        let wants = self.wants();
        let ttl_ms = self.dice.between(1_500, 8_000);
        let grant = self.grant(ttl_ms);
        let (wait, epoch) = self.manner(&wants);
        let mut tenancy = Tenancy { grant, ttl_ms, wants, wait, epoch, safe_until: Duration::ZERO, is_kept: false };
        if tenancy.epoch.is_some() {
            // Whoever comes back with a higher epoch says that it has stopped before: nobody waits for what it was promised then.
            tenancy.wants.iter().for_each(|want| self.book.gives_up(self.number, want.resource.as_str()));
        }
        let Some(handles) = self.be_seated(&mut tenancy).await else { return };
        let leave = self.now() + self.dice.ms(500, 12_000);
        while self.now() < leave {
            match self.renew(&mut tenancy).await {
                Kept::All => {}
                // Of several claims some are lost, and a renewal does not say which.
                Kept::Some => break,
                Kept::Nothing => return,
            }
            if self.mix.keys > 0 && self.dice.one_in(3) {
                // It must not keep it from renewing.
                let verify = self.client.verify(&handles[0].resource, handles[0].fence);
                let _ = timeout(self.patience(&tenancy), verify).await;
            }
            sleep(self.third(&tenancy)).await;
        }
        for handle in handles {
            self.give_back(&tenancy, handle).await;
        }
    }

    /// What is claimed next.
    fn wants(&self) -> Vec<Want> {
        if self.swarms {
            return mix::wants(&self.mix, &self.dice);
        }
        let resource = self.resources[self.dice.between(0, self.resources.len() as u64 - 1) as usize].clone();
        vec![Want { resource, mode: Mode::Exclusive, capacity: None }]
    }

    /// Whether it waits, and whether it says how often it has started.
    fn manner(&self, wants: &[Want]) -> (Wait, Option<Epoch>) {
        if !self.swarms {
            return (Wait::IN_LINE, None);
        }
        let limit = Span::at_most(self.dice.between(500, 20_000), limits::WAIT_MS_MAX).ok();
        let limit = limit.filter(|_| wants.len() > 1 || self.dice.one_in(3));
        let waits = (6, Wait::InLine { limit });
        let wait = mix::choose(&self.dice, &[waits, (self.mix.hasty, Wait::Never)]);
        let has_epoch = mix::choose(&self.dice, &[(3, false), (self.mix.epochs, true)]);
        let started = self.epoch.fetch_add(1, Ordering::Relaxed);
        (wait, Epoch::from_number(started).filter(|_| has_epoch))
    }

    fn third(&self, tenancy: &Tenancy) -> Duration {
        Duration::from_millis(tenancy.ttl_ms / 3)
    }

    fn patience(&self, tenancy: &Tenancy) -> Duration {
        Duration::from_millis((tenancy.ttl_ms / 10).min(1_000))
    }

    /// Counts from the moment of sending, by this holder's own clock, with the margin for both clocks' rates.
    fn believe(&self, tenancy: &mut Tenancy, sent: Duration, ttl_ms: u64) {
        let span = Duration::from_millis(ttl_ms).mul_f64((1.0 - RHO) / (1.0 + RHO));
        // A fast clock runs through the span sooner in true time.
        tenancy.safe_until = tenancy.safe_until.max(sent + span.div_f64(self.rate));
    }

    /// Asks until it is seated, keeping its waiting lease alive meanwhile. None: given up without harm.
    async fn be_seated(&self, tenancy: &mut Tenancy) -> Option<Vec<Handle>> {
        let acquire = Command::Acquire(Acquire {
            on: On::New(tenancy.grant.clone()),
            wants: tenancy.wants.clone(),
            wait: tenancy.wait,
            priority: Priority::default(),
            lock_delay: Span::ZERO,
            epoch: tenancy.epoch,
            request: None,
            secret: None,
        });
        let (mut waited, mut answered) = (false, false);
        loop {
            let sent = self.now();
            match self.ask(acquire.clone(), self.patience(tenancy)).await {
                Some(Ok(Reply::Seated(seat))) => {
                    self.seated(tenancy, &seat, sent);
                    let is_over = waited && matches!(self.renew(tenancy).await, Kept::Nothing);
                    return (!is_over).then_some(seat.claims);
                }
                Some(Ok(Reply::Waiting(_))) => {
                    self.book.acknowledged(tenancy.grant.lease);
                    (waited, answered) = (true, true);
                    self.renew_once(tenancy).await?;
                    sleep(self.dice.ms(50, 400)).await;
                }
                Some(Err(Refusal::Lapsed { how, .. })) => {
                    // A first try whose answer never came may run out before the second: nothing was promised yet.
                    if answered {
                        self.lost(tenancy, &how);
                    }
                    return None;
                }
                // It does not wait, or must not, or one of its claims was broken meanwhile.
                Some(Err(Refusal::Taken { .. } | Refusal::WouldDeadlock { .. })) if self.swarms => return None,
                Some(Err(Refusal::NoClaim { .. })) if tenancy.wants.len() > 1 => return None,
                Some(other) => {
                    self.book.broken("S12", self.now(), &format!("an acquire was answered {other:?}"));
                    return None;
                }
                None => {
                    // Whether it was done is unknown; the same ids make the next try the same claim.
                    waited = true;
                    if answered {
                        self.renew_once(tenancy).await?;
                    }
                    sleep(self.dice.ms(1, 100)).await;
                }
            }
        }
    }

    /// It was answered that its claims hold their resources.
    fn seated(&self, tenancy: &mut Tenancy, seat: &Seat, sent: Duration) {
        self.book.acknowledged(tenancy.grant.lease);
        for handle in &seat.claims {
            self.book.fence(self.now(), handle.fence.number(), handle.resource.as_str());
            self.book.note(self.now(), &format!("{} holds {handle}", self.number));
        }
        // The answer to a retry says what is left, so it counts from its own sending too.
        self.believe(tenancy, sent, seat.ttl_ms);
        self.claim_belief(tenancy);
    }

    fn claim_belief(&self, tenancy: &Tenancy) {
        if tenancy.safe_until > self.now() {
            for want in &tenancy.wants {
                let belief = Belief { holder: self.number, mode: want.mode, until: tenancy.safe_until };
                self.book.believes(belief, want.resource.as_str(), self.now());
            }
        }
    }

    /// Renews until it is answered.
    async fn renew(&self, tenancy: &mut Tenancy) -> Kept {
        match self.renew_once(tenancy).await {
            Some((_, renewed)) if renewed.lost > 0 => Kept::Some,
            Some((sent, renewed)) => {
                self.believe(tenancy, sent, renewed.ttl_ms);
                self.claim_belief(tenancy);
                Kept::All
            }
            None => Kept::Nothing,
        }
    }

    async fn renew_once(&self, tenancy: &mut Tenancy) -> Option<(Duration, Renewed)> {
        let renewal = Renewal { lease: tenancy.grant.lease, ttl: None };
        let renew = Command::Renew(Renew { leases: vec![renewal], kind: Kind::Auto });
        loop {
            let sent = self.now();
            match self.ask(renew.clone(), self.patience(tenancy)).await {
                Some(Ok(Reply::Renewed(each))) => match each.into_iter().next() {
                    Some(Ok(renewed)) => {
                        tenancy.is_kept = true;
                        return Some((sent, renewed));
                    }
                    Some(Err(Refusal::Lapsed { how, .. })) => {
                        self.lost(tenancy, &how);
                        return None;
                    }
                    other => {
                        self.book.broken("S10", self.now(), &format!("a renewal was answered {other:?}"));
                        return None;
                    }
                },
                Some(other) => {
                    self.book.broken("S12", self.now(), &format!("a renewal was answered {other:?}"));
                    return None;
                }
                None => sleep(Duration::from_millis(tenancy.ttl_ms / 20)).await,
            }
        }
    }

    /// The ledger says that the lease of a holder that kept trying is over. That must not happen, unless somebody ended
    /// it by force: then this holder goes on for as long as it was promised, as one does who never hears of it.
    fn lost(&self, tenancy: &Tenancy, how: &End) {
        if matches!(how, End::Revoked { .. }) {
            return self.book.note(self.now(), &format!("{} hears that it was revoked", self.number));
        }
        tenancy.wants.iter().for_each(|want| self.book.gives_up(self.number, want.resource.as_str()));
        if *how == End::WaitedOut {
            return self.book.note(self.now(), &format!("{} has waited long enough", self.number));
        }
        if !tenancy.is_kept {
            return self.book.note(self.now(), &format!("{} came too late to keep its lease", self.number));
        }
        let what = format!(
            "holder {} kept trying, and its lease {} with a TTL of {} ms ended: {how:?}",
            self.number, tenancy.grant.lease, tenancy.ttl_ms
        );
        self.book.broken("S3", self.now(), &what);
    }

    async fn give_back(&self, tenancy: &Tenancy, handle: Handle) {
        self.book.gives_up(self.number, handle.resource.as_str());
        let release = Command::Release(Release { handle: handle.clone(), proof: Proof::Handle });
        for _ in 0..200 {
            match self.ask(release.clone(), self.patience(tenancy)).await {
                Some(Ok(Reply::Released { .. })) => {
                    self.book.released(handle.fence);
                    return self.book.note(self.now(), &format!("{} released {}", self.number, handle.resource));
                }
                // It stopped holding before it gave back, so the lease may have run out under way.
                Some(Err(Refusal::Stale { .. })) => return,
                Some(other) => {
                    return self.book.broken("S12", self.now(), &format!("a release was answered {other:?}"));
                }
                None => sleep(self.dice.ms(10, 200)).await,
            }
        }
    }
}

/// What a renewal says of the claims of its lease.
enum Kept {
    All,
    Some,
    Nothing,
}
