//! The multiplexed stream: many requests in flight, each answered by its id. A waiting acquire is answered twice.

use super::desk::Desk;
use super::{seat, unready};
use crate::access::audit::Change;
use crate::limits::{RETRY_AFTER, STREAM_ANSWERS_MAX, STREAM_IN_FLIGHT_MAX, STREAM_WAITS_MAX};
use crate::metrics::{Call, Door, OK};
use crate::node::Node;
use crate::unready::Unready;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use tenure_api::v1;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body;
use tenure_api::{Code, read_request};
use tenure_core::{Command, LeaseId, Name, Reply};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

/// The answers of one stream.
pub type StreamAnswers = ReceiverStream<Result<v1::Response, Status>>;

/// An answer to one request, and for a claim in line what will be told later.
struct Step {
    id: u64,
    body: Body,
    later: Option<Wait>,
}

/// A claim in line, and the room to wait for it.
type Wait = (LeaseId, Vec<Name>, OwnedSemaphorePermit);

/// Serves a stream of requests of the process itself, wherever they come from. It ends when nothing takes the answers any longer, or
/// when the requests have ended and all are answered.
pub fn serve_stream(
    node: Node,
    requests: impl Stream<Item = Result<v1::Request, Status>> + Send + Unpin + 'static,
) -> StreamAnswers {
    open(Desk::new(node), requests)
}

/// Starts to serve a stream of a client.
pub(super) fn open(
    desk: Desk,
    requests: impl Stream<Item = Result<v1::Request, Status>> + Send + Unpin + 'static,
) -> StreamAnswers {
    let (answers, receiver) = mpsc::channel(STREAM_ANSWERS_MAX);
    tokio::spawn(converse(desk, requests, answers));
    ReceiverStream::new(receiver)
}

async fn converse(
    desk: Desk,
    mut requests: impl Stream<Item = Result<v1::Request, Status>> + Unpin,
    answers: mpsc::Sender<Result<v1::Response, Status>>,
) {
    let mut steps: FuturesUnordered<BoxFuture<'static, Step>> = FuturesUnordered::new();
    let mut waits: FuturesUnordered<BoxFuture<'static, Step>> = FuturesUnordered::new();
    let mut open = true;
    while open || !steps.is_empty() || !waits.is_empty() {
        let step = tokio::select! {
            request = requests.next(), if open && steps.len() < STREAM_IN_FLIGHT_MAX => match request {
                Some(Ok(request)) if waits.len() >= STREAM_WAITS_MAX && asks_to_wait(&request) => {
                    let asked = desk.node().metrics().asked(Door::Stream, Call::Acquire);
                    asked.answered(Code::Overloaded.text());
                    Step { id: request.id, body: overloaded(), later: None }
                }
                Some(Ok(request)) => {
                    steps.push(Box::pin(answer(desk.clone(), request)));
                    continue;
                }
                None => {
                    open = false;
                    continue;
                }
                Some(Err(status)) => {
                    // The client is told if it still listens; what it asked before is done either way.
                    let _ = answers.send(Err(status)).await;
                    return;
                }
            },
            Some(step) = steps.next(), if !steps.is_empty() => step,
            Some(step) = waits.next(), if !waits.is_empty() => step,
            () = answers.closed() => return,
        };
        if let Some(wait) = step.later {
            waits.push(Box::pin(tell_later(desk.clone(), step.id, wait)));
        }
        let response = v1::Response { id: step.id, body: Some(step.body) };
        if answers.send(Ok(response)).await.is_err() {
            return;
        }
    }
}

fn asks_to_wait(request: &v1::Request) -> bool {
    matches!(&request.body, Some(Ask::Acquire(acquire)) if acquire.wait)
}

async fn answer(desk: Desk, request: v1::Request) -> Step {
    let asked = desk.node().metrics().asked(Door::Stream, Call::of(request.body.as_ref()));
    let step = asked.follow(first_step(&desk, request)).await;
    asked.answered(match &step.body {
        Body::Failure(failure) => &failure.code,
        _ => OK,
    });
    step
}

async fn first_step(desk: &Desk, request: v1::Request) -> Step {
    let (id, node) = (request.id, desk.node());
    let last = |body| Step { id, body, later: None };
    let room = if asks_to_wait(&request) { node.room_to_wait() } else { None };
    if asks_to_wait(&request) && room.is_none() {
        return last(overloaded());
    }
    let command = match read_request(request.body, &|| node.draw_lease()) {
        Ok(command) => command,
        Err(bad) => return last(Body::Failure(bad.failure())),
    };
    let resources = match &command {
        Command::Acquire(acquire) => acquire.wants.iter().map(|want| want.resource.clone()).collect(),
        _ => Vec::new(),
    };
    let keeps = matches!(
        command,
        Command::Renew(_)
            | Command::RenewHandle(_)
            | Command::Release(_)
            | Command::ReleaseLease(_)
            | Command::Cancel(_)
            | Command::Register(_)
            | Command::Deregister(_)
            | Command::SetHealth(_)
    );
    if !keeps && let Err(failure) = desk.caller().take_request(node.monotonic()) {
        return last(Body::Failure(failure));
    }
    let change = Change::of(&command);
    let outcome = desk.propose(command).await;
    let answer = outcome.as_ref().map_err(Clone::clone).and_then(|outcome| desk.answer(outcome));
    desk.audit(change, answer.as_ref());
    let later = match (outcome, room) {
        (Ok(Ok(Reply::Waiting(place))), Some(room)) => Some((place.lease, resources, room)),
        _ => None,
    };
    Step { id, body: answer.unwrap_or_else(Body::Failure), later }
}

fn overloaded() -> Body {
    Body::Failure(unready(&Unready::Overloaded { retry_after: RETRY_AFTER }))
}

/// Waits until a claim in line is seated or over, and tells how it stands then.
async fn tell_later(desk: Desk, id: u64, (lease, resources, room): Wait) -> Step {
    let body = match seat::settled(desk.node(), lease, &resources, room).await {
        Ok(standing) => desk.answer(&standing).unwrap_or_else(Body::Failure),
        Err(not_yet) => Body::Failure(unready(&not_yet)),
    };
    Step { id, body, later: None }
}
