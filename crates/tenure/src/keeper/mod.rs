//! The keeper: one thread per client that asks for leases, renews all of them in one message, tells each guard what
//! becomes of it, and gives back what was let go. It never waits for the program that it works for.

mod answers;
mod book;
mod errand;
mod link;
mod numbers;
mod parting;

pub(crate) use book::Gate;
pub use errand::draw_lease;
pub(crate) use errand::{Got, Patience, Quest, Want};
pub(crate) use parting::Waiting;

use crate::clock::{BootTime, Clock};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::fate::{Fate, Loss};
use crate::v1;
use crate::v1::request::Body as Ask;
use book::Book;
use errand::{Errand, Stage};
use futures::future::BoxFuture;
use link::{LinkId, Links, News};
use numbers::Numbers;
use parting::Parting;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A server that has been silent for so long is not asked once more about a lease that was given up.
const RESUME_SILENCE: Duration = Duration::from_secs(1);

/// What a keeper is told. There is no limit to the queue, but at most a few orders for each guard that lives.
pub(crate) enum Order {
    /// Get something.
    Get { errand: u64, quest: Quest, reply: oneshot::Sender<Result<Got, Error>> },
    /// It is not wanted any longer, whether it was got or not.
    Forget { errand: u64 },
    /// Renew a lease because somebody decided so, with another TTL if it is not 0.
    Renew { lease: u64, ttl_ms: i64, reply: oneshot::Sender<Result<Duration, Error>> },
    /// Something was done with a lease.
    Touch { lease: u64 },
    /// Give something back.
    LetGo { what: LetGo, fate: Arc<Fate>, reply: Option<oneshot::Sender<Result<(), Error>>> },
    /// Renew a lease that was given up, once, and keep it on if the server has kept it.
    Resume { lease: u64, reply: oneshot::Sender<Resumed> },
    /// Renew a lease no longer, and do not give it back either.
    Leave { lease: u64 },
    /// Look after something that comes back by itself, on the keeper's thread.
    Mind(BoxFuture<'static, ()>),
    /// Tell when nothing is left to be given back, or how many are left at that time.
    Flush { until: BootTime, reply: oneshot::Sender<usize> },
}

/// What became of a lease that was given up.
#[derive(Debug)]
pub(crate) enum Resumed {
    /// The server has kept it, and it is renewed again.
    Lives { ttl: Duration, fate: Arc<Fate> },
    /// It is over, or others were told that it is.
    Over(Loss),
    /// The server cannot tell now.
    Unknown,
}

/// What is given back.
#[derive(Clone, Debug)]
pub(crate) enum LetGo {
    /// A lease with all that hangs on it.
    Lease(u64),
    /// Claims that are held; the lease lives on. By handle, so that what is claimed anew under the same name is not meant.
    Claims { lease: u64, handles: Vec<String> },
    /// Claims that are in line, or on their way there; the lease lives on. With the number of their request, if it has one.
    Line { lease: u64, resources: Vec<String>, number: u64 },
    /// An instance on a lease that lives on. With the number of its registration, if it has one.
    Instance { lease: u64, service: String, id: String, number: u64 },
}

/// The way to a keeper. When the last one is gone, the keeper gives back what it was told to, and ends.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    orders: mpsc::UnboundedSender<Order>,
    pub(crate) clock: Clock,
    /// The secret of this client's claims: a release that shows it frees them at once.
    pub(crate) secret: u64,
}

impl Orders {
    /// Starts a keeper on a thread of its own.
    pub(crate) fn start(endpoints: Arc<[Endpoint]>, clock: Clock) -> io::Result<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a guard that is dropped never waits, and there are few orders a guard"
        )]
        let (orders, taken) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (keeper_clock, secret) = (clock.clone(), rand::random::<u64>().max(1));
        thread::Builder::new().name("tenure-keeper".into()).spawn(move || {
            runtime.block_on(Keeper::new(endpoints, keeper_clock, secret, taken).run());
        })?;
        Ok(Self { orders, clock, secret })
    }

    /// Tells the keeper. It does not wait.
    pub(crate) fn tell(&self, order: Order) {
        // A keeper that is gone has told every guard so.
        let _ = self.orders.send(order);
    }
}

