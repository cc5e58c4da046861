//! One of the two servers: it plays a step, and tells what was answered in words that can be compared.

use super::plain::{Picked, Plain};
use super::step::{BELL, PICKED, STREAMS, Step};
use super::stream::Stream;
use crate::support::{PATIENCE, soon};
use std::fmt::Debug;
use std::time::Duration;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tenure_api::etcd::etcdserverpb::lease_client::LeaseClient;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseLeasesRequest, LeaseRevokeRequest,
    LeaseTimeToLiveRequest, PutRequest, RangeRequest,
};
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Response, Status};

/// The lease whose end is waited for.
const BRIEF: i64 = 77;

/// What a server answered, line by line.
pub(crate) type Answer = Vec<String>;

pub(crate) struct Side {
    keys: KvClient<Channel>,
    leases: LeaseClient<Channel>,
    watches: WatchClient<Channel>,
    beats: mpsc::Sender<LeaseKeepAliveRequest>,
    beaten: tonic::Streaming<LeaseKeepAliveResponse>,
    streams: Vec<Stream>,
    picked: Picked,
    /// The last revision that was told.
    pub(crate) revision: i64,
    /// Before this revision all is forgotten.
    pub(crate) compacted: i64,
    rung: i64,
}

impl Side {
    pub(crate) async fn connect(endpoint: &str) -> Self {
        let channel = Channel::from_shared(endpoint.to_owned()).unwrap().connect().await.unwrap();
        let watches = WatchClient::new(channel.clone());
        let mut leases = LeaseClient::new(channel.clone());
        let (beats, asked) = mpsc::channel(1);
        // A server may answer the stream with its first answer alone, so the first question goes ahead.
        beats.send(LeaseKeepAliveRequest { id: 1 }).await.unwrap();
        let requests = tokio_stream::wrappers::ReceiverStream::new(asked);
        let mut beaten = soon("a stream", leases.lease_keep_alive(requests)).await.unwrap().into_inner();
        soon("a beat", beaten.message()).await.unwrap();
        let keys = KvClient::new(channel);
        let mut side = Self {
            keys,
            leases,
            watches,
            beats,
            beaten,
            streams: Vec::new(),
            picked: Picked::default(),
            revision: 0,
            compacted: 0,
            rung: 0,
        };
        side.ring().await;
        for _ in 0..STREAMS {
            side.streams.push(Stream::open(side.watches.clone()).await);
        }
        side
    }

    pub(crate) fn open_watches(&self, stream: usize) -> Vec<i64> {
        self.streams[stream].open.keys().copied().collect()
    }

    /// The leases that the server picked numbers for.
    pub(crate) fn picked_leases(&self) -> usize {
        self.picked.0.len()
    }

    pub(crate) async fn play(&mut self, step: &Step) -> Answer {
        let one = |line| vec![line];
        match step.clone() {
            Step::Watch { stream, create } => {
                self.streams[stream].watch(create, self.revision, self.rung).await;
                Vec::new()
            }
            Step::Cancel { stream, watch } => {
                self.streams[stream].cancel(watch).await;
                Vec::new()
            }
            Step::Progress { stream } => {
                self.streams[stream].progress(self.revision).await;
                Vec::new()
            }
            Step::Reopen { stream } => {
                self.streams[stream] = Stream::open(self.watches.clone()).await;
                Vec::new()
            }
            Step::Settle => self.settle().await,
            Step::Expire { ttl, keys } => self.expire(ttl, keys).await,
            Step::Range(request) => one(self.range(request).await),
            Step::Put(request) => one(self.put(request).await),
            Step::Delete(request) => {
                let answer = self.keys.delete_range(request).await;
                one(self.told(answer))
            }
            Step::Txn(request) => {
                let answer = self.keys.txn(self.picked.real_txn(request)).await;
                one(self.told(answer))
            }
            Step::Compact(request) => {
                let answer = self.keys.compact(request).await;
                self.compacted = if answer.is_ok() { request.revision } else { self.compacted };
                one(self.told(answer))
            }
            step => one(self.play_lease(step).await),
        }
    }

