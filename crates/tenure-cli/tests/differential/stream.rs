//! One watch stream of one server: what is asked over it, and what is heard. Nothing here waits for time to pass: whether
//! all was heard is known from watchers of the test's own, which are answered behind the others.

use super::plain::{Picked, Plain};
use super::step::BELL;
use crate::support::soon;
use std::collections::BTreeMap;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::etcdserverpb::watch_request::RequestUnion;
use tenure_api::etcd::etcdserverpb::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use tenure_api::etcd::mvccpb::Event;
use tenure_api::etcd::mvccpb::event::EventType;
use tokio::sync::mpsc;
use tonic::transport::Channel;

/// Hears the bell from the beginning of the stream to its end.
const RINGER: i64 = 1000;

/// Hears the bell's last ring again, behind all watchers that begin in the past.
const CANARY: i64 = 1001;

/// What comes for all watchers of a stream.
const EVERYBODY: i64 = -1;

pub(super) struct Stream {
    ask: mpsc::Sender<WatchRequest>,
    answers: tonic::Streaming<WatchResponse>,
    /// The open watchers, and where each begins.
    pub(super) open: BTreeMap<i64, i64>,
    heard: Vec<WatchResponse>,
}

impl Stream {
    pub(super) async fn open(mut client: WatchClient<Channel>) -> Self {
        let (ask, asked) = mpsc::channel(16);
        let create = WatchCreateRequest { key: BELL.to_vec(), watch_id: RINGER, ..Default::default() };
        ask.send(request(RequestUnion::CreateRequest(create))).await.unwrap();
        let requests = tokio_stream::wrappers::ReceiverStream::new(asked);
        let answers = soon("a watch stream", client.watch(requests)).await.unwrap().into_inner();
        let mut stream = Self { ask, answers, open: BTreeMap::new(), heard: Vec::new() };
        stream.listen(|answer| answer.created && answer.watch_id == RINGER).await;
        stream
    }

    async fn send(&self, union: RequestUnion) {
        self.ask.send(request(union)).await.unwrap();
    }

    /// Begins a watcher, and hears all that it missed: `revision` is now, `rung` is when the bell last rang.
    pub(super) async fn watch(&mut self, create: WatchCreateRequest, revision: i64, rung: i64) {
        let start = create.start_revision;
        self.send(RequestUnion::CreateRequest(create)).await;
        let created = self.listen(|answer| answer.created).await;
        if !created.canceled {
            self.open.insert(created.watch_id, start);
        }
        if (1..=revision).contains(&start) {
            self.canary(rung).await;
        }
    }

    async fn canary(&mut self, rung: i64) {
        let create =
            WatchCreateRequest { key: BELL.to_vec(), watch_id: CANARY, start_revision: rung, ..Default::default() };
        self.send(RequestUnion::CreateRequest(create)).await;
        self.listen(|answer| answer.created && answer.watch_id == CANARY).await;
        if rung > 0 {
            let heard = self.listen(|answer| answer.watch_id == CANARY).await;
            assert!(!heard.canceled, "the bell rings after every compaction: {heard:?}");
        }
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: CANARY })).await;
        self.listen(|answer| answer.canceled && answer.watch_id == CANARY).await;
    }

    pub(super) async fn cancel(&mut self, watch: i64) {
        self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: watch })).await;
        if self.open.contains_key(&watch) {
            self.listen(|answer| answer.canceled && answer.watch_id == watch).await;
            self.open.remove(&watch);
        } else {
            // Nothing comes; the canary tells that nothing will.
            self.canary(0).await;
        }
    }

    /// Asks for progress, which is told once all watchers have begun and caught up.
    pub(super) async fn progress(&mut self, revision: i64) {
        self.send(RequestUnion::ProgressRequest(WatchProgressRequest {})).await;
        if self.open.values().all(|start| *start <= revision) {
            self.listen(|answer| answer.watch_id == EVERYBODY && !answer.created).await;
        } else {
            self.canary(0).await;
        }
    }

    /// What was heard until the bell rang at a revision, by watcher: etcd serves the watchers of one event in no order.
    pub(super) async fn settle(&mut self, rung: i64, picked: &Picked) -> Vec<WatchResponse> {
        self.listen(|answer| {
            let mut rings = answer.events.iter().filter_map(|event| event.kv.as_ref());
            answer.watch_id == RINGER && rings.any(|kv| kv.mod_revision == rung)
        })
        .await;
        let mut heard = std::mem::take(&mut self.heard);
        heard.sort_by_key(|answer| answer.watch_id);
        heard.iter_mut().for_each(|answer| answer.plain(picked));
        heard
    }

    async fn listen(&mut self, is_last: impl Fn(&WatchResponse) -> bool) -> WatchResponse {
        loop {
            let answer =
                soon("an answer to a watch", self.answers.message()).await.unwrap().expect("the stream is open");
            let is_canceled = answer.canceled && !answer.created;
            if is_canceled && answer.compact_revision != 0 && self.open.remove(&answer.watch_id).is_some() {
                // As etcd's own clients do; until then etcd remembers the watcher, and tells no progress.
                self.send(RequestUnion::CancelRequest(WatchCancelRequest { watch_id: answer.watch_id })).await;
                self.heard.push(answer.clone());
            } else if is_canceled && !self.open.contains_key(&answer.watch_id) {
                // The answer to that, which says nothing new, or one about the test's own watchers.
            } else if ![RINGER, CANARY].contains(&answer.watch_id) && !is_ring(&answer) {
                self.heard.push(answer.clone());
            }
            if is_last(&answer) {
                return answer;
            }
        }
    }
}

/// Whether others heard the bell as well: before the ringer or behind it, as it comes.
fn is_ring(answer: &WatchResponse) -> bool {
    let is_put = |event: &Event| event.r#type() == EventType::Put && event.kv.as_ref().is_some_and(|kv| kv.key == BELL);
    !answer.events.is_empty() && answer.events.iter().all(is_put)
}

fn request(union: RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(union) }
}