/// A request on its way.
#[derive(Debug)]
struct Pending {
    link: LinkId,
    sent: BootTime,
    what: What,
}

/// What a request was for.
#[derive(Debug)]
enum What {
    /// An errand, by its number, and the lease that it had then.
    Errand { errand: u64, lease: u64, has_own_lease: bool },
    /// Renewals.
    Renewals(book::Renewals),
    /// Whether a lease that was given up lives.
    Resume { lease: u64, reply: oneshot::Sender<Resumed> },
    /// Whether a claim is still held, after so many were broken.
    Handle { lease: u64, handle: String, broken: u64 },
    /// A parting, by its number.
    Parting(u64),
}

/// Somebody who waits for a renewal.
#[derive(Debug)]
struct Asker {
    lease: u64,
    since: BootTime,
    reply: oneshot::Sender<Result<Duration, Error>>,
}

struct Keeper {
    clock: Clock,
    secret: u64,
    orders: mpsc::UnboundedReceiver<Order>,
    links: Links,
    book: Book,
    errands: BTreeMap<u64, Errand>,
    partings: BTreeMap<u64, Parting>,
    askers: Vec<Asker>,
    flushes: Vec<(BootTime, oneshot::Sender<usize>)>,
    pending: BTreeMap<u64, Pending>,
    last_request: u64,
    /// The numbers of the requests about the leases without claims that this keeper has begun.
    numbers: BTreeMap<u64, Numbers>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.book.abandon();
    }
}

impl Keeper {
    fn new(endpoints: Arc<[Endpoint]>, clock: Clock, secret: u64, orders: mpsc::UnboundedReceiver<Order>) -> Self {
        Self {
            clock,
            secret,
            orders,
            links: Links::new(endpoints),
            book: Book::default(),
            errands: BTreeMap::new(),
            partings: BTreeMap::new(),
            askers: Vec::new(),
            flushes: Vec::new(),
            pending: BTreeMap::new(),
            last_request: 0,
            numbers: BTreeMap::new(),
        }
    }

    /// Works until nobody can order anything any longer and nothing is left to be given back.
    async fn run(mut self) {
        let mut is_open = true;
        while is_open || !self.partings.is_empty() || !self.errands.is_empty() {
            let due = self.due();
            let clock = self.clock.clone();
            tokio::select! {
                biased;
                () = clock.until(due) => {}
                (link, news) = self.links.news() => self.hear(link, news),
                order = self.orders.recv(), if is_open => match order {
                    Some(order) => self.follow(order),
                    None => is_open = false,
                },
            }
            self.act();
        }
    }

    /// When something is to be done without being told.
    fn due(&self) -> Option<BootTime> {
        let errands = self.errands.values().flat_map(|errand| [errand.again, errand.ends()]).flatten();
        let partings = self.partings.values().map(Parting::due);
        let flushes = self.flushes.iter().map(|(until, _)| *until);
        self.book.due().into_iter().chain(errands).chain(partings).chain(flushes).min()
    }

    /// Does what is due.
    fn act(&mut self) {
        let now = self.clock.now();
        self.book.lapse(now);
        self.answer_askers_of_what_is_over();
        self.renew(now);
        self.run_errands(now);
        self.part(now);
        self.tell_flushed(now);
    }

    fn follow(&mut self, order: Order) {
        let now = self.clock.now();
        match order {
            Order::Get { errand, quest, reply } => {
                let new = Errand::new(quest, now, reply);
                match self.claimed_already(&new) {
                    Some(refusal) => drop(new.reply.send(Err(refusal))),
                    None => drop(self.errands.insert(errand, new)),
                }
            }
            Order::Forget { errand } => self.forget(errand, now),
            Order::Renew { lease, ttl_ms, reply } => {
                self.book.hurry(lease, now, Some(ttl_ms));
                self.askers.push(Asker { lease, since: now, reply });
            }
            Order::Touch { lease } => self.book.touch(lease, now),
            Order::LetGo { what, fate, reply } => self.let_go(what, &fate, reply, now),
            Order::Resume { lease, reply } => self.resume(lease, reply, now),
            Order::Leave { lease } => self.book.leave(lease),
            Order::Mind(minding) => drop(tokio::spawn(minding)),
            Order::Flush { until, reply } => self.flushes.push((until, reply)),
        }
    }

