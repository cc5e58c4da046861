//! Whole nodes on simulated time, disks and networks, in one thread, by seed: the same seed gives the same trace.
//!
//! One node, or several that make a cluster, stand on simulated clocks, disks and randomness; holders that keep trying
//! talk to them; an operator ends claims of others; a fault plan drawn from the seed cuts power and connections, stalls
//! disks, pauses processes, bends clocks and changes the members; at last all is restored from a backup. The book of what was observed says which promise was
//! broken, if one was. It never looks away: a run without faults is a failed run.

#[cfg(not(any(tokio_unstable, doc)))]
compile_error!(
    "the simulator needs `--cfg tokio_unstable`: .cargo/config.toml says so, unless RUSTFLAGS or a flag of your own takes its place"
);

mod archive;
mod book;
mod chronicle;
mod clerk;
mod client;
mod dice;
mod fault;
mod ground;
pub mod history;
mod holder;
mod keepers;
mod machine;
mod many;
mod mix;
mod net;
mod one;
mod operator;
mod reader;
mod recorder;
mod run;
mod scribe;
#[cfg(test)]
mod stale_reads;
mod storm;
mod warden;
mod watcher;
mod way;

pub use book::{Extremes, Violation};
pub use fault::Fault;
pub use recorder::Checked;
pub use run::{Plan, Plant, Report, run};
