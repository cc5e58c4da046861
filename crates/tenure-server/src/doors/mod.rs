//! The doors: they translate requests into commands and outcomes into answers. A door never decides.

mod answers;
mod desk;
mod entrance;
pub(crate) mod etcd;
mod fleet;
mod frames;
mod fresh;
mod grpc;
pub(crate) mod http;
mod look;
mod revocable;
mod seat;
mod stream;
mod watch;
pub(crate) mod xds;

pub(crate) use answers::Answers;
pub(crate) use desk::Desk;
pub(crate) use entrance::Entrance;
pub(crate) use grpc::{NativeDoor, both};
#[cfg(test)]
pub(crate) use seat::settled;
pub use stream::{StreamAnswers, serve_stream};

use crate::node::Node;
use crate::unready::Unready;
use futures::Stream;
use tenure_api::Code;
use tenure_api::v1::{Failure, WatchInstancesReply, WatchInstancesRequest, WatchReply, WatchRequest};

/// Watches events for a client of the process itself.
///
/// # Errors
///
/// If the request is refused.
pub fn watch_events(
    node: Node,
    request: WatchRequest,
) -> Result<impl Stream<Item = Result<WatchReply, Failure>> + use<>, Box<Failure>> {
    watch::open(&Desk::new(node), request)
}

/// Watches instances for a client of the process itself.
///
/// # Errors
///
/// If the request is refused.
pub fn watch_instances(
    node: Node,
    request: WatchInstancesRequest,
) -> Result<impl Stream<Item = Result<WatchInstancesReply, Failure>> + use<>, Box<Failure>> {
    fleet::open(Desk::new(node), request)
}

/// What a client is told when there is no answer yet.
fn unready(unready: &Unready) -> Failure {
    let (code, message) = match unready {
        Unready::NotLeader { leader: Some(leader) } => {
            (Code::NotLeader, format!("this node does not lead; nothing was changed; ask {leader}"))
        }
        Unready::NotLeader { leader: None } => {
            (Code::NotLeader, "no node leads at the moment; nothing was changed; ask again".into())
        }
        Unready::Overloaded { .. } => {
            (Code::Overloaded, "too many requests are waiting; nothing was changed; ask again a little later".into())
        }
        Unready::Stuck => {
            let message =
                "a majority of the nodes, or this node's disk, does not answer; nothing was changed; ask again";
            (Code::NotLeader, message.into())
        }
        Unready::OldMember { needs, known } => {
            let message = format!(
                "this needs version {needs} of the rules, and a node of this cluster knows version {known}: start the newer \
                 build on every node; nothing was changed"
            );
            (Code::OldMember, message)
        }
        Unready::Stopping => (Code::Stopping, "the server is stopping; nothing was changed; ask again".into()),
        Unready::Unknown => {
            let message = "whether it was done is not known; repeat it with the same ids, or look";
            (Code::Unknown, message.into())
        }
    };
    let mut failure = Failure { code: code.text().into(), message, ..Failure::default() };
    if let Unready::Overloaded { retry_after } = unready {
        failure.retry_after_ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
    }
    if let Unready::NotLeader { leader: Some(leader) } = unready {
        failure.leader.clone_from(leader);
    }
    failure
}
