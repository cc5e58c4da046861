//! What can be typed about keys.

use super::value::lease;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Write a key. It stays on the lease that it hangs on, unless another one is said.
    Put {
        /// The key.
        key: String,
        /// Its value; `-` reads it from stdin.
        value: String,
        /// The lease that it hangs on from now on.
        #[arg(long, value_parser = lease)]
        lease: Option<u64>,
    },
    /// Print the value of a key.
    Get {
        /// The key.
        key: String,
    },
    /// List keys.
    Ls {
        /// Only keys that start so.
        prefix: Option<String>,
    },
    /// Delete a key, and say how many there were.
    Rm {
        /// The key.
        key: String,
        /// All keys that start so.
        #[arg(long)]
        prefix: bool,
    },
    /// Let a key hang on a lease, so that it is deleted when that ends.
    Attach {
        /// The key.
        key: String,
        /// The lease.
        #[arg(value_parser = lease)]
        lease: u64,
    },
    /// Let a key hang on no lease.
    Detach {
        /// The key.
        key: String,
    },
}
