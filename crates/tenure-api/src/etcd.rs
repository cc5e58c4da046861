//! The generated messages and calls of the etcd v3 dialect, one module a package, as their paths expect each other.

#![allow(missing_docs, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]

/// Users, roles and permissions.
pub mod authpb {
    tonic::include_proto!("authpb");
}

/// The calls on keys, watches, leases, members, maintenance and users.
pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

/// Keys and events.
pub mod mvccpb {
    tonic::include_proto!("mvccpb");
}

/// Elections that the server runs.
pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}

/// Locks that the server waits for.
pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

/// The description of all of them, for the reflection service.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/etcd.bin"));
