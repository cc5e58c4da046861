//! A bound on answers that were encoded and that their clients have not read: all of a node share one room, of which a client has
//! its share. An answer that finds none is refused before its first byte; a stream ends, and its client resumes it.

use super::etcd;
use crate::access::{Caller, Need};
use crate::limits::{ANSWER_CHARGED_MIN, ANSWERS_KIB_MAX};
use crate::metrics::Door;
use crate::shares::{Client, Share, Shares};
use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tenure_api::etcd::Fault;
use tenure_api::v1::Failure;
use tenure_api::{Code, failure_status};
use tonic::Status;

/// The room that the unread answers of a node share. Clones are the same room.
#[derive(Clone)]
pub(crate) struct Answers {
    kib: Arc<Shares>,
}

/// Which protocol an answer belongs to, what its request needed, and who made it.
#[derive(Clone)]
pub(super) struct Kind {
    pub(super) door: Door,
    pub(super) is_etcd: bool,
    pub(super) need: Need,
    pub(super) caller: Caller,
}

/// Answers that always find room: they keep what clients have, they are small, and few of them wait to be read.
const UPKEEP: [&str; 5] = [
    "/tenure.v1.Tenure/Stream",
    "/tenure.v1.Tenure/Renew",
    "/tenure.v1.Tenure/RenewHandle",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/v3/lease/keepalive",
];

pub(super) fn is_upkeep(path: &str) -> bool {
    UPKEEP.contains(&path)
}

impl Answers {
    pub(crate) fn new() -> Self {
        Self::of(ANSWERS_KIB_MAX)
    }

    fn of(kib: usize) -> Self {
        Self { kib: Shares::of(kib) }
    }

    /// Makes an answer take room until its bytes were sent. What is there of it already is looked at now, so that an answer for
    /// which there is no room is refused in words.
    pub(super) fn charge(&self, response: Response, kind: Kind) -> Response {
        let (parts, mut body) = response.into_parts();
        // The transport polls it again, and registers its own waker then.
        let mut context = Context::from_waker(Waker::noop());
        let first = match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Pending => None,
            Poll::Ready(None) => return Response::from_parts(parts, Body::empty()),
            Poll::Ready(Some(Err(error))) => Some(Err(error)),
            Poll::Ready(Some(Ok(frame))) => match self.take(frame, || kind.caller.client()) {
                Ok(frame) => Some(Ok(frame)),
                Err(NoRoom) => return kind.refusal(),
            },
        };
        let charged = Charged { first, body, answers: self.clone(), kind, client: None, is_over: false };
        Response::from_parts(parts, Body::new(charged))
    }

    /// Room for one part of an answer, which gives it back when it was sent. Small parts need none.
    fn take(&self, frame: Frame<Bytes>, client: impl FnOnce() -> Client) -> Result<Frame<Bytes>, NoRoom> {
        let bytes = match frame.into_data() {
            Ok(bytes) if bytes.len() >= ANSWER_CHARGED_MIN => bytes,
            Ok(bytes) => return Ok(Frame::data(bytes)),
            Err(trailers) => return Ok(trailers),
        };
        let room = self.kib.take(&client(), bytes.len() / 1024 + 1).ok_or(NoRoom)?;
        Ok(Frame::data(Bytes::from_owner(Unread { bytes, _room: room })))
    }
}

/// There is no room for an answer.
struct NoRoom;

/// Bytes that take room until they are dropped, which is when they were sent, or when their connection is gone.
struct Unread {
    bytes: Bytes,
    _room: Share,
}

impl AsRef<[u8]> for Unread {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

const WHY: &str = "this client, or others, leave so many answers of this node unread that there is no room for another";

impl Kind {
    /// What a client receives instead of an answer. Whether a write was done is not known by then.
    fn failure(&self) -> Failure {
        let (code, message) = match self.need {
            Need::Hold | Need::Full => {
                (Code::Unknown, format!("{WHY}; whether the request was done is not known; look, or repeat it"))
            }
            Need::Read | Need::Nothing => {
                (Code::Overloaded, format!("{WHY}; nothing was changed; ask again a little later, or for less"))
            }
        };
        Failure { code: code.text().into(), message, ..Failure::default() }
    }

    fn fault(&self) -> Fault {
        let code = match self.need {
            Need::Hold | Need::Full => tonic::Code::Unavailable,
            Need::Read | Need::Nothing => tonic::Code::ResourceExhausted,
        };
        Fault::ours(code, format!("tenure: {}", self.failure().message))
    }

    fn refusal(&self) -> Response {
        match (self.door, self.is_etcd) {
            (Door::Http, true) => etcd::gateway::problem(&self.fault()),
            (Door::Http, false) => super::http::refused(self.failure()),
            (_, true) => self.fault().status().into_http::<Body>(),
            (_, false) => failure_status(&self.failure()).into_http::<Body>(),
        }
    }

