//! A node that was removed from its cluster says so. It gets no entries, and without words it would look like a node that waits.

use crate::certificates::REMOVED;
use crate::limits::{PEER_PATIENCE_SHORT, REMOVAL_LOOK_INTERVAL, REMOVAL_LOOKS_AGAIN, REMOVAL_LOOKS_MIN};
use crate::node::Node;
use crate::peers::v1::question::Body as Ask;
use crate::peers::{NO_MEMBER, v1};
use futures::future::join_all;
use std::io::ErrorKind;

/// Looks whether this node is still a member, and says so if it is not. It never ends the process: the operator may be about to put
/// things right, and a removed node does no harm.
pub(crate) async fn watch_for_removal(node: Node) {
    let mut looks = 0_u32;
    loop {
        tokio::time::sleep(REMOVAL_LOOK_INTERVAL).await;
        looks = if is_removed(&node).await { looks.saturating_add(1) } else { 0 };
        if looks >= REMOVAL_LOOKS_MIN && (looks - REMOVAL_LOOKS_MIN).is_multiple_of(REMOVAL_LOOKS_AGAIN) {
            tell(&node);
        }
    }
}

/// Whether the newest membership in its own log is without it, or a peer says that it is no member: the leader, if one is known. What
/// is known of a leader may be old, so the leader is asked, too.
async fn is_removed(node: &Node) -> bool {
    let (id, log) = (node.identity().node, node.consensus());
    if !log.is_initialized().await {
        return false;
    }
    let members = log.book().members();
    if !members.contains_key(&id) {
        return !members.is_empty();
    }
    let leader = log.leader();
    if leader == Some(id) {
        return false;
    }
    let is_asked = |peer: &u64| *peer != id && leader.is_none_or(|leader| leader == *peer);
    let ask = |peer| log.book().ask(peer, Ask::ReadIndex(v1::ReadIndex {}), PEER_PATIENCE_SHORT);
    let answers = join_all(members.into_keys().filter(is_asked).map(ask)).await;
    // A certificate that the cluster has taken back is refused before it asks who is a member.
    let words = [NO_MEMBER, REMOVED].map(|words| format!("node {id} {words}"));
    let says_so = |error: &str| words.iter().any(|words| error.contains(words));
    answers.into_iter().any(|answer| {
        answer.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied && says_so(&error.to_string()))
    })
}

fn tell(node: &Node) {
    let identity = node.identity();
    let (id, cluster) = (identity.node, identity.cluster);
    tracing::error!(
        "node {id} was removed from cluster {cluster:016x}: it gets no entries, its vote does not count, and it grants nothing. Stop it. \
         To let it in again, start it with an empty --data-dir and with --join, and type: tenure cluster add {id}={}",
        node.member().peer_addr
    );
}
