//! What each member of a cluster says of itself. Every member is asked at its own address, as the command line asks any server:
//! with the authority and the API key of the environment.

use super::connect_to;
use std::time::Duration;
use tenure::{Client, Error, v1};

/// How long a member may take to say how it is doing.
const PATIENCE: Duration = Duration::from_secs(3);

/// A member, and what it said, or why it could not be asked.
pub(super) struct Asked {
    pub(super) member: v1::Member,
    pub(super) said: Result<v1::StatusReply, String>,
}

/// Asks all members. `own` is what the server said that named them.
pub(super) async fn ask(members: Vec<v1::Member>, own: &v1::StatusReply) -> Vec<Asked> {
    let each = members.into_iter().map(|member| async {
        let said = match member.node == own.node {
            true => Ok(own.clone()),
            false => status(&member.client_addr, own.cluster).await,
        };
        Asked { member, said }
    });
    futures::future::join_all(each).await
}

async fn status(address: &str, cluster: u64) -> Result<v1::StatusReply, String> {
    if address.is_empty() {
        return Err("it did not say where clients reach it; start it with --advertise HOST:PORT".into());
    }
    let asked = async { connect_to(address).await?.status(v1::StatusRequest {}).await };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(status)) if status.cluster != cluster => {
            Err(format!("a server of another cluster, {:016x}, answers at {address}", status.cluster))
        }
        Ok(Ok(status)) => Ok(status),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer from {address} within {} s", PATIENCE.as_secs())),
    }
}

/// The members that the server knows.
pub(super) async fn known(client: &Client) -> Result<Vec<v1::Member>, Error> {
    Ok(client.members(v1::MembersRequest {}).await?.members)
}

/// How many members vote and answer, how many vote, and how many of these may still fail.
pub(super) struct Votes {
    pub(super) answer: usize,
    pub(super) all: usize,
}

impl Votes {
    pub(super) fn count(asked: &[Asked]) -> Self {
        let voters = || asked.iter().filter(|asked| asked.member.votes);
        Self { answer: voters().filter(|asked| asked.said.is_ok()).count(), all: voters().count() }
    }

    /// None if no majority answers.
    pub(super) fn may_fail(&self) -> Option<usize> {
        self.answer.checked_sub(self.all / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_that_may_be_lost_are_counted() {
        let may_fail = |answer, all| Votes { answer, all }.may_fail();
        assert_eq!([may_fail(3, 3), may_fail(2, 3), may_fail(1, 3)], [Some(1), Some(0), None]);
        assert_eq!([may_fail(1, 1), may_fail(2, 2), may_fail(1, 2)], [Some(0), Some(0), None]);
        assert_eq!(may_fail(5, 5), Some(2));
    }
}
