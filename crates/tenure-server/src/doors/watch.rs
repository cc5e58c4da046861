//! Watches: each reads the ledger's history from its own place, woken when there is more. No more than one message is
//! made before the client has taken the one before.

use super::look::Page;
use crate::limits::WATCH_EVENTS_MAX;
use crate::node::Node;
use tenure_api::v1::{Cursor, Failure, WatchReply, WatchRequest};
use tenure_api::{Code, failure_status};
use tenure_core::{Event, Ledger, Revision};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

pub(super) type Replies = ReceiverStream<Result<WatchReply, Status>>;

/// A place in the stream of events: a revision, and an event within it.
type Place = (Revision, u32);

/// Starts a watch.
pub(super) fn open(node: Node, request: WatchRequest) -> Replies {
    let (replies, receiver) = mpsc::channel(1);
    tokio::spawn(watch(node, request, replies));
    ReceiverStream::new(receiver)
}

async fn watch(node: Node, request: WatchRequest, replies: mpsc::Sender<Result<WatchReply, Status>>) {
    let _watching = node.metrics().watching();
    let mut revisions = node.revisions();
    let mut at = match request.after {
        Some(cursor) => (Revision(cursor.revision), cursor.n),
        None => (node.read_stale(Ledger::revision), u32::MAX),
    };
    // The first reply tells where the watch stands, so that it can be resumed before anything happens.
    let mut told = false;
    loop {
        let Ok(room) = replies.reserve().await else { return };
        revisions.borrow_and_update();
        match node.read_stale(|ledger| page(ledger, at)) {
            Err(status) => return room.send(Err(status)),
            Ok(events) if told && events.is_empty() => {
                drop(room);
                tokio::select! {
                    changed = revisions.changed() => if changed.is_err() { return },
                    () = replies.closed() => return,
                }
            }
            Ok(events) => {
                at = events.last().map_or(at, |event| (event.revision, event.n));
                told = true;
                room.send(Ok(write(&events, &request.prefix, at)));
            }
        }
    }
}

fn page(ledger: &Ledger, at: Place) -> Result<Vec<Event>, Status> {
    if at.0 > ledger.revision() {
        return Err(ahead(at.0, ledger.revision()));
    }
    let events = ledger.events_after(at).map_err(compacted)?;
    let mut page = Page::of(0, WATCH_EVENTS_MAX);
    // Keys may be long; the rest of an event is not.
    let weight = |event: &Event| event.what.key().map_or(0, |key| key.bytes().len());
    Ok(events.take_while(|event| page.takes_bytes(weight(event))).cloned().collect())
}

fn write(events: &[Event], prefix: &str, at: Place) -> WatchReply {
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
    let code = Code::Compacted.text().into();
    failure_status(&Failure { code, message, oldest: oldest.0, ..Failure::default() })
}

fn ahead(asked: Revision, now: Revision) -> Status {
    let message = format!(
        "revision {} has not happened here, the ledger is at {}: it was made anew or restored; list, then watch from there",
        asked.0, now.0
    );
    failure_status(&Failure { code: Code::Ahead.text().into(), message, ..Failure::default() })
}
