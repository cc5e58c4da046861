//! The server's log, on stderr: as text for people, or as one JSON document a line for programs. It never holds the value
//! of a key, nor anything secret.

use crate::args::LogFormat;
use crate::failure::Failure;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// What is logged unless it is said otherwise. The consensus library logs much that says nothing to an operator.
pub(crate) const FILTER_DEFAULT: &str = "warn,tenure=info,tenure_server=info,openraft=error";

/// How the server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    Text,
    Json,
}

impl Voice {
    /// Starts the log. What cannot be a filter is refused.
    pub(crate) fn raise(format: LogFormat, words: &str) -> Result<Self, Failure> {
        let is_terminal = std::io::stderr().is_terminal();
        let filter = filter(words)?;
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match format {
            LogFormat::Text => log.with_ansi(is_terminal).init(),
            LogFormat::Auto if is_terminal => log.with_ansi(true).init(),
            LogFormat::Json | LogFormat::Auto => {
                log.json().flatten_event(true).init();
                std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "the program is wrong, and stops")));
                return Ok(Self::Json);
            }
        }
        Ok(Self::Text)
    }
}

/// What a filter says, or why it cannot be one.
pub(crate) fn filter(words: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(words).map_err(|error| {
        let why = format!("{words} is no filter for the log: {error}");
        Failure::usage("cannot serve", &why, "Nothing was changed. Say something like --log warn,tenure_server=debug.")
    })
}
