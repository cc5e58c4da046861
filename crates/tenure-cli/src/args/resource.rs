//! What can be typed about resources.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Resource {
    /// Say how many units a resource has.
    Define {
        /// The resource.
        name: String,
        /// How many.
        #[arg(long, value_name = "N")]
        capacity: u64,
    },
    /// Take a definition back; its capacity stays while anybody holds it or waits for it.
    Forget {
        /// The resource.
        name: String,
    },
    /// List resources with their capacities.
    Ls {
        /// Only names that start so.
        prefix: Option<String>,
        /// Only those whose capacity is defined.
        #[arg(long)]
        defined: bool,
    },
}
