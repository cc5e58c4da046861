//! What can be typed about a command that runs under a lease.

use super::claim::Share;
use super::value::duration;
use crate::wrap::{OnJeopardy, OnLost};
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The resource, for example jobs/nightly.
    pub(crate) name: String,
    /// Do not wait: if somebody else is in the way, exit with 75.
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait in line for so long at most, for example 5m; unless said, for as long as it takes.
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    #[command(flatten)]
    pub(crate) share: Share,
    /// Hold it for so long at least, even if the command is done sooner.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) at_least: Option<Duration>,
    #[command(flatten)]
    pub(crate) keeping: Keeping,
    /// The command and its arguments. It finds TENURE_RESOURCE, TENURE_FENCE, TENURE_HOLDER and TENURE_TTL in its
    /// environment.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Elect {
    /// The election, for example db/primary.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) keeping: Keeping,
    /// The command that runs while this candidate leads. Without one, leaders are printed as they change.
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Once {
    /// What is to be done once, for example backup/2026-11-16.
    pub(crate) key: String,
    /// How long it counts as done.
    #[arg(long, value_parser = duration, default_value = "20h", value_name = "DURATION")]
    pub(crate) keep: Duration,
    /// Let it be tried again if the command fails or its host dies. It may then be begun more than once, and the lease lives
    /// for --ttl while it runs.
    #[arg(long)]
    pub(crate) retry_failed: bool,
    /// The exit code when it was done already, or is being done.
    #[arg(long, default_value_t = 0, value_name = "CODE")]
    pub(crate) done_code: u8,
    #[command(flatten)]
    pub(crate) keeping: Keeping,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// How the lease is kept, and what becomes of the command without it.
#[derive(Debug, Args)]
pub(crate) struct Keeping {
    /// How long the lease lives without a renewal: 15s, to lead 10s, unless said.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
    /// Who holds it; user@host:pid unless said.
    #[arg(long)]
    pub(crate) holder: Option<String>,
    /// What it is for, in a sentence; the command's name unless said.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// How long the command has to stop between SIGTERM and SIGKILL; a fifth of the TTL and at most 10s unless said.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) stop_timeout: Option<Duration>,
    /// What to do to the command when the lease cannot be kept.
    #[arg(long, value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// What to do to the command when renewals fail, before it is too late.
    #[arg(long, value_enum, default_value_t = OnJeopardy::None)]
    pub(crate) on_jeopardy: OnJeopardy,
    /// The exit code when the lease was lost and the command stopped.
    #[arg(long, default_value_t = 79, value_name = "CODE")]
    pub(crate) lost_code: u8,
}
