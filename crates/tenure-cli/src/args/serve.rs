//! What `tenure serve` can be told.

use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// How to log.
    #[arg(long, env = "TENURE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Auto, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// What to log, such as `info` or `warn,tenure_server=debug`.
    #[arg(long, env = "TENURE_LOG", default_value = crate::log::FILTER_DEFAULT, value_name = "FILTER")]
    pub(crate) log: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text if stderr is a terminal, JSON if not.
    Auto,
    /// For people.
    Text,
    /// One JSON document a line.
    Json,
}
