//! The long poll: a claim waits in line while its request is open. The door renews its lease meanwhile, and takes the
//! claim out of the line when the client has gone or the server stops.

use super::claims::acquired;
use super::problem::Problem;
use super::{HttpDoor, after_ms};
use crate::doors::desk::Desk;
use crate::doors::seat;
use crate::limits::{POLL_RENEWAL_MIN, RETRY_AFTER};
use crate::listen::Peer;
use crate::unready::Unready;
use std::time::Duration;
use tenure_api::v1::acquire_reply::State;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use tenure_api::{Code, code_of, v1, write_outcome};
use tenure_core::{LeaseId, Name};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::Instrument;

/// Who waits, and for how long.
pub(super) struct Patience {
    /// How long the request stays open; none: until the claim is seated or over.
    pub(super) open_ms: Option<u64>,
    pub(super) peer: Peer,
}

/// A claim in line, which leaves it when the request is gone, unless its client knows the lease and can come back to it.
struct InLine {
    desk: Desk,
    lease: u64,
    resources: Vec<String>,
    release_secret: u64,
    stays: bool,
}

impl InLine {
    /// Takes note of the claim before it is ordered: a client may hang up before the answer. If the client has not chosen
    /// the id of its lease, the door draws it, to know what to cancel.
    fn new(desk: &Desk, message: &mut v1::AcquireRequest) -> Self {
        let given = message.grant.as_ref().map_or(message.lease, |grant| grant.lease);
        let lease = if given == 0 { desk.node().draw_lease().number() } else { given };
        if let Some(grant) = &mut message.grant {
            grant.lease = lease;
        }
        let several = message.wants.iter().map(|want| want.resource.clone());
        let resources = several.chain((!message.resource.is_empty()).then(|| message.resource.clone())).collect();
        let release_secret = message.release_secret;
        Self { desk: desk.clone(), lease, resources, release_secret, stays: given != 0 }
    }

    fn cancel(&self) -> Ask {
        let (resources, release_secret) = (self.resources.clone(), self.release_secret);
        Ask::Cancel(v1::CancelRequest { lease: self.lease, resources, release_secret, ..v1::CancelRequest::default() })
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if !self.stays {
            let (desk, cancel) = (self.desk.clone(), self.cancel());
            // If it fails, the lease runs out by itself: nobody renews it any more.
            tokio::spawn(async move { drop(desk.order(cancel).await) });
        }
    }
}

/// Orders the claim in a task of its own, which outlives a client that hangs up: a cancel goes before claims in the queue,
/// so it may only be ordered when the claim was answered. Wherever the answer is dropped, the claim is cancelled.
async fn order(mut in_line: InLine, message: v1::AcquireRequest) -> Option<(Result<Tell, v1::Failure>, InLine)> {
    let (told, hears) = oneshot::channel();
    let asking = async move {
        let answer = in_line.desk.order(Ask::Acquire(message)).await;
        let is_refused = |failure: &v1::Failure| code_of(failure) != Some(Code::Unknown);
        in_line.stays |= answer.as_ref().is_err_and(is_refused);
        drop(told.send((answer, in_line)));
    };
    tokio::spawn(asking.in_current_span());
    hears.await.ok()
}

/// How a poll ends.
enum Ended {
    /// The claim stands so.
    Settled(Result<tenure_core::Outcome, Unready>),
    /// It has been open for as long as it was to be.
    Open,
    /// The client has gone.
    Gone,
    /// The server stops.
    Stopping,
}

/// Acquires, in line if need be. Says whether it has waited.
pub(super) async fn acquire(
    door: &HttpDoor,
    mut message: v1::AcquireRequest,
    patience: Patience,
) -> Result<(v1::AcquireReply, bool), Problem> {
    let desk = &door.desk;
    let room = desk.node().room_to_wait().ok_or(Unready::Overloaded { retry_after: RETRY_AFTER })?;
    let in_line = InLine::new(desk, &mut message);
    let (answer, mut in_line) = order(in_line, message).await.ok_or(Unready::Unknown)?;
    let asked = match answer.map(acquired) {
        Ok(reply) if matches!(reply.state, Some(State::Place(_))) => reply,
        other => {
            // Whoever holds it is told its lease.
            in_line.stays |= other.is_ok();
            return other.map(|reply| (reply, false)).map_err(Problem::from);
        }
    };
    let lease = LeaseId::from_number(asked.lease).expect("every lease in an answer has an id");
    let names: Vec<Name> = in_line.resources.iter().filter_map(|name| Name::parse(name).ok()).collect();
    let ended = tokio::select! {
        settled = seat::settled(desk.node(), lease, &names, room) => Ended::Settled(settled),
        () = keep(desk, lease, asked.ttl_ms, &patience.peer) => Ended::Gone,
        () = after_ms(patience.open_ms) => Ended::Open,
        () = door.stop.comes() => Ended::Stopping,
    };
    match ended {
        Ended::Settled(standing) => {
            let standing = standing?;
            in_line.stays = true;
            waited(write_outcome(&standing))
        }
        Ended::Open => {
            // Whoever is told the place in line is told the lease too, and can come back to it.
            in_line.stays = true;
            waited(write_outcome(&desk.node().read_stale(|ledger| ledger.standing(lease, &names))))
        }
        Ended::Gone => Err(Unready::Unknown.into()),
        Ended::Stopping => {
            if !in_line.stays {
                // Before the answer, because the node stops soon after it.
                drop(desk.order(in_line.cancel()).await);
                in_line.stays = true;
            }
            Err(Unready::Stopping.into())
        }
    }
}

fn waited(tell: Tell) -> Result<(v1::AcquireReply, bool), Problem> {
    match tell {
        Tell::Failure(failure) => Err(failure.into()),
        tell => Ok((acquired(tell), true)),
    }
}

/// Renews a lease in line until its client has gone. A renewal that fails is tried again: whether the claim is over, the
/// ledger says.
async fn keep(desk: &Desk, lease: LeaseId, ttl_ms: u64, peer: &Peer) {
    peer.must_answer_within(Duration::from_millis(ttl_ms));
    loop {
        sleep(Duration::from_millis(ttl_ms / 3).max(POLL_RENEWAL_MIN)).await;
        if peer.has_hung_up() {
            return;
        }
        let renew = v1::RenewRequest { leases: vec![lease.number()], ..v1::RenewRequest::default() };
        drop(desk.order(Ask::Renew(renew)).await);
    }
}
