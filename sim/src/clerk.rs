//! A clerk: a client with leases of its own, on which it claims, cancels, hands on and gives back, and which registers instances.
//! It believes nothing; what it was answered is judged by the history of each lock, and what it did by the ledger's events.

use crate::client::Client;
use crate::dice::Dice;
use crate::ground::true_time;
use crate::mix::{self, Mix, choose};
use std::time::Duration;
use tenure_core::{
    Acquire, Cancel, Command, Counts, Deregister, Details, Draft, Drain, Endpoint, Epoch, Grant, Handle, Holder,
    InstanceKey, Kind, LeaseId, Lifetime, Name, Note, On, Priority, Proof, Refusal, Register, Release, ReleaseLease,
    Renew, Renewal, Reply, RequestNumber, Span, Transfer, Ttl, Wait, Want, limits,
};
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_millis(700);

/// Instances share a few ids, so that they meet.
const IDS: u64 = 3;

/// How many leases a clerk has at once; more if some of them end with others.
const LEASES: usize = 2;
const LEASES_IN_TREES: usize = 5;

/// Classes by what renews their leases.
const CLASSES: [(&str, Kind); 4] =
    [("lock", Kind::Auto), ("session", Kind::Touch), ("reservation", Kind::Explicit), (CACHE, Kind::Explicit)];

/// The class whose leases nothing renews.
pub(crate) const CACHE: &str = "cache";

pub(crate) struct Clerk {
    pub(crate) number: u64,
    pub(crate) client: Client,
    pub(crate) dice: Dice,
    pub(crate) mix: Mix,
    pub(crate) origin: Instant,
    pub(crate) until: Duration,
}

/// What hangs on the leases of a clerk, as far as it knows.
#[derive(Default)]
struct Desk {
    leases: Vec<LeaseId>,
    /// With which lease, on which resource, by which request.
    held: Vec<(LeaseId, Handle, Option<RequestNumber>)>,
    waiting: Vec<(LeaseId, Want, RequestNumber)>,
    /// By which request, if it hangs on a lease of the clerk.
    instances: Vec<(InstanceKey, Option<(LeaseId, RequestNumber)>)>,
    /// The number of the last request, over all of its leases.
    last: u64,
}

impl Desk {
    /// The number of a request that was not made before. What was made before is answered, or its cancel may come yet.
    fn number(&mut self) -> RequestNumber {
        self.last += 1;
        RequestNumber::new(self.last, 0).expect("a clerk makes few requests")
    }
}

#[derive(Clone, Copy)]
enum Does {
    Acquire,
    AskAgain,
    Release,
    Cancel,
    Transfer,
    Register,
    Drain,
    Deregister,
}

impl Clerk {
    pub(crate) async fn live(self) {
        let does = [
            (4 * self.mix.given, Does::Acquire),
            (2 * self.mix.given, Does::AskAgain),
            (2 * self.mix.given, Does::Release),
            (self.mix.cancels.min(self.mix.given), Does::Cancel),
            (self.mix.transfers.min(self.mix.given), Does::Transfer),
            (2 * self.mix.instances, Does::Register),
            (self.mix.instances, Does::Drain),
            (self.mix.instances, Does::Deregister),
        ];
        while true_time(self.origin) < self.until {
            sleep(self.dice.ms(50, 3_000)).await;
            let mut desk = Desk::default();
            for _ in 0..self.dice.between(2, 12) {
                match choose(&self.dice, &does) {
                    Does::Acquire => self.acquire(&mut desk).await,
                    Does::AskAgain => self.ask_again(&mut desk).await,
                    Does::Release => self.release(&mut desk).await,
                    Does::Cancel => self.cancel(&mut desk).await,
                    Does::Transfer => self.transfer(&mut desk).await,
                    Does::Register => self.register(&mut desk).await,
                    Does::Drain => self.drain(&desk).await,
                    Does::Deregister => self.deregister(&mut desk).await,
                }
                sleep(self.dice.ms(10, 800)).await;
                if !self.renew(&desk).await {
                    break;
                }
            }
            // Sometimes it leaves, and its leases run out.
            for lease in desk.leases {
                if self.dice.one_in(2) {
                    self.client.ask(Command::ReleaseLease(ReleaseLease::plain(lease)), PATIENCE).await;
                }
            }
        }
    }

