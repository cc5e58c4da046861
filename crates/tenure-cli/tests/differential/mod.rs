//! One sequence of calls for two servers that speak etcd's dialect, and what each of them answered. Never a test.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

pub(crate) mod brief;
pub(crate) mod draw;
mod plain;
pub(crate) mod side;
pub(crate) mod step;
mod stream;