    async fn play_lease(&mut self, step: Step) -> String {
        match step {
            Step::Grant(request) => self.grant(request).await,
            Step::Revoke(lease) => {
                let answer = self.leases.lease_revoke(LeaseRevokeRequest { id: self.picked.real(lease) }).await;
                self.told(answer)
            }
            Step::TimeToLive(request) => self.time_to_live(request).await,
            Step::Leases => {
                let answer = self.leases.lease_leases(LeaseLeasesRequest {}).await;
                self.told(answer)
            }
            Step::KeepAlive(lease) => {
                self.beats.send(LeaseKeepAliveRequest { id: self.picked.real(lease) }).await.unwrap();
                let answer = soon("a beat", self.beaten.message()).await.unwrap().expect("the stream is open");
                self.told(Ok(Response::new(answer)))
            }
            other => panic!("{other:?} is not about leases"),
        }
    }

    async fn range(&mut self, request: RangeRequest) -> String {
        let answer = self.keys.range(request).await;
        self.told(answer)
    }

    async fn put(&mut self, mut request: PutRequest) -> String {
        request.lease = self.picked.real(request.lease);
        let answer = self.keys.put(request).await;
        self.told(answer)
    }

    async fn grant(&mut self, mut request: LeaseGrantRequest) -> String {
        let is_picked = request.id == 0;
        request.id = self.picked.real(request.id);
        let answer = self.leases.lease_grant(request).await;
        if let (true, Ok(answer)) = (is_picked, &answer) {
            let id = answer.get_ref().id;
            assert!(id >= PICKED, "a picked lease is not like those that the test chooses: {id}");
            self.picked.0.push(id);
        }
        self.told(answer)
    }

    async fn time_to_live(&mut self, mut request: LeaseTimeToLiveRequest) -> String {
        request.id = self.picked.real(request.id);
        let answer = self.leases.lease_time_to_live(request).await;
        self.told(answer)
    }

    async fn expire(&mut self, ttl: i64, keys: Vec<Vec<u8>>) -> Answer {
        let mut answer = vec![self.grant(LeaseGrantRequest { ttl, id: BRIEF }).await];
        for key in keys.clone() {
            answer.push(self.put(PutRequest { key, lease: BRIEF, ..Default::default() }).await);
        }
        tokio::time::timeout(PATIENCE, self.until_gone()).await.expect("a lease that is not renewed ends");
        for key in keys {
            answer.push(self.range(RangeRequest { key, ..Default::default() }).await);
        }
        answer.push(self.time_to_live(LeaseTimeToLiveRequest { id: BRIEF, keys: true }).await);
        answer
    }

    /// Asks for the list of leases and not for the one, which is told to be over a little before its keys go.
    async fn until_gone(&mut self) {
        loop {
            let leases = self.leases.lease_leases(LeaseLeasesRequest {}).await.unwrap().into_inner().leases;
            if !leases.iter().any(|lease| lease.id == BRIEF) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ring(&mut self) {
        let answer = self.keys.put(PutRequest { key: BELL.to_vec(), ..Default::default() }).await.unwrap();
        self.rung = answer.get_ref().revision();
        self.revision = self.rung;
    }

    async fn settle(&mut self) -> Answer {
        self.ring().await;
        let mut answer = Vec::new();
        for (place, stream) in self.streams.iter_mut().enumerate() {
            let heard = stream.settle(self.rung, &self.picked).await;
            answer.extend(heard.iter().map(|heard| format!("stream {place} heard {heard:?}")));
        }
        answer
    }

    fn told<T: Plain + Debug>(&mut self, answer: Result<Response<T>, Status>) -> String {
        match answer {
            Ok(answer) => {
                let mut message = answer.into_inner();
                self.revision = self.revision.max(message.revision());
                message.plain(&self.picked);
                format!("{message:?}")
            }
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        }
    }
}
