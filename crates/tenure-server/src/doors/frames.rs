//! Bounds on gRPC messages while they arrive: each must be complete in time, and all that are under way share one room in
//! memory with the bodies of HTTP. A message that is larger than its service takes needs no room: the service refuses it by its
//! length.

use super::etcd;
use crate::limits::{BODY_PATIENCE, ETCD_MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX, SMALL_BYTES_MAX};
use crate::metrics::Door;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use tenure_api::etcd::etcdserverpb::auth_server;
use tenure_api::v1::Failure;
use tenure_api::{Code, failure_status};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic_health::pb::health_server;
use tonic_reflection::pb::v1::server_reflection_server as reflection_server;

/// Services that take small messages only.
const SMALL: [&str; 3] = [health_server::SERVICE_NAME, reflection_server::SERVICE_NAME, auth_server::SERVICE_NAME];

/// What a message begins with: a flag, and its length.
const HEAD_BYTES: usize = 5;

/// How large a message of a call may be. Its service refuses a larger one by its length, before its bytes are kept.
fn message_bytes_max(path: &str) -> usize {
    match path.split('/').nth(1) {
        Some(service) if SMALL.contains(&service) => SMALL_BYTES_MAX,
        _ if etcd::is_etcd(Door::Grpc, path) => ETCD_MESSAGE_BYTES_MAX,
        _ => REQUEST_BYTES_MAX,
    }
}

/// Bounds the messages of a request.
pub(super) fn bounded(request: Request, room: &Arc<Semaphore>) -> Request {
    let (parts, body) = request.into_parts();
    let max = message_bytes_max(parts.uri.path());
    let (chunks, room) = (body.into_data_stream().map_err(|error| Status::from_error(Box::new(error))), room.clone());
    let arriving = Arriving { chunks: chunks.boxed(), frames: Frames::default(), max, room, taken: None, late: None };
    Request::from_parts(parts, Body::from_stream(stream::unfold(arriving, Arriving::next)))
}

/// The messages of one request as they arrive.
struct Arriving {
    chunks: BoxStream<'static, Result<Bytes, Status>>,
    frames: Frames,
    /// The bytes of a message that its service takes.
    max: usize,
    room: Arc<Semaphore>,
    /// The room of the message that is under way.
    taken: Option<OwnedSemaphorePermit>,
    /// When the message that is under way is too late.
    late: Option<std::pin::Pin<Box<Sleep>>>,
}

impl Arriving {
    async fn next(mut self) -> Option<(Result<Bytes, Status>, Self)> {
        let chunk = match &mut self.late {
            None => self.chunks.next().await?,
            Some(late) => tokio::select! {
                chunk = self.chunks.next() => chunk?,
                () = late => Err(too_slow()),
            },
        };
        let passed = chunk.and_then(|chunk| self.pass(&chunk).map(|()| chunk));
        Some((passed, self))
    }

    /// Takes note of a chunk. A message that is complete within it needs no room.
    fn pass(&mut self, chunk: &[u8]) -> Result<(), Status> {
        let is_same = self.frames.take(chunk);
        if !is_same {
            (self.taken, self.late) = (None, None);
        }
        let Some(bytes) = self.frames.under_way().filter(|bytes| *bytes <= self.max) else { return Ok(()) };
        if self.late.is_none() {
            self.late = Some(Box::pin(sleep(BODY_PATIENCE)));
        }
        if self.taken.is_none() && bytes > 0 {
            let kib = u32::try_from(bytes / 1024 + 1).expect("a message has its limit");
            self.taken = Some(self.room.clone().try_acquire_many_owned(kib).map_err(|_| overloaded())?);
        }
        Ok(())
    }
}

/// Where one message ends and the next begins. It looks at lengths only.
#[derive(Debug, Default)]
struct Frames {
    head: Vec<u8>,
    /// The length of the message under way, and how much of it is missing.
    length: usize,
    missing: usize,
}

impl Frames {
    /// Goes through a chunk. True: the message under way before is under way still.
    fn take(&mut self, mut chunk: &[u8]) -> bool {
        let mut is_same = self.under_way().is_some();
        while !chunk.is_empty() {
            if self.missing > 0 {
                let here = self.missing.min(chunk.len());
                (self.missing, chunk) = (self.missing - here, &chunk[here..]);
            } else {
                let here = (HEAD_BYTES - self.head.len()).min(chunk.len());
                self.head.extend_from_slice(&chunk[..here]);
                chunk = &chunk[here..];
                if let [_, length @ ..] = &self.head[..]
                    && let Ok(length) = length.try_into()
                {
                    self.length = u32::from_be_bytes(length) as usize;
                    self.missing = self.length;
                    self.head.clear();
                }
            }
            is_same &= self.under_way().is_some();
        }
        is_same
    }

    /// The length of the message that has begun and is not complete; 0 while that is not known.
    fn under_way(&self) -> Option<usize> {
        match (self.missing, self.head.len()) {
            (0, 0) => None,
            (0, _) => Some(0),
            _ => Some(self.length),
        }
    }
}

fn too_slow() -> Status {
    refusal(Code::TooSlow, "the message did not come in time; nothing was changed")
}

fn overloaded() -> Status {
    refusal(Code::Overloaded, "too many messages are arriving at once; nothing was changed; ask again a little later")
}

