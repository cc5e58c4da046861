//! The etcd v3 dialect: its messages and calls, one module a package as their paths expect each other, and how they are
//! said to the ledger and by it.

mod fault;
mod read;
mod write;

pub use fault::Fault;
pub use read::{read_delete, read_key, read_keys, read_lease, read_put, read_range, read_txn};
pub use write::{header, write_change, write_delete, write_key, write_put, write_range, write_txn};

/// Users, roles and permissions.
#[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// The calls on keys, watches, leases, members, maintenance and users.
#[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// Keys and events.
#[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Elections that the server runs.
#[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}

/// Locks that the server waits for.
#[allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// The description of all of them, for the reflection service.
pub const DESCRIPTORS: &[u8] = include_bytes!("../proto/etcd.bin");
