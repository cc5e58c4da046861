//! The treaty: the messages and calls that Tenure's clients and server agree on, how they become the core's words, and
//! one table of every refusal. Nothing here waits, connects or decides.

#![warn(missing_docs)]

mod bad;
mod code;
mod codec;
mod cursor;
pub mod etcd;
mod failure;
#[cfg(feature = "json")]
pub mod json;
mod read;
mod registry;
mod write;

pub use bad::BadRequest;
pub use code::Code;
pub use codec::{TreatyCodec, TreatyDecoder};
pub use cursor::{read_cursor, write_cursor};
pub use failure::{code_of, failure, failure_status, never_made, read_status};
pub use read::{
    Draw, read_class_name, read_details, read_handle, read_holder, read_instance, read_key, read_label, read_lease,
    read_name, read_prefix, read_request, read_service, read_wanted, read_word,
};
pub use registry::{write_details, write_health, write_judgement};
pub use tenure_core::limits::RENEWALS_MAX;

pub use write::{
    end, ended, event, write_class, write_labels, write_leave, write_lifetime, write_mode, write_occupied,
    write_outcome, write_policy,
};

/// The header in which a server names its cluster, as 16 hexadecimal digits, and in which a client names the one that it has been
/// using. A server of another cluster refuses such a request.
pub const CLUSTER_HEADER: &str = "tenure-cluster";

/// The generated messages and calls of `tenure.v1`.
#[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("tenure.v1");

    /// The description of `tenure.v1`, for the reflection service.
    pub const DESCRIPTORS: &[u8] = include_bytes!("../proto/tenure_v1.bin");
}