fn refusal(code: Code, message: &str) -> Status {
    failure_status(&Failure { code: code.text().into(), message: message.into(), ..Failure::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn message(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).unwrap().to_be_bytes();
        [&[0][..], &length, &vec![7; bytes]].concat()
    }

    /// However a stream of messages is cut, it is known at each cut whether one is under way.
    #[test]
    fn messages_are_told_apart_however_they_are_cut() {
        let messages = [message(0), message(3), message(300), message(1)];
        let all = messages.concat();
        let mut ends = vec![0];
        messages.iter().for_each(|message| ends.push(ends.last().unwrap() + message.len()));
        for size in 1..all.len() {
            let (mut frames, mut at) = (Frames::default(), 0);
            for chunk in all.chunks(size) {
                let began = at;
                at += chunk.len();
                let ended = ends.iter().any(|end| (began + 1..=at).contains(end));
                let was_open = !ends.contains(&began);
                assert_eq!(frames.take(chunk), was_open && !ended, "chunks of {size}, up to {at}");
                assert_eq!(frames.under_way().is_none(), ends.contains(&at), "chunks of {size}, up to {at}");
            }
        }
    }

    /// Sends these chunks, the last of which is followed by nothing, and says what comes through.
    async fn arrive(chunks: Vec<Vec<u8>>, room: &Arc<Semaphore>) -> Vec<Result<usize, Status>> {
        arrive_at("/tenure.v1.Tenure/Acquire", chunks, room).await
    }

    async fn arrive_at(path: &str, chunks: Vec<Vec<u8>>, room: &Arc<Semaphore>) -> Vec<Result<usize, Status>> {
        let sent = stream::iter(chunks.into_iter().map(|chunk| Ok::<_, Status>(Bytes::from(chunk))));
        let mut request = Request::new(Body::from_stream(sent.chain(stream::pending())));
        *request.uri_mut() = path.parse().unwrap();
        let mut passed = bounded(request, room).into_body().into_data_stream();
        let mut seen = Vec::new();
        // A stream may be idle between messages for as long as it likes.
        while let Ok(Some(next)) = tokio::time::timeout(10 * BODY_PATIENCE, passed.next()).await {
            let next = next.map(|chunk| chunk.len()).map_err(|error| Status::from_error(Box::new(error)));
            let is_over = next.is_err();
            seen.push(next);
            if is_over {
                break;
            }
        }
        seen
    }

    fn codes(seen: &[Result<usize, Status>]) -> Vec<Result<usize, tonic::Code>> {
        seen.iter().map(|seen| seen.as_ref().map(|bytes| *bytes).map_err(Status::code)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_stops_half_way_ends_the_call() {
        let room = Arc::new(Semaphore::new(1024));
        let half = || vec![message(10), message(100)[..50].to_vec()];
        let early = tokio::time::timeout(BODY_PATIENCE - Duration::from_millis(10), arrive(half(), &room)).await;
        assert!(early.is_err(), "it has its time");
        let seen = arrive(half(), &room).await;
        assert_eq!(codes(&seen), [Ok(15), Ok(50), Err(tonic::Code::DeadlineExceeded)]);
        let seen = arrive(vec![message(10), message(10)], &room).await;
        assert_eq!(codes(&seen), [Ok(15), Ok(15)], "a stream that is idle between messages goes on");
        assert_eq!(room.available_permits(), 1024);
    }

    #[tokio::test(start_paused = true)]
    async fn messages_under_way_share_one_room() {
        let room = Arc::new(Semaphore::new(150));
        let half = || vec![message(100 * 1024)[..50].to_vec()];
        // A length that comes in pieces counts as well.
        let in_pieces = || half()[0].chunks(3).map(<[u8]>::to_vec).collect();
        for next in [half(), in_pieces()] {
            let (one, two) = tokio::join!(arrive(in_pieces(), &room), arrive(next, &room));
            assert_eq!(codes(&one).last(), Some(&Err(tonic::Code::DeadlineExceeded)));
            assert_eq!(codes(&two).last(), Some(&Err(tonic::Code::ResourceExhausted)));
        }
        assert_eq!(room.available_permits(), 150, "the room is given back");
    }

    /// Where others fill the room, a message that its service would refuse anyway hears of its length and not of the room.
    #[tokio::test(start_paused = true)]
    async fn too_large_messages_take_no_room() {
        let room = Arc::new(Semaphore::new(0));
        for (path, max) in [
            ("/grpc.health.v1.Health/Check", SMALL_BYTES_MAX),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", SMALL_BYTES_MAX),
            ("/etcdserverpb.Auth/Authenticate", SMALL_BYTES_MAX),
            ("/etcdserverpb.KV/Put", ETCD_MESSAGE_BYTES_MAX),
            ("/v3lockpb.Lock/Lock", ETCD_MESSAGE_BYTES_MAX),
            ("/tenure.v1.Tenure/Acquire", REQUEST_BYTES_MAX),
        ] {
            let half = |bytes| vec![message(bytes)[..50].to_vec()];
            assert_eq!(codes(&arrive_at(path, half(max + 1), &room).await), [Ok(50)], "{path}");
            let refused = [Err(tonic::Code::ResourceExhausted)];
            assert_eq!(codes(&arrive_at(path, half(max), &room).await), refused, "{path}: it needs room");
        }
    }
}
