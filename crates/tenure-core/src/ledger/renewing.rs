//! The renewals of an entry. They go first, and ancestors before children: a child may live no longer than its parent,
//! so whoever renews both in one entry must not depend on the order.

use super::Ledger;
use crate::command::{Command, Renewal};
use crate::mode::Kind;
use crate::reply::{Outcome, Refusal, Renewed, Reply};
use alloc::vec::Vec;

/// The answers to one command, as they come in.
enum Answers {
    /// It is no renewal.
    None,
    /// To each of the leases that it names.
    Each(Vec<Result<Renewed, Refusal>>),
    /// To the one behind its handle.
    One(Result<Renewed, Refusal>),
}

impl Answers {
    fn put(&mut self, item: usize, answer: Result<Renewed, Refusal>) {
        match self {
            Self::Each(each) => each[item] = answer,
            Self::One(one) => *one = answer,
            Self::None => unreachable!("only renewals are answered here"),
        }
    }

    fn outcome(self) -> Option<Outcome> {
        match self {
            Self::None => None,
            Self::Each(each) => Some(Ok(Reply::Renewed(each))),
            Self::One(one) => Some(one.map(Reply::HandleRenewed)),
        }
    }
}

/// One lease to extend, and where its answer goes.
#[derive(Clone, Copy)]
struct Job {
    generation: usize,
    command: usize,
    item: usize,
    renewal: Renewal,
    kind: Kind,
}

impl Ledger {
    /// Applies the renewals of an entry. The outcome of every other command is left open.
    pub(super) fn renewals(&mut self, commands: &[Command]) -> Vec<Option<Outcome>> {
        let mut later = Vec::new();
        let each = commands.iter().enumerate();
        let mut answers: Vec<_> = each.map(|(at, command)| self.roots(at, command, &mut later)).collect();
        later.sort_by_key(|job: &Job| (job.generation, job.command, job.item));
        for job in later {
            let answer = self.renew_one(job.renewal, job.kind);
            answers[job.command].put(job.item, answer);
        }
        answers.into_iter().map(Answers::outcome).collect()
    }

    /// Renews the leases of one command that hang on no other. Their children wait until all of these had their turn.
    fn roots(&mut self, command: usize, asked: &Command, later: &mut Vec<Job>) -> Answers {
        let actor = asked.actor();
        match asked.plain() {
            Command::Renew(renew) => {
                let kind = renew.kind;
                let jobs = renew.leases.iter().enumerate();
                let each = jobs.map(|(item, renewal)| {
                    self.may_renew_as(actor, renewal.lease)?;
                    self.now_or_later(Job { generation: 1, command, item, renewal: *renewal, kind }, later)
                });
                Answers::Each(each.collect())
            }
            Command::RenewHandle(renew) => Answers::One(self.behind(&renew.handle).and_then(|lease| {
                self.may_renew_as(actor, lease)?;
                let (renewal, kind) = (Renewal { lease, ttl: renew.ttl }, renew.kind);
                self.now_or_later(Job { generation: 1, command, item: 0, renewal, kind }, later)
            })),
            _ => Answers::None,
        }
    }

    /// Renews a lease, or notes a child for later; what is answered for a child is replaced then.
    fn now_or_later(&mut self, job: Job, later: &mut Vec<Job>) -> Result<Renewed, Refusal> {
        let id = job.renewal.lease;
        if let Some(renewed) = self.renew_plain(job.renewal) {
            return Ok(renewed);
        }
        if self.leases.get(&id).is_some_and(|lease| lease.parent.is_some()) {
            later.push(Job { generation: self.generation(id), ..job });
            return Err(Refusal::NoLease { lease: id });
        }
        self.renew_one(job.renewal, job.kind)
    }
}
