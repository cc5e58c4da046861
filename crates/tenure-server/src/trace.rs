//! The spans of one request on its way round the ring, for whoever collects traces. They are named by fixed words and
//! never hold a word of a client's. Where no exporter collects them, each costs a look at an atomic.

use axum::http::HeaderValue;
#[cfg(feature = "otlp")]
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::{Span, field};

/// The target of every span in here, and of nothing else.
pub const TRACE_TARGET: &str = "tenure_server::trace";

/// Whether this process has a subscriber for these spans. To ask the subscriber would leave its answer behind in a thread, where
/// filters of layers take it for that of the next line of the log, and drop the line (tokio-rs/tracing#2519).
static COLLECTED: AtomicBool = AtomicBool::new(false);

/// Makes these spans from now on, for a subscriber that this process has.
pub fn collect_traces() {
    COLLECTED.store(true, Ordering::Relaxed);
}

fn are_collected() -> bool {
    COLLECTED.load(Ordering::Relaxed)
}

/// By which header a client names the span that its request belongs to.
pub(crate) const PARENT: &str = "traceparent";

/// A request at its door.
pub(crate) fn request(door: &'static str, call: &'static str) -> Span {
    if !are_collected() {
        return Span::none();
    }
    tracing::info_span!(
        target: TRACE_TARGET,
        "request",
        otel.name = call,
        otel.kind = "server",
        otel.status_code = field::Empty,
        door,
        call,
        code = field::Empty,
    )
}

/// Waiting until the replica holds all that was acknowledged before a read.
pub(crate) fn read_index() -> Span {
    current()
        .map_or_else(Span::none, |request| tracing::info_span!(target: TRACE_TARGET, parent: &request, "read_index"))
}

/// Waiting in line with the request open.
pub(crate) fn waiting() -> Span {
    current().map_or_else(Span::none, |request| tracing::info_span!(target: TRACE_TARGET, parent: &request, "waiting"))
}

/// Where an order is on the ring. Dropping it ends the span of that place.
#[derive(Debug)]
pub(crate) struct Leg(Option<Box<Spans>>);

#[derive(Debug)]
struct Spans {
    request: Span,
    /// The place where it is.
    here: Span,
}

impl Leg {
    /// In the queue of the proposer, until its entry is gathered.
    pub(crate) fn queued() -> Self {
        Self(current().map(|request| {
            let here = tracing::info_span!(target: TRACE_TARGET, parent: &request, "queued");
            Box::new(Spans { request, here })
        }))
    }

    /// In the log, until its entry is durable and applied.
    pub(crate) fn proposed(&mut self) {
        if let Some(spans) = &mut self.0 {
            // One place ends before the next begins.
            spans.here = Span::none();
            spans.here = tracing::info_span!(target: TRACE_TARGET, parent: &spans.request, "log");
        }
    }
}

/// The span of the request that is being answered here. What a door does of its own accord has none, and is not traced.
fn current() -> Option<Span> {
    if !are_collected() {
        return None;
    }
    Some(Span::current()).filter(|span| span.metadata().is_some_and(|of| of.target() == TRACE_TARGET))
}

/// Answers a request as a part of the trace that its client names, if it names one. Only the ids are taken over.
#[cfg(feature = "otlp")]
pub(crate) async fn under<F: Future>(parent: Option<HeaderValue>, answer: F) -> F::Output {
    use opentelemetry::context::FutureExt;
    let traced = parent.filter(|_| are_collected());
    let Some(parent) = traced.as_ref().and_then(|parent| parent.to_str().ok()) else { return answer.await };
    let carried = HashMap::from([(PARENT.to_owned(), parent.to_owned())]);
    let parent = opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&carried));
    answer.with_context(parent).await
}

/// Without OTLP there are no traces to be a part of.
#[cfg(not(feature = "otlp"))]
pub(crate) async fn under<F: Future>(_: Option<HeaderValue>, answer: F) -> F::Output {
    answer.await
}
