//! What can be typed to have the command line described.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Write one page for each command into this directory, instead of one page to stdout.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}
