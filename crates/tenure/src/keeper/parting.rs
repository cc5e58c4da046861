//! Giving back: what was let go is told to the server until it has heard it, or until it is over anyway.

use super::errand::{Errand, Got, Quest, Stage};
use super::numbers::Numbers;
use super::{Ask, Keeper, LetGo, Order, Orders, What};
use crate::clock::BootTime;
use crate::error::{Error, is_for_now};
use crate::fate::{Fate, Loss};
use crate::v1;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::{Code, code_of};
use tokio::sync::oneshot;

/// Pauses between attempts.
const PAUSE_MIN: Duration = Duration::from_millis(300);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is not known to end sooner is given back for so long.
const UNKNOWN_TTL: Duration = Duration::from_secs(3600);

/// However short a lease is, whoever waits for its release is told for so long.
const TELL_MIN: Duration = Duration::from_secs(5);

/// What is to be given back.
#[derive(Debug)]
pub(super) struct Parting {
    what: LetGo,
    /// It is over by itself then.
    until: BootTime,
    next: BootTime,
    pause: Duration,
    /// The errand whose request may still be on its way, so that the server may hear of it later than of this.
    asked_by: Option<u64>,
    reply: Option<oneshot::Sender<Result<(), Error>>>,
}

impl Parting {
    /// Whether claims on these resources are being taken back from a line.
    pub(super) fn is_of(&self, lease: u64, resources: &[String]) -> bool {
        let name = |handle: &String| handle.rsplit_once('@').map(|(name, _)| name.to_string());
        match &self.what {
            LetGo::Line { lease: other, resources: others, .. } => {
                *other == lease && others.iter().any(|other| resources.contains(other))
            }
            LetGo::Claims { lease: other, handles } => {
                *other == lease && handles.iter().filter_map(name).any(|other| resources.contains(&other))
            }
            LetGo::Lease(_) | LetGo::Instance { .. } => false,
        }
    }

    /// The lease that lives on without what is given back, if it does.
    fn stays_on(&self) -> Option<u64> {
        match &self.what {
            LetGo::Lease(_) => None,
            LetGo::Claims { lease, .. } | LetGo::Line { lease, .. } | LetGo::Instance { lease, .. } => Some(*lease),
        }
    }

    /// The lease and the number of the request that this takes back, if it has one.
    fn number(&self) -> Option<(u64, u64)> {
        match &self.what {
            LetGo::Line { lease, number, .. } | LetGo::Instance { lease, number, .. } if *number > 0 => {
                Some((*lease, *number))
            }
            _ => None,
        }
    }

    /// What the server is told next.
    fn body(&self, release_secret: u64, answered_below: u64) -> Option<Ask> {
        match &self.what {
            LetGo::Lease(lease) => Some(Ask::ReleaseLease(v1::ReleaseLeaseRequest { lease: *lease, release_secret })),
            LetGo::Claims { handles, .. } => handles
                .first()
                .map(|handle| Ask::Release(v1::ReleaseRequest { handle: handle.clone(), release_secret })),
            LetGo::Line { lease, resources, number } => {
                let (lease, resources, number) = (*lease, resources.clone(), *number);
                let resource = String::new();
                Some(Ask::Cancel(v1::CancelRequest {
                    lease,
                    resource,
                    resources,
                    number,
                    answered_below,
                    release_secret,
                }))
            }
            LetGo::Instance { lease, service, id, number } => {
                let (lease, service, id, number) = (*lease, service.clone(), id.clone(), *number);
                let force = None;
                Some(Ask::Deregister(v1::DeregisterRequest { service, id, lease, force, number, answered_below }))
            }
        }
    }

    /// How many claims are left to be given back one after the other.
    fn left(&self) -> usize {
        if let LetGo::Claims { handles, .. } = &self.what { handles.len() } else { 0 }
    }

    /// One handle was heard of: whether there are more.
    fn goes_on(&mut self, now: BootTime) -> bool {
        let LetGo::Claims { handles, .. } = &mut self.what else { return false };
        handles.drain(..1.min(handles.len()));
        (self.next, self.pause) = (now, PAUSE_MIN);
        !handles.is_empty()
    }

    pub(super) fn due(&self) -> BootTime {
        self.next.min(self.until)
    }

