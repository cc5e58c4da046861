//! The Rust client of Tenure. It speaks `tenure.v1` to the first server that answers.
#![warn(missing_docs)]

mod client;
pub mod clock;
mod error;
pub mod timing;

pub use client::{ADDR_DEFAULT, Client, Conversation};
pub use error::Error;
pub use tenure_api::v1;
