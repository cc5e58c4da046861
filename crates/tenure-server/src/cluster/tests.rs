//! Nodes in one process that hear each other at once: what needs a look inside.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::backup::{Skip, remains};
use crate::clock::{Clock, SystemClock};
use crate::disk::{MemoryDisk, SharedDisk};
use crate::entropy::SystemEntropy;
use crate::environment::Environment;
use crate::node::Node;
use crate::peer_server::{Host, Refused};
use crate::peers::v1::change::Body as Change;
use crate::peers::v1::question::Body as Ask;
use crate::peers::v1::{self, Answer, AppendRequest, Envelope, LogId, Question, Vote, VoteRequest};
use crate::peers::{AppendReplies, Network};
use crate::place::{Begin, Place};
use crate::tuning::Tuning;
use crate::workers::Workers;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::{Command, Grant, Holder, LeaseId, Ttl};

/// All nodes, by their addresses.
#[derive(Clone, Default)]
pub(crate) struct Room(Arc<Mutex<BTreeMap<String, Host>>>);

impl Room {
    fn host(&self, address: &str) -> io::Result<Host> {
        self.0.lock().unwrap().get(address).cloned().ok_or(io::ErrorKind::ConnectionRefused.into())
    }
}

impl Network for Room {
    fn ask(&self, address: &str, question: Question, _: Duration) -> BoxFuture<'static, io::Result<Answer>> {
        let host = self.host(address);
        async move { host?.answer(question).await.map_err(io::Error::other) }.boxed()
    }

    fn append(
        &self,
        _: u64,
        address: &str,
        requests: BoxStream<'static, AppendRequest>,
    ) -> BoxFuture<'static, io::Result<AppendReplies>> {
        let host = self.host(address);
        async move { Ok(host?.append(requests).map(|reply| reply.map_err(io::Error::other)).boxed()) }.boxed()
    }
}

pub(crate) async fn open(room: &Room, node: u64, disk: &MemoryDisk) -> Node {
    open_by(room, node, disk, Arc::new(SystemClock::start())).await
}

/// The same, by another clock.
pub(crate) async fn open_by(room: &Room, node: u64, disk: &MemoryDisk, clock: Arc<dyn Clock>) -> Node {
    open_patient(room, node, disk, (clock, Duration::from_secs(2))).await
}

/// The same, with a time after which those that hear no leader elect another.
async fn open_patient(
    room: &Room,
    node: u64,
    disk: &MemoryDisk,
    (clock, election_timeout): (Arc<dyn Clock>, Duration),
) -> Node {
    let tuning = Tuning { audit_interval: Duration::from_millis(50), ..Tuning::default() };
    open_tuned(Arc::new(room.clone()), room, (node, disk), (clock, election_timeout, tuning)).await
}

/// The same, over another network and with other tuning.
pub(crate) async fn open_tuned(
    network: Arc<dyn Network>,
    room: &Room,
    (node, disk): (u64, &MemoryDisk),
    (clock, election_timeout, tuning): (Arc<dyn Clock>, Duration, Tuning),
) -> Node {
    let peers = (1..=3).map(|node| (node, format!("n{node}"))).collect();
    let environment = Environment {
        clock,
        entropy: Arc::new(SystemEntropy),
        disk: Arc::new(disk.attach()),
        workers: Workers::Tasks,
        tuning,
        network,
        place: Place {
            node: Some(node),
            peer_addr: format!("n{node}"),
            begin: Begin::With(peers),
            election_timeout,
            ..Place::default()
        },
    };
    let (opened, _) = Node::open(environment).await.unwrap();
    room.0.lock().unwrap().insert(format!("n{node}"), Host::new(opened.clone()));
    opened
}

pub(crate) fn grant(number: u64) -> Command {
    let (lease, holder) = (LeaseId::from_number(number).unwrap(), Holder::parse("ann").unwrap());
    Command::Grant(Grant::plain(lease, holder, Ttl::from_millis(600_000).unwrap(), number))
}

