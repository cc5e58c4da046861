//! The commands, one file a noun.

mod acquire;
mod again;
mod backup;
mod checks;
mod claims;
mod classes;
mod cluster;
mod config;
mod discover;
mod doctor;
mod elect;
mod events;
mod explain;
mod feed;
mod force;
mod instances;
mod keeping;
mod keys;
mod leases;
mod manual;
mod members;
mod once;
mod pki;
mod register;
mod resources;
mod revoke;
mod run;
mod serve;
mod server;
mod show;
#[cfg(feature = "tui")]
mod top;
mod wait;
mod why;
mod why_instance;
mod words;

pub(crate) use acquire::acquire;
pub(crate) use checks::{CheckWanted, check_wanted};
pub(crate) use claims::{release, renew, touch, verify};
pub(crate) use classes::class;
pub(crate) use cluster::cluster;
pub(crate) use config::config;
pub(crate) use discover::discover;
pub(crate) use doctor::doctor;
pub(crate) use elect::elect;
pub(crate) use events::{history, watch};
pub(crate) use explain::explain;
pub(crate) use force::{break_claims, transfer};
pub(crate) use instances::{deregister, service};
pub(crate) use keys::key;
pub(crate) use leases::lease;
pub(crate) use manual::{completions, manual};
pub(crate) use once::once;
pub(crate) use register::register;
pub(crate) use resources::{ls, resource};
pub(crate) use run::run;
pub(crate) use serve::serve;
pub(crate) use server::{ping, version};
pub(crate) use show::show;
#[cfg(feature = "tui")]
pub(crate) use top::top;
pub(crate) use why::why;

use crate::args::Output;
use crate::failure::Failure;
use http::uri::Authority;
use std::time::Duration;
use tenure::{Client, Error};
use tokio::signal::unix::{SignalKind, signal};

/// How long the server has at the end to answer that something was given back: so long that the next leader of a cluster
/// hears it. Without an answer it ends by itself.
const LAST_ANSWER: Duration = Duration::from_secs(3);

/// Who asks whom, and how the answer is printed.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) addr: String,
    pub(crate) output: Output,
}

impl Caller {
    /// Connects, or says that nobody answers.
    async fn connect(&self, what: &str) -> Result<Client, Failure> {
        let next = "Write it like --addr http://127.0.0.1:7420, several with commas, or set TENURE_ADDR.";
        are_addresses(&self.addr).map_err(|why| Failure::usage(what, &why, next))?;
        connect_to(&self.addr).await.map_err(|error| match error {
            Error::Local(why) => {
                Failure::usage(what, &why, "Correct TENURE_CA_FILE, TENURE_API_KEY or TENURE_API_KEY_FILE.")
            }
            other => Failure::of(what, &other),
        })
    }
}

/// Connects to the first of these addresses that answers, with the authority and the API key of the environment.
async fn connect_to(addrs: &str) -> Result<Client, Error> {
    Client::builder().addrs(addrs).security_from_env()?.connect().await
}

/// Whether each of a list could be the address of a server. A port that cannot be would be taken for none.
fn are_addresses(list: &str) -> Result<(), String> {
    let is_port =
        |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_address = |text: &str| {
        let (_, place) = text.split_once("://").unwrap_or(("http", text));
        let place = place.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = place.parse::<Authority>().ok();
        authority.is_some_and(|it| !it.host().is_empty() && place.strip_prefix(it.host()).is_some_and(is_port))
    };
    let mut given = list.split(',').map(str::trim).filter(|text| !text.is_empty()).peekable();
    given.peek().ok_or("no address was given")?;
    given.find(|text| !is_address(text)).map_or(Ok(()), |text| Err(format!("{text:?} is not an address")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_an_address_is_not_asked() {
        for good in ["http://127.0.0.1:7420", "localhost:7420", "leases", "http://[::1]:1/", "a:1, http://b:2,"] {
            assert_eq!(are_addresses(good), Ok(()), "{good}");
        }
        for bad in ["", " , ", "http://", "a b", ":7420", "a:99999", "a:x", "a:", "http://[::1", "me@a:1", "a:1,b:c"] {
            assert!(are_addresses(bad).is_err(), "{bad}");
        }
    }
}
