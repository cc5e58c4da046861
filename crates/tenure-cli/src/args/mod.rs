//! What can be typed. It reads words; it does nothing.

mod claim;
mod cluster;
mod config;
mod discovery;
mod doctor;
mod explain;
mod help;
mod key;
mod lease;
mod look;
mod manual;
mod pki;
mod resource;
mod run;
mod serve;
mod value;

pub(crate) use claim::{Acquire, Break, Release, Renew, Touch, Transfer, Verify};
pub(crate) use cluster::{Anew, Cluster, NodeAt, is_address};
pub(crate) use config::Config;
pub(crate) use discovery::{Deregister, Discover, Drain, Register, Service};
pub(crate) use doctor::Doctor;
pub(crate) use explain::Explain;
pub(crate) use key::Key;
pub(crate) use lease::{Class, ClassSet, Lease, LeaseFilter, Revoke, Terms};
#[cfg(feature = "tui")]
pub(crate) use look::Top;
pub(crate) use look::{History, Ls, Show, Watch};
pub(crate) use manual::{Completions, Manual};
pub(crate) use pki::{KeyRole, Keygen, Nodes, Pki};
pub(crate) use resource::Resource;
pub(crate) use run::{Elect, Keeping, Once, Run};
pub(crate) use serve::{LogFormat, PeerIdentity, Serve};
pub(crate) use value::duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

/// Leases: time-bound ownership that ends by itself.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, arg_required_else_help = true, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Where the server listens; several addresses may be given, separated by commas.
    #[arg(long, global = true, env = "TENURE_ADDR", default_value = tenure::ADDR_DEFAULT, value_name = "URL")]
    pub(crate) addr: String,

    /// How to print; the last four are for `discover`.
    #[arg(short, long, global = true, value_enum, default_value_t = Form::Table)]
    pub(crate) output: Form,
}

/// Nothing was typed: the help is the answer.
const MISSING: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

impl Cli {
    /// What was typed. Whoever typed something else is told so, and the process ends.
    pub(crate) fn read() -> Self {
        let read = help::grouped().try_get_matches().and_then(|matches| Self::from_arg_matches(&matches));
        read.unwrap_or_else(|error| match error.use_stderr() && error.kind() != MISSING {
            true => crate::failure::Failure::typed(&error.render().to_string()).exit(),
            false => error.exit(),
        })
    }
}

/// All that can be typed, for whoever describes it.
pub(crate) fn commands() -> clap::Command {
    Cli::command()
}

/// What can be typed after `-o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line.
    Jsonl,
    /// Names or handles only.
    Name,
    /// Variables for a shell.
    Env,
    /// Lines for /etc/hosts.
    Hosts,
    /// An upstream of nginx.
    Nginx,
    /// A backend of HAProxy.
    Haproxy,
}

impl Form {
    /// The form in which every command prints, if it is one.
    pub(crate) const fn output(self) -> Option<Output> {
        match self {
            Self::Table => Some(Output::Table),
            Self::Json => Some(Output::Json),
            Self::Jsonl => Some(Output::Jsonl),
            Self::Name => Some(Output::Name),
            Self::Env | Self::Hosts | Self::Nginx | Self::Haproxy => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Run a command that holds a resource while it runs, and is stopped before anybody else has it.
    Run(Box<Run>),
    /// Stand for election for ever, and run a command while leading; or see who leads.
    Elect(Box<Elect>),
    /// Run a command at most once in a while, on whichever host it is typed first.
    Once(Box<Once>),
    /// Claim resources, all or none, and print a handle for each: NAME@FENCE.
    Acquire(Box<Acquire>),
    /// Extend the lease behind a handle.
    Renew(Renew),
    /// Say that something was done with a lease, which renews it if its class goes by activity.
    Touch(Touch),
    /// Give resources back.
    Release(Release),
    /// Exit 0 if a handle's claim holds its resource, 1 if not.
    Verify(Verify),
    /// List who holds what, and for how long.
    Ls(Ls),
    /// Show all about one resource: who holds it, who waits, who had it.
    Show(Show),
    /// Say why a resource cannot be had, or how an instance is and why; and what to do.
    Why(Show),
    /// Tell what happened, newest first.
    History(History),
    /// Tell what happens, as it happens.
    Watch(Watch),
    /// Watch the living leases count down on one screen.
    #[cfg(feature = "tui")]
    Top(Top),
    /// Write, read and delete keys, alone or on a lease.
    #[command(subcommand)]
    Key(Key),
    /// List this agent, or a command, as an instance of a service for as long as it lives.
    Register(Box<Register>),
    /// Print where the instances of a service are, or keep a file of it.
    Discover(Discover),
    /// Take an instance out.
    Deregister(Deregister),
    /// List, show, drain and undrain the instances of services.
    #[command(subcommand)]
    Service(Service),
    /// Run the server.
    Serve(Box<Serve>),
    /// See and change who belongs to the cluster, back it up, and make its certificates and API keys.
    #[command(subcommand)]
    Cluster(Cluster),
    /// Print, show and check the settings of a server.
    #[command(subcommand)]
    Config(Config),
    /// End the claims on a resource, whoever holds it.
    Break(Break),
    /// Give a claim to another lease, with a new fence.
    Transfer(Transfer),
    /// Say how many units resources have.
    #[command(subcommand)]
    Resource(Resource),
    /// Grant, list, show, release and revoke leases.
    #[command(subcommand)]
    Lease(Lease),
    /// List and change the classes of leases.
    #[command(subcommand)]
    Class(Class),
    /// Say what a TTL comes to: when to renew, when the work stops, when others start, what outage is survived.
    Explain(Explain),
    /// Look at the machine, the data and the server, and say what to do.
    Doctor(Doctor),
    /// Ask the server how it is doing.
    Ping,
    /// Print a script that completes commands: source <(tenure completions bash)
    Completions(Completions),
    /// Print the manual page, or write one for each command.
    Man(Manual),
    /// Print the version.
    Version,
}