    fn send(&mut self, body: Ask, what: What, now: BootTime) {
        self.last_request += 1;
        let request = v1::Request { id: self.last_request, body: Some(body) };
        // What was not sent is not answered, and tried again.
        if let Some(link) = self.links.send(request, now) {
            self.pending.insert(self.last_request, Pending { link, sent: now, what });
        }
    }

    fn renew(&mut self, now: BootTime) {
        for renewals in self.book.renewals(now, rand::random()) {
            if self.book.is_retry(&renewals.leases) {
                let silence = self.book.answer_time(&renewals.leases);
                self.turn_from_silence(now, silence);
            }
            for leases in renewals.leases.chunks(tenure_api::RENEWALS_MAX) {
                let keeps_ttls = leases.iter().all(|(_, ttl_ms)| *ttl_ms == 0);
                let ask = Ask::Renew(v1::RenewRequest {
                    leases: leases.iter().map(|(lease, _)| *lease).collect(),
                    ttls_ms: if keeps_ttls { Vec::new() } else { leases.iter().map(|(_, ttl_ms)| *ttl_ms).collect() },
                    kind: renewals.kind.into(),
                });
                let part = book::Renewals { kind: renewals.kind, leases: leases.to_vec() };
                self.send(ask, What::Renewals(part), now);
            }
        }
    }

    /// Asks whether a lease that was given up lives. One that others relied on, too, is left to end: they were told.
    fn resume(&mut self, lease: u64, reply: oneshot::Sender<Resumed>, now: BootTime) {
        if self.book.is_shared(lease) {
            let _ = reply.send(Resumed::Over(Loss::Unanswered));
            return;
        }
        self.turn_from_silence(now, RESUME_SILENCE);
        let ask = Ask::Renew(v1::RenewRequest { leases: vec![lease], ..v1::RenewRequest::default() });
        self.send(ask, What::Resume { lease, reply }, now);
    }

    /// Goes on to the next server, if the one that was spoken to has been silent for so long.
    fn turn_from_silence(&mut self, now: BootTime, silence: Duration) {
        if let Some(given_up) = self.links.turn_from_silence(now, silence) {
            given_up.into_iter().for_each(|link| self.lose_link(link, now));
            self.ask_again_elsewhere(now);
        }
    }

    /// What stands in line on an older connection would not be told of its seat.
    fn ask_again_elsewhere(&mut self, now: BootTime) {
        for errand in self.errands.values_mut().filter(|errand| matches!(errand.stage, Stage::InLine)) {
            errand.again = Some(now);
        }
    }

    /// What was sent over a connection that is over is not answered.
    fn lose_link(&mut self, link: LinkId, now: BootTime) {
        let lost: Vec<u64> = self.pending.iter().filter(|(_, p)| p.link == link).map(|(id, _)| *id).collect();
        for id in lost {
            let Some(pending) = self.pending.remove(&id) else { continue };
            match pending.what {
                What::Errand { errand, .. } => {
                    if let Some(errand) = self.errands.get_mut(&errand) {
                        errand.again = Some(now + errand.pause());
                    }
                }
                What::Renewals(renewals) => self.book.unanswered(&renewals.leases, now, Duration::ZERO),
                // The next renewal tells of the broken claims again, and whoever wants to go on asks again.
                What::Handle { .. } | What::Resume { .. } => {}
                What::Parting(parting) => {
                    if let Some(parting) = self.partings.get_mut(&parting) {
                        parting.failed(now);
                    }
                }
            }
        }
    }

    fn hear(&mut self, link: LinkId, news: News) {
        let now = self.clock.now();
        self.links.heard(link, now);
        match news {
            News::Open => {}
            News::Answer(response) => self.answered(link, response, now),
            News::Closed(error) => {
                let was_current = self.links.is_current(link);
                self.links.closed(link);
                // Broken ones may have been taken; all others have not.
                if !matches!(error, Error::Broken(_)) {
                    self.note_unreached(link, &error);
                }
                // What was lost with it is asked for again after a pause, so this comes last.
                if was_current {
                    self.ask_again_elsewhere(now);
                }
                self.lose_link(link, now);
            }
        }
    }