pub(crate) async fn leader(nodes: &[Node]) -> Node {
    loop {
        if let Some(leader) = nodes.iter().find(|node| node.status().leads_in.is_some()) {
            return leader.clone();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_node_that_holds_something_else_than_the_others_stops() {
    let room = Room::default();
    let disks = [MemoryDisk::new(), MemoryDisk::new(), MemoryDisk::new()];
    let mut nodes = Vec::new();
    for (disk, node) in disks.iter().zip(1..) {
        nodes.push(open(&room, node, disk).await);
    }
    let patience = Duration::from_secs(30);
    let leads = tokio::time::timeout(patience, leader(&nodes)).await.unwrap();
    for number in 1..=20 {
        leads.propose(grant(number)).await.unwrap().unwrap();
    }
    let well = tokio::time::timeout(Duration::from_millis(500), nodes[0].failed()).await;
    assert!(well.is_err(), "equal nodes go on: {well:?}");
    // One that follows comes to hold something that nobody told it.
    let wrong = nodes.iter().find(|node| node.status().leads_in.is_none()).unwrap();
    wrong.consensus().replica().tamper();
    for number in 21..=40 {
        leads.propose(grant(number)).await.unwrap().unwrap();
    }
    let why = tokio::time::timeout(patience, wrong.failed()).await.expect("it is found out");
    assert!(why.contains("differs from what the other nodes hold"), "{why}");
    for other in nodes.iter().filter(|node| node.identity() != wrong.identity()) {
        let well = tokio::time::timeout(Duration::from_millis(200), other.failed()).await;
        assert!(well.is_err(), "the others go on: {well:?}");
    }
}

#[tokio::test]
async fn what_is_left_holds_everything_in_the_log() {
    let room = Room::default();
    let disks = [MemoryDisk::new(), MemoryDisk::new(), MemoryDisk::new()];
    let mut nodes = Vec::new();
    for (disk, node) in disks.iter().zip(1..) {
        nodes.push(open(&room, node, disk).await);
    }
    let leads = tokio::time::timeout(Duration::from_secs(30), leader(&nodes)).await.unwrap();
    for number in 1..=20 {
        leads.propose(grant(number)).await.unwrap().unwrap();
    }
    let at = usize::try_from(leads.identity().node).unwrap() - 1;
    for node in &nodes {
        node.stop().await;
    }
    let disk: SharedDisk = Arc::new(disks[at].attach());
    let (left, dropped) = remains(&disk, Skip { entries: &BTreeSet::new(), applying: &mut |_| {} }).await.unwrap();
    assert!(dropped.is_empty());
    assert_eq!(left.lease_count(), 20);
}

/// Without certificates nothing proves who a peer is, but what no member can say is refused before Raft hears of it.
#[tokio::test]
async fn no_stranger_and_no_vote_for_another_raises_a_term() {
    let room = Room::default();
    let disks = [MemoryDisk::new(), MemoryDisk::new(), MemoryDisk::new()];
    let mut nodes = Vec::new();
    for (disk, node) in disks.iter().zip(1..) {
        nodes.push(open(&room, node, disk).await);
    }
    let leads = tokio::time::timeout(Duration::from_secs(30), leader(&nodes)).await.unwrap();
    leads.propose(grant(1)).await.unwrap().unwrap();
    let (us, term) = (leads.identity(), leads.status().term);
    let other = nodes.iter().find(|node| node.identity() != us).unwrap().identity();
    let host = Host::new(leads.clone());
    let ask = |from: u64, from_incarnation: u64, node: u64, members: Option<LogId>| {
        let vote = Some(Vote { term: term + 1_000, node, committed: false });
        let last = Some(LogId { term: term + 1_000, index: 1 << 40 });
        let (cluster, to, to_incarnation) = (us.cluster, us.node, us.incarnation);
        let envelope = Envelope { cluster, from, from_incarnation, to, to_incarnation, members };
        let body = Some(Ask::Vote(VoteRequest { vote, last, is_transfer: true }));
        host.answer(Question { envelope: Some(envelope), body })
    };
    let refused = |answered: Result<Answer, Refused>| match answered {
        Err(Refused::NotMeant(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(ask(9, 9, 9, None).await), "node 9 is no member of this cluster");
    let votes_for_another = format!("node {} sends a vote for node {}", other.node, us.node);
    assert_eq!(refused(ask(other.node, other.incarnation, us.node, None).await), votes_for_another);
    let another_directory = format!("node {} is a member with another data directory", other.node);
    assert_eq!(refused(ask(other.node, other.incarnation + 1, other.node, None).await), another_directory);
    let newer = Some(LogId { term: term + 1_000, index: 1 << 40 });
    assert_eq!(refused(ask(0, 9, 0, newer).await), "the question does not say which node it is from");
    assert_eq!(leads.status().term, term);
    // A member tells where it is itself, and not where another one is.
    let announce = |node: u64| {
        let (cluster, to, to_incarnation) = (us.cluster, us.node, us.incarnation);
        let (from, from_incarnation) = (other.node, other.incarnation);
        let envelope = Envelope { cluster, from, from_incarnation, to, to_incarnation, members: None };
        let incarnation = if node == us.node { us.incarnation } else { other.incarnation };
        let member = v1::Member { node, incarnation, peer_addr: format!("n{node}"), ..v1::Member::default() };
        let body = Some(Ask::Change(v1::Change { body: Some(Change::Announce(member)) }));
        host.answer(Question { envelope: Some(envelope), body })
    };
    let refused_to_announce = announce(us.node).await.unwrap_err().to_string();
    assert!(refused_to_announce.contains("announces another node; nothing was changed"), "{refused_to_announce}");
    assert!(announce(other.node).await.is_ok());
    // A member may: the check is no wall.
    assert!(ask(other.node, other.incarnation, other.node, None).await.is_ok());
}

#[tokio::test]
async fn a_leader_that_removed_itself_is_heard_in_its_own_term_alone() {
    let room = Room::default();
    let disks = [MemoryDisk::new(), MemoryDisk::new(), MemoryDisk::new()];
    let mut nodes = Vec::new();
    for (disk, node) in disks.iter().zip(1..) {
        // No other node is elected while this test looks.
        let by: (Arc<dyn Clock>, _) = (Arc::new(SystemClock::start()), Duration::from_secs(10));
        nodes.push(open_patient(&room, node, disk, by).await);
    }
    let patience = Duration::from_secs(60);
    let leads = tokio::time::timeout(patience, leader(&nodes)).await.unwrap();
    let (us, term) = (leads.identity(), leads.status().term);
    leads.change_here(Change::Remove(us.node)).await.unwrap();
    let other = nodes.iter().find(|node| node.identity() != us).unwrap();
    let removed = async {
        while other.consensus().book().member(us.node).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(patience, removed).await.expect("the other hears of it");
    let ask = |node: u64, term: u64| {
        let them = other.identity();
        let envelope = Envelope {
            cluster: us.cluster,
            from: node,
            from_incarnation: us.incarnation,
            to: them.node,
            to_incarnation: them.incarnation,
            members: None,
        };
        let ballot = VoteRequest { vote: Some(Vote { term, node, committed: false }), ..VoteRequest::default() };
        let (host, body) = (Host::new(other.clone()), Some(Ask::Vote(ballot)));
        async move { host.answer(Question { envelope: Some(envelope), body }).await }
    };
    assert!(ask(us.node, term).await.is_ok(), "it leads until that is done");
    let stranger = |answered: Result<Answer, Refused>| matches!(answered, Err(Refused::NotMeant(why)) if why.contains("is no member"));
    assert!(stranger(ask(us.node, term + 1).await));
    assert!(stranger(ask(9, term).await));
}
