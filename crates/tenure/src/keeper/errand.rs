//! One thing that a keeper is to get: a lease, or claims. It is asked for until it is had, refused, or given up.

use super::LetGo;
use super::book::Gate;
use super::numbers::Numbers;
use crate::clock::BootTime;
use crate::error::Error;
use crate::fate::Fate;
use crate::timing::{TTL_DEFAULT, Timing};
use crate::v1;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// How long the answer to something that is not waited for may take.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// Pauses between attempts to ask again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What to get.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// Claims, on a lease of their own or on one that lives already.
    Claims(v1::AcquireRequest),
    /// A lease without claims.
    Lease(v1::GrantRequest),
    /// An instance of a service, on a lease of its own or on one that lives already.
    Instance(v1::RegisterRequest),
}

/// How long it may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Patience {
    /// It must be free now.
    Answer,
    /// It is waited for in line.
    Line(Duration),
    /// It is waited for in line for ever.
    Ever,
}

/// What to get, and how.
#[derive(Debug)]
pub(crate) struct Quest {
    pub(crate) want: Want,
    pub(crate) gate: Option<Gate>,
    pub(crate) patience: Patience,
    /// Who is told its place in line.
    pub(crate) place: Option<watch::Sender<u64>>,
}

/// What was got.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) lease: u64,
    pub(crate) claims: Vec<v1::Claim>,
    /// The effective TTL.
    pub(crate) ttl: Duration,
    pub(crate) fate: Arc<Fate>,
    /// How it is given back.
    pub(crate) what: LetGo,
}

/// How far it has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// Asked for, not answered yet.
    Asked,
    /// In line.
    InLine,
    /// Seated after waiting: it counts from a renewal that was sent later than this.
    Seated(v1::AcquireReply, BootTime),
}

#[derive(Debug)]
pub(super) struct Errand {
    pub(super) want: Want,
    pub(super) gate: Option<Gate>,
    pub(super) place: Option<watch::Sender<u64>>,
    pub(super) stage: Stage,
    /// When patience ends, and when an answer is no longer waited for.
    until: Option<BootTime>,
    answer_until: BootTime,
    /// When it is asked for again.
    pub(super) again: Option<BootTime>,
    /// When the attempt to get it with this lease began.
    pub(super) first_sent: Option<BootTime>,
    pub(super) has_waited: bool,
    /// How often it was asked for, with this lease.
    pub(super) asks: u32,
    /// The number of its request; 0 if it has none.
    pub(super) number: u64,
    /// Why no server was reached, each time.
    pub(super) unreached: Vec<Error>,
    pub(super) reply: oneshot::Sender<Result<Got, Error>>,
    is_patient: bool,
}

impl Errand {
    pub(super) fn new(quest: Quest, now: BootTime, reply: oneshot::Sender<Result<Got, Error>>) -> Self {
        let Quest { want, gate, patience, place } = quest;
        let until = match patience {
            Patience::Answer => Some(now + ANSWER),
            Patience::Line(span) => Some(now + span),
            Patience::Ever => None,
        };
        Self {
            want,
            gate,
            place,
            stage: Stage::Asked,
            until,
            answer_until: now + ANSWER,
            again: Some(now),
            first_sent: None,
            has_waited: false,
            asks: 0,
            number: 0,
            unreached: Vec::new(),
            reply,
            is_patient: patience != Patience::Answer,
        }
    }

    /// When it is given up. Who has little patience still waits for the first answer, if there is somebody to give it.
    pub(super) fn ends(&self) -> Option<BootTime> {
        match self.stage {
            Stage::Asked if self.unreached.is_empty() => self.until.map(|until| until.max(self.answer_until)),
            _ => self.until,
        }
    }

    pub(super) fn lease(&self) -> u64 {
        match &self.want {
            Want::Claims(acquire) => acquire.grant.as_ref().map_or(acquire.lease, |grant| grant.lease),
            Want::Lease(grant) => grant.lease,
            Want::Instance(register) => register.grant.as_ref().map_or(register.lease, |grant| grant.lease),
        }
    }

    /// Whether the lease is made for this, and ends with it.
    pub(super) fn has_own_lease(&self) -> bool {
        match &self.want {
            Want::Claims(acquire) => acquire.grant.is_some(),
            Want::Lease(_) => true,
            Want::Instance(register) => register.grant.is_some(),
        }
    }

