//! What can be typed to look at things.

use super::value::after;
use clap::Args;
use tenure::v1;

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that start so.
    pub(crate) prefix: Option<String>,
    /// Only what this holder holds.
    #[arg(long)]
    pub(crate) holder: Option<String>,
    /// Look again every second and on every change; in other forms than a table, print it once a change.
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The resource.
    pub(crate) name: String,
    /// Look again every second and on every change; in other forms than a table, print it once a change.
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// Only this resource, or this instance as SERVICE/ID; everything, if it is not said.
    pub(crate) name: Option<String>,
    /// Only resources and instances whose name starts so.
    #[arg(long, conflicts_with = "name")]
    pub(crate) prefix: Option<String>,
    /// At most so many events.
    #[arg(short = 'n', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Only resources and instances whose name starts so, or so; everything, if it is not said.
    #[arg(value_name = "PREFIX")]
    pub(crate) prefixes: Vec<String>,
    /// Go on after this place, as a watch or a history printed it: 12 or 12.0. From now on, if it is not said.
    #[arg(long, value_parser = after, value_name = "REVISION")]
    pub(crate) after: Option<v1::Cursor>,
}

#[cfg(feature = "tui")]
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Only leases that hold or wait for a name that starts so, or whose holder does.
    pub(crate) prefix: Option<String>,
    /// Print one frame as text, and end.
    #[arg(long)]
    pub(crate) once: bool,
}
