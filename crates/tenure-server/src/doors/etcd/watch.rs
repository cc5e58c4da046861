//! Watches of keys: many watchers over one stream, each with its number and its own place in the past. A stream is woken
//! only for keys that one of its watchers watches, reads the ledger from there on, and makes no more before the client
//! has taken what was made.

use super::access::of_stream;
use super::watchers::{Watcher, Watchers};
use super::{EtcdDesk, Replies};
use crate::bells::Bell;
use crate::limits::{
    BELLS_PER_WATCH_MAX, LEADER_PAUSE, LEADERLESS_MAX, PROGRESS_INTERVAL, WATCH_ANSWERS_MAX, WATCH_QUEUED_EVENTS_MAX,
    WATCH_TURN, WATCHED_BYTES_MAX,
};
use futures::{Stream, StreamExt};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::watch_request::RequestUnion as Ask;
use tenure_api::etcd::{Fault, read_keys};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// The number of nobody: with what concerns no watcher, or one that never was.
const NOBODY: i64 = -1;

/// How often a leader is looked for, while a stream needs one.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Whether somebody leads.
pub(super) type Led = watch::Receiver<bool>;

/// Whoever is to be told has hung up.
struct Gone;

/// An answer that waits to be read, and the room that it takes until then.
type Queued = (Result<pb::WatchResponse, Status>, Option<OwnedSemaphorePermit>);

/// One stream of watchers.
struct Watching {
    desk: EtcdDesk,
    bell: Arc<Bell>,
    watchers: Watchers,
    replies: mpsc::Sender<Queued>,
    /// Room for the events of answers that wait to be read.
    room: Arc<Semaphore>,
}

impl EtcdDesk {
    /// Starts a stream of watchers. If it needs a leader, it ends when there is none for a while.
    pub(super) fn watch(
        &self,
        asked: impl Stream<Item = Result<pb::WatchRequest, Status>> + Send + 'static,
        needs: Option<Led>,
    ) -> Replies<pb::WatchResponse> {
        let (replies, receiver) = mpsc::channel(WATCH_ANSWERS_MAX);
        let (bell, watchers) = (Arc::default(), Watchers::default());
        let room = Arc::new(Semaphore::new(WATCH_QUEUED_EVENTS_MAX));
        tokio::spawn(Watching { desk: self.clone(), bell, watchers, replies, room }.run(asked, needs));
        ReceiverStream::new(receiver).map(|(reply, _room)| reply).boxed()
    }

    /// Returns when somebody leads, and a majority says so. A node whose leader fell silent still believes in it.
    pub(super) async fn led(&self) {
        while self.node().read(|_, _| ()).await.is_err() {
            tokio::time::sleep(LEADER_PAUSE).await;
        }
    }
}

/// Tells all streams that need a leader whether there is one, until the node stops: one look for all of them, and none for nobody.
pub(super) async fn look_for_leader(desk: EtcdDesk, led: watch::Sender<bool>) {
    tokio::select! {
        () = look(&desk, &led) => {}
        _ = desk.node().failed() => {}
    }
}

async fn look(desk: &EtcdDesk, led: &watch::Sender<bool>) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let is_led = led.receiver_count() == 0 || tokio::time::timeout(LEADERLESS_MAX, desk.led()).await.is_ok();
        led.send_replace(is_led);
    }
}

