//! The long poll: a claim waits in line while its request is open. The door renews its lease meanwhile, and takes the
//! claim out of the line when the client has hung up.

use super::claims::acquired;
use super::problem::Problem;
use crate::doors::desk::Desk;
use crate::doors::seat;
use crate::lessor::Unready;
use crate::limits::{POLL_RENEWAL_MIN, RETRY_AFTER};
use std::future::pending;
use std::time::Duration;
use tenure_api::v1::acquire_reply::State;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use tenure_api::{v1, write_outcome};
use tenure_core::{LeaseId, Name};
use tokio::time::sleep;

/// How long a client waits, and what happens if it does not.
pub(super) struct Patience {
    /// How long the request stays open; none: until the claim is seated or over.
    pub(super) open_ms: Option<u64>,
    /// The client knows its lease and can come back to it: hanging up ends nothing.
    pub(super) is_own_lease: bool,
}

/// A claim in line, which leaves it when the request is gone, unless somebody can come back to it.
struct InLine {
    desk: Desk,
    lease: LeaseId,
    resources: Vec<Name>,
    stays: bool,
}

impl Drop for InLine {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let resources = self.resources.iter().map(ToString::to_string).collect();
        let cancel = v1::CancelRequest { lease: self.lease.number(), resources, ..v1::CancelRequest::default() };
        let desk = self.desk.clone();
        // If it fails, the lease runs out by itself: nobody renews it any more.
        tokio::spawn(async move { drop(desk.order(Ask::Cancel(cancel)).await) });
    }
}

/// Acquires, in line if need be. Says whether it has waited.
pub(super) async fn acquire(
    desk: &Desk,
    message: v1::AcquireRequest,
    patience: Patience,
) -> Result<(v1::AcquireReply, bool), Problem> {
    let room = desk.node().room_to_wait().ok_or(Unready::Overloaded { retry_after: RETRY_AFTER })?;
    let several = message.wants.iter().map(|want| want.resource.as_str());
    let names = several.chain((!message.resource.is_empty()).then_some(message.resource.as_str()));
    let resources: Vec<Name> = names.filter_map(|name| Name::parse(name).ok()).collect();
    let asked = acquired(desk.order(Ask::Acquire(message)).await?);
    if !matches!(asked.state, Some(State::Place(_))) {
        return Ok((asked, false));
    }
    let lease = LeaseId::from_number(asked.lease).expect("every lease in an answer has an id");
    let mut in_line = InLine { desk: desk.clone(), lease, resources, stays: patience.is_own_lease };
    let patience = async {
        match patience.open_ms {
            Some(ms) => sleep(Duration::from_millis(ms)).await,
            None => pending().await,
        }
    };
    let settled = tokio::select! {
        settled = seat::settled(desk.node(), lease, &in_line.resources, room) => settled,
        failed = keep(desk, lease, asked.ttl_ms) => return Err(failed),
        () = patience => {
            // Whoever is told the place in line is told the lease too, and can come back to it.
            in_line.stays = true;
            let now = desk.node().read_stale(|ledger| ledger.standing(lease, &in_line.resources));
            return standing(write_outcome(&now));
        }
    };
    in_line.stays = true;
    standing(write_outcome(&settled?))
}

fn standing(tell: Tell) -> Result<(v1::AcquireReply, bool), Problem> {
    match tell {
        Tell::Failure(failure) => Err(failure.into()),
        tell => Ok((acquired(tell), true)),
    }
}

/// Renews a lease in line for as long as it can be renewed.
async fn keep(desk: &Desk, lease: LeaseId, ttl_ms: u64) -> Problem {
    loop {
        sleep(Duration::from_millis(ttl_ms / 3).max(POLL_RENEWAL_MIN)).await;
        let renew = v1::RenewRequest { leases: vec![lease.number()], ..v1::RenewRequest::default() };
        if let Err(failure) = desk.order(Ask::Renew(renew)).await {
            return failure.into();
        }
    }
}
