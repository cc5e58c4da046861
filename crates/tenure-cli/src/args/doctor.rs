//! What can be typed to have things looked at.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// A file with settings; $XDG_CONFIG_HOME/tenure/tenure.toml or /etc/tenure/tenure.toml unless said.
    #[arg(long, env = "TENURE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the data is kept; where the settings say, or $XDG_STATE_HOME/tenure, unless said.
    #[arg(long, env = "TENURE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}
