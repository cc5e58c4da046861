//! Faults that are planted between keepers and a sound server, so that the two together behave as if one of them was broken.

use crate::ground::true_time;
use crate::machine::Site;
use crate::run::Plant;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::v1::{RenewReply, Request, Response};
use tenure_core::{End, Happening, LeaseId};
use tenure_server::Node;

/// What is planted in one link.
pub(super) struct Planted {
    plant: Option<Plant>,
    site: Site,
    node: Node,
    /// When each request was sent, and the leases that it renews.
    sent: Mutex<BTreeMap<u64, (Duration, Vec<u64>)>>,
}

impl Planted {
    pub(super) fn new(plant: Option<Plant>, site: Site, node: Node) -> Self {
        Self { plant, site, node, sent: Mutex::default() }
    }

    fn sent(&self) -> MutexGuard<'_, BTreeMap<u64, (Duration, Vec<u64>)>> {
        self.sent.lock().expect("no task panics while it looks at what was sent")
    }

    /// Changes a request as it is sent.
    pub(super) fn request(&self, request: &mut Request) {
        match (self.plant, &mut request.body) {
            (Some(Plant::CancelsByName | Plant::RequestsByName), Some(Ask::Cancel(cancel))) => {
                (cancel.number, cancel.answered_below) = (0, 0);
            }
            (Some(Plant::RequestsByName), Some(Ask::Acquire(acquire))) => {
                (acquire.number, acquire.answered_below) = (0, 0);
            }
            (Some(Plant::ForcedLossesOnly | Plant::CountsFromReceipt), body) => {
                let leases = if let Some(Ask::Renew(renew)) = body { renew.leases.clone() } else { Vec::new() };
                self.sent().insert(request.id, (true_time(self.site.origin), leases));
            }
            _ => {}
        }
    }

    /// Changes an answer as it arrives.
    pub(super) fn answer(&self, answer: &mut Response) {
        let Some(Plant::ForcedLossesOnly | Plant::CountsFromReceipt) = self.plant else { return };
        let Some((sent, leases)) = self.sent().get(&answer.id).cloned() else { return };
        let Some(Tell::Renew(reply)) = &mut answer.body else { return };
        if self.plant == Some(Plant::ForcedLossesOnly) {
            return self.tell_forced_losses_only(reply, &leases);
        }
        // To count a TTL from now is to count a longer one from when it was asked for.
        let away_ms = u64::try_from((true_time(self.site.origin) - sent).as_millis()).unwrap_or_default();
        reply.ttls_ms.iter_mut().filter(|ttl_ms| **ttl_ms > 0).for_each(|ttl_ms| *ttl_ms += away_ms);
    }

    fn tell_forced_losses_only(&self, reply: &mut RenewReply, leases: &[u64]) {
        for notice in reply.notices.iter_mut().filter(|notice| notice.lost > 0) {
            let lease = leases.get(notice.index as usize).and_then(|lease| LeaseId::from_number(*lease));
            notice.lost = self.node.read_stale(|ledger| {
                let is_forced = |what: &Happening| {
                    matches!(what, Happening::Vacated { lease: of, how: End::Revoked { .. } | End::Superseded, .. }
                        if Some(*of) == lease)
                };
                ledger.events_back().filter(|event| is_forced(&event.what)).count() as u64
            });
        }
    }
}