    /// No server was reached for the errands that were sent over this connection.
    fn note_unreached(&mut self, link: LinkId, error: &Error) {
        let of_link = self.pending.values().filter(|pending| pending.link == link);
        let errands = of_link.filter_map(|pending| match pending.what {
            What::Errand { errand, .. } => Some(errand),
            _ => None,
        });
        for errand in errands.collect::<Vec<_>>() {
            if let Some(errand) = self.errands.get_mut(&errand) {
                errand.unreached.push(error.clone());
                errand.unreached.drain(..errand.unreached.len().saturating_sub(self.links.count()));
            }
        }
    }

    fn run_errands(&mut self, now: BootTime) {
        let servers = self.links.count();
        let is_over = |errand: &Errand| {
            errand.ends().is_some_and(|end| now >= end) || errand.is_hopeless(servers) || errand.reply.is_closed()
        };
        let over: Vec<u64> = self.errands.iter().filter(|(_, errand)| is_over(errand)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|errand| self.give_up(errand, now));
        let due = |errand: &Errand| errand.again.is_some_and(|again| now >= again);
        let again: Vec<u64> = self.errands.iter().filter(|(_, errand)| due(errand)).map(|(id, _)| *id).collect();
        for id in again {
            self.ask(id, now);
        }
    }

    fn ask(&mut self, id: u64, now: BootTime) {
        let is_leaving = self.errands.get(&id).is_some_and(|errand| self.is_leaving(errand));
        let Some(errand) = self.errands.get_mut(&id) else { return };
        if is_leaving {
            // What is taken back may still be there, and one lease claims nothing twice.
            errand.again = Some(now + errand.pause());
            return;
        }
        let is_retry = errand.first_sent.is_some();
        errand.first_sent.get_or_insert(now);
        errand.asks += 1;
        // One that stands in line is answered when its turn comes; it is asked again when its connection is lost.
        errand.again = Some(now + errand.answer_time());
        let numbers = self.numbers.get_mut(&errand.lease()).filter(|_| !errand.has_own_lease());
        let (body, silence) = (errand.body(numbers), errand.answer_time());
        let what = What::Errand { errand: id, lease: errand.lease(), has_own_lease: errand.has_own_lease() };
        if is_retry {
            self.turn_from_silence(now, silence);
        }
        self.send(body, what, now);
    }

    /// Why something is not asked for: this client has it on the same lease, or is at it, and two guards would let it go
    /// for each other.
    fn claimed_already(&self, new: &Errand) -> Option<Error> {
        let lease = new.lease();
        let wants = |resource: &String| {
            let others = self.errands.values().filter(|errand| errand.lease() == lease);
            self.book.holds(lease, resource) || others.flat_map(Errand::resources).any(|other| other == *resource)
        };
        let resource = new.resources().into_iter().find(wants)?;
        let message = format!("this lease claims {resource} already; nothing was changed");
        let code = tenure_api::Code::Claimed.text().into();
        Some(v1::Failure { code, message, lease, resource, ..v1::Failure::default() }.into())
    }

    /// Whether a claim on the same lease and the same resource is being taken back.
    fn is_leaving(&self, errand: &Errand) -> bool {
        let (lease, resources) = (errand.lease(), errand.resources());
        self.partings.values().any(|parting| parting.is_of(lease, &resources))
    }

    /// A request was answered for good.
    fn settle_number(&mut self, lease: u64, number: u64) {
        if let Some(numbers) = self.numbers.get_mut(&lease) {
            numbers.settle(number);
        }
    }

    fn tell_flushed(&mut self, now: BootTime) {
        let left = self.partings.len();
        let is_done = |until: &BootTime| left == 0 || now >= *until;
        for (_, reply) in self.flushes.extract_if(.., |(until, _)| is_done(until)) {
            let _ = reply.send(left);
        }
    }
}