    /// One of some things, if there are any.
    fn at(&self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.dice.between(0, count as u64 - 1) as usize)
    }

    fn holder(&self) -> Holder {
        Holder::parse(&format!("clerk-{}", self.number)).expect("this is a name")
    }

    /// A new lease: sometimes of a class, with a maximum lifetime, or below another one of this clerk.
    fn draw_grant(&self, desk: &Desk) -> Grant {
        let lease = LeaseId::from_number((self.dice.next() >> 1).max(1)).expect("a positive 63-bit number is an id");
        let ttl = Ttl::from_millis(self.dice.between(1_500, 6_000)).expect("in range");
        let mut grant = Grant::plain(lease, self.holder(), ttl, 1);
        if self.mix.classes > 0 && choose(&self.dice, &[(2, false), (self.mix.classes, true)]) {
            let class = self.at(CLASSES.len()).map(|at| mix::name(CLASSES[at].0));
            let span = Span::at_most(self.dice.between(2_000, 20_000), limits::WAIT_MS_MAX).ok();
            let counts = if self.dice.one_in(2) { Counts::Always } else { Counts::WhileOthersWait };
            let lifetime = span.filter(|_| self.dice.one_in(2)).map(|span| Lifetime { span, counts });
            (grant.class, grant.lifetime) = (class, lifetime);
        }
        if self.mix.trees > 0 && choose(&self.dice, &[(2, false), (self.mix.trees, true)]) {
            grant.parent = self.at(desk.leases.len()).map(|at| desk.leases[at]);
        }
        grant
    }

    /// One of its leases, or a new one.
    async fn lease(&self, desk: &mut Desk) -> Option<LeaseId> {
        let most = if self.mix.trees > 0 { LEASES_IN_TREES } else { LEASES };
        if desk.leases.len() == most || !desk.leases.is_empty() && self.dice.one_in(2) {
            return self.at(desk.leases.len()).map(|at| desk.leases[at]);
        }
        let grant = self.draw_grant(desk);
        let answer = self.client.ask(Command::Grant(grant.clone()), PATIENCE).await;
        let is_granted = matches!(answer, Some(Ok(Reply::Granted { .. })));
        is_granted.then(|| {
            desk.leases.push(grant.lease);
            grant.lease
        })
    }

    /// Renews its leases, with a kind of renewal that some of their classes refuse. False: one of them is over, or no node answers.
    async fn renew(&self, desk: &Desk) -> bool {
        if desk.leases.is_empty() {
            return true;
        }
        let leases = desk.leases.iter().map(|lease| Renewal { lease: *lease, ttl: None }).collect();
        let kind =
            if self.mix.classes > 0 { CLASSES[self.at(CLASSES.len()).unwrap_or_default()].1 } else { Kind::Auto };
        match self.client.ask(Command::Renew(Renew { leases, kind }), PATIENCE).await {
            Some(Ok(Reply::Renewed(each))) => {
                each.iter().all(|it| matches!(it, Ok(_) | Err(Refusal::NotRenewable { .. })))
            }
            _ => false,
        }
    }

    async fn acquire(&self, desk: &mut Desk) {
        let Some(lease) = self.lease(desk).await else { return };
        let want = mix::wants(&self.mix, &self.dice).swap_remove(0);
        let number = desk.number();
        self.claim(desk, lease, want, number).await;
    }

    async fn claim(&self, desk: &mut Desk, lease: LeaseId, want: Want, number: RequestNumber) {
        let wait = if self.dice.one_in(3) { Wait::Never } else { Wait::IN_LINE };
        let command = Command::Acquire(Acquire {
            on: On::Given(lease),
            wants: vec![want.clone()],
            wait,
            priority: Priority::default(),
            lock_delay: Span::ZERO,
            epoch: None,
            request: Some(number),
            secret: None,
        });
        desk.waiting.retain(|(_, waits, _)| waits.resource != want.resource);
        match self.client.ask(command, PATIENCE).await {
            Some(Ok(Reply::Seated(seat))) => {
                desk.held.extend(seat.claims.into_iter().map(|handle| (lease, handle, Some(number))));
            }
            Some(Ok(Reply::Waiting(_))) => desk.waiting.push((lease, want, number)),
            Some(_) => {}
            // Whether it was done is unknown, and nobody wants it any longer.
            None => self.leave(lease, want.resource, Some(number)).await,
        }
    }

    async fn ask_again(&self, desk: &mut Desk) {
        let Some(at) = self.at(desk.waiting.len()) else { return };
        let (lease, want, number) = desk.waiting.swap_remove(at);
        self.claim(desk, lease, want, number).await;
    }

    async fn leave(&self, lease: LeaseId, resource: Name, request: Option<RequestNumber>) {
        let cancel = Cancel { lease, resources: vec![resource], request, proof: Proof::Handle };
        self.client.ask(Command::Cancel(cancel), PATIENCE).await;
    }

    async fn release(&self, desk: &mut Desk) {
        let Some(at) = self.at(desk.held.len()) else { return };
        let (_, handle, _) = desk.held.swap_remove(at);
        let release = Release { handle, proof: Proof::Handle };
        self.client.ask(Command::Release(release), PATIENCE).await;
    }

    async fn cancel(&self, desk: &mut Desk) {
        if let Some(at) = self.at(desk.waiting.len()) {
            let (lease, want, number) = desk.waiting.swap_remove(at);
            self.leave(lease, want.resource, Some(number)).await;
        } else if let Some(at) = self.at(desk.held.len()) {
            let (lease, handle, number) = desk.held.swap_remove(at);
            self.leave(lease, handle.resource, number).await;
        }
    }

    async fn transfer(&self, desk: &mut Desk) {
        let Some(at) = self.at(desk.held.len()) else { return };
        let (from, handle, _) = desk.held.swap_remove(at);
        let Some(to) = self.lease(desk).await.filter(|to| *to != from) else { return };
        let answer = self.client.ask(Command::Transfer(Transfer { handle, to, force: None }), PATIENCE).await;
        if let Some(Ok(Reply::Seated(seat))) = answer {
            desk.held.extend(seat.claims.into_iter().map(|handle| (to, handle, None)));
        }
    }

    async fn register(&self, desk: &mut Desk) {
        let text = format!("svc/a/i{}", self.dice.between(1, IDS));
        let instance = InstanceKey::parse(&text).expect("this names an instance");
        let on = if self.dice.one_in(2) {
            On::New(self.draw_grant(desk))
        } else {
            let Some(lease) = self.lease(desk).await else { return };
            On::Given(lease)
        };
        let endpoint = Endpoint::parse("tcp://10.0.0.1:80").expect("this is an endpoint");
        let details = Details::new(Draft::at(vec![endpoint])).expect("it says where it is");
        let epoch = Epoch::from_number(self.dice.between(0, 3));
        let request = matches!(on, On::Given(_)).then(|| desk.number());
        let register = Register { instance: instance.clone(), epoch, on, details, request };
        let lease = register.lease();
        if let Some(Ok(Reply::Registered(_))) = self.client.ask(Command::Register(register), PATIENCE).await {
            desk.instances.push((instance, request.map(|number| (lease, number))));
            if !desk.leases.contains(&lease) && self.dice.one_in(2) {
                desk.leases.push(lease);
            }
        }
    }

    async fn drain(&self, desk: &Desk) {
        let Some(at) = self.at(desk.instances.len()) else { return };
        let (instance, by, reason) = (desk.instances[at].0.clone(), self.holder(), Note::default());
        let drain = Drain { instance, lease: None, on: self.dice.one_in(2), by, reason };
        self.client.ask(Command::Drain(drain), PATIENCE).await;
    }

    async fn deregister(&self, desk: &mut Desk) {
        let Some(at) = self.at(desk.instances.len()) else { return };
        let (instance, by) = desk.instances.swap_remove(at);
        let (lease, request) = by.unzip();
        let order = Deregister { instance, lease, force: None, request };
        self.client.ask(Command::Deregister(order), PATIENCE).await;
    }
}
