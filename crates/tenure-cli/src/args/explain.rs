//! What can be typed to have a TTL explained.

use super::value::duration;
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// How long the lease lives without a renewal.
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "15s")]
    pub(crate) ttl: Duration,
    /// How long it stays held and renewable after its deadline.
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "0s", hide_default_value = true)]
    pub(crate) grace: Duration,
    /// How long everybody is kept off after that.
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "0s", hide_default_value = true)]
    pub(crate) lock_delay: Duration,
    /// How long an answer of the server takes.
    #[arg(long, value_parser = duration, value_name = "DURATION", default_value = "10ms")]
    pub(crate) rtt: Duration,
    /// How long a program needs to stop; a fifth of the TTL and at most 10s, unless said.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) stop_timeout: Option<Duration>,
}
