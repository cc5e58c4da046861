//! What the server's answers mean to a keeper.

use super::book::{Answer, Entry, Renewals, Stake};
use super::errand::{Errand, Got, Stage, Want};
use super::link::LinkId;
use super::{Keeper, LetGo, Pending, Resumed, What};
use crate::ask::Claim;
use crate::clock::BootTime;
use crate::error::{Error, is_for_now};
use crate::fate::{Fate, Loss};
use crate::v1;
use crate::v1::acquire_reply::State;
use crate::v1::response::Body as Tell;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::{Code, code_of};

/// Handles that are asked about at once, so that renewals are not kept waiting behind thousands of them.
const HANDLES_AT_ONCE: usize = 256;

impl Keeper {
    pub(super) fn answered(&mut self, link: LinkId, response: v1::Response, now: BootTime) {
        let (Some(pending), Some(body)) = (self.pending.remove(&response.id), response.body) else { return };
        if let Tell::Failure(failure) = &body {
            self.turn_away(link, failure, now);
        }
        let sent = pending.sent;
        match pending.what {
            What::Errand { errand, lease, has_own_lease } => {
                let is_current = self.errands.get(&errand).is_some_and(|errand| errand.lease() == lease);
                let is_in_line = matches!(&body, Tell::Acquire(reply) if matches!(reply.state, Some(State::Place(_))));
                if is_current && is_in_line {
                    // The seat is told under the same number.
                    let what = What::Errand { errand, lease, has_own_lease };
                    self.pending.insert(response.id, Pending { link, sent, what });
                }
                match (is_current, body) {
                    (true, body) => self.errand_answered(errand, body, sent, now),
                    (false, Tell::Acquire(reply)) => self.nobody_waits_for(&reply, has_own_lease, now),
                    (false, Tell::Register(reply)) if has_own_lease && !self.book.contains(reply.lease) => {
                        self.send_back(LetGo::Lease(reply.lease), now);
                    }
                    (false, _) => {}
                }
            }
            What::Renewals(renewals) => match body {
                Tell::Renew(reply) => self.renewed(&renewals, &reply, sent, now),
                Tell::Failure(failure) => self.renewals_refused(&renewals, &failure, now),
                _ => {}
            },
            What::Resume { lease, reply } => {
                let was_kept = self.book.kept(lease).is_some();
                match self.resumed(lease, body, sent, now) {
                    // It lives, but this answer is too old to promise anything.
                    None => self.resume(lease, reply, now),
                    Some(resumed) => {
                        if reply.send(resumed).is_err() && !was_kept {
                            // Nobody waits for it any longer.
                            self.book.leave(lease);
                        }
                    }
                }
            }
            What::Handle { lease, handle, broken } => self.handle_answered((lease, &handle), broken, body, (sent, now)),
            What::Parting { parting, left } => match body {
                Tell::Failure(failure) => self.parted(parting, left, Some(failure), now),
                _ => self.parted(parting, left, None, now),
            },
        }
    }

    fn errand_answered(&mut self, errand: u64, body: Tell, sent: BootTime, now: BootTime) {
        match body {
            Tell::Acquire(reply) => self.acquired(errand, reply, sent, now),
            Tell::Grant(reply) => {
                let answer = self.first_answer(errand, reply.ttl_ms, sent);
                self.got((errand, reply.lease), Vec::new(), Some(answer), now);
            }
            Tell::Register(reply) => {
                let has_own_lease = self.errands.get(&errand).is_some_and(Errand::has_own_lease);
                let answer = self.first_answer(errand, reply.ttl_ms, sent);
                self.got((errand, reply.lease), Vec::new(), has_own_lease.then_some(answer), now);
            }
            Tell::Failure(failure) => self.refused(errand, failure, now),
            // An answer to something else than was asked is none.
            _ => {}
        }
    }

    /// A late answer to something that was given up, or got by another attempt: it is given back, unless it is held.
    fn nobody_waits_for(&mut self, reply: &v1::AcquireReply, has_own_lease: bool, now: BootTime) {
        let lease = reply.lease;
        if has_own_lease {
            if !self.book.contains(lease) {
                self.send_back(LetGo::Lease(lease), now);
            }
            return;
        }
        let unheld = reply.claims.iter().filter(|claim| !self.book.holds(lease, &claim.resource));
        let handles: Vec<String> = unheld.map(handle).collect();
        if !handles.is_empty() {
            self.send_back(LetGo::Claims { lease, handles }, now);
        }
    }

