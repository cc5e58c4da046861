//! What can be typed. It reads words; it does nothing.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Leases: time-bound ownership that ends by itself.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Where the server listens; several addresses may be given, separated by commas.
    #[arg(long, global = true, env = "TENURE_ADDR", default_value = tenure::ADDR_DEFAULT, value_name = "URL")]
    pub(crate) addr: String,

    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
    /// Names or handles only.
    Name,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Claim a resource and print its handle, NAME@FENCE.
    Acquire(Acquire),
    /// Extend the lease behind a handle.
    Renew(Renew),
    /// Give a resource back.
    Release(Release),
    /// Exit 0 if a handle's claim holds its resource, 1 if not.
    Verify(Verify),
    /// List who holds what, and for how long.
    Ls(Ls),
    /// Grant, list and revoke leases.
    #[command(subcommand)]
    Lease(Lease),
    /// Run the server.
    Serve(Serve),
    /// Ask the server how it is doing.
    Ping,
    /// Print the version.
    Version,
}

#[derive(Debug, Args)]
pub(crate) struct Acquire {
    /// The resource, for example jobs/nightly.
    pub(crate) name: String,
    /// How long the lease lives without a renewal.
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Who holds it; user@host:pid unless said.
    #[arg(long)]
    pub(crate) holder: Option<String>,
    /// Wait in line for so long if somebody else holds it, for example 5m.
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// What `acquire` printed: NAME@FENCE.
    pub(crate) handle: String,
    /// Another TTL from now on. A shorter one never moves the deadline earlier.
    #[arg(long, value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// What `acquire` printed: NAME@FENCE.
    pub(crate) handle: String,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// What `acquire` printed: NAME@FENCE.
    pub(crate) handle: String,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that start so.
    pub(crate) prefix: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lease {
    /// Begin a lease that lives without claims, and print its id.
    Grant {
        /// How long it lives without a renewal.
        #[arg(long, default_value = "15s", value_parser = duration)]
        ttl: Duration,
        /// Who holds it; user@host:pid unless said.
        #[arg(long)]
        holder: Option<String>,
    },
    /// List the living leases.
    Ls,
    /// End a lease at once, whoever holds it. Only the fence protects what its holder was doing.
    Revoke {
        /// The id, as `lease ls` prints it.
        lease: String,
        /// Why, for the history.
        #[arg(long, default_value = "")]
        reason: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The address to listen on.
    #[arg(long, env = "TENURE_LISTEN", default_value = "127.0.0.1:7420")]
    pub(crate) listen: SocketAddr,
    /// Where the data is kept; $XDG_STATE_HOME/tenure unless said.
    #[arg(long, env = "TENURE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Listen beyond loopback although nothing is encrypted and nobody is asked who they are.
    #[arg(long)]
    pub(crate) insecure: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let help = || format!("{text:?} is not a duration: write it like 500ms, 15s, 5m or 2h");
    let signed: jiff::SignedDuration = text.parse().map_err(|_| help())?;
    Duration::try_from(signed).map_err(|_| help())
}
