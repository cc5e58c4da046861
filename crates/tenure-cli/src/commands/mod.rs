//! The commands, one file a noun.

mod acquire;
mod again;
mod claims;
mod classes;
mod config;
mod doctor;
mod events;
mod explain;
mod force;
mod keys;
mod leases;
mod manual;
mod resources;
mod revoke;
mod run;
mod serve;
mod server;
mod show;
mod top;
mod wait;
mod why;
mod words;

pub(crate) use acquire::acquire;
pub(crate) use claims::{release, renew, touch, verify};
pub(crate) use classes::class;
pub(crate) use config::config;
pub(crate) use doctor::doctor;
pub(crate) use events::{history, watch};
pub(crate) use explain::explain;
pub(crate) use force::{break_claims, transfer};
pub(crate) use keys::key;
pub(crate) use leases::lease;
pub(crate) use manual::{completions, manual};
pub(crate) use resources::{ls, resource};
pub(crate) use run::run;
pub(crate) use serve::serve;
pub(crate) use server::{ping, version};
pub(crate) use show::show;
pub(crate) use top::top;
pub(crate) use why::why;

use crate::args::Output;
use crate::failure::Failure;
use std::time::Duration;
use tenure::Client;
use tokio::signal::unix::{SignalKind, signal};

/// Who asks whom, and how the answer is printed.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) addr: String,
    pub(crate) output: Output,
}

impl Caller {
    /// Connects, or says that nobody answers.
    async fn connect(&self, what: &str) -> Result<Client, Failure> {
        Client::connect(&self.addr).await.map_err(|error| Failure::of(what, &error))
    }
}

/// Who asks, unless it was said: user@host:pid.
fn default_holder() -> String {
    let user = std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .unwrap_or_else(|_| format!("uid{}", rustix::process::getuid().as_raw()));
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

/// The same, with nothing for none.
fn lease_or_none(lease: u64) -> Option<String> {
    (lease != 0).then(|| lease_text(lease))
}

/// Resolves on the first SIGTERM or SIGINT.
fn stop_signal() -> std::io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