    /// What the answer to one renewal says of a lease that was given up. None: it has to be asked again.
    fn resumed(&mut self, lease: u64, body: Tell, sent: BootTime, now: BootTime) -> Option<Resumed> {
        let Tell::Renew(reply) = body else { return Some(Resumed::Unknown) };
        if let Some(failed) = reply.failures.into_iter().next() {
            let failure = failed.failure.unwrap_or_default();
            return Some(match code_of(&failure) {
                Some(Code::Lapsed | Code::NoLease) => Resumed::Over(loss(failure)),
                _ => Resumed::Unknown,
            });
        }
        let ttl = Duration::from_millis(reply.ttls_ms.first().copied().unwrap_or_default());
        if ttl.is_zero() {
            return Some(Resumed::Unknown);
        }
        if let Some(fate) = self.book.kept(lease) {
            // Another attempt was answered before.
            self.book.renewed(lease, Answer { sent, ttl }, v1::RenewKind::Auto, None);
            return Some(Resumed::Lives { ttl, fate });
        }
        let entry = Entry::new(Answer { sent, ttl }, None);
        if entry.safe_until() <= now {
            return None;
        }
        let fate = Arc::new(Fate::new(self.clock.clone(), entry.safe_until()));
        self.book.insert(lease, entry);
        self.book.stake(lease, Stake::new(Vec::new(), fate.clone()));
        Some(Resumed::Lives { ttl, fate })
    }

    fn renewals_refused(&mut self, renewals: &Renewals, failure: &v1::Failure, now: BootTime) {
        if !is_for_now(failure) {
            // What somebody wished for cannot be: the heartbeat goes on without it.
            for (lease, _) in &renewals.leases {
                self.book.refused(*lease);
                self.refuse_askers(*lease, failure);
            }
        }
        let pause = Duration::from_millis(failure.retry_after_ms.max(1));
        self.book.unanswered(&renewals.leases, now, pause);
    }

    fn handle_answered(
        &mut self,
        (lease, handle): (u64, &str),
        broken: u64,
        body: Tell,
        (sent, now): (BootTime, BootTime),
    ) {
        match body {
            Tell::RenewHandle(reply) => {
                self.book.vouched(lease, handle, Answer { sent, ttl: Duration::from_millis(reply.ttl_ms) });
            }
            Tell::Failure(failure) => match code_of(&failure) {
                Some(Code::Stale) => self.book.broken(lease, handle, &loss(failure)),
                // It is held; and a heartbeat does not renew a lease of its class, so that this promises nothing.
                Some(Code::NotRenewable) => self.book.vouched(lease, handle, Answer { sent, ttl: Duration::ZERO }),
                // It is asked about again after the next renewal.
                _ => return,
            },
            _ => return,
        }
        self.settle(lease, broken, now);
    }

    /// What is counted from for a lease that was just granted: the first time that it was asked for.
    fn first_answer(&self, errand: u64, ttl_ms: u64, sent: BootTime) -> Answer {
        let first_sent = self.errands.get(&errand).and_then(|errand| errand.first_sent);
        Answer { sent: first_sent.unwrap_or(sent), ttl: Duration::from_millis(ttl_ms) }
    }

    fn acquired(&mut self, id: u64, reply: v1::AcquireReply, sent: BootTime, now: BootTime) {
        let answer = self.first_answer(id, reply.ttl_ms, sent);
        let Some(errand) = self.errands.get_mut(&id) else { return };
        let (lease, has_own_lease, is_kept) = (reply.lease, errand.has_own_lease(), self.book.contains(reply.lease));
        match reply.state {
            Some(State::Place(place)) => {
                if let Some(told) = &errand.place {
                    // The same one may be told twice.
                    told.send_if_modified(|known| std::mem::replace(known, place) != place);
                }
                (errand.again, errand.has_waited) = (None, true);
                if !matches!(errand.stage, Stage::Seated(..)) {
                    errand.stage = Stage::InLine;
                }
                if !is_kept {
                    self.book.insert(lease, Entry::in_line(Answer { sent, ..answer }, errand.gate.clone()));
                }
            }
            Some(State::Fence(_)) if errand.has_waited && has_own_lease || !has_own_lease && !is_kept => {
                if !is_kept {
                    // Somebody else has kept it, and until when it lives is told by a renewal.
                    self.book.insert(lease, Entry::in_line(Answer { sent, ttl: Duration::ZERO }, None));
                }
                if !matches!(errand.stage, Stage::Seated(..)) {
                    errand.stage = Stage::Seated(reply, now);
                }
                errand.again = None;
                self.book.hurry(lease, now, None);
            }
            Some(State::Fence(_)) => self.got((id, lease), reply.claims, has_own_lease.then_some(answer), now),
            None => {}
        }
    }

