//! Watches of instances: a snapshot, then changes, then how long everything is valid. Each reads the ledger from its own
//! place and is woken only by the services that it watches. No more than one message is made before the client has taken
//! the one before.

use super::desk::Desk;
use super::fresh::{self, Validity};
use super::look::instance::{self, Wanted};
use super::{unready, watch};
use crate::bells::{Bell, Hanging};
use crate::limits::{FRESH_MAX, FRESH_MIN, FRESH_PATIENCE, FRESH_RECENT_MAX, PAGE, PAGE_BYTES, RETRY_AFTER};
use crate::unready::Unready;
use prost::Message;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::ended;
use tenure_api::v1::{DiscoverRequest, Failure, RemovedInstance, WatchInstancesReply, WatchInstancesRequest};
use tenure_core::{Happening, InstanceId, InstanceKey, Ledger, Moment, Name, Revision};
use tokio::sync::mpsc::{self, Sender};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

pub(super) type Replies = ReceiverStream<Result<WatchInstancesReply, Failure>>;

/// What has changed: each instance with how it ended, if it did.
pub(super) type Changes = BTreeMap<InstanceKey, Option<tenure_api::v1::End>>;

/// Nobody listens any longer.
struct Gone;

/// Starts a watch.
pub(super) fn open(desk: Desk, request: WatchInstancesRequest) -> Result<Replies, Box<Failure>> {
    let after = request.after;
    desk.may_discover(&request.service, &request.service_prefix).map_err(Box::new)?;
    let wanted = Wanted::read(&DiscoverRequest {
        service: request.service,
        service_prefix: request.service_prefix,
        capabilities: request.capabilities,
        labels: request.labels,
        zone: request.zone,
        all: request.all,
        ..DiscoverRequest::default()
    });
    let wanted = wanted.map_err(|bad| Box::new(bad.failure()))?;
    let bell = Arc::new(Bell::default());
    // Hung up before the first look, so that nothing is missed between the two.
    let hanging = desk.node().service_bells().hang(wanted.keys(), &bell, &desk.caller().client());
    let hanging = hanging.ok_or_else(|| Box::new(unready(&Unready::Overloaded { retry_after: RETRY_AFTER })))?;
    let (replies, receiver) = mpsc::channel(1);
    let watch = Watch {
        desk,
        wanted,
        bell,
        _hanging: hanging,
        replies,
        at: Revision(after),
        floor: Revision(after),
        recent: BTreeMap::new(),
        is_empty: None,
    };
    tokio::spawn(watch.run());
    Ok(ReceiverStream::new(receiver))
}

struct Watch {
    desk: Desk,
    wanted: Wanted,
    bell: Arc<Bell>,
    _hanging: Hanging,
    replies: Sender<Result<WatchInstancesReply, Failure>>,
    /// Everything up to here was told.
    at: Revision,
    /// The snapshot was read at this revision or before.
    floor: Revision,
    /// What was put since, by service, and the revision at which it was read.
    recent: BTreeMap<Name, BTreeMap<InstanceId, Revision>>,
    /// Whether the watcher knows of no instance. None: it resumed, and only it knows.
    is_empty: Option<bool>,
}

impl Watch {
    async fn run(mut self) {
        let _watching = self.desk.node().metrics().watching();
        let begun = match self.at {
            Revision(0) => self.snapshot().await,
            _ => self.resume().await,
        };
        let Ok(()) = begun else { return };
        // Changes do not put it off, however many there are.
        let mut tick = pin!(sleep(FRESH_MIN));
        loop {
            let woken = tokio::select! {
                from = self.bell.rung() => Some(from),
                () = &mut tick => None,
                () = self.replies.closed() => return,
            };
            let went = match woken {
                Some(from) => self.changes(Revision(from.saturating_sub(1)), false).await,
                None => self.freshen().await.map(|pause| tick.set(sleep(pause))),
            };
            let Ok(()) = went else { return };
        }
    }

    async fn send(&self, reply: WatchInstancesReply) -> Result<(), Gone> {
        self.replies.send(Ok(reply)).await.map_err(|_| Gone)
    }

    async fn fail(&self, failure: Failure) -> Gone {
        // That nobody listens any longer is no matter.
        let _ = self.replies.send(Err(failure)).await;
        Gone
    }