impl Watching {
    async fn run(mut self, asked: impl Stream<Item = Result<pb::WatchRequest, Status>> + Send, needs: Option<Led>) {
        let _watching = self.desk.node().metrics().watching();
        let (bell, replies) = (self.bell.clone(), self.replies.clone());
        let mut asked = pin!(asked);
        let mut leaderless = pin!(async move {
            match needs {
                Some(mut led) => drop(led.wait_for(|is_led| !is_led).await),
                None => std::future::pending().await,
            }
        });
        let mut idle = tokio::time::interval(PROGRESS_INTERVAL);
        idle.reset();
        // Whoever has nothing more to ask may still want to be told.
        let mut is_open = true;
        loop {
            let went = tokio::select! {
                ask = asked.next(), if is_open => match ask {
                    Some(Ok(pb::WatchRequest { request_union: Some(ask) })) => self.asked(ask).await,
                    Some(Ok(_)) => Ok(()),
                    Some(Err(status)) => {
                        // Whoever has hung up needs no reason.
                        let _ = self.replies.send((Err(of_stream(status)), None)).await;
                        return;
                    }
                    None => {
                        is_open = false;
                        Ok(())
                    }
                },
                from = bell.rung() => self.tell_all(from).await,
                _ = idle.tick() => self.tell_progress().await,
                () = &mut leaderless => {
                    // Whoever has hung up needs no reason.
                    let _ = self.replies.send((Err(Fault::no_leader().status()), None)).await;
                    return;
                }
                () = replies.closed() => return,
            };
            if went.is_err() {
                return;
            }
        }
    }

    async fn asked(&mut self, ask: Ask) -> Result<(), Gone> {
        match ask {
            Ask::CreateRequest(create) => self.create(create).await,
            Ask::CancelRequest(cancel) => self.cancel(cancel.watch_id).await,
            Ask::ProgressRequest(_) => self.progress().await,
        }
    }

    async fn create(&mut self, asked: pb::WatchCreateRequest) -> Result<(), Gone> {
        let mut watcher = match self.read(&asked) {
            Ok(watcher) => watcher,
            Err(reason) => return self.refuse(reason).await,
        };
        let (id, start) = (watcher.id, asked.start_revision);
        let now = self.desk.node().read_stale(tenure_core::Ledger::kv_revision);
        let from = u64::try_from(start).ok().filter(|start| *start > 0).unwrap_or(now + 1);
        let created = pb::WatchResponse { watch_id: id, created: true, ..self.blank(now) };
        watcher.next = from;
        self.watchers.add(watcher);
        self.send(created).await?;
        self.catch_up(id).await
    }

    /// A watcher as it is asked for, or why there can be none such.
    fn read(&mut self, asked: &pb::WatchCreateRequest) -> Result<Watcher, String> {
        if asked.start_revision < 0 {
            return Err(Fault::compacted().text);
        }
        // No key is every key from the first on.
        let key = if asked.key.is_empty() { &b"\0"[..] } else { &asked.key };
        let keys = read_keys(key, &asked.range_end).map_err(|fault| fault.text)?;
        if !asked.range_end.is_empty() && asked.range_end != b"\0" && key >= &asked.range_end[..] {
            return Err("mvcc: watcher range is empty".into());
        }
        self.desk.may_see(&keys).map_err(|fault| fault.text)?;
        if self.watchers.len() >= BELLS_PER_WATCH_MAX {
            return Err(format!("tenure: a stream has at most {BELLS_PER_WATCH_MAX} watchers"));
        }
        if self.watchers.bytes() + keys.bytes() > WATCHED_BYTES_MAX {
            return Err(format!("tenure: the watchers of a stream have at most {WATCHED_BYTES_MAX} bytes of keys"));
        }
        let id = self.watchers.number(asked.watch_id);
        let id = id.ok_or("mvcc: duplicate watch ID provided on the WatchStream")?;
        let hanging = self.desk.node().bells().hang(keys.clone(), &self.bell, &self.desk.client());
        let hanging = hanging
            .ok_or("tenure: this client has its share of the watchers of this node, half of what others leave")?;
        let room = self.desk.room_for_watcher().map_err(|fault| fault.text)?;
        Ok(Watcher::new(id, keys, asked, (hanging, room)))
    }

    async fn refuse(&mut self, cancel_reason: String) -> Result<(), Gone> {
        let refused =
            pb::WatchResponse { watch_id: NOBODY, created: true, canceled: true, cancel_reason, ..self.now() };
        self.send(refused).await
    }