    /// Something is there: it is kept from now on, and its guard handed out.
    fn got(&mut self, (id, lease): (u64, u64), claims: Vec<v1::Claim>, answer: Option<Answer>, now: BootTime) {
        let Some(errand) = self.errands.remove(&id) else { return };
        self.settle_number(lease, errand.number);
        if matches!(errand.want, Want::Lease(_)) {
            self.numbers.entry(lease).or_default();
        }
        if let Some(gate) = &errand.gate {
            // Who waited in line had nothing to make progress with.
            gate.progressed(now);
        }
        if let Some(answer) = answer {
            self.book.insert(lease, Entry::new(answer, errand.gate.clone()));
        }
        let (until, ttl) = self.book.promise(lease).unwrap_or_default();
        let fate = Arc::new(Fate::new(self.clock.clone(), until));
        let handles: Vec<String> = claims.iter().map(handle).collect();
        self.book.stake(lease, Stake::new(handles.clone(), fate.clone()));
        // To claim something with a lease is to use it.
        self.book.touch(lease, now);
        if self.book.is_over(lease) {
            fate.lose(Loss::Unheard);
        }
        let what = match &errand.want {
            _ if errand.has_own_lease() => LetGo::Lease(lease),
            Want::Claims(_) | Want::Lease(_) => LetGo::Claims { lease, handles },
            Want::Instance(_) => errand.undone(),
        };
        // Whoever asked may be gone meanwhile: then it is given back.
        if let Err(Ok(got)) = errand.reply.send(Ok(Got { lease, claims, ttl, fate, what })) {
            self.let_go(got.what, &got.fate, None, now);
        }
    }

    fn refused(&mut self, id: u64, failure: v1::Failure, now: BootTime) {
        let Some(errand) = self.errands.get_mut(&id) else { return };
        match code_of(&failure) {
            _ if is_for_now(&failure) => {
                errand.again = Some(now + errand.pause().max(Duration::from_millis(failure.retry_after_ms)));
            }
            // It waited through an outage for longer than its lease lived. It stands in line again, behind the others.
            Some(Code::Lapsed | Code::NoLease)
                if errand.has_own_lease() && failure.lease == errand.lease() && !is_ordered(&failure) =>
            {
                self.book.remove(errand.lease());
                errand.start_anew(self.chance.lease(), now);
            }
            // An earlier copy was answered with a refusal that did not arrive: it is asked for with another number.
            Some(Code::Answered) if !errand.has_waited => {
                let (lease, number) = (errand.lease(), std::mem::take(&mut errand.number));
                errand.again = Some(now);
                self.settle_number(lease, number);
            }
            code => {
                let Some(errand) = self.errands.remove(&id) else { return };
                if errand.number > 0 {
                    // A request with a number is answered once, and whole.
                    self.settle_number(errand.lease(), errand.number);
                } else if errand.asks > 1 || errand.has_waited {
                    // An earlier attempt may have got a part of it.
                    self.leave(id, &errand, now);
                }
                let has_waited_out = matches!(code, Some(Code::NoClaim | Code::Answered)) && errand.has_waited;
                let error = if has_waited_out { Error::WaitedOut } else { failure.into() };
                let _ = errand.reply.send(Err(error));
            }
        }
    }

    fn renewed(&mut self, renewals: &Renewals, reply: &v1::RenewReply, sent: BootTime, now: BootTime) {
        for (index, (lease, _)) in renewals.leases.iter().enumerate() {
            let failed = reply.failures.iter().find(|failed| failed.index as usize == index);
            match failed.map(|failed| failed.failure.clone().unwrap_or_default()) {
                Some(failure) => self.not_renewed(*lease, failure, now),
                None => {
                    let ttl = Duration::from_millis(reply.ttls_ms.get(index).copied().unwrap_or_default());
                    let notice = reply.notices.iter().find(|notice| notice.index as usize == index);
                    let doubtful = self.book.renewed(*lease, Answer { sent, ttl }, renewals.kind, notice);
                    let broken = notice.map_or(0, |notice| notice.lost);
                    self.ask_about(*lease, doubtful, broken, now);
                    self.confirm(*lease, sent, now);
                    self.answer_askers(*lease, sent, ttl);
                }
            }
        }
    }