    /// Tells all there is, in parts. What changes meanwhile is told afterwards.
    async fn snapshot(&mut self) -> Result<(), Gone> {
        let begun = self.desk.node().read(|ledger, _| ledger.revision()).await;
        self.at = match begun {
            Ok(revision) => revision,
            Err(not_yet) => return Err(self.fail(unready(&not_yet)).await),
        };
        let mut from = None;
        loop {
            let node = self.desk.node();
            let about = node.service_time_about();
            let (put, next, revision, now) = node.read_stale(|ledger| {
                let now = about.max(ledger.now());
                let (items, next) = self.wanted.page(ledger, from.as_ref(), 0, now);
                (items, next, ledger.revision(), now)
            });
            self.floor = revision;
            self.is_empty = Some(self.is_empty.unwrap_or(true) && put.is_empty());
            let last = next.is_none();
            let revision = if last { self.at.0 } else { 0 };
            let now_ms = now.millis();
            let reply = WatchInstancesReply { snapshot: true, last, put, revision, now_ms, ..Default::default() };
            self.send(reply).await?;
            match next {
                Some(key) => from = Some(key),
                None => return Ok(()),
            }
        }
    }

    /// Goes on after a revision that may have been told by another node, which was ahead of this one.
    async fn resume(&mut self) -> Result<(), Gone> {
        let now = match self.desk.node().read(|ledger, _| ledger.revision()).await {
            Ok(now) => now,
            Err(not_yet) => return Err(self.fail(unready(&not_yet)).await),
        };
        if self.at > now {
            return Err(self.fail(watch::ahead(self.at, now)).await);
        }
        self.changes(Revision(0), true).await
    }

    /// Tells what has changed, as far as it is of interest. Between the last place and `quiet` nothing was.
    async fn changes(&mut self, quiet: Revision, is_first: bool) -> Result<(), Gone> {
        let after = self.at.max(quiet);
        let found = self.desk.node().read_stale(|ledger| {
            let changes = changed(ledger, &self.wanted, after)?;
            Ok((changes, ledger.revision()))
        });
        let (changes, now) = match found {
            Ok(found) => found,
            Err(oldest) => return Err(self.fail(watch::compacted(oldest)).await),
        };
        self.at = now;
        if changes.is_empty() && !is_first {
            return Ok(());
        }
        let mut changes = changes.into_iter().peekable();
        let (mut has_put, mut has_removed) = (false, false);
        loop {
            let mut reply = self.part(&mut changes);
            let last = changes.peek().is_none();
            (reply.last, reply.revision) = (last, if last { self.at.0 } else { 0 });
            (has_put, has_removed) = (has_put || !reply.put.is_empty(), has_removed || !reply.removed.is_empty());
            reply.became_empty = last && self.has_become_empty(has_put, has_removed);
            self.send(reply).await?;
            if last {
                return Ok(());
            }
        }
    }

    /// As many changes as fit into a message, each as it is now.
    fn part(
        &mut self,
        changes: &mut std::iter::Peekable<impl Iterator<Item = (InstanceKey, Option<tenure_api::v1::End>)>>,
    ) -> WatchInstancesReply {
        let node = self.desk.node();
        let now = node.service_time_about();
        let (wanted, recent) = (&self.wanted, &mut self.recent);
        let mut reply = WatchInstancesReply::default();
        node.read_stale(|ledger| {
            let now = now.max(ledger.now());
            reply.now_ms = now.millis();
            let (mut count, mut bytes) = (0, 0);
            while count < PAGE && bytes < PAGE_BYTES {
                let Some((key, end)) = changes.next() else { break };
                count += 1;
                match ledger.instance(&key).filter(|instance| wanted.wants(instance)) {
                    Some(instance) => {
                        let item = instance::item(ledger, &key.service, &key.id, instance, now);
                        bytes += item.encoded_len();
                        reply.put.push(item);
                        recent.entry(key.service).or_default().insert(key.id, ledger.revision());
                    }
                    None => {
                        let end = end.filter(|_| ledger.instance(&key).is_none());
                        let (service, id) = (key.service.to_string(), key.id.to_string());
                        reply.removed.push(RemovedInstance { service, id, end });
                        if let Entry::Occupied(mut of_service) = recent.entry(key.service) {
                            of_service.get_mut().remove(&key.id);
                            if of_service.get().is_empty() {
                                of_service.remove();
                            }
                        }
                    }
                }
            }
        });
        reply
    }

    /// Whether the watcher knows of no instance any longer, and did before.
    fn has_become_empty(&mut self, has_put: bool, has_removed: bool) -> bool {
        if has_put {
            self.is_empty = Some(false);
        }
        if !has_removed || self.is_empty == Some(true) {
            return false;
        }
        let is_empty = self.desk.node().read_stale(|ledger| !self.wanted.is_met_in(ledger));
        self.is_empty = Some(is_empty);
        is_empty
    }

