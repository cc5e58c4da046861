//! The one way from any node to the leader: a command goes there as the log encodes it, and its outcome comes back. No API and no
//! dialect knows which node leads.

use crate::limits::ANSWER_TIMEOUT;
use crate::node::Node;
use crate::peers::v1 as peer;
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::not_done::Why;
use crate::peers::v1::question::Body as Ask;
use crate::peers::v1::submitted::Body;
use crate::proposer::check_readable;
use crate::unready::Unready;
use std::io::ErrorKind;
use std::time::Duration;
use tenure_core::{Command, Outcome, decode_outcome, encode_outcome};

impl Node {
    /// Submits a command to the leader, whichever node that is, and answers when the command was applied there and here. It is sent to
    /// one node, and at most once: what was sent and not answered is [`Unready::Unknown`].
    pub async fn submit(&self, command: Command) -> Result<Outcome, Unready> {
        self.check_rules(&command)?;
        match self.leader_elsewhere() {
            Some(leader) => self.forward(leader, &command).await,
            None => self.propose(command).await,
        }
    }

    /// Refuses what an older build in the cluster would read as something else: it skips fields that it does not know.
    fn check_rules(&self, command: &Command) -> Result<(), Unready> {
        let (needs, known) = (command.rules(), self.consensus().rules());
        if needs > known { Err(Unready::OldMember { needs, known }) } else { Ok(()) }
    }

    async fn forward(&self, leader: u64, command: &Command) -> Result<Outcome, Unready> {
        if let Err(refusal) = check_readable(command) {
            return Ok(Err(refusal));
        }
        let ask = Ask::Submit(peer::Submit { command: command.encode().into() });
        let submitted = match self.consensus().book().ask(leader, ask, ANSWER_TIMEOUT).await {
            Ok(Tell::Submitted(submitted)) => submitted,
            // It was not sent, or it was not meant for the other node.
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ConnectionRefused) => {
                return Err(Unready::NotLeader { leader: self.consensus().leader_address() });
            }
            Ok(_) | Err(_) => return Err(Unready::Unknown),
        };
        let outcome = read(&submitted, || self.consensus().leader_address())?;
        // A read at this node must see what its client did.
        if self.catch_up(submitted.applied).await { Ok(outcome) } else { Err(Unready::Unknown) }
    }

    /// Proposes a command that another node sends, if this node leads.
    pub(crate) async fn propose_for_peer(&self, command: Command) -> peer::Submitted {
        let body = match self.propose(command).await {
            Ok(outcome) => Body::Outcome(encode_outcome(&outcome).into()),
            Err(unready) => Body::NotDone(not_done(&unready)),
        };
        peer::Submitted { body: Some(body), applied: self.applied() }
    }
}

fn read(submitted: &peer::Submitted, leader: impl FnOnce() -> Option<String>) -> Result<Outcome, Unready> {
    match &submitted.body {
        Some(Body::Outcome(bytes)) => decode_outcome(bytes).map_err(|damage| {
            // The leader may know more kinds of outcomes than this build. The command was applied all the same.
            tracing::warn!(%damage, "this node cannot read an outcome of the leader, and answers that it is unknown");
            Unready::Unknown
        }),
        Some(Body::NotDone(not_done)) => Err(unready(not_done, leader())),
        None => Err(Unready::Unknown),
    }
}

fn not_done(unready: &Unready) -> peer::NotDone {
    let because = |why: Why| peer::NotDone { why: why.into(), ..peer::NotDone::default() };
    match unready {
        Unready::NotLeader { .. } => because(Why::NotLeader),
        Unready::Overloaded { retry_after } => {
            let retry_after_ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
            peer::NotDone { retry_after_ms, ..because(Why::Overloaded) }
        }
        Unready::Stuck => because(Why::Stuck),
        Unready::Stopping => because(Why::Stopping),
        Unready::OldMember { needs, known } => {
            peer::NotDone { needs: *needs, known: *known, ..because(Why::OldMember) }
        }
        Unready::Unknown => because(Why::Unknown),
    }
}

/// A reason that this build does not know may have changed something.
fn unready(not_done: &peer::NotDone, leader: Option<String>) -> Unready {
    let peer::NotDone { why, retry_after_ms, needs, known } = *not_done;
    match Why::try_from(why) {
        Ok(Why::NotLeader) => Unready::NotLeader { leader },
        Ok(Why::Overloaded) => Unready::Overloaded { retry_after: Duration::from_millis(retry_after_ms) },
        Ok(Why::Stuck) => Unready::Stuck,
        Ok(Why::Stopping) => Unready::Stopping,
        Ok(Why::OldMember) => Unready::OldMember { needs, known },
        Ok(Why::Unknown) | Err(_) => Unready::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_survive_the_way_from_the_leader() {
        let retry_after = Duration::from_millis(50);
        let all = [
            Unready::NotLeader { leader: None },
            Unready::Overloaded { retry_after },
            Unready::Stuck,
            Unready::Stopping,
            Unready::OldMember { needs: 7, known: 6 },
            Unready::Unknown,
        ];
        for each in all {
            assert_eq!(unready(&not_done(&each), None), each);
        }
        let newer = peer::NotDone { why: 99, ..peer::NotDone::default() };
        assert_eq!(
            [unready(&newer, None), unready(&peer::NotDone::default(), None)],
            [Unready::Unknown, Unready::Unknown]
        );
    }

    #[test]
    fn unreadable_outcome_is_unknown() {
        for body in [None, Some(Body::Outcome(b"no outcome"[..].into()))] {
            assert_eq!(read(&peer::Submitted { body, applied: 1 }, || None), Err(Unready::Unknown));
        }
    }
}
