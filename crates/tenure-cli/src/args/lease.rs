//! What can be typed about leases and their classes.

use super::value::{Label, duration, label, lease};
use clap::{Args, Subcommand, ValueEnum};
use std::time::Duration;

/// The names of the terms, each of which makes no sense for a lease that lives already.
pub(super) const TERMS: [&str; 9] =
    ["ttl", "holder", "class", "grace", "max_lifetime", "while_others_wait", "parent", "labels", "reason"];

/// The terms of a new lease.
#[derive(Debug, Args)]
pub(crate) struct Terms {
    /// How long the lease lives without a renewal; what its class says, or 15s, unless said.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
    /// Who holds it; user@host:pid unless said.
    #[arg(long)]
    pub(crate) holder: Option<String>,
    /// The class whose presets and policy it follows; see `tenure class ls`.
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// How long it stays held and renewable after its deadline.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) grace: Option<Duration>,
    /// How long it may be renewed at all, counted from when it holds something.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) max_lifetime: Option<Duration>,
    /// Count the maximum lifetime only while others wait for what it holds.
    #[arg(long, requires = "max_lifetime")]
    pub(crate) while_others_wait: bool,
    /// The lease that it ends with.
    #[arg(long, value_parser = lease, value_name = "LEASE")]
    pub(crate) parent: Option<u64>,
    /// What to say about it; may be given several times.
    #[arg(long = "label", value_parser = label, value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<Label>,
    /// What it is for, in a sentence.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Lease {
    /// Begin a lease that lives without claims, and print its id.
    Grant(Box<Terms>),
    /// List the living leases.
    Ls(LeaseFilter),
    /// Show all about one lease, or how it ended.
    Show {
        /// The id, as `lease ls` prints it.
        #[arg(value_parser = lease)]
        lease: u64,
    },
    /// Give a lease back, with all that hangs on it.
    Release {
        /// The id, as `lease ls` prints it.
        #[arg(value_parser = lease)]
        lease: u64,
    },
    /// End leases, whoever holds them.
    ///
    /// What they hold stays vacating until the deadline that was promised to each holder, so that the old holder has
    /// stopped before the next one starts. With --now it is free at once, and only the fence protects what the old
    /// holder was doing.
    Revoke(Revoke),
}

#[derive(Debug, Args)]
pub(crate) struct LeaseFilter {
    /// Only those of this holder.
    #[arg(long)]
    pub(crate) holder: Option<String>,
    /// Only those with this label.
    #[arg(long, value_parser = label, value_name = "KEY=VALUE")]
    pub(crate) label: Option<Label>,
    /// Only those of this class.
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// Only those that hold a resource whose name starts so.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) holds: Option<String>,
    /// Look again every second and on every change; in other forms than a table, print it once a change.
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
#[group(skip)]
pub(crate) struct Revoke {
    #[command(flatten)]
    pub(crate) which: WhichLeases,
    /// Free what they hold at once. Only the fence protects what their holders were doing.
    #[arg(long)]
    pub(crate) now: bool,
    /// Why, for the history.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub(crate) reason: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WhichLeases {
    /// The id, as `lease ls` prints it.
    #[arg(value_parser = lease)]
    pub(crate) lease: Option<u64>,
    /// Those that hold a resource whose name starts so.
    #[arg(long)]
    pub(crate) prefix: Option<String>,
    /// Those of this holder.
    #[arg(long)]
    pub(crate) holder: Option<String>,
    /// Those with this label.
    #[arg(long, value_parser = label, value_name = "KEY=VALUE")]
    pub(crate) label: Option<Label>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Class {
    /// List the classes.
    Ls,
    /// Define a class, or change what is said of it; the rest stays as it is.
    ///
    /// A change touches later grants and renewals only.
    Set(ClassSet),
}

#[derive(Debug, Args)]
pub(crate) struct ClassSet {
    /// What it is called.
    pub(crate) name: String,
    /// The TTL of a lease that does not say; needed for a new class.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) ttl: Option<Duration>,
    /// The shortest TTL that its leases may ask for.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) ttl_min: Option<Duration>,
    /// The longest TTL that its leases may ask for.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) ttl_max: Option<Duration>,
    /// What renews its leases.
    #[arg(long, value_enum)]
    pub(crate) renew: Option<Policy>,
    /// How long its leases stay held and renewable after their deadline.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) grace: Option<Duration>,
    /// How long its leases may be renewed at all; 0s is for ever.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) max_lifetime: Option<Duration>,
    /// Count the maximum lifetime only while others wait.
    #[arg(long, requires = "max_lifetime")]
    pub(crate) while_others_wait: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Policy {
    /// A heartbeat that the client sends by itself.
    Auto,
    /// Any command that names the lease, and `touch`.
    Activity,
    /// `tenure renew`, by whoever decided to keep it.
    Explicit,
    /// Nothing.
    Never,
}

impl From<Policy> for tenure::v1::RenewPolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Auto => Self::Auto,
            Policy::Activity => Self::Activity,
            Policy::Explicit => Self::Explicit,
            Policy::Never => Self::Never,
        }
    }
}
