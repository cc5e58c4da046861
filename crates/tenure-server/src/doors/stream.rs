//! The multiplexed stream: many requests in flight, each answered by its id. A waiting acquire is answered twice.

use super::unready;
use crate::lessor::Unready;
use crate::limits::{RETRY_AFTER, STREAM_ANSWERS_MAX, STREAM_IN_FLIGHT_MAX, STREAM_WAITS_MAX};
use crate::node::Node;
use crate::watch::Seating;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tenure_api::v1::acquire_reply::State;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body;
use tenure_api::v1::{self, AcquireReply};
use tenure_api::{failure, read_request, write_outcome};
use tenure_core::{Command, Happening, On, Refusal, Reply, Wait};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

pub(super) type Answers = ReceiverStream<Result<v1::Response, Status>>;

/// An answer to one request, and for a claim in line what will be told later.
struct Step {
    id: u64,
    body: Body,
    later: Option<Seating>,
}

/// Starts to serve a stream.
pub(super) fn open(node: Node, requests: Streaming<v1::Request>) -> Answers {
    let (answers, receiver) = mpsc::channel(STREAM_ANSWERS_MAX);
    tokio::spawn(converse(node, requests, answers));
    ReceiverStream::new(receiver)
}

async fn converse(
    node: Node,
    mut requests: Streaming<v1::Request>,
    answers: mpsc::Sender<Result<v1::Response, Status>>,
) {
    let mut steps: FuturesUnordered<BoxFuture<'static, Step>> = FuturesUnordered::new();
    let mut waits: FuturesUnordered<BoxFuture<'static, Step>> = FuturesUnordered::new();
    let mut open = true;
    while open || !steps.is_empty() || !waits.is_empty() {
        let step = tokio::select! {
            request = requests.message(), if open && steps.len() < STREAM_IN_FLIGHT_MAX => match request {
                Ok(Some(request)) if waits.len() >= STREAM_WAITS_MAX && asks_to_wait(&request) => {
                    let failure = unready(&Unready::Overloaded { retry_after: RETRY_AFTER });
                    Step { id: request.id, body: Body::Failure(failure), later: None }
                }
                Ok(Some(request)) => {
                    steps.push(Box::pin(answer(node.clone(), request)));
                    continue;
                }
                Ok(None) => {
                    open = false;
                    continue;
                }
                Err(status) => {
                    // The client is told if it still listens; what it asked before is done either way.
                    let _ = answers.send(Err(status)).await;
                    return;
                }
            },
            Some(step) = steps.next(), if !steps.is_empty() => step,
            Some(step) = waits.next(), if !waits.is_empty() => step,
            () = answers.closed() => return,
        };
        if let Some(seating) = step.later {
            waits.push(Box::pin(tell_later(node.clone(), step.id, seating)));
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

async fn answer(node: Node, request: v1::Request) -> Step {
    let id = request.id;
    let command = match read_request(request.body, &|| node.draw_lease()) {
        Ok(command) => command,
        Err(bad) => return Step { id, body: Body::Failure(bad.failure()), later: None },
    };
    // The place is taken before the claim is made, so that no seating is missed.
    let seating = match &command {
        Command::Acquire(acquire) if acquire.wait == Wait::InLine => {
            let lease = match &acquire.on {
                On::New(grant) => grant.lease,
                On::Given(lease) => *lease,
            };
            Some(node.seating(lease, acquire.resource.clone()))
        }
        _ => None,
    };
    match node.order(command).await {
        Ok(outcome) => {
            let later = seating.filter(|_| matches!(outcome, Ok(Reply::Waiting { .. })));
            Step { id, body: write_outcome(&outcome), later }
        }
        Err(not_yet) => Step { id, body: Body::Failure(unready(&not_yet)), later: None },
    }
}

/// Waits until a claim is seated or leaves the line.
async fn tell_later(node: Node, id: u64, seating: Seating) -> Step {
    let (lease, resource) = seating.claim();
    let body = match seating.told().await {
        Some((Happening::Seated { lease, fence, ttl, .. }, revision)) => Body::Acquire(AcquireReply {
            lease: lease.number(),
            ttl_ms: ttl.millis(),
            revision: revision.0,
            state: Some(State::Fence(fence.number())),
        }),
        Some(_) => {
            let ended = node.read_stale(|ledger| ledger.ended_lease(lease).cloned());
            let refusal = match ended {
                Some(ended) => Refusal::Lapsed { lease, how: ended.how, when: ended.when, wall_ms: ended.wall_ms },
                None => Refusal::NoClaim { lease, resource },
            };
            Body::Failure(failure(&refusal))
        }
        None => Body::Failure(unready(&Unready::Unknown)),
    };
    Step { id, body, later: None }
}
