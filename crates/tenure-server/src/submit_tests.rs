//! Commands that are submitted at a node that does not lead.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::clock::{Clock, SystemClock};
use crate::cluster::tests::{Room, grant, leader, open_tuned};
use crate::disk::MemoryDisk;
use crate::doors::settled;
use crate::node::Node;
use crate::peers::v1::question::Body as Ask;
use crate::peers::v1::{Answer, AppendRequest, Question};
use crate::peers::{AppendReplies, Network};
use crate::tuning::Tuning;
use crate::unready::Unready;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::{
    Acquire, Command, Force, Free, Holder, LeaseId, Ledger, Mode, Name, Note, On, Priority, Reply, Revoke, Span, Wait,
    Want, Which,
};
use tokio::sync::watch;

/// The room, with faults for commands and entries.
#[derive(Clone)]
struct Faulty {
    room: Room,
    /// Commands that were sent from one node to another.
    sent: Arc<AtomicU64>,
    /// Whether their answers are lost.
    loses_answers: watch::Sender<bool>,
    /// The node that receives no entries, or 0.
    cut: watch::Sender<u64>,
}

impl Faulty {
    fn new() -> Self {
        let (loses_answers, cut) = (watch::Sender::new(false), watch::Sender::new(0));
        Self { room: Room::default(), sent: Arc::default(), loses_answers, cut }
    }

    async fn open(&self, node: u64, disk: &MemoryDisk, tuning: Tuning) -> Node {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
        let by = (clock, Duration::from_secs(2), tuning);
        open_tuned(Arc::new(self.clone()), &self.room, (node, disk), by).await
    }

    /// Three nodes, and the leader and a follower among them.
    async fn three(&self) -> (Vec<Node>, Node, Node) {
        let mut nodes = Vec::new();
        for node in 1..=3 {
            nodes.push(self.open(node, &MemoryDisk::new(), Tuning::default()).await);
        }
        let leads = leader(&nodes).await;
        let follows = nodes.iter().find(|node| node.identity() != leads.identity()).unwrap().clone();
        follows.ready().await.unwrap();
        (nodes, leads, follows)
    }
}

impl Network for Faulty {
    fn ask(&self, address: &str, question: Question, patience: Duration) -> BoxFuture<'static, io::Result<Answer>> {
        let is_command = matches!(question.body, Some(Ask::Submit(_)));
        let (answer, net) = (self.room.ask(address, question, patience), self.clone());
        async move {
            let answer = answer.await;
            if is_command {
                net.sent.fetch_add(1, Ordering::Relaxed);
                if *net.loses_answers.borrow() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            answer
        }
        .boxed()
    }

    fn append(
        &self,
        node: u64,
        address: &str,
        requests: BoxStream<'static, AppendRequest>,
    ) -> BoxFuture<'static, io::Result<AppendReplies>> {
        let cut = self.cut.clone();
        let requests = requests.then(move |request| {
            let mut cut = cut.subscribe();
            async move {
                // The sender lives as long as the network.
                let _ = cut.wait_for(|cut| *cut != node).await;
                request
            }
        });
        self.room.append(node, address, requests.boxed())
    }
}

fn lease(number: u64) -> LeaseId {
    LeaseId::from_number(number).unwrap()
}

fn lives(node: &Node, number: u64) -> bool {
    node.read_stale(|ledger: &Ledger| ledger.lease(lease(number)).is_some())
}

#[tokio::test(start_paused = true)]
async fn follower_forwards_a_command_once() {
    let net = Faulty::new();
    let (_nodes, leads, follows) = net.three().await;
    let reply = follows.submit(grant(1)).await.unwrap().unwrap();
    assert!(matches!(reply, Reply::Granted { lease: granted, .. } if granted == lease(1)), "{reply:?}");
    assert!(lives(&leads, 1) && lives(&follows, 1), "it is applied at both when it is answered");
    assert_eq!(net.sent.load(Ordering::Relaxed), 1);
    let here = leads.submit(grant(2)).await.unwrap();
    assert!(here.is_ok() && net.sent.load(Ordering::Relaxed) == 1, "the leader sends it to no node");
}

