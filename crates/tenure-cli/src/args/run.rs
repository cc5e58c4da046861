//! What can be typed about a command that runs under a lease.

use super::value::duration;
use crate::wrap::{OnJeopardy, OnLost};
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The resource, for example jobs/nightly.
    pub(crate) name: String,
    /// How long the lease lives without a renewal.
    #[arg(long, value_parser = duration, default_value = "15s", value_name = "DURATION")]
    pub(crate) ttl: Duration,
    /// Who holds it; user@host:pid unless said.
    #[arg(long)]
    pub(crate) holder: Option<String>,
    /// How long the command has to stop between SIGTERM and SIGKILL; a fifth of the TTL and at most 10s unless said.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) stop_timeout: Option<Duration>,
    /// What to do to the command when the lease cannot be kept.
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// What to do to the command when renewals fail, before it is too late.
    #[arg(long, value_enum, default_value_t = OnJeopardy::Nothing)]
    pub(crate) on_jeopardy: OnJeopardy,
    /// The exit code when the lease was lost and the command stopped.
    #[arg(long, default_value_t = 79, value_name = "CODE")]
    pub(crate) lost_code: u8,
    /// The command and its arguments. It finds TENURE_RESOURCE, TENURE_FENCE, TENURE_HOLDER and TENURE_TTL in its
    /// environment.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}