    /// Tells how long everything is valid, and up to where nothing of interest has happened. Says when to do so again.
    async fn freshen(&mut self) -> Result<Duration, Gone> {
        let told = *self.desk.node().revisions().borrow();
        // Whoever was rung for something up to that revision looks at it first.
        if self.bell.is_rung() {
            return Ok(Duration::ZERO);
        }
        self.at = self.at.max(told);
        let mut pause = FRESH_MAX;
        let mut from = Some(String::new());
        while let Some(first) = from {
            let (services, next) = self.services(&first);
            let Some(known) = self.validities(services).await else {
                // Without the leader nobody knows, and whoever watches runs out of what was told before unless one is there
                // soon.
                return Ok(FRESH_MIN);
            };
            pause = pause.min(self.send_fresh(&known).await?);
            from = next;
        }
        Ok(pause)
    }

    /// How long the instances of these services are valid. None if the leader is not heard of, also if there are none.
    async fn validities(&self, services: Vec<Name>) -> Option<Vec<(Name, Arc<Validity>)>> {
        let (node, fresh) = (self.desk.node(), self.desk.fresh());
        if services.is_empty() {
            timeout(FRESH_PATIENCE, node.read(|_, _| ())).await.ok()?.ok()?;
        }
        let mut known = Vec::with_capacity(services.len());
        for service in services {
            let is_much = self.recent.get(&service).is_some_and(|recent| recent.len() > FRESH_RECENT_MAX);
            let floor = if is_much { self.at.max(self.floor) } else { self.floor };
            let validity = timeout(FRESH_PATIENCE, fresh.of(node, &service, floor)).await.ok()?.ok()?;
            known.push((service, validity));
        }
        Some(known)
    }

    /// What has happened up to there is told first: it says how long everybody else is valid. Says when to do so again.
    async fn send_fresh(&mut self, known: &[(Name, Arc<Validity>)]) -> Result<Duration, Gone> {
        let newest = known.iter().map(|(_, validity)| validity.revision).max().unwrap_or_default();
        // It fails if the node stops, and then nothing is said any more.
        self.desk.node().revisions().wait_for(|told| *told >= newest).await.map_err(|_| Gone)?;
        if self.bell.is_rung() {
            let from = self.bell.rung().await;
            self.changes(Revision(from.saturating_sub(1)), false).await?;
        }
        let mut pause = FRESH_MAX;
        let now = self.desk.node().service_time_about();
        let begun = || WatchInstancesReply { now_ms: now.millis(), ..WatchInstancesReply::default() };
        let mut reply = begun();
        for (service, validity) in known {
            let recent = self.recent_ends(service, validity.revision);
            reply.fresh.extend(validity.told(service, &recent, now));
            pause = pause.min(validity.again_in(now));
            if reply.encoded_len() > PAGE_BYTES {
                let part = std::mem::replace(&mut reply, begun());
                self.send(WatchInstancesReply { last: true, revision: self.at.0, ..part }).await?;
            }
        }
        self.send(WatchInstancesReply { last: true, revision: self.at.0, ..reply }).await?;
        Ok(pause)
    }

    /// When those end that were put after a revision, and forgets the others.
    fn recent_ends(&mut self, service: &Name, known: Revision) -> Vec<(InstanceId, Moment)> {
        let Entry::Occupied(mut recent) = self.recent.entry(service.clone()) else { return Vec::new() };
        recent.get_mut().retain(|_, put| *put > known);
        let ends = self.desk.node().read_stale(|ledger| {
            let key = |id: &InstanceId| InstanceKey { service: service.clone(), id: id.clone() };
            recent.get().keys().filter_map(|id| Some((id.clone(), fresh::end(ledger, &key(id))?))).collect()
        });
        if recent.get().is_empty() {
            recent.remove();
        }
        ends
    }

    /// Some of the services that are watched, and where the others begin.
    fn services(&self, first: &str) -> (Vec<Name>, Option<String>) {
        self.desk.node().read_stale(|ledger| {
            let mut each = self.wanted.services(ledger, first).map(|(name, _)| name.clone());
            let page = each.by_ref().take(PAGE).collect();
            (page, each.next().map(|name| name.to_string()))
        })
    }
}

/// The instances of interest to which something happened after a revision, and how those that ended did.
pub(super) fn changed(ledger: &Ledger, wanted: &Wanted, after: Revision) -> Result<Changes, Revision> {
    let mut changes = Changes::new();
    for event in ledger.events_beside_keys_after((after, u32::MAX))? {
        let Some(key) = event.what.instance().filter(|key| wanted.is_of(&key.service)) else { continue };
        let end = match &event.what {
            Happening::Deregistered { how, .. } => Some(ended(how, event.at, event.wall_ms)),
            _ => None,
        };
        changes.insert(key.clone(), end);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests;
