//! Whole nodes on simulated time and disks, in one thread, by seed: the same seed gives the same trace.
//!
//! A node stands on a simulated clock, disk and randomness; holders that keep trying talk to it over a slow network;
//! an operator ends claims of others; a fault plan drawn from the seed cuts its power, stalls its disk, pauses it and bends its clock. The book of what was
//! observed says which promise was broken, if one was. It never looks away: a run without faults is a failed run.

mod book;
mod dice;
mod ground;
mod holder;
mod operator;
mod world;

pub use book::Violation;
pub use world::{Plan, Report, run};
