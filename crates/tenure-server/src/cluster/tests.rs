//! Nodes in one process that hear each other at once: what needs a look inside.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::backup::remains;
use crate::clock::{Clock, SystemClock};
use crate::cluster::{Begin, Place};
use crate::disk::{MemoryDisk, SharedDisk};
use crate::entropy::SystemEntropy;
use crate::lessor::Tuning;
use crate::node::{Environment, Node};
use crate::peers::v1::{Answer, AppendRequest, Question};
use crate::peers::{AppendReplies, Host, Network};
use crate::workers::Workers;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use std::collections::BTreeMap;
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
    let peers = (1..=3).map(|node| (node, format!("n{node}"))).collect();
    let environment = Environment {
        clock,
        entropy: Arc::new(SystemEntropy),
        disk: Arc::new(disk.attach()),
        workers: Workers::Tasks,
        tuning: Tuning { audit_interval: Duration::from_millis(50), ..Tuning::default() },
        network: Arc::new(room.clone()),
        place: Place {
            node: Some(node),
            peer_addr: format!("n{node}"),
            begin: Begin::With(peers),
            election_timeout: Duration::from_secs(2),
            ..Place::default()
        },
    };
    let (opened, _) = Node::open(environment).await.unwrap();
    room.0.lock().unwrap().insert(format!("n{node}"), Host::new(opened.clone()));
    opened
}

fn grant(number: u64) -> Command {
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
        leads.order(grant(number)).await.unwrap().unwrap();
    }
    let well = tokio::time::timeout(Duration::from_millis(500), nodes[0].failed()).await;
    assert!(well.is_err(), "equal nodes go on: {well:?}");
    // One that follows comes to hold something that nobody told it.
    let wrong = nodes.iter().find(|node| node.status().leads_in.is_none()).unwrap();
    wrong.consensus().replica().tamper();
    for number in 21..=40 {
        leads.order(grant(number)).await.unwrap().unwrap();
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
        leads.order(grant(number)).await.unwrap().unwrap();
    }
    let at = usize::try_from(leads.identity().node).unwrap() - 1;
    for node in &nodes {
        node.stop().await;
    }
    let disk: SharedDisk = Arc::new(disks[at].attach());
    let left = remains(&disk).await.unwrap();
    assert_eq!(left.lease_count(), 20);
}