#[tokio::test(start_paused = true)]
async fn unanswered_command_is_unknown_and_not_sent_again() {
    let net = Faulty::new();
    let (_nodes, leads, follows) = net.three().await;
    net.loses_answers.send_replace(true);
    assert_eq!(follows.submit(grant(1)).await, Err(Unready::Unknown));
    assert_eq!(net.sent.load(Ordering::Relaxed), 1, "it may have been applied");
    assert!(lives(&leads, 1), "and it was");
}

/// The copy of a follower has a claim that has ended since. A client that waited for it is not told that it holds.
#[tokio::test(start_paused = true)]
async fn stale_follower_confirms_no_grant() {
    let net = Faulty::new();
    let (_nodes, leads, follows) = net.three().await;
    let resource = Name::parse("db/leader").unwrap();
    follows.submit(grant(1)).await.unwrap().unwrap();
    follows.submit(claim(1, &resource)).await.unwrap().unwrap();
    net.cut.send_replace(follows.identity().node);
    leads.propose(revoke(1)).await.unwrap().unwrap();
    assert!(lives(&follows, 1) && !lives(&leads, 1), "the follower is behind");
    let room = follows.room_to_wait().unwrap();
    let standing = settled(&follows, lease(1), std::slice::from_ref(&resource), room).await;
    assert!(!matches!(standing, Ok(Ok(_))), "{standing:?}");
}

fn claim(number: u64, resource: &Name) -> Command {
    let want = Want { resource: resource.clone(), mode: Mode::Exclusive, capacity: None };
    Command::Acquire(Acquire {
        on: On::Given(lease(number)),
        wants: vec![want],
        wait: Wait::Never,
        priority: Priority::default(),
        lock_delay: Span::ZERO,
        epoch: None,
        request: None,
        secret: None,
    })
}

fn revoke(number: u64) -> Command {
    let (by, reason) = (Holder::parse("op").unwrap(), Note::default());
    let force = Force { by, reason, free: Free::Now };
    Command::Revoke(Revoke { which: Which::Lease(lease(number)), force })
}

/// One member runs an older build. What it would not understand is refused at every node before it is in the log.
#[tokio::test(start_paused = true)]
async fn older_member_keeps_newer_commands_out_of_the_log() {
    let (net, old_disk) = (Faulty::new(), MemoryDisk::new());
    let needs = grant(1).rules();
    let old = Tuning { rules_max: needs - 1, ..Tuning::default() };
    let mut nodes = Vec::new();
    for node in 1..=2 {
        nodes.push(net.open(node, &MemoryDisk::new(), Tuning::default()).await);
    }
    nodes.push(net.open(3, &old_disk, old).await);
    leader(&nodes).await;
    for node in &nodes {
        node.ready().await.unwrap();
    }
    knows(&nodes, needs - 1).await;
    for node in &nodes {
        assert_eq!(node.submit(grant(1)).await, Err(Unready::OldMember { needs, known: needs - 1 }));
    }
    let leads = leader(&nodes).await;
    assert_eq!(
        leads.propose(grant(1)).await,
        Err(Unready::OldMember { needs, known: needs - 1 }),
        "nor by the leader itself"
    );
    assert!(nodes.iter().all(|node| !lives(node, 1)));
    // It is started again with the newer build.
    nodes.pop().unwrap().stop().await;
    nodes.push(net.open(3, &old_disk, Tuning::default()).await);
    knows(&nodes, needs).await;
    leader(&nodes).await;
    for node in &nodes {
        node.ready().await.unwrap();
        assert!(node.submit(grant(1)).await.unwrap().is_ok());
    }
}

/// Returns when every node knows that the rules of all members are these.
async fn knows(nodes: &[Node], rules: u32) {
    while nodes.iter().any(|node| node.consensus().rules() != rules) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
