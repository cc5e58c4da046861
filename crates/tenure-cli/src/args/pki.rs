//! What can be typed about the certificates and the API keys of a cluster.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Pki {
    /// Make an authority, and a certificate for each node: tenure://CLUSTER/node/ID is in it.
    Init(Nodes),
    /// Make certificates for further nodes, or newer ones, by the authority that is there.
    Add(Nodes),
}

#[derive(Debug, Args)]
pub(crate) struct Nodes {
    /// Where the files are put. Nothing that is there is overwritten.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The name of the cluster, which its certificates carry [default: a random one for init; the one of init for add].
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster_name: Option<String>,
    /// The nodes by their numbers, and the host of each as others write it: 1=10.0.0.1 2=b.example
    #[arg(required = true, value_name = "ID=HOST")]
    pub(crate) nodes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// What the key is called, for people.
    pub(crate) name: String,
    /// What the key may do [default: full].
    #[arg(long, value_enum, value_name = "ROLE")]
    pub(crate) role: Option<KeyRole>,
    /// The same as --role read.
    #[arg(long, conflicts_with = "role")]
    pub(crate) read_only: bool,
    /// Names and keys have to begin so; may be repeated [default: all names].
    #[arg(long = "prefix", value_name = "TEXT")]
    pub(crate) prefixes: Vec<String>,
    /// At most so many leases at once that were begun with the key.
    #[arg(long, value_name = "N")]
    pub(crate) leases: Option<u32>,
    /// At most so many requests a second on one node, renewals and releases not counted.
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<u32>,
    /// At most so many watches at once on one node.
    #[arg(long, value_name = "N")]
    pub(crate) watchers: Option<u32>,
}

/// What an API key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyRole {
    /// Read everything, change nothing.
    Read,
    /// Read everything, and change what hangs on leases that were begun with the key.
    Hold,
    /// Everything.
    Full,
}
