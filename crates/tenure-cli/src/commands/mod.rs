//! The commands, one file a group.

mod claims;
mod leases;
mod serve;
mod wait;

pub(crate) use claims::{acquire, ls, release, renew, verify};
pub(crate) use leases::{grant, lease_ls, ping, revoke, version};
pub(crate) use serve::serve;

use crate::failure::Failure;
use std::time::Duration;
use tenure::Client;

/// Connects, or says that nobody answers.
async fn connect(addr: &str, what: &str) -> Result<Client, Failure> {
    Client::connect(addr).await.map_err(|error| Failure::of(what, &error))
}

/// Who asks, unless it was said: user@host:pid.
fn default_holder() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "unknown".into());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
    format!("{user}@{host}:{}", std::process::id())
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A lease id as people see it.
fn lease_text(lease: u64) -> String {
    format!("{lease:016x}")
}
