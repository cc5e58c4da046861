//! What a command may cost a node: one that nests deeper than the log can read back never enters the log, and those that do not
//! fit into one entry follow in the next.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::sync::Arc;
use tenure_core::limits::{ATTACHED_MAX, TXN_DEPTH_MAX, TXN_OPS_ALL_MAX};
use tenure_core::{
    Command, Grant, Hang, Holder, Key, LeaseId, Op, Put, Refusal, ReleaseLease, Reply, TXN_DEPTH, Ttl, Txn,
};
use tenure_server::disk::MemoryDisk;
use tenure_server::{Environment, Node};

fn nested(levels: usize) -> Command {
    let put = Put { key: Key::parse(b"leaf").unwrap(), value: Some([][..].into()), lease: Hang::Free };
    let leaf = Txn::of(Op::Put { put, prev: false });
    Command::Txn((1..levels).fold(leaf, |txn, _| Txn::of(Op::Txn(txn))))
}

async fn open(disk: &MemoryDisk) -> Node {
    let (node, _) = Node::open(Environment::alone(Arc::new(disk.attach()))).await.unwrap();
    node.ready().await.unwrap();
    node
}

#[tokio::test]
async fn a_command_too_deep_for_the_log_is_not_proposed() {
    let disk = MemoryDisk::new();
    let node = open(&disk).await;
    let too_deep = Err(Refusal::Full { what: TXN_DEPTH.into(), max: TXN_DEPTH_MAX });
    // Entries nest two messages for each level, below two of their own; a reader takes 100.
    for levels in [TXN_DEPTH_MAX + 1, 49, 60] {
        assert_eq!(node.propose(nested(levels)).await.unwrap(), too_deep, "{levels} levels");
    }
    node.propose(nested(TXN_DEPTH_MAX)).await.unwrap().unwrap();
    node.stop().await;
    drop(node);
    let node = open(&disk).await;
    assert!(node.read_stale(|ledger| ledger.key(b"leaf").is_some()), "it starts again with what it had");
    node.stop().await;
}

async fn lease_with_keys(node: &Node, number: u64) -> LeaseId {
    let (lease, holder) = (LeaseId::from_number(number).unwrap(), Holder::parse("ann").unwrap());
    let grant = Grant::plain(lease, holder, Ttl::from_millis(3_600_000).unwrap(), number);
    node.propose(Command::Grant(grant)).await.unwrap().unwrap();
    let put = |n: usize| {
        let key = Key::parse(format!("{number}/{n}").as_bytes()).unwrap();
        Op::Put { put: Put { key, value: Some([][..].into()), lease: Hang::On(lease) }, prev: false }
    };
    for first in (0..ATTACHED_MAX - TXN_OPS_ALL_MAX).step_by(TXN_OPS_ALL_MAX) {
        let then = (first..first + TXN_OPS_ALL_MAX).map(put).collect();
        node.propose(Command::Txn(Txn { then, ..Txn::default() })).await.unwrap().unwrap();
    }
    lease
}

/// They come together, so that they are gathered into one entry, which ends four of them at most.
#[tokio::test]
async fn releases_that_do_not_fit_into_one_entry_follow() {
    let disk = MemoryDisk::new();
    let node = open(&disk).await;
    let mut leases = Vec::new();
    for number in 1..=8 {
        leases.push(lease_with_keys(&node, number).await);
    }
    let before = node.status().last_index;
    let releases = leases.into_iter().map(|lease| node.propose(Command::ReleaseLease(ReleaseLease::plain(lease))));
    for released in futures::future::join_all(releases).await {
        assert_eq!(released.unwrap(), Ok(Reply::Released { free_in_ms: 0 }));
    }
    let entries = node.status().last_index - before;
    assert!(entries >= 2, "four of them, then the rest: {entries} entries");
    assert_eq!(node.read_stale(|ledger| (ledger.lease_count(), ledger.key_count())), (0, 0));
    node.stop().await;
}
