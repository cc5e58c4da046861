//! The keeper of a client: it asks for leases, renews all of them in one message, tells each guard what becomes of it, and gives
//! back what was let go. It is a state machine: its inputs are an order of the program, news of a link, and the time; its
//! outputs are what is to be sent over which link, when it wants to be called again, and the state of the guards. It does no
//! I/O, reads no clock and waits for nothing. `thread.rs` runs it over real connections, the simulator over simulated ones.

mod answers;
mod book;
mod errand;
mod link;
mod numbers;
mod orders;
mod parting;
mod thread;

pub(crate) use book::Gate;
pub(crate) use errand::{Got, Patience, Quest, Want};
pub use link::{LinkId, News};
pub(crate) use orders::{LetGo, Order, Orders, Resumed};
pub use orders::{OrderQueue, Ordered};
pub(crate) use parting::Waiting;

use crate::chance::Chance;
use crate::clock::{BootTime, Clock};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::fate::Loss;
use crate::v1;
use crate::v1::request::Body as Ask;
use book::Book;
use errand::{Errand, Stage};
use futures::future::BoxFuture;
use link::Links;
use numbers::Numbers;
use parting::Parting;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A server that has been silent for so long is not asked once more about a lease that was given up.
const RESUME_SILENCE: Duration = Duration::from_secs(1);

/// What the runner of a keeper is to do.
pub enum Output {
    /// Open a link to a server, and tell the keeper when it stands and when it is over.
    Open {
        /// Its number.
        link: LinkId,
        /// The server.
        to: Endpoint,
    },
    /// Send a request over a link.
    Send {
        /// The link.
        link: LinkId,
        /// The request.
        request: v1::Request,
    },
    /// Close a link. The keeper takes no more news of it.
    Close {
        /// The link.
        link: LinkId,
    },
    /// Run something beside the keeper that comes back by itself.
    Spawn(BoxFuture<'static, ()>),
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { link, to } => write!(f, "Open {{ {link} to {} }}", to.name()),
            Self::Send { link, request } => write!(f, "Send {{ request {} over {link} }}", request.id),
            Self::Close { link } => write!(f, "Close {{ {link} }}"),
            Self::Spawn(_) => f.write_str("Spawn"),
        }
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
    /// A parting, by its number, when so many claims were left to be given back.
    Parting { parting: u64, left: usize },
}

/// Somebody who waits for a renewal.
#[derive(Debug)]
struct Asker {
    lease: u64,
    since: BootTime,
    reply: oneshot::Sender<Result<Duration, Error>>,
}

/// What one client knows of its leases, and decides.
pub struct Keeper {
    /// The clock of the guards; the keeper receives the time.
    clock: Clock,
    chance: Chance,
    secret: u64,
    links: Links,
    minded: Vec<BoxFuture<'static, ()>>,
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

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { links, book, errands, partings, pending, .. } = self;
        let mut told = f.debug_struct("Keeper");
        told.field("links", links).field("book", book).field("errands", errands);
        told.field("partings", partings).field("pending", pending).finish_non_exhaustive()
    }
}

impl Keeper {
    fn new(endpoints: Arc<[Endpoint]>, clock: Clock, chance: Chance, secret: u64) -> Self {
        Self {
            clock,
            chance,
            secret,
            links: Links::new(endpoints),
            minded: Vec::new(),
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

    /// Whether it has something to get or to give back.
    pub fn is_busy(&self) -> bool {
        !self.partings.is_empty() || !self.errands.is_empty()
    }

    /// What is to be done, in this order.
    pub fn outputs(&mut self) -> Vec<Output> {
        let mut outputs = self.links.outputs();
        outputs.extend(self.minded.drain(..).map(Output::Spawn));
        outputs
    }

    /// A request could not be sent. What was not sent is not answered, and tried again.
    pub fn not_sent(&mut self, request: u64) {
        self.pending.remove(&request);
    }

    /// When something is to be done without being told.
    pub fn due(&self) -> Option<BootTime> {
        let errands = self.errands.values().flat_map(|errand| [errand.again, errand.ends()]).flatten();
        let partings = self.partings.values().map(Parting::due);
        let flushes = self.flushes.iter().map(|(until, _)| *until);
        self.book.due().into_iter().chain(errands).chain(partings).chain(flushes).min()
    }

    /// Does what is due. It is called after every other input.
    pub fn act(&mut self, now: BootTime) {
        self.book.lapse(now);
        self.answer_askers_of_what_is_over();
        self.renew(now);
        self.run_errands(now);
        self.part(now);
        self.tell_flushed(now);
    }

    /// Takes an order of the program.
    pub fn follow(&mut self, order: Ordered, now: BootTime) {
        match order.0 {
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
            Order::Mind(minding) => self.minded.push(minding),
            Order::Flush { until, reply } => self.flushes.push((until, reply)),
        }
    }

    fn send(&mut self, body: Ask, what: What, now: BootTime) {
        self.last_request += 1;
        let request = v1::Request { id: self.last_request, body: Some(body) };
        let link = self.links.send(request, now);
        self.pending.insert(self.last_request, Pending { link, sent: now, what });
    }

    fn renew(&mut self, now: BootTime) {
        for renewals in self.book.renewals(now, self.chance.fraction()) {
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
                What::Parting { parting, .. } => {
                    if let Some(parting) = self.partings.get_mut(&parting) {
                        parting.failed(now);
                    }
                }
            }
        }
    }

    /// Takes news of a link. Those of links that are not kept any longer are ignored.
    pub fn hear(&mut self, link: LinkId, news: News, now: BootTime) {
        if !self.links.heard(link, now) {
            return;
        }
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

#[cfg(test)]
mod tests;
