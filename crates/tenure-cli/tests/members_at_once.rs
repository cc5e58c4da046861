//! Several changes of the members at the same time, typed by operators who do not know of each other, while clients press on.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test stops where it is surprised"
)]

use crate::support::cluster::Cluster;
use crate::support::load::{Load, all_there};
use crate::support::{PATIENCE, rounds, text};
use std::collections::BTreeSet;
use std::process::Output;
use std::time::{Duration, Instant};

/// A change that somebody types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Add(u64),
    Remove(u64),
}

impl Change {
    fn node(self) -> u64 {
        match self {
            Self::Add(node) | Self::Remove(node) => node,
        }
    }

    /// Types it at a node.
    fn typed(self, cluster: &Cluster, at: u64) -> Output {
        match self {
            Self::Add(node) => {
                let address = format!("{node}={}", cluster.wire(node));
                cluster.node(at).tenure(&["cluster", "add", &address])
            }
            Self::Remove(node) => cluster.node(at).tenure(&["cluster", "remove", &node.to_string()]),
        }
    }
}

/// The members and whether each votes, as a node tells it.
fn members(cluster: &Cluster, at: u64) -> Vec<(u64, String)> {
    let output = cluster.node(at).tenure(&["cluster", "members", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let member = |it: &serde_json::Value| (it["node"].as_u64().unwrap(), it["role"].as_str().unwrap().to_owned());
    told["items"].as_array().unwrap().iter().map(member).collect()
}

/// Waits until all of these say that all of these vote, and nobody else is there.
async fn agree(cluster: &Cluster, expected: &BTreeSet<u64>) {
    let wanted: Vec<(u64, String)> = expected.iter().map(|node| (*node, "voter".to_owned())).collect();
    let start = Instant::now();
    for node in expected {
        while members(cluster, *node) != wanted {
            assert!(start.elapsed() < PATIENCE, "node {node} says {:?}, not {wanted:?}", members(cluster, *node));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Whoever is told no is told why: 1 is a no, and what is said of it is true; 69 is a leader that is not there.
fn is_told_why(cluster: &Cluster, at: u64, change: Change, output: &Output) {
    let words = text(&output.stderr);
    let is_known = match output.status.code() {
        Some(1) => [
            "another change of the members is under way",
            "is no member",
            "look at the members",
            "was removed",
            "ask again",
            "did not join",
        ]
        .as_slice(),
        Some(69) => ["no node leads", "not_leader", "not known"].as_slice(),
        _ => &[],
    };
    assert!(is_known.iter().any(|known| words.contains(known)), "{change:?}: {} {words}", output.status);
    if let (Change::Add(node), true) = (change, words.contains("another change of the members is under way")) {
        assert!(words.contains("nothing was changed") || words.contains("stays a learner"), "{words}");
        let is_there = members(cluster, at).iter().any(|(it, _)| *it == node);
        assert_eq!(is_there, words.contains("stays a learner"), "{change:?}: {words}");
    }
}

/// Types a change until it is done.
async fn again(cluster: &Cluster, at: u64, change: Change) {
    let is_done = || match (change, members(cluster, at).into_iter().find(|(node, _)| *node == change.node())) {
        (Change::Add(_), Some((_, role))) => role == "voter",
        (Change::Add(_), None) | (Change::Remove(_), Some(_)) => false,
        (Change::Remove(_), None) => true,
    };
    let start = Instant::now();
    while !is_done() {
        let output = change.typed(cluster, at);
        assert!(start.elapsed() < PATIENCE, "{change:?} is never done: {}", text(&output.stderr));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Types changes at the same moment, each at another node, and what was refused again, until it is done. Tells how many
/// were refused.
async fn at_once(cluster: &Cluster, expected: &mut BTreeSet<u64>, changes: &[Change]) -> usize {
    let at: Vec<u64> = expected.iter().copied().filter(|node| changes.iter().all(|it| it.node() != *node)).collect();
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let typed = |(n, change): (usize, &Change)| {
            let (at, change) = (at[n % at.len()], *change);
            scope.spawn(move || change.typed(cluster, at))
        };
        let typing: Vec<_> = changes.iter().enumerate().map(typed).collect();
        typing.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let mut refused = 0;
    for (change, output) in changes.iter().zip(&outputs) {
        let words = text(&output.stderr);
        println!("{change:?}: {} {}", output.status, words.lines().next().unwrap_or_default());
        if !output.status.success() {
            refused += 1;
            is_told_why(cluster, at[0], *change, output);
            again(cluster, at[0], *change).await;
        }
    }
    for change in changes {
        match change {
            Change::Add(node) => expected.insert(*node),
            Change::Remove(node) => expected.remove(node),
        };
    }
    agree(cluster, expected).await;
    refused
}

/// A node that is out comes back as somebody new, and waits at the door.
fn waits_at_the_door(cluster: &mut Cluster, node: u64) {
    if cluster.living().contains(&node) {
        cluster.kill9(node);
    }
    let _ = std::fs::remove_dir_all(cluster.directory(node));
    let first = cluster.wire(1);
    cluster.begin_with(node, &["--join", &first]);
    cluster.node(node).until_said("waits to be admitted");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_once_happen_in_turn_or_are_refused_with_a_reason() {
    use Change::{Add, Remove};
    let mut cluster = Cluster::plan(5, &["--election-timeout", "1s"]).await;
    cluster.begin_with(1, &[]);
    cluster.node(1).until_ready();
    (2..=5).for_each(|node| waits_at_the_door(&mut cluster, node));
    let load = Load::start(&cluster.addrs_from(1), 4);
    let (mut expected, mut refused) = (BTreeSet::from([1]), 0);
    refused += at_once(&cluster, &mut expected, &[Add(2), Add(3)]).await;
    cluster.count("changes of the members at once");
    for _ in 0..rounds(1) {
        refused += at_once(&cluster, &mut expected, &[Add(4), Add(5), Remove(3)]).await;
        cluster.count("changes of the members at once");
        waits_at_the_door(&mut cluster, 3);
        refused += at_once(&cluster, &mut expected, &[Remove(4), Add(3), Remove(5)]).await;
        cluster.count("changes of the members at once");
        (4..=5).for_each(|node| waits_at_the_door(&mut cluster, node));
        refused += at_once(&cluster, &mut expected, &[Add(4), Add(4)]).await;
        refused += at_once(&cluster, &mut expected, &[Remove(4), Remove(4)]).await;
        cluster.count("changes of the members at once");
        waits_at_the_door(&mut cluster, 4);
    }
    println!("{refused} were refused at first");
    load.more(50).await;
    // Nothing of what was is left in who must agree: of three, one may go.
    assert_eq!(expected, BTreeSet::from([1, 2, 3]));
    (4..=5).for_each(|node| cluster.kill9(node));
    let leader = cluster.leader_among(&[1, 2, 3]).await;
    cluster.kill9(leader);
    load.more(50).await;
    cluster.begin(leader);
    cluster.node(leader).until_ready();
    let acknowledged = load.end().await;
    cluster.leader().await;
    cluster.are_equal().await;
    all_there(&cluster.client().await, &acknowledged).await;
    cluster.tell_faults();
}
