//! Watches: each reads the ledger's history from its own place, woken when there is more. Nothing is buffered for it.

use crate::limits::WATCH_EVENTS_MAX;
use crate::node::Node;
use std::collections::VecDeque;
use tenure_api::v1::{Cursor, Failure, WatchReply, WatchRequest};
use tenure_api::{Code, failure_status};
use tenure_core::{Event, Revision};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

pub(super) type Replies = ReceiverStream<Result<WatchReply, Status>>;

/// Starts a watch.
pub(super) fn open(node: Node, request: WatchRequest) -> Replies {
    let (replies, receiver) = mpsc::channel(1);
    tokio::spawn(watch(node, request, replies));
    ReceiverStream::new(receiver)
}

async fn watch(node: Node, request: WatchRequest, replies: mpsc::Sender<Result<WatchReply, Status>>) {
    let mut revisions = node.revisions();
    let mut at = match request.after {
        Some(cursor) => (Revision(cursor.revision), cursor.n),
        None => (node.read_stale(|ledger| ledger.revision()), u32::MAX),
    };
    // The first reply tells where the watch stands, so that it can be resumed before anything happens.
    let mut told = false;
    loop {
        revisions.borrow_and_update();
        let page = node.read_stale(|ledger| {
            let events = ledger.events_after(at)?.take(WATCH_EVENTS_MAX);
            Ok(events.cloned().collect::<VecDeque<Event>>())
        });
        let reply = match page {
            Ok(events) => {
                let newest = events.back().map(|event| (event.revision, event.n));
                if newest.is_some() || !told {
                    at = newest.unwrap_or(at);
                    Some(Ok(write(&events, &request.prefix, at)))
                } else {
                    None
                }
            }
            Err(oldest) => Some(Err(compacted(oldest))),
        };
        let wait = match reply {
            None => true,
            Some(reply) => {
                told = true;
                let over = reply.is_err();
                if replies.send(reply).await.is_err() || over {
                    return;
                }
                false
            }
        };
        if wait {
            tokio::select! {
                changed = revisions.changed() => if changed.is_err() { return },
                () = replies.closed() => return,
            }
        }
    }
}

fn write(events: &VecDeque<Event>, prefix: &str, at: (Revision, u32)) -> WatchReply {
    let of_interest = events.iter().filter(|event| match event.what.resource() {
        Some(resource) => resource.as_str().starts_with(prefix),
        None => prefix.is_empty(),
    });
    WatchReply {
        events: of_interest.map(tenure_api::event).collect(),
        cursor: Some(Cursor { revision: at.0.0, n: at.1 }),
    }
}

fn compacted(oldest: Revision) -> Status {
    let message = format!("events up to revision {} are no longer kept; list, then watch from there", oldest.0);
    failure_status(&Failure { code: Code::Compacted.text().into(), message, oldest: oldest.0, ..Failure::default() })
}
