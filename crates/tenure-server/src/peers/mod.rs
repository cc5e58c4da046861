//! The way to other nodes: questions with one answer each, and entries of the log in order. A parameter, so that whole
//! nodes can run in one thread on a simulated network. What is said is in `peer.proto`; what it means is in `raft/`.

mod connector;
mod wire;

pub use wire::Wire;

use crate::certificates::PeerIdentities;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The messages between nodes.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::too_many_lines, unused_qualifications)]
pub mod v1 {
    tonic::include_proto!("tenure.peer.v1");
}

/// What a node hears that is no member, after its number.
pub(crate) const NO_MEMBER: &str = "is no member of this cluster";

use v1::{Answer, AppendReply, AppendRequest, Question};

/// What comes back for the entries that were sent, in their order.
pub type AppendReplies = BoxStream<'static, io::Result<AppendReply>>;

/// How a node reaches others.
pub trait Network: Send + Sync + 'static {
    /// Asks whoever listens at an address, and waits no longer than that for the answer.
    fn ask(&self, address: &str, question: Question, patience: Duration) -> BoxFuture<'static, io::Result<Answer>>;

    /// Sends entries to a node, which listens at an address.
    fn append(
        &self,
        node: u64,
        address: &str,
        requests: BoxStream<'static, AppendRequest>,
    ) -> BoxFuture<'static, io::Result<AppendReplies>>;

    /// Which certificates of peers are accepted; none where peers show no certificates.
    fn identities(&self) -> Option<Arc<PeerIdentities>> {
        None
    }
}

/// The network of a node that is alone and stays so.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

impl Network for Nowhere {
    fn ask(&self, _: &str, _: Question, _: Duration) -> BoxFuture<'static, io::Result<Answer>> {
        Box::pin(async { Err(nobody()) })
    }

    fn append(
        &self,
        _: u64,
        _: &str,
        _: BoxStream<'static, AppendRequest>,
    ) -> BoxFuture<'static, io::Result<AppendReplies>> {
        Box::pin(async { Err(nobody()) })
    }
}

fn nobody() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "this node has no way to others")
}
