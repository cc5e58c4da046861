//! What can be typed about the cluster.

use super::pki::{Keygen, Pki};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Ask every member how it is doing: who leads, how far each is, what was dropped.
    Status,
    /// List the members.
    Members,
    /// Let a node that was started with --join come in. It votes once it has caught up.
    Add {
        /// Its number and its peer address, such as 2=10.0.0.2:7421.
        #[arg(value_name = "ID=ADDR")]
        node: NodeAt,
    },
    /// Take a node out. It never comes back as its old self: stop it, and remove its data.
    Remove {
        /// Its number.
        #[arg(value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
        node: u64,
    },
    /// Write everything that was acknowledged into one checksummed file, while the cluster runs.
    Backup {
        /// The file; it must not be there yet.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Make a new cluster of one node from a backup, with fences above all that were ever given out.
    Restore {
        /// The backup.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        anew: Anew,
    },
    /// Make a new cluster of one node from what a node that is left has, when the majority is gone for good.
    Recover {
        /// The data directory of the node that is left. It must not run. It is left as it is.
        #[arg(long, value_name = "DIR")]
        from: PathBuf,
        /// Leave this entry of the log out: its commands, which may have been acknowledged, are lost, and listed. May be
        /// repeated.
        #[arg(long, value_name = "INDEX")]
        skip_entry: Vec<u64>,
        #[command(flatten)]
        anew: Anew,
    },
    /// Make the certificates with which nodes prove who they are.
    #[command(subcommand)]
    Pki(Pki),
    /// Draw an API key: its secret, which is shown this once, and its line for the file of --api-keys.
    Keygen(Keygen),
    /// Hand the lead to another node, before the one that leads is stopped.
    Transfer {
        /// The number of the node that is to lead.
        #[arg(value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
        node: u64,
    },
}

/// A cluster that is made anew.
#[derive(Debug, Args)]
pub(crate) struct Anew {
    /// Where the data of the new cluster goes: a directory that is empty or not there.
    #[arg(long, env = "TENURE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The number of its first node.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) node_id: u64,
    /// A fence that is above all that were given out; reckoned from the time that has passed unless said.
    #[arg(long, value_name = "FENCE")]
    pub(crate) fence_above: Option<u64>,
}

/// A node by its number and its peer address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAt {
    pub(crate) node: u64,
    pub(crate) address: String,
}

impl FromStr for NodeAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "say a number and an address, such as 2=10.0.0.2:7421".to_owned();
        let (node, address) = text.split_once('=').ok_or_else(wrong)?;
        let node = node.trim().parse().ok().filter(|node| *node > 0).ok_or_else(wrong)?;
        let address = address.trim();
        if is_address(address) { Ok(Self { node, address: address.into() }) } else { Err(wrong()) }
    }
}

/// Whether this is a host and a port. Whether anybody is there is found out later.
pub(crate) fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !host.is_empty() && host.bytes().all(is_host) && port.parse::<u16>().is_ok_and(|port| port != 0)
}
