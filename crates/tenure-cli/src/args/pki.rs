//! What can be typed about the certificates and the API keys of a cluster.

use clap::{Args, Subcommand};
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
    /// A key that may look at everything and change nothing.
    #[arg(long)]
    pub(crate) read_only: bool,
}
