//! The treaty: the messages and calls that Tenure's clients and server agree on, how they become the core's words, and
//! one table of every refusal. Nothing here waits, connects or decides.

#![warn(missing_docs)]

mod codec;
mod failure;
mod read;
mod write;

pub use codec::{TreatyCodec, TreatyDecoder};
pub use failure::{Code, code_of, failure, failure_status, read_status};
pub use read::{BadRequest, Draw, read_handle, read_request};
pub use write::{end, event, write_outcome};

/// The generated messages and calls of `tenure.v1`.
#[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("tenure.v1");

    /// The description of `tenure.v1`, for the reflection service.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tenure_v1.bin"));
}