    /// An attempt failed.
    pub(super) fn failed(&mut self, now: BootTime) {
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

impl Keeper {
    /// A guard is gone, or gives back on purpose.
    pub(super) fn let_go(
        &mut self,
        what: LetGo,
        fate: &Arc<Fate>,
        reply: Option<oneshot::Sender<Result<(), Error>>>,
        now: BootTime,
    ) {
        match &what {
            LetGo::Lease(lease) => {
                self.book.remove(*lease);
                self.numbers.remove(lease);
            }
            LetGo::Claims { lease, .. } | LetGo::Line { lease, .. } | LetGo::Instance { lease, .. } => {
                self.book.unstake(*lease, fate);
            }
        }
        fate.lose(Loss::GivenBack);
        let until = fate.safe_until().max(now + TELL_MIN);
        self.begin_parting(Parting { what, until, next: now, pause: PAUSE_MIN, asked_by: None, reply });
    }

    /// Somebody does not wait any longer for what it asked for.
    pub(super) fn forget(&mut self, id: u64, now: BootTime) {
        if let Some(errand) = self.errands.remove(&id) {
            self.leave(id, &errand, now);
        }
    }

    /// Its time is over.
    pub(super) fn give_up(&mut self, id: u64, now: BootTime) {
        let Some(mut errand) = self.errands.remove(&id) else { return };
        self.leave(id, &errand, now);
        let why = errand.given_up();
        // Nobody may be there any longer.
        let _ = errand.reply.send(Err(why));
    }

    /// Takes back what may have been asked for.
    pub(super) fn leave(&mut self, id: u64, errand: &Errand, now: BootTime) {
        if errand.first_sent.is_none() {
            return;
        }
        let lease = errand.lease();
        let ttl = self.book.promise(lease).map_or(errand.ttl_or(UNKNOWN_TTL), |(_, ttl)| ttl);
        let what = if errand.has_own_lease() {
            self.book.remove(lease);
            LetGo::Lease(lease)
        } else {
            errand.undone()
        };
        // The server knows a request that comes later than its cancel by its number.
        let asked_by = (errand.number == 0 && matches!(errand.stage, Stage::Asked)).then_some(id);
        let until = now + ttl.max(TELL_MIN);
        self.begin_parting(Parting { what, until, next: now, pause: PAUSE_MIN, asked_by, reply: None });
    }

    /// Something came that nobody waits for any longer.
    pub(super) fn send_back(&mut self, what: LetGo, now: BootTime) {
        let until = now + UNKNOWN_TTL;
        self.begin_parting(Parting { what, until, next: now, pause: PAUSE_MIN, asked_by: None, reply: None });
    }

    fn begin_parting(&mut self, parting: Parting) {
        self.last_request += 1;
        self.partings.insert(self.last_request, parting);
    }

    /// Sends what is due, and drops what is over by itself.
    pub(super) fn part(&mut self, now: BootTime) {
        for parting in self.partings.values_mut().filter(|parting| now >= parting.until) {
            // What hangs on a lease that is renewed for the sake of others does not end by itself.
            if parting.stays_on().is_some_and(|lease| !self.book.is_over(lease)) {
                parting.until = now + TELL_MIN;
            }
        }
        for (_, parting) in self.partings.extract_if(.., |_, parting| now >= parting.until) {
            if let Some(reply) = parting.reply {
                let _ = reply.send(Err(Error::Broken("no release was answered before the lease was over".into())));
            }
        }
        let due: Vec<u64> = self.partings.iter().filter(|(_, p)| now >= p.next).map(|(id, _)| *id).collect();
        for id in due {
            let Some(parting) = self.partings.get_mut(&id) else { continue };
            let numbers = parting.number().and_then(|(lease, _)| self.numbers.get(&lease));
            let answered_below = numbers.map_or(0, Numbers::answered_below);
            let (body, silence, left) = (parting.body(self.secret, answered_below), parting.pause, parting.left());
            let is_retry = parting.pause > PAUSE_MIN;
            parting.failed(now);
            if is_retry {
                self.turn_from_silence(now, silence);
            }
            match body {
                Some(body) => self.send(body, What::Parting { parting: id, left }, now),
                None => self.parted(id, left, None, now),
            }
        }
    }

    /// The server has answered a request that was sent when so many claims were left. The answer to another copy of it may have come
    /// before, and then it says nothing of the claim that is given back now.
    pub(super) fn parted(&mut self, id: u64, left: usize, refused: Option<v1::Failure>, now: BootTime) {
        let Some(parting) = self.partings.get_mut(&id).filter(|parting| parting.left() == left) else { return };
        let pending = &self.pending;
        let is_on_its_way = |errand: u64| {
            let mut whats = pending.values().map(|pending| &pending.what);
            whats.any(|what| matches!(what, What::Errand { errand: other, .. } if *other == errand))
        };
        let outcome = match refused {
            None => Ok(()),
            Some(failure) => match code_of(&failure) {
                _ if is_for_now(&failure) => return parting.failed(now),
                // What was asked for may come later than this: while its connection lives, and once more after that,
                // because it may have come to the server already and wait there.
                Some(Code::NoLease | Code::NoClaim | Code::NoInstance) if parting.asked_by.is_some() => {
                    parting.asked_by = parting.asked_by.filter(|errand| is_on_its_way(*errand));
                    return parting.failed(now);
                }
                _ => Err(failure.into()),
            },
        };
        if parting.goes_on(now) {
            return;
        }
        let Some(parting) = self.partings.remove(&id) else { return };
        if let Some((lease, number)) = parting.number() {
            self.settle_number(lease, number);
        }
        if let Some(reply) = parting.reply {
            let _ = reply.send(outcome);
        }
    }
}

/// Somebody who waits for an errand. When it is dropped, the errand is given up, and what was got is given back.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    orders: &'a Orders,
    errand: u64,
    reply: oneshot::Receiver<Result<Got, Error>>,
    is_over: bool,
}

impl<'a> Waiting<'a> {
    /// Sends a keeper on an errand.
    pub(crate) fn start(orders: &'a Orders, quest: Quest) -> Self {
        let (errand, (answer, reply)) = (orders.chance.draw(), oneshot::channel());
        orders.tell(Order::Get { errand, quest, reply: answer });
        Self { orders, errand, reply, is_over: false }
    }

    /// What became of it.
    pub(crate) async fn outcome(mut self) -> Result<Got, Error> {
        let outcome = (&mut self.reply).await;
        self.is_over = true;
        outcome.unwrap_or_else(|_| Err(Error::Lost(Loss::KeeperGone)))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.reply.close();
        match self.reply.try_recv() {
            Ok(Ok(got)) => self.orders.tell(Order::LetGo { what: got.what, fate: got.fate, reply: None }),
            Ok(Err(_)) => {}
            Err(_) => self.orders.tell(Order::Forget { errand: self.errand }),
        }
    }
}