    fn not_renewed(&mut self, lease: u64, failure: v1::Failure, now: BootTime) {
        match code_of(&failure) {
            Some(Code::Lapsed | Code::NoLease) => {
                let in_line = self.errands.iter().find(|(_, errand)| errand.lease() == lease).map(|(id, _)| *id);
                self.book.ended(lease, &loss(failure.clone()));
                match in_line {
                    Some(errand) => self.refused(errand, failure, now),
                    None => self.refuse_askers(lease, &failure),
                }
            }
            Some(Code::NotRenewable) => {
                self.book.not_renewable(lease, failure.policy());
                // While it waits, and once after, every class takes a renewal: an earlier one has confirmed the seat.
                self.confirm(lease, now, now);
                self.refuse_askers(lease, &failure);
            }
            _ => {
                if !is_for_now(&failure) {
                    self.book.refused(lease);
                    self.refuse_askers(lease, &failure);
                }
                self.book.unanswered(&[(lease, 0)], now, Duration::from_millis(failure.retry_after_ms));
            }
        }
    }

    /// A renewal was answered that was sent at that time: a seat that was taken before is now counted from it.
    fn confirm(&mut self, lease: u64, sent: BootTime, now: BootTime) {
        let seated = self.errands.iter().find_map(|(id, errand)| match &errand.stage {
            Stage::Seated(reply, since) if errand.lease() == lease && sent >= *since => {
                Some((*id, reply.claims.clone()))
            }
            _ => None,
        });
        if let Some((errand, claims)) = seated {
            self.got((errand, lease), claims, None, now);
        }
    }

    /// Claims of a lease that lives on were broken; which ones, their handles tell. A page of them is asked about at once.
    fn ask_about(&mut self, lease: u64, handles: Vec<String>, broken: u64, now: BootTime) {
        for handle in handles.into_iter().take(HANDLES_AT_ONCE) {
            let request = v1::RenewHandleRequest { handle: handle.clone(), ..v1::RenewHandleRequest::default() };
            self.send(v1::request::Body::RenewHandle(request), What::Handle { lease, handle, broken }, now);
        }
    }

    /// When a page of handles is known, the next one is asked about. When none is in doubt any longer, all are known.
    fn settle(&mut self, lease: u64, broken: u64, now: BootTime) {
        let is_open = |pending: &Pending| matches!(&pending.what, What::Handle { lease: other, .. } if *other == lease);
        if self.pending.values().any(is_open) {
            return;
        }
        match self.book.doubtful(lease) {
            none if none.is_empty() => self.book.settled(lease, broken),
            rest => self.ask_about(lease, rest, broken, now),
        }
    }

    /// A server that does not lead, or stops, is left for the one that it says leads, or for the next one.
    fn turn_away(&mut self, link: LinkId, failure: &v1::Failure, now: BootTime) {
        if matches!(code_of(failure), Some(Code::NotLeader | Code::Stopping)) && self.links.is_current(link) {
            let leader = Some(failure.leader.as_str()).filter(|leader| !leader.is_empty());
            let given_up = self.links.turn(leader, now);
            given_up.into_iter().for_each(|link| self.lose_link(link, now));
            self.ask_again_elsewhere(now);
        }
    }

    fn answer_askers(&mut self, lease: u64, sent: BootTime, ttl: Duration) {
        for asker in self.askers.extract_if(.., |asker| asker.lease == lease && sent >= asker.since) {
            let _ = asker.reply.send(Ok(ttl));
        }
    }

    fn refuse_askers(&mut self, lease: u64, failure: &v1::Failure) {
        for asker in self.askers.extract_if(.., |asker| asker.lease == lease) {
            let _ = asker.reply.send(Err(failure.clone().into()));
        }
    }

    /// Who waits for the renewal of a lease that is over or given back is told so.
    pub(super) fn answer_askers_of_what_is_over(&mut self) {
        let book = &self.book;
        for asker in self.askers.extract_if(.., |asker| book.is_over(asker.lease)) {
            let _ = asker.reply.send(Err(Error::Lost(Loss::TimeOver)));
        }
    }
}

/// Whether somebody ordered the end, so that to start anew would be to disobey.
fn is_ordered(failure: &v1::Failure) -> bool {
    failure.end.as_ref().is_some_and(|end| !matches!(end.how.as_str(), "expired" | "waited_out"))
}

fn handle(claim: &v1::Claim) -> String {
    Claim::from(claim.clone()).handle()
}

fn loss(failure: v1::Failure) -> Loss {
    failure.end.map_or(Loss::Unheard, |end| Loss::Ended(Box::new(end)))
}
