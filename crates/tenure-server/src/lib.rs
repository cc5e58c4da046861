//! A running Tenure node. Requests walk one ring, one way: door, lessor, log, replica, reply.

mod access;
mod clock;
mod cluster;
pub mod disk;
mod doors;
mod embedded;
mod entropy;
mod identity;
mod lessor;
mod limits;
mod listen;
mod lock;
mod metrics;
mod node;
pub mod peers;
pub mod raft;
mod replica;
mod serve;
mod tls;
mod trace;
mod watch;
mod workers;

pub use access::{Access, ApiKeys, BadLine, Role, draw_api_key};
pub use clock::{Clock, SystemClock};
pub use cluster::{Begin, CannotChange, Place};
pub use embedded::{CannotEmbed, DialFuture, Embedded, embedded, embedded_in_memory};
pub use entropy::{Entropy, SystemEntropy};
pub use identity::Identity;
pub use lessor::{Tuning, Unready};
pub use limits::{CONNECTIONS_MAX, FILES_RESERVED, PEERS_MAX, TICK};
pub use lock::{InUse, Lock};
pub use node::{Environment, Node, Opened, Status};
pub use serve::{ServeError, Served, Settings, serve};
pub use tls::{BadPem, Part, PeerTls, Tls};
pub use trace::TRACE_TARGET;
pub use workers::Workers;
