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
        let subscriber = tracing_subscriber::registry().with(log.with_filter(filter));
        let subscriber = subscriber.with(audit.map(AuditLog::layer));
        match traces {
            Some(traces) => subscriber.with(traces.layer()).init(),
            None => subscriber.init(),
        }
        if voice == Self::Json {
            std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "the program is wrong, and stops")));
        }
        Ok(voice)
    }
}

/// The filter without the spans of requests, which are for traces and would stand in every line of a log, and without what is
/// for the audit log alone. It knows the deepest level that it lets through, so that what is deeper costs next to nothing.
fn untraced<S>(filter: Targets) -> impl Filter<S> {
    Asked(
        filter.and(
            filter_fn(|of| of.target() != TRACE_TARGET && of.target() != AUDIT_TARGET)
                .with_max_level_hint(LevelFilter::TRACE),
        ),
    )
}

/// A filter that is asked about each event that it lets through. tracing keeps the last answer of a layer's filter for its
/// thread and, where it does not ask again, takes it for the answer about the next event: after somebody has only asked whether
/// another target is enabled, that event is lost (<https://github.com/tokio-rs/tracing/issues/2519>).
struct Asked<F>(F);

impl<S, F: Filter<S>> Filter<S> for Asked<F> {
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
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::Registry;

    #[test]
    fn what_is_deeper_than_the_log_is_known_to_be() {
        let filter = |words| untraced::<Registry>(filter(words).unwrap()).max_level_hint();
        assert_eq!(filter(FILTER_DEFAULT), Some(LevelFilter::INFO));
        assert_eq!(filter("error"), Some(LevelFilter::ERROR));
    }

    #[test]
    fn asking_about_other_targets_loses_no_event() {
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = text.clone();
        let layer = fmt::layer().with_writer(move || Buffer(into.clone()));
        let log = Registry::default().with(layer.with_filter(untraced(filter(FILTER_DEFAULT).unwrap())));
        let of_others = || tracing::info_span!(target: "others", "it").metadata().expect("all is enabled");
        let other = tracing::subscriber::with_default(Registry::default(), of_others);
        tracing::subscriber::with_default(log, || {
            tracing::info!("first");
            tracing::dispatcher::get_default(|log| log.enabled(other));
            tracing::info!("second");
        });
        let text = String::from_utf8(text.lock().unwrap().clone()).unwrap();
        assert!(text.contains("first") && text.contains("second"), "{text}");
    }

    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
