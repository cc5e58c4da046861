//! Holders: clients that count from the moment they sent, keep trying whatever happens, and stop before they must.

use crate::book::Book;
use crate::client::Client;
use crate::dice::Dice;
use crate::ground::true_time;
use std::time::Duration;
use tenure_core::{
    Acquire, Command, End, Fence, Grant, Handle, Holder, Kind, LeaseId, Name, On, Outcome, Refusal, Release, Renew,
    Renewal, Reply, Ttl, Wait,
};
use tokio::time::{Instant, sleep};

/// The clock rates of holder and grantor may differ by twice this; see `safe_until` in the design.
const RHO: f64 = 0.01;

pub(crate) struct Person {
    pub(crate) number: usize,
    pub(crate) resources: Vec<Name>,
    pub(crate) client: Client,
    pub(crate) dice: Dice,
    pub(crate) book: Book,
    pub(crate) origin: Instant,
    /// How fast this holder's own clock runs.
    pub(crate) rate: f64,
    /// When to stop asking for more.
    pub(crate) until: Duration,
}

/// One claim, from the first try to the end.
struct Tenancy {
    grant: Grant,
    ttl_ms: u64,
    resource: Name,
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
        let resource = self.resources[self.dice.between(0, self.resources.len() as u64 - 1) as usize].clone();
        let ttl_ms = self.dice.between(1_500, 8_000);
        let mut tenancy =
            Tenancy { grant: self.grant(ttl_ms), ttl_ms, resource, safe_until: Duration::ZERO, is_kept: false };
        let Some(fence) = self.be_seated(&mut tenancy).await else { return };
        let leave = self.now() + self.dice.ms(500, 12_000);
        while self.now() < leave {
            if !self.renew(&mut tenancy).await {
                return;
            }
            sleep(self.third(&tenancy)).await;
        }
        self.give_back(&tenancy, fence).await;
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
    async fn be_seated(&self, tenancy: &mut Tenancy) -> Option<Fence> {
        let acquire = Command::Acquire(Acquire::exclusive(
            On::New(tenancy.grant.clone()),
            tenancy.resource.clone(),
            Wait::IN_LINE,
        ));
        let (mut waited, mut answered) = (false, false);
        loop {
            let sent = self.now();
            match self.ask(acquire.clone(), self.patience(tenancy)).await {
                Some(Ok(Reply::Seated(seat))) => {
                    self.book.acknowledged(tenancy.grant.lease);
                    let fence = seat.claims[0].fence;
                    self.book.fence(self.now(), fence.number(), tenancy.resource.as_str());
                    let line = format!("{} holds {}@{fence}", self.number, tenancy.resource);
                    self.book.note(self.now(), &line);
                    // The answer to a retry says what is left, so it counts from its own sending too.
                    self.believe(tenancy, sent, seat.ttl_ms);
                    self.claim_belief(tenancy);
                    return if waited && !self.renew(tenancy).await { None } else { Some(fence) };
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

    fn claim_belief(&self, tenancy: &Tenancy) {
        if tenancy.safe_until > self.now() {
            self.book.believes(self.number, tenancy.resource.as_str(), self.now(), tenancy.safe_until);
        }
    }

    /// Renews until it is answered. False: the lease is over.
    async fn renew(&self, tenancy: &mut Tenancy) -> bool {
        match self.renew_once(tenancy).await {
            Some((sent, ttl_ms)) => {
                self.believe(tenancy, sent, ttl_ms);
                self.claim_belief(tenancy);
                true
            }
            None => false,
        }
    }

    async fn renew_once(&self, tenancy: &mut Tenancy) -> Option<(Duration, u64)> {
        let renewal = Renewal { lease: tenancy.grant.lease, ttl: None };
        let renew = Command::Renew(Renew { leases: vec![renewal], kind: Kind::Auto });
        loop {
            let sent = self.now();
            match self.ask(renew.clone(), self.patience(tenancy)).await {
                Some(Ok(Reply::Renewed(each))) => match each.into_iter().next() {
                    Some(Ok(renewed)) => {
                        tenancy.is_kept = true;
                        return Some((sent, renewed.ttl_ms));
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
        self.book.gives_up(self.number, tenancy.resource.as_str());
        if !tenancy.is_kept {
            return self.book.note(self.now(), &format!("{} came too late to keep its lease", self.number));
        }
        let what = format!(
            "holder {} kept trying, and its lease {} with a TTL of {} ms ended: {how:?}",
            self.number, tenancy.grant.lease, tenancy.ttl_ms
        );
        self.book.broken("S3", self.now(), &what);
    }

    async fn give_back(&self, tenancy: &Tenancy, fence: Fence) {
        self.book.gives_up(self.number, tenancy.resource.as_str());
        let release = Command::Release(Release { handle: Handle { resource: tenancy.resource.clone(), fence } });
        for _ in 0..200 {
            match self.ask(release.clone(), self.patience(tenancy)).await {
                Some(Ok(Reply::Released)) => {
                    self.book.released(fence);
                    return self.book.note(self.now(), &format!("{} released {}", self.number, tenancy.resource));
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