    /// How a stream ends for which there is no room any longer. Clients of etcd resume a watch after this code only.
    fn end(&self) -> Option<Status> {
        match (self.door, self.is_etcd) {
            (Door::Http, _) => None,
            (_, true) => Some(Status::unavailable(format!("tenure: {WHY}; ask again from here on"))),
            (_, false) => Some(failure_status(&self.failure())),
        }
    }
}

/// An answer whose parts take room.
struct Charged {
    first: Option<Result<Frame<Bytes>, axum::Error>>,
    body: Body,
    answers: Answers,
    kind: Kind,
    /// Who made the request, once that was needed.
    client: Option<Client>,
    is_over: bool,
}

impl HttpBody for Charged {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context) else { return Poll::Pending };
        let Some(Ok(frame)) = next else { return Poll::Ready(next) };
        let Self { answers, kind, client, .. } = &mut *self;
        let taken = answers.take(frame, || client.get_or_insert_with(|| kind.caller.client()).clone());
        Poll::Ready(Some(match taken {
            Ok(frame) => Ok(frame),
            Err(NoRoom) => {
                self.is_over = true;
                // HTTP has no place for a reason here: the answer is cut off, and is seen to be.
                self.kind
                    .end()
                    .map_or_else(|| Err(axum::Error::new(WHY)), |status| Ok(Frame::trailers(trailers(&status))))
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && (self.is_over || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let first = match &self.first {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |bytes| bytes.len() as u64),
            _ => 0,
        };
        let rest = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + first);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + first);
        }
        hint
    }
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    // A status without a reason is one all the same, and its words are plain text.
    let _ = status.add_header(&mut trailers);
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, ApiKeys, Role, draw_api_key};
    use axum::body::to_bytes;
    use futures::{StreamExt, stream};

    fn read() -> Kind {
        Kind { door: Door::Http, is_etcd: false, need: Need::Read, caller: Caller::default() }
    }

    fn answer(kib: usize) -> Response {
        Response::new(Body::from(vec![7; kib * 1024 - 1]))
    }

    /// What is sent takes room until it was read, and what finds none is refused whole.
    #[tokio::test]
    async fn unread_answers_share_one_room() {
        let answers = Answers::of(200);
        let unread = answers.charge(answer(60), read());
        assert_eq!(unread.body().size_hint().exact(), Some(60 * 1024 - 1), "its length is told before it");
        for (kind, status, code) in [
            (read(), 429, r#""code":"overloaded""#),
            (Kind { need: Need::Full, ..read() }, 504, r#""code":"unknown""#),
            (Kind { is_etcd: true, ..read() }, 429, r#""code":8"#),
            (Kind { is_etcd: true, need: Need::Full, ..read() }, 503, r#""code":14"#),
        ] {
            let refused = answers.charge(answer(60), kind);
            assert_eq!(refused.status(), status);
            let body = to_bytes(refused.into_body(), 4096).await.unwrap();
            let body = String::from_utf8(body.to_vec()).unwrap();
            assert!(body.contains(code), "{body}");
        }
        for door in [Door::Grpc, Door::Etcd] {
            let refused = answers.charge(answer(60), Kind { door, is_etcd: door == Door::Etcd, ..read() });
            let status = Status::from_header_map(refused.headers()).unwrap();
            assert_eq!(status.code(), tonic::Code::ResourceExhausted);
        }
        assert_eq!(answers.charge(answer(40), read()).status(), 200, "there is room for it");
        let (secret, line) = draw_api_key("bob", Role::Read).unwrap();
        let access = Access::by(ApiKeys::parse(&line).unwrap());
        let other = || Kind { caller: access.who(Some(secret.as_bytes()), None), ..read() };
        assert_eq!(answers.charge(answer(60), other()).status(), 200, "another client has its own share");
        assert_eq!(answers.charge(answer(80), other()).status(), 429);
        let all = to_bytes(unread.into_body(), usize::MAX).await.unwrap();
        assert_eq!(all.len(), 60 * 1024 - 1);
        assert_eq!(answers.charge(answer(60), read()).status(), 429, "it is read, but its bytes are still there");
        drop(all);
        assert_eq!(answers.charge(answer(60), read()).status(), 200);
        assert_eq!(answers.kib.taken_by_all(), 0);
    }

    /// A stream of large messages ends when there is no room for the next, and says why.
    #[tokio::test]
    async fn a_stream_without_room_ends_in_words() {
        let answers = Answers::of(200);
        let parts = || stream::iter([30, 30, 30, 30]).map(|kib| Ok::<_, axum::Error>(Bytes::from(vec![7; kib * 1024])));
        for (kind, code) in [
            (Kind { door: Door::Etcd, is_etcd: true, ..read() }, Some(tonic::Code::Unavailable)),
            (Kind { door: Door::Grpc, ..read() }, Some(tonic::Code::ResourceExhausted)),
            (read(), None),
        ] {
            let response = answers.charge(Response::new(Body::from_stream(parts())), kind);
            let mut body = response.into_body();
            let mut unread = Vec::new();
            let end = loop {
                let next = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
                match next.expect("it does not end without a word").map(Frame::into_data) {
                    Ok(Ok(bytes)) => unread.push(bytes),
                    Ok(Err(trailers)) => break trailers.into_trailers().ok(),
                    Err(_) => break None,
                }
            };
            assert_eq!(unread.len(), 3);
            let status = end.and_then(|trailers| Status::from_header_map(&trailers));
            assert_eq!(status.map(|status| status.code()), code);
            drop((body, unread));
            assert_eq!(answers.kib.taken_by_all(), 0, "the room is given back");
        }
    }
}