    async fn cancel(&mut self, id: i64) -> Result<(), Gone> {
        if !self.watchers.remove(id) {
            return Ok(());
        }
        let cancelled = pb::WatchResponse { watch_id: id, canceled: true, ..self.now() };
        self.send(cancelled).await
    }

    /// Tells one watcher what it has not seen yet.
    async fn catch_up(&mut self, id: i64) -> Result<(), Gone> {
        loop {
            let excerpt = self.desk.node().read_stale(|ledger| self.watchers.read_for_one(ledger, id));
            let page = match excerpt {
                None => return Ok(()),
                Some(Ok(excerpt)) => excerpt.page(),
                Some(Err(compacted)) => {
                    let ended = self.watchers.end_one(id, compacted);
                    return self.tell(ended).await;
                }
            };
            let told = self.watchers.told_of_one(id, &page);
            self.tell(told).await?;
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Tells all watchers what has changed since a revision. The ledger is free while they are told, and no answer is made
    /// before there is room for it.
    async fn tell_all(&mut self, from: u64) -> Result<(), Gone> {
        let mut from = from;
        loop {
            let excerpt = self.desk.node().read_stale(|ledger| self.watchers.read_for_all(ledger, from));
            let page = match excerpt {
                Ok(excerpt) => excerpt.page(),
                Err(compacted) => {
                    let ended = self.watchers.end_all(compacted);
                    self.tell(ended).await?;
                    continue;
                }
            };
            for (told, count) in self.watchers.told_of_all(&page).zip(1_usize..) {
                self.tell(told).await?;
                if count.is_multiple_of(WATCH_TURN) {
                    tokio::task::yield_now().await;
                }
            }
            self.watchers.have_seen(page.upto);
            if !page.more {
                return Ok(());
            }
            from = page.upto + 1;
        }
    }

    async fn tell(&self, responses: impl IntoIterator<Item = pb::WatchResponse> + Send) -> Result<(), Gone> {
        let responses: Vec<_> = responses.into_iter().collect();
        for response in responses {
            let header = response.header.map(|header| self.desk.signed(header));
            self.send(pb::WatchResponse { header, ..response }).await?;
        }
        Ok(())
    }

    /// Tells how far all have come, once all of them have.
    async fn progress(&mut self) -> Result<(), Gone> {
        let from = self.watchers.furthest_back();
        self.tell_all(from).await?;
        let now = self.desk.node().read_stale(tenure_core::Ledger::kv_revision);
        match self.watchers.have_come_to(now) {
            true => self.send(pb::WatchResponse { watch_id: NOBODY, ..self.blank(now) }).await,
            false => Ok(()),
        }
    }

    /// Tells those who asked for it how far they have come, although nothing has happened.
    async fn tell_progress(&mut self) -> Result<(), Gone> {
        for id in self.watchers.who_want_progress() {
            let progress = pb::WatchResponse { watch_id: id, ..self.now() };
            self.send(progress).await?;
        }
        Ok(())
    }

    fn now(&self) -> pb::WatchResponse {
        self.blank(self.desk.node().read_stale(tenure_core::Ledger::kv_revision))
    }

    fn blank(&self, kv_revision: u64) -> pb::WatchResponse {
        pb::WatchResponse { header: Some(self.desk.header(kv_revision)), ..pb::WatchResponse::default() }
    }

    /// Waits for room: for one more answer, and for its events, which share keys and values with the ledger.
    async fn send(&self, response: pb::WatchResponse) -> Result<(), Gone> {
        let events = response.events.len().clamp(1, WATCH_QUEUED_EVENTS_MAX);
        let room = self.room.clone().acquire_many_owned(u32::try_from(events).unwrap_or(u32::MAX));
        tokio::select! {
            room = room => self.replies.send((Ok(response), room.ok())).await.map_err(|_| Gone),
            () = self.replies.closed() => Err(Gone),
        }
    }
}
