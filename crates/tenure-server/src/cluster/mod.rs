//! A node among others: how a cluster begins, how a node comes to it, and who its members are. The log decides; this only
//! asks for it.

mod begin;
mod change;
mod compare;
mod open;
mod removed;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use begin::{Beginning, announce};
pub(crate) use compare::compare;
pub(crate) use removed::watch_for_removal;
