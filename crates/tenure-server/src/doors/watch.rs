//! Watches: each reads the ledger's history from its own place, woken when there is more. No more than one message is
//! made before the client has taken the one before.

use super::desk::Desk;
use super::look::Page;
use super::unready;
use crate::access::Caller;
use crate::limits::{WATCH_EVENTS_MAX, WATCH_PREFIXES_MAX};
use crate::node::Node;
use tenure_api::v1::{Cursor, Failure, WatchReply, WatchRequest};
use tenure_api::{BadRequest, Code};
use tenure_core::{Event, Ledger, Revision};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

pub(super) type Replies = ReceiverStream<Result<WatchReply, Failure>>;

/// A place in the stream of events: a revision, and an event within it.
type Place = (Revision, u32);

/// Starts a watch.
pub(super) fn open(desk: &Desk, request: WatchRequest) -> Result<Replies, Box<Failure>> {
    if request.prefixes.len() > WATCH_PREFIXES_MAX {
        let many = BadRequest::ManyPrefixes { given: request.prefixes.len(), max: WATCH_PREFIXES_MAX };
        return Err(Box::new(many.failure()));
    }
    let one = Some(&request.prefix).filter(|prefix| !prefix.is_empty() || request.prefixes.is_empty());
    request.prefixes.iter().chain(one).try_for_each(|prefix| desk.caller().may_list(prefix)).map_err(Box::new)?;
    let node = desk.node().clone();
    let (replies, receiver) = mpsc::channel(1);
    tokio::spawn(watch(node, desk.caller().clone(), request, replies));
    Ok(ReceiverStream::new(receiver))
}

async fn watch(node: Node, caller: Caller, request: WatchRequest, replies: mpsc::Sender<Result<WatchReply, Failure>>) {
    let wanted = Wanted::new(request.prefix, request.prefixes);
    let _watching = node.metrics().watching();
    let mut revisions = node.revisions();
    let mut at = match request.after {
        Some(cursor) => (Revision(cursor.revision), cursor.n),
        None => (node.read_stale(Ledger::revision), u32::MAX),
    };
    // A place that another node told may be ahead of this one, which only has to catch up.
    if node.read_stale(|ledger| at.0 > ledger.revision())
        && let Err(not_yet) = node.read(|_, _| ()).await
    {
        // Whoever watches goes elsewhere then, or comes again. That nobody listens any longer is no matter.
        let _ = replies.send(Err(unready(&not_yet))).await;
        return;
    }
    // The first reply tells where the watch stands, so that it can be resumed before anything happens.
    let mut told = false;
    loop {
        let Ok(room) = replies.reserve().await else { return };
        revisions.borrow_and_update();
        match node.read_stale(|ledger| page(ledger, at, &wanted)) {
            Err(failure) => return room.send(Err(*failure)),
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
                room.send(Ok(write(&events, &wanted, &caller, at)));
            }
        }
    }
}

/// Which events a watch is told: all, or those of resources and instances whose name starts so.
enum Wanted {
    Everything,
    Under(Vec<String>),
}

impl Wanted {
    fn new(one: String, mut several: Vec<String>) -> Self {
        if !one.is_empty() {
            several.push(one);
        }
        if several.iter().any(String::is_empty) || several.is_empty() { Self::Everything } else { Self::Under(several) }
    }

    fn wants(&self, event: &Event) -> bool {
        match self {
            Self::Everything => true,
            Self::Under(prefixes) => prefixes.iter().any(|prefix| event.what.is_under(prefix)),
        }
    }
}

/// The next events. A watch of resources and instances reads no events of keys, and a delete of many keys pushes none of what
/// it reads out of the history.
fn page(ledger: &Ledger, at: Place, wanted: &Wanted) -> Result<Vec<Event>, Box<Failure>> {
    if at.0 > ledger.revision() {
        return Err(Box::new(ahead(at.0, ledger.revision())));
    }
    match wanted {
        Wanted::Everything => ledger.events_after(at).map(some),
        Wanted::Under(_) => ledger.events_beside_keys_after(at).map(some),
    }
    .map_err(|oldest| Box::new(compacted(oldest)))
}

/// As many events as one message has.
fn some<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Event> {
    let mut page = Page::of(0, WATCH_EVENTS_MAX);
    // Keys may be long; the rest of an event is not.
    let weight = |event: &Event| event.what.key().map_or(0, |key| key.bytes().len());
    events.take_while(|event| page.takes_bytes(weight(event))).cloned().collect()
}

fn write(events: &[Event], wanted: &Wanted, caller: &Caller, at: Place) -> WatchReply {
    let of_interest = events.iter().filter(|event| wanted.wants(event) && caller.may_see(event));
    WatchReply {
        events: of_interest.map(tenure_api::event).collect(),
        cursor: Some(Cursor { revision: at.0.0, n: at.1 }),
    }
}

pub(super) fn compacted(oldest: Revision) -> Failure {
    let message = format!("events up to revision {} are no longer kept; list, then watch from there", oldest.0);
    let code = Code::Compacted.text().into();
    Failure { code, message, oldest: oldest.0, ..Failure::default() }
}

pub(super) fn ahead(asked: Revision, now: Revision) -> Failure {
    let message = format!(
        "revision {} has not happened here, the ledger is at {}: it was made anew or restored; list, then watch from there",
        asked.0, now.0
    );
    Failure { code: Code::Ahead.text().into(), message, ..Failure::default() }
}
