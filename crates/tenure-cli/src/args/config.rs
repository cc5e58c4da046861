//! What can be typed about the settings of a server.

use super::Serve;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Print a file with every setting, its default, and what it is for.
    Init {
        /// Write it there, unless there is something already.
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
    },
    /// Show what `tenure serve` would use, and where each setting comes from.
    Show(Box<Serve>),
    /// Exit 0 if a file can be used, 2 if not.
    Check {
        /// The file; the one that `tenure serve` would find unless said.
        #[arg(env = "TENURE_CONFIG")]
        file: Option<PathBuf>,
    },
}
