//! A running Tenure node. Requests walk one ring, one way: door, proposer, log, replica, reply.

mod access;
mod addresses;
mod audit;
pub mod backup;
mod bells;
mod certificates;
mod clock;
mod cluster;
mod compactor;
pub mod disk;
mod doors;
mod embedded;
mod entropy;
mod environment;
mod guests;
mod identity;
mod limits;
mod listen;
mod lock;
mod metrics;
mod node;
mod peer_server;
pub mod peers;
mod place;
mod probes;
mod proposer;
pub mod raft;
mod replica;
mod serve;
mod shares;
mod submit;
#[cfg(test)]
mod submit_tests;
mod tls;
mod trace;
mod tuning;
mod unready;
mod watch;
mod workers;

pub use access::{AUDIT_TARGET, Access, ApiKeys, BadLine, KeyRights, Role, draw_api_key, keep_audit_log};
pub use certificates::{
    BadCertificate, Certificate, NodeName, NotANodeName, NotThem, PeerIdentities, PeerIdentity, is_cluster_name,
};
pub use clock::{Clock, SystemClock};
pub use compactor::Compaction;
pub use doors::{StreamAnswers, serve_stream, watch_events, watch_instances};
pub use embedded::{CannotEmbed, DialFuture, Embedded, embedded, embedded_in_memory};
pub use entropy::{Entropy, SystemEntropy};
pub use environment::Environment;
pub use identity::Identity;
pub use limits::{CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS, FILES_RESERVED, PEERS_MAX, TICK};
pub use lock::{InUse, Lock, mode_for_others};
pub use node::{Node, Opened, Status};
pub use peer_server::{Host, Refused, serve_peers};
pub use place::{Begin, Place};
pub use probes::{BadNetwork, Networks};
pub use raft::CannotChange;
pub use replica::Extremes;
pub use serve::{ServeError, Served, Settings, serve};
pub use tls::{BadPem, Part, PeerPem, PeerTls, Tls};
pub use trace::{TRACE_TARGET, collect_traces};
pub use tuning::Tuning;
pub use unready::Unready;
pub use workers::Workers;