    /// What the server is asked, each time with the same number.
    pub(super) fn body(&mut self, numbers: Option<&mut Numbers>) -> v1::request::Body {
        let (mut number, mut answered_below) = (0, 0);
        if let Some(numbers) = numbers {
            if self.number == 0 {
                self.number = numbers.draw();
            }
            (number, answered_below) = (self.number, numbers.answered_below());
        }
        match self.want.clone() {
            Want::Claims(acquire) => {
                v1::request::Body::Acquire(v1::AcquireRequest { number, answered_below, ..acquire })
            }
            Want::Lease(grant) => v1::request::Body::Grant(grant),
            Want::Instance(register) => {
                v1::request::Body::Register(v1::RegisterRequest { number, answered_below, ..register })
            }
        }
    }

    pub(super) fn resources(&self) -> Vec<String> {
        match &self.want {
            Want::Claims(acquire) => acquire.wants.iter().map(|want| want.resource.clone()).collect(),
            Want::Lease(_) | Want::Instance(_) => Vec::new(),
        }
    }

    /// How it is given back if its lease lives on.
    pub(super) fn undone(&self) -> LetGo {
        let (lease, number) = (self.lease(), self.number);
        match &self.want {
            Want::Instance(register) => {
                LetGo::Instance { lease, service: register.service.clone(), id: register.id.clone(), number }
            }
            Want::Claims(_) | Want::Lease(_) => LetGo::Line { lease, resources: self.resources(), number },
        }
    }

    /// The TTL that is asked for, if it is said.
    pub(super) fn ttl_or(&self, unsaid: Duration) -> Duration {
        let grant = match &self.want {
            Want::Claims(acquire) => acquire.grant.as_ref(),
            Want::Lease(grant) => Some(grant),
            Want::Instance(register) => register.grant.as_ref(),
        };
        let ttl_ms = grant.map_or(0, |grant| u64::try_from(grant.ttl_ms).unwrap_or_default());
        if ttl_ms == 0 { unsaid } else { Duration::from_millis(ttl_ms) }
    }

    fn timing(&self) -> Timing {
        Timing::of(self.ttl_or(TTL_DEFAULT))
    }

    /// How long to wait before it is asked for again.
    pub(super) fn pause(&self) -> Duration {
        self.timing().retry.clamp(PAUSE_MIN, PAUSE_MAX)
    }

    /// How long to wait for an answer before it is asked for elsewhere.
    pub(super) fn answer_time(&self) -> Duration {
        self.timing().first_retry.max(PAUSE_MIN)
    }

    /// Starts anew with another lease, because this one ended before it came to its turn.
    pub(super) fn start_anew(&mut self, lease: u64, now: BootTime) {
        match &mut self.want {
            Want::Claims(acquire) => acquire.grant.iter_mut().for_each(|grant| grant.lease = lease),
            Want::Lease(grant) => grant.lease = lease,
            Want::Instance(register) => register.grant.iter_mut().for_each(|grant| grant.lease = lease),
        }
        (self.stage, self.first_sent, self.has_waited, self.asks) = (Stage::Asked, None, false, 0);
        self.again = Some(now);
    }

    /// Whether it is not worth going on after so many servers were not reached: at once for whoever has no patience, and for
    /// everybody if waiting does not help.
    pub(super) fn is_hopeless(&self, servers: usize) -> bool {
        let is_for_good = self.unreached.iter().all(|error| !error.is_for_now());
        let are_all_tried = self.unreached.len() >= servers;
        // The line that it stands in is not there.
        let is_elsewhere = are_all_tried && self.unreached.iter().all(Error::is_other_cluster);
        let is_asked = matches!(self.stage, Stage::Asked) && are_all_tried;
        is_elsewhere || is_asked && (is_for_good || !self.is_patient)
    }

    /// What is said when it is given up.
    pub(super) fn given_up(&mut self) -> Error {
        match (&self.stage, self.unreached.pop()) {
            (_, Some(elsewhere)) if elsewhere.is_other_cluster() => elsewhere,
            (Stage::Asked, Some(unreached)) => unreached,
            (Stage::Asked, None) => Error::Broken("no answer came in time".into()),
            (Stage::InLine | Stage::Seated(..), _) => Error::WaitedOut,
        }
    }
}
