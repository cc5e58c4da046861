//! What this node answers its peers. It makes sure that the sender is who it says, that this node is meant, and that what
//! concerns the members comes from a member; then it passes the question on.

use crate::audit::{HASH_VERSION, Hash};
use crate::certificates::{Certificate, NotThem};
use crate::node::Node;
use crate::peers::NO_MEMBER;
use crate::peers::v1;
use crate::peers::v1::answer::Body as Tell;
use crate::peers::v1::question::Body as Ask;
use crate::peers::v1::{
    Adopt, Answer, AppendReply, AppendRequest, Done, Envelope, HelloReply, Question, ReadIndexReply,
};
use crate::raft::CannotChange;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use tenure_core::Command;

/// Answers peers.
#[derive(Clone)]
pub struct Host {
    node: Node,
}

/// Why a peer gets no answer.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The question is for somebody else, or from somebody else than it says.
    #[error("{0}")]
    NotMeant(String),
    /// The answer is no.
    #[error("{0}")]
    No(String),
    /// This node does not answer any longer.
    #[error("this node has stopped, or does not lead")]
    Stopped,
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::No(error.to_string()),
            _ => Self::Stopped,
        }
    }
}

impl From<CannotChange> for Refused {
    fn from(cannot: CannotChange) -> Self {
        match cannot {
            CannotChange::Refused(why) => Self::No(why),
            CannotChange::NotNow(why) => Self::NotMeant(why),
        }
    }
}

/// Whether a certificate is newer than the one that a member was known by. Without an identity there is nothing to compare.
fn is_newer(shown: Option<&Certificate>, certified: u64) -> bool {
    shown.is_none_or(|shown| shown.name.is_none() || shown.not_before > certified)
}

fn no_member(node: u64) -> String {
    format!("node {node} {NO_MEMBER}")
}

/// The vote that a question has, if it goes to Raft with one.
fn vote_in(ask: &Ask) -> Option<v1::Vote> {
    match ask {
        Ask::Vote(request) | Ask::PreVote(request) => request.vote,
        Ask::Snapshot(part) => part.vote,
        Ask::Transfer(request) => request.from,
        _ => None,
    }
}

impl Host {
    /// Answers for a node.
    pub fn new(node: Node) -> Self {
        Self { node }
    }

    /// Answers one question that came over a network that shows no certificates.
    pub async fn answer(&self, question: Question) -> Result<Answer, Refused> {
        self.answer_shown(question, None).await
    }

    /// Answers one question that came over a connection with this certificate.
    pub(super) async fn answer_shown(
        &self,
        question: Question,
        shown: Option<&Certificate>,
    ) -> Result<Answer, Refused> {
        let Question { envelope: Some(envelope), body: Some(ask) } = question else {
            return Err(Refused::No("the question says nothing".into()));
        };
        let is_introduction = matches!(ask, Ask::Hello(_) | Ask::Adopt(_));
        let is_announced = |it: &v1::Change| match &it.body {
            Some(v1::change::Body::Announce(member)) => member.node == envelope.from,
            _ => true,
        };
        self.check(&envelope, shown, is_introduction, vote_in(&ask))?;
        if matches!(&ask, Ask::Change(change) if !is_announced(change)) {
            return Err(Refused::No(format!("node {} announces another node; nothing was changed", envelope.from)));
        }
        if !self.node.is_alive().await {
            return Err(Refused::Stopped);
        }
        let log = self.node.consensus();
        // Whoever was removed may not know it yet. It is told nothing that it could pass on.
        let is_for_members = matches!(ask, Ask::ReadIndex(_) | Ask::Submit(_) | Ask::Change(_));
        if is_for_members && log.book().known_as(envelope.from).is_none() {
            return Err(Refused::NotMeant(no_member(envelope.from)));
        }
        let tell = match ask {
            Ask::Hello(_) => Tell::Hello(self.hello().await),
            Ask::Adopt(adopt) => self.adopt(adopt).await?,
            Ask::Vote(request) => Tell::Vote(log.answer_vote(&request).await?),
            Ask::PreVote(request) => Tell::Vote(log.answer_pre_vote(&request).await?),
            Ask::Snapshot(part) => Tell::Snapshot(log.answer_snapshot(part).await?),
            Ask::Transfer(request) => {
                log.answer_transfer(&request).await?;
                Tell::Done(Done::default())
            }
            Ask::ReadIndex(_) => Tell::ReadIndex(self.read_index().await?),
            Ask::Submit(submit) => Tell::Submitted(self.submit(submit).await?),
            Ask::Change(change) => {
                let change = change.body.ok_or_else(|| Refused::No("the change says nothing".into()))?;
                self.node.change_here(change).await?;
                Tell::Done(Done { members: self.node.standings() })
            }
            Ask::CurrentVote(_) => Tell::CurrentVote(log.answer_current_vote().await?),
            Ask::Audit(_) => {
                let told = |noted: Hash| v1::Hash { index: noted.index, hash: noted.hash };
                let hashes = log.audits().hashes().into_iter().map(told).collect();
                Tell::Audit(v1::AuditReply { hashes, version: HASH_VERSION })
            }
        };
        Ok(Answer { body: Some(tell) })
    }

