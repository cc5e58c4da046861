//! The Rust client of Tenure: leases and locks that end by themselves, each with a fence.
//!
//! ```no_run
//! # async fn example() -> Result<(), tenure::Error> {
//! let client = tenure::Client::from_env().await?;
//! let hold = client.lease("jobs/nightly").acquire().await?;
//! // Ours until `hold.lost()`. Show `hold.fence()` to whatever is written to.
//! hold.release().await?;
//! # Ok(()) }
//! ```
//!
//! A keeper thread renews everything that a client holds, in one message. What is held may be relied on until
//! [`Hold::safe_until`], which counts from the moment at which the last answered renewal was *sent*, on a clock that goes on
//! while the machine sleeps: a holder that honours it has stopped before anybody else is let in. A process that was paused
//! can still wake up late and write; only the fence stops that, so give it to [`guard`], or to your database.
#![warn(missing_docs)]

mod ask;
mod chance;
mod client;
pub mod clock;
mod cluster;
mod election;
mod endpoint;
mod error;
mod fate;
pub mod guard;
mod keeper;
mod keys;
mod lease;
pub mod registry;
#[doc(hidden)]
pub mod sans_io;
mod security;
mod terms;
pub mod timing;
mod watch;
mod way;

pub use ask::{Ask, Claim, Hold};
pub use chance::draw_lease;
pub use client::{ADDR_DEFAULT, ADDR_VARIABLE, Client, ClientBuilder, Conversation, default_holder};
pub use election::{Election, Leader, Observer};
pub use endpoint::Wire;
pub use error::Error;
pub use fate::{Event, Events, Loss, Standing};
pub use keys::Keys;
pub use lease::{GrantAsk, Lease};
pub use security::{API_KEY_FILE_VARIABLE, API_KEY_VARIABLE, CA_FILE_VARIABLE};
pub use tenure_api::{Code, v1};
pub use watch::Watch;
