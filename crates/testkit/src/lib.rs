//! What tests of the API share: a whole server in the process of the test, on a disk in memory, and a plain HTTP client.
//! Tests whose subject is a process (signals, kill -9, real disks) start the binary instead.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

pub mod agents;
pub mod holds;
pub mod http;
pub mod http_claims;
pub mod http_registry;
pub mod ports;
pub mod proxy;
mod requests;
mod server;

pub use requests::{acquire, claim, deadlines, grant, renew, resources, revoke};
pub use server::Server;

use std::future::Future;
use std::time::Duration;

/// Nothing that a test waits for takes this long unless it never comes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that comes, or fails.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} never came"))
}

/// Looks again and again until something is so, or fails.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = tenure::clock::Clock::system();
    let end = clock.now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(clock.now() < end, "never: {what}");
        std::thread::yield_now();
    }
}

/// The same, for something that is so or not.
pub fn until_so(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}
