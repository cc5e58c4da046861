//! The server's log, on stderr: as text for people, or as one JSON document a line for programs. It never holds the value
//! of a key, nor anything secret.

use crate::args::LogFormat;
use crate::audit_log::AuditLog;
use crate::failure::Failure;
use crate::traces::Traces;
use std::io::IsTerminal;
use tenure_server::{AUDIT_TARGET, TRACE_TARGET};
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing_subscriber::filter::{FilterExt, Targets, filter_fn};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// What is logged unless it is said otherwise. The consensus library logs much that says nothing to an operator.
pub(crate) const FILTER_DEFAULT: &str = "warn,tenure=info,tenure_server=info,openraft=error";

/// How the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    Text,
    Json,
}

impl Voice {
    /// Starts the log, and the traces beside it. What cannot be a filter is refused.
    pub(crate) fn raise(
        format: LogFormat,
        words: &str,
        traces: Option<&Traces>,
        audit: Option<&AuditLog>,
    ) -> Result<Self, Failure> {
        let is_terminal = std::io::stderr().is_terminal();
        let filter = untraced(filter(words)?);
        let log = fmt::layer().with_writer(std::io::stderr);
        let (voice, log) = match format {
            LogFormat::Text => (Self::Text, log.with_ansi(is_terminal).boxed()),
            LogFormat::Auto if is_terminal => (Self::Text, log.with_ansi(true).boxed()),
            LogFormat::Json | LogFormat::Auto => (Self::Json, log.json().flatten_event(true).boxed()),
        };
        let subscriber = tracing_subscriber::registry().with(log.with_filter(EachTime(filter)));
        let subscriber = subscriber.with(audit.map(AuditLog::layer));
        match traces {
            Some(traces) => subscriber.with(traces.layer()).init(),
            None => subscriber.init(),
        }
        audit.into_iter().for_each(|_| tenure_server::keep_audit_log());
        traces.into_iter().for_each(|_| tenure_server::collect_traces());
        if voice == Self::Json {
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "the program is wrong, and stops")));
        }
        Ok(voice)
    }
}

/// A filter that is asked at each line. One that lets a line through for good is not asked again, and then the answer to another
/// question, which a library asked on this thread meanwhile, is taken for the answer to this one: the line is lost
/// (tokio-rs/tracing#2519).
struct EachTime<F>(F);

impl<S, F: Filter<S>> Filter<S> for EachTime<F> {
    fn enabled(&self, of: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        self.0.enabled(of, context)
    }

    fn callsite_enabled(&self, of: &'static Metadata<'static>) -> Interest {
        let interest = self.0.callsite_enabled(of);
        if interest.is_always() { Interest::sometimes() } else { interest }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.0.max_level_hint()
    }
}

/// The filter without the spans of requests, which are for traces and would stand in every line of a log, and without what is
/// for the audit log alone. It knows the deepest level that it lets through, so that what is deeper costs next to nothing.
fn untraced<S>(filter: Targets) -> impl Filter<S> {
    filter.and(
        filter_fn(|of| of.target() != TRACE_TARGET && of.target() != AUDIT_TARGET)
            .with_max_level_hint(LevelFilter::TRACE),
    )
}

/// What a filter says, or why it cannot be one.
pub(crate) fn filter(words: &str) -> Result<Targets, Failure> {
    words.parse::<Targets>().map_err(|error| {
        let why = format!("{words} is no filter for the log: {error}");
        Failure::usage("cannot serve", &why, "Say something like --log warn,tenure_server=debug.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tracing_subscriber::Registry;

    /// Counts the lines that reach it.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> Layer<S> for Lines {
        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn question_of_a_library_loses_no_line() {
        let lines = Lines::default();
        let layer = lines.clone().with_filter(EachTime(untraced(filter(FILTER_DEFAULT).unwrap())));
        // As without an audit log.
        let other: Option<Lines> = None;
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer).with(other), || {
            for _ in 0..3 {
                // Its answer is no, and stays behind in this thread.
                let _ = tracing::enabled!(target: AUDIT_TARGET, tracing::Level::INFO);
                tracing::info!(target: "tenure", "a line");
            }
        });
        assert_eq!(lines.0.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_is_deeper_than_the_log_is_known_to_be() {
        let filter = |words| untraced::<Registry>(filter(words).unwrap()).max_level_hint();
        assert_eq!(filter(FILTER_DEFAULT), Some(LevelFilter::INFO));
        assert_eq!(filter("error"), Some(LevelFilter::ERROR));
    }
}
