//! What this node answers its peers. It stands above the node, and nothing below knows it.

mod grpc;
mod host;

pub use grpc::serve_peers;
pub use host::{Host, Refused};