    /// Takes entries of the log over a network that shows no certificates.
    pub fn append(
        &self,
        requests: impl Stream<Item = AppendRequest> + Send + 'static,
    ) -> BoxStream<'static, Result<AppendReply, Refused>> {
        self.append_shown(requests, None)
    }

    /// Takes entries of the log over a connection with this certificate. The first one that is not meant for this node ends it.
    pub(super) fn append_shown(
        &self,
        requests: impl Stream<Item = AppendRequest> + Send + 'static,
        shown: Option<Arc<Certificate>>,
    ) -> BoxStream<'static, Result<AppendReply, Refused>> {
        let (host, refused) = (self.clone(), Arc::new(Mutex::new(None)));
        let why = refused.clone();
        let meant = requests.take_while(move |request| {
            let nameless = || Refused::No("the entries do not say whom they are for".into());
            let check = |it| host.check(it, shown.as_deref(), false, request.vote);
            let checked = request.envelope.as_ref().ok_or_else(nameless).and_then(check);
            let is_meant = checked.is_ok();
            *why.lock().unwrap_or_else(PoisonError::into_inner) = checked.err();
            ready(is_meant)
        });
        let replies = self.node.consensus().answer_append(meant).map(|reply| reply.map_err(Refused::from));
        // The leader must hear that it was refused: silence would look like entries that are still on their way.
        let last = stream::poll_fn(move |_| {
            let why = refused.lock().unwrap_or_else(PoisonError::into_inner).take();
            Poll::Ready(why.map(Err))
        });
        replies.chain(last).boxed()
    }

    /// Refuses what is not meant for this node, and who is not who it says. A node that was wiped is not its old self: it
    /// neither votes nor takes entries in its name.
    fn check(
        &self,
        envelope: &Envelope,
        shown: Option<&Certificate>,
        is_introduction: bool,
        vote: Option<v1::Vote>,
    ) -> Result<(), Refused> {
        let us = self.node.identity();
        let refuse = |why: String| Err(Refused::NotMeant(why));
        self.check_sender(envelope, shown, vote)?;
        if envelope.to != 0 && envelope.to != us.node {
            return refuse(format!("this is node {}, not node {}", us.node, envelope.to));
        }
        if envelope.to_incarnation != 0 && envelope.to_incarnation != us.incarnation {
            return refuse(format!("node {} has another data directory now", us.node));
        }
        if is_introduction {
            return Ok(());
        }
        if envelope.cluster != us.cluster || us.cluster == 0 {
            return refuse(format!("node {} belongs to another cluster", us.node));
        }
        if envelope.to == 0 || envelope.to_incarnation == 0 {
            return refuse("the question does not say whom it is for".into());
        }
        let book = self.node.consensus().book();
        // Who goes by a newer membership may have become a member since ours: it must be heard, or a node that is behind
        // never learns of it. One with an old data directory goes by an older one.
        let is_behind = book.is_behind(envelope.members);
        match book.known_as(envelope.from) {
            Some((incarnation, _)) if incarnation == envelope.from_incarnation => Ok(()),
            // A number is used again with a newer certificate alone.
            Some((_, certified)) if is_behind && is_newer(shown, certified) => Ok(()),
            Some(_) => refuse(format!("node {} is a member with another data directory", envelope.from)),
            None if is_behind => Ok(()),
            None if self.is_leading_us(envelope.from, vote) => Ok(()),
            None => refuse(no_member(envelope.from)),
        }
    }

    /// The certificate has to be the sender's, and a vote its own: a leader and a candidate speak for themselves.
    fn check_sender(
        &self,
        envelope: &Envelope,
        shown: Option<&Certificate>,
        vote: Option<v1::Vote>,
    ) -> Result<(), Refused> {
        if envelope.from == 0 {
            return Err(Refused::NotMeant("the question does not say which node it is from".into()));
        }
        if let Some(vote) = vote.filter(|vote| vote.node != envelope.from) {
            let why = format!("node {} sends a vote for node {}", envelope.from, vote.node);
            return Err(Refused::NotMeant(why));
        }
        let checked = match (self.node.consensus().book().identities(), shown) {
            (None, _) => Ok(()),
            (Some(_), None) => return Err(Refused::NotMeant("the connection showed no certificate".into())),
            (Some(identities), Some(shown)) => identities.check(shown, envelope.from),
        };
        match checked {
            // It completes its own removal.
            Err(NotThem::Removed { node }) if self.is_leading_us(node, vote) => Ok(()),
            checked => checked.map_err(|why| Refused::NotMeant(why.to_string())),
        }
    }

    /// A leader that removes itself leads until that is done, in the term that it has: no other node leads before.
    fn is_leading_us(&self, node: u64, vote: Option<v1::Vote>) -> bool {
        let log = self.node.consensus();
        log.leader() == Some(node) && vote.is_some_and(|vote| vote.term <= log.term())
    }

    async fn hello(&self) -> HelloReply {
        let (identity, log) = (self.node.identity(), self.node.consensus());
        HelloReply {
            cluster: identity.cluster,
            member: Some(self.node.member().told_as(identity.node)),
            is_initialized: log.is_initialized().await,
        }
    }

    async fn adopt(&self, adopt: Adopt) -> Result<Tell, Refused> {
        match self.node.adopt(adopt.cluster).await? {
            true => Ok(Tell::Done(Done::default())),
            false => {
                let ours = self.node.identity().cluster;
                Err(Refused::No(format!("this node belongs to another cluster ({ours:016x})")))
            }
        }
    }

    async fn read_index(&self) -> Result<ReadIndexReply, Refused> {
        let index = self.node.consensus().read_index().await.ok_or(Refused::Stopped)?;
        let now = self.node.service_time().ok_or(Refused::Stopped)?;
        Ok(ReadIndexReply { index, now_ms: now.millis() })
    }

    async fn submit(&self, submit: v1::Submit) -> Result<v1::Submitted, Refused> {
        let command = Command::decode(&submit.command).map_err(|damage| Refused::No(damage.to_string()))?;
        Ok(self.node.propose_for_peer(command).await)
    }
}
