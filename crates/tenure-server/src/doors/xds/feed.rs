//! A stream to one Envoy: told what it wants when it changes, and anew before it may not be relied on any longer. No more
//! than one message is made before the one before was taken; what happens meanwhile is told at once.

use super::assignment::{Assigned, assigned};
use super::dialect::{Dialect, Heard};
use super::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use super::wanted::Wanted;
use crate::access::Caller;
use crate::bells::{Bell, Hanging};
use crate::limits::{FOLLOWED_EVENTS_MAX, LEADER_PAUSE, PAGE_BYTES, XDS_GATHER, XDS_PAGE};
use crate::node::Node;
use crate::unready::Unready;
use futures::{Stream, StreamExt};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::failure_status;
use tenure_core::{Key, Keys, Ledger, Moment, Revision};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// What is told on a stream.
pub(super) type Replies<T> = ReceiverStream<Result<T, Status>>;

/// Starts a stream.
pub(super) fn open<D: Dialect>(
    (node, caller): (Node, Caller),
    asks: impl Stream<Item = Result<D::Ask, Status>> + Send + Unpin + 'static,
    dialect: D,
) -> Replies<D::Tell> {
    let (replies, receiver) = mpsc::channel(1);
    let (bell, hung) = (Arc::default(), HashMap::new());
    let feed = Feed { node, caller, dialect, wanted: Wanted::default(), bell, hung, replies };
    tokio::spawn(feed.run(asks));
    ReceiverStream::new(receiver)
}

struct Feed<D: Dialect> {
    node: Node,
    /// Who may hear of services under its prefixes only.
    caller: Caller,
    dialect: D,
    wanted: Wanted,
    /// Rung when something happens to one of the services, and hung up for each of them.
    bell: Arc<Bell>,
    hung: HashMap<String, Hanging>,
    replies: mpsc::Sender<Result<D::Tell, Status>>,
}

impl<D: Dialect> Feed<D> {
    /// Tells until the other side goes, the node stops, or something is asked that is not told here.
    async fn run(mut self, mut asks: impl Stream<Item = Result<D::Ask, Status>> + Unpin) {
        let node = self.node.clone();
        let _watching = node.metrics().watching();
        let bell = self.bell.clone();
        // Room is asked for on its own, so that requests are read while nobody reads what is told.
        let replies = self.replies.clone();
        loop {
            let nap = self.wanted.next_due().map(|due| due.saturating_sub(node.monotonic()));
            tokio::select! {
                ask = asks.next() => {
                    let Some(Ok(ask)) = ask else { return };
                    if let Err(status) = self.hear(ask) {
                        // That nobody listens any longer is no matter.
                        return drop(replies.send(Err(status)).await);
                    }
                }
                from = bell.rung() => {
                    // What happens together is told together.
                    tokio::time::sleep(XDS_GATHER).await;
                    self.follow(Revision(from.saturating_sub(1)));
                }
                room = replies.reserve(), if self.wanted.has_news() => {
                    let Ok(room) = room else { return };
                    match self.next().await {
                        Ok(tell) => room.send(Ok(tell)),
                        // Nothing is told that may be old: without a word, what was told ends by itself.
                        Err(_) => tokio::time::sleep(LEADER_PAUSE).await,
                    }
                }
                () = tokio::time::sleep(nap.unwrap_or_default()), if nap.is_some() => {
                    self.wanted.fall_due(node.monotonic());
                }
            }
        }
    }

    /// Takes in what is asked. A bell is hung up for every service before it is looked at, so that nothing is missed.
    fn hear(&mut self, ask: D::Ask) -> Result<(), Status> {
        let mut names = D::names(&ask).iter();
        names.try_for_each(|name| self.caller.may_use_service(name)).map_err(|denied| failure_status(&denied))?;
        if let Heard::Rejected(why) = self.dialect.read(ask, &mut self.wanted)? {
            let why: String = why.chars().take(500).collect();
            tracing::warn!(why, "Envoy does not take what it was told, and goes on with what it had");
        }
        self.hung.retain(|name, _| self.wanted.has(name));
        for name in self.wanted.names() {
            // What is too long for a key is no service either.
            let Ok(key) = Key::parse(name.as_bytes()) else { continue };
            if !self.hung.contains_key(name) {
                let hanging = self.node.service_bells().hang(Keys::One(key), &self.bell, &self.caller.client());
                let full = || {
                    Status::resource_exhausted(
                        "this client watches its share of services, half of what others leave; ask again a little later",
                    )
                };
                self.hung.insert(name.clone(), hanging.ok_or_else(full)?);
            }
        }
        Ok(())
    }

    /// Notes which services have changed after a revision.
    fn follow(&mut self, after: Revision) {
        let mut at = (after, u32::MAX);
        loop {
            let (before, wanted) = (at, &mut self.wanted);
            let followed = self.node.read_stale(|ledger| {
                let mut at = before;
                for event in ledger.events_beside_keys_after(before)?.take(FOLLOWED_EVENTS_MAX) {
                    at = (event.revision, event.n);
                    if let Some(instance) = event.what.instance() {
                        wanted.changed(instance.service.as_str(), event.revision);
                    }
                }
                Ok::<_, Revision>(at)
            });
            match followed {
                Ok(next) if next == before => return,
                Ok(next) => at = next,
                // It was too far behind.
                Err(_) => return self.wanted.all_changed(),
            }
        }
    }

    /// The next message, of what is so after all that was acknowledged before.
    async fn next(&mut self) -> Result<D::Tell, Unready> {
        let names = self.wanted.next(XDS_PAGE);
        let (page, revision) = self.node.read(|ledger, now| (page(ledger, &names, now), ledger.revision())).await?;
        let now = self.node.monotonic();
        for assigned in &page {
            let due = assigned.fresh_for.and_then(|fresh_for: Duration| now.checked_add(fresh_for));
            let name = &assigned.assignment.cluster_name;
            self.wanted.told(name, revision, due);
            if assigned.left_out > 0 {
                let count = assigned.left_out;
                tracing::debug!(
                    service = name,
                    count,
                    "instances without an address or a weight are not told to Envoy"
                );
            }
        }
        let assignments: Vec<ClusterLoadAssignment> = page.into_iter().map(|assigned| assigned.assignment).collect();
        Ok(self.dialect.write(assignments, revision))
    }
}

/// What is told of some services, at least of one, and of no more than fit into a message.
fn page(ledger: &Ledger, names: &[String], now: Moment) -> Vec<Assigned> {
    let mut bytes = 0;
    let mut page = Vec::new();
    for name in names {
        if bytes > PAGE_BYTES {
            break;
        }
        let assigned = assigned(ledger, name, now);
        bytes += assigned.assignment.encoded_len();
        page.push(assigned);
    }
    page
}
