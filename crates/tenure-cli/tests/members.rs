//! Nodes that come and go, and clusters that are made anew: with real processes and the command line that people type.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test stops where it is surprised"
)]

use crate::support::cluster::Cluster;
use crate::support::{PATIENCE, Server, acquire, binary, claim, resources, soon, text};
use std::iter;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tenure::{Code, v1};

fn said(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Types a command at a node until it works. A machine that stalls may cost the cluster its leader, and then the command is
/// refused, or its outcome is not known; what has happened by then needs no second time.
fn types(cluster: &Cluster, node: u64, args: &[&str]) -> String {
    let start = Instant::now();
    let mut is_again = false;
    loop {
        let output = cluster.node(node).tenure(args);
        let words = said(&output);
        let is_done = is_again && words.contains("is no member");
        if output.status.success() || is_done {
            return text(&output.stdout);
        }
        assert!(start.elapsed() < PATIENCE, "{args:?}: {words}\n{}", cluster.words());
        println!("{args:?} again: {words}");
        is_again = true;
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Types a command at a node until it is refused for this reason.
fn refuses(cluster: &Cluster, node: u64, args: &[&str], why: &str) {
    let start = Instant::now();
    loop {
        let output = cluster.node(node).tenure(args);
        assert!(!output.status.success(), "{args:?}: {}", said(&output));
        if said(&output).contains(why) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{args:?}: {}", said(&output));
    }
}

/// Acquires by way of all nodes, as often as it takes: the same lease and request, so at most once.
async fn acquires(cluster: &Cluster, name: &str, lease: u64) -> u64 {
    let acquired = async {
        loop {
            match acquire(&cluster.client().await, claim(name, lease, "ann", 600_000)).await {
                Ok(fence) => return fence,
                Err(error) => println!("{name} again: {error}"),
            }
        }
    };
    soon("a grant", acquired).await
}

/// A cluster of one that others can come to.
async fn alone(size: u64) -> Cluster {
    let mut cluster = Cluster::plan(size, &["--election-timeout", "1s"]).await;
    cluster.begin_with(1, &[]);
    cluster.node(1).until_ready();
    cluster
}

/// Starts a node beside the first one, and lets it in.
fn grow(cluster: &mut Cluster, node: u64) {
    let first = cluster.wire(1);
    cluster.begin_with(node, &["--join", &first]);
    cluster.node(node).until_said("waits to be admitted");
    let at = format!("{node}={}", cluster.wire(node));
    types(cluster, 1, &["cluster", "add", &at]);
    cluster.node(node).until_ready();
}

fn members(cluster: &Cluster, node: u64) -> Vec<String> {
    types(cluster, node, &["cluster", "members", "-o", "name"]).lines().map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_grows_to_three_and_goes_on_without_the_first() {
    let mut cluster = alone(3).await;
    let client = cluster.client_of(1).await;
    let hold = client.lease("kept").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    for number in 0..200 {
        acquire(&client, claim(&format!("old/{number}"), 1_000 + number, "ann", 600_000)).await.unwrap();
    }
    grow(&mut cluster, 2);
    grow(&mut cluster, 3);
    assert_eq!(members(&cluster, 3), ["1", "2", "3"]);
    cluster.are_equal().await;
    // The first one, which leads, goes: the others go on without it.
    cluster.hand_to(1).await;
    types(&cluster, 2, &["cluster", "remove", "1"]);
    let next = cluster.leader_among(&[2, 3]).await;
    cluster.kill9(1);
    let after = cluster.client_of(next).await;
    let fence = acquire(&after, claim("new", 5_000, "bob", 600_000)).await.unwrap();
    assert!(fence > 200 && resources(&after).await.len() == 202);
    assert_eq!(members(&cluster, 2), ["2", "3"]);
    drop(hold);
    refuses(&cluster, 2, &["cluster", "remove", "7"], "node 7 is no member");
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_is_not_its_old_self() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    acquires(&cluster, "kept", 1).await;
    let [wiped, other] = cluster.followers().await[..] else { panic!("two follow") };
    cluster.kill9(wiped);
    std::fs::remove_dir_all(cluster.directory(wiped)).unwrap();
    cluster.begin(wiped);
    cluster.node(wiped).until_said("waits to be admitted");
    // Without the other one there is no majority: the wiped one takes no entry.
    cluster.kill9(other);
    let client = cluster.client_of(leader).await;
    let asked = acquire(&client, claim("split", 2, "ann", 600_000));
    let refused = soon("an answer", asked).await.expect_err("a wiped node must not count");
    assert!(matches!(refused.code(), Some(Code::NotLeader | Code::Unknown)), "{refused}");
    // And it gives no vote: the leader starts anew, and is not elected by itself and the wiped one.
    cluster.kill9(leader);
    cluster.begin(leader);
    let client = cluster.client_of_when_up(leader).await;
    for _ in 0..20 {
        let status = client.status(v1::StatusRequest {}).await.unwrap();
        assert!(!status.leads, "{status:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.begin(other);
    cluster.leader_among(&[leader, other]).await;
    // It comes back as somebody new, once the old one was removed.
    let at = format!("{wiped}={}", cluster.wire(wiped));
    refuses(&cluster, other, &["cluster", "add", &at], "another data directory");
    types(&cluster, other, &["cluster", "remove", &wiped.to_string()]);
    types(&cluster, other, &["cluster", "add", &at]);
    cluster.node(wiped).until_ready();
    cluster.leader().await;
    cluster.are_equal().await;
    cluster.tell_faults();
}

/// Whoever was admitted again with an empty disk has promised things that its old disk does not know of.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_data_directory_is_not_the_member_that_came_after_it() {
    let mut cluster = Cluster::start(3).await;
    let [again, other] = cluster.followers().await[..] else { panic!("two follow") };
    let leader = cluster.leader().await;
    acquires(&cluster, "kept", 1).await;
    cluster.are_equal().await;
    cluster.kill9(again);
    let (place, old, new) = (cluster.directory(again), cluster.directory(100), cluster.directory(101));
    std::fs::rename(&place, &old).unwrap();
    types(&cluster, leader, &["cluster", "remove", &again.to_string()]);
    cluster.begin(again);
    cluster.node(again).until_said("waits to be admitted");
    types(&cluster, leader, &["cluster", "add", &format!("{again}={}", cluster.wire(again))]);
    cluster.node(again).until_ready();
    // This is on two of three, one of which is the new one.
    assert_eq!(members(&cluster, other).len(), 3);
    cluster.leader().await;
    cluster.are_equal().await;
    cluster.kill9(other);
    cluster.leader().await;
    acquires(&cluster, "later", 2).await;
    cluster.kill9_all();
    // The one that missed it and the old disk are no majority.
    std::fs::rename(&place, &new).unwrap();
    std::fs::rename(&old, &place).unwrap();
    cluster.count("an old data directory");
    cluster.begin(other);
    cluster.begin(again);
    let clients = [cluster.client_of_when_up(other).await, cluster.client_of_when_up(again).await];
    for _ in 0..30 {
        for client in &clients {
            let status = client.status(v1::StatusRequest {}).await.unwrap();
            assert!(!status.leads, "the old one gave its vote: {status:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.kill9(again);
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::rename(&new, &place).unwrap();
    cluster.begin(again);
    cluster.leader_among(&[again, other]).await;
    let there = resources(&cluster.client_of(other).await).await;
    assert!(there.iter().any(|it| it.name == "later"), "what was acknowledged is lost: {there:?}");
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_join_is_refused_with_a_reason() {
    let mut cluster = alone(3).await;
    let refused = |cluster: &Cluster, args: &[&str], why: &str| refuses(cluster, 1, args, why);
    let nobody = format!("2={}", cluster.wire(2));
    refused(&cluster, &["cluster", "add", &nobody], "--join");
    refused(&cluster, &["cluster", "add", "2"], "say a number and an address");
    refused(&cluster, &["cluster", "remove", "1"], "the last voter");
    refused(&cluster, &["cluster", "transfer", "2"], "no voter");
    // A node that is a cluster of its own does not come to another one.
    cluster.begin_with(2, &[]);
    cluster.node(2).until_ready();
    refused(&cluster, &["cluster", "add", &nobody], "another cluster");
    // A node by another number than was said.
    let first = cluster.wire(1);
    cluster.begin_with(3, &["--join", &first]);
    cluster.node(3).until_said("waits to be admitted");
    refused(&cluster, &["cluster", "add", &format!("4={}", cluster.wire(3))], "not node 4");
    assert_eq!(members(&cluster, 1), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lead_is_handed_to_whom_it_was_asked_for() {
    let cluster = Cluster::start(3).await;
    for _ in 0..3 {
        let followers = cluster.followers().await;
        let (next, asked) = (followers[0], followers[1]);
        let start = Instant::now();
        loop {
            types(&cluster, asked, &["cluster", "transfer", &next.to_string()]);
            if cluster.leader().await == next {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "node {next} never leads: {}", cluster.words());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_when_the_leader_has_just_died_is_done_by_the_next_one() {
    let mut cluster = Cluster::start(3).await;
    for typed in [&["acquire", "jobs/nightly"][..], &["ls"], &["cluster", "transfer", "3"], &["cluster", "members"]] {
        // One that lives is to be handed the lead.
        let leader = cluster.leader().await;
        if leader == 3 {
            types(&cluster, 3, &["cluster", "transfer", "1"]);
        }
        let leader = cluster.leader().await;
        cluster.kill9(leader);
        let addrs = cluster.addrs_from(leader);
        // A node that has no time to take the lead says so, and an operator types it again.
        let typed = [&["--addr", &addrs], typed].concat();
        let output = iter::repeat_with(|| tenure(&typed)).find(|it| !said(it).contains("did not take the lead"));
        let output = output.unwrap();
        assert!(output.status.success(), "{typed:?}: {}\n{}", said(&output), cluster.words());
        cluster.begin(leader);
        cluster.all_ready();
    }
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_for_long_takes_a_snapshot() {
    let mut cluster = Cluster::start(3).await;
    let away = cluster.followers().await[0];
    cluster.kill9(away);
    let client = cluster.client_of(cluster.leader().await).await;
    // More than a snapshot's worth of log: keys of a megabyte each.
    for number in 0..100_u64 {
        let key = format!("big/{}", number % 4).into_bytes();
        let value = vec![u8::try_from(number).unwrap(); 1_000_000];
        let put = v1::PutRequest { key, value: Some(value), ..Default::default() };
        // Whoever leads may have been another by the time it was asked.
        soon("it is written", async { while client.put(put.clone()).await.is_err() {} }).await;
    }
    let purged = async {
        loop {
            let Some(status) = cluster.status(cluster.leader().await).await else { continue };
            if status.snapshot_index > 0 && status.log_entries < status.last_index {
                return;
            }
        }
    };
    soon("a snapshot that replaced the log", purged).await;
    cluster.begin(away);
    cluster.node(away).until_ready();
    assert!(cluster.node(away).words().contains("a snapshot came from the leader"), "{}", cluster.node(away).words());
    let request = v1::GetKeyRequest { key: b"big/3".to_vec(), stale: true };
    let value = cluster.client_of(away).await.get_key(request).await.unwrap().item.unwrap().value;
    assert!(value.len() == 1_000_000 && value[0] == 99);
    cluster.are_equal().await;
    cluster.tell_faults();
}

fn tenure(args: &[&str]) -> Output {
    Command::new(binary()).args(args).output().unwrap()
}

/// The fence that the next claim gets in a directory, by a server that is started on it.
async fn next_fence(directory: &Path) -> u64 {
    let server = Server::start(directory);
    let fence = acquire(&server.client().await, claim("after", 9_999, "eve", 600_000)).await.unwrap();
    server.stop();
    fence
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_restored_twice_gives_out_no_fence_that_was_given_out() {
    let cluster = Cluster::start(3).await;
    let home = tempfile::TempDir::new().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    acquires(&cluster, "before", 1).await;
    let follower = cluster.followers().await[0];
    types(&cluster, follower, &["cluster", "backup", &path("one.bak")]);
    let refused = cluster.node(follower).tenure(&["cluster", "backup", &path("one.bak")]);
    assert!(!refused.status.success() && said(&refused).contains("is there already"), "{}", said(&refused));
    let mut given = Vec::new();
    for number in 2..50 {
        given.push(acquires(&cluster, &format!("later/{number}"), number).await);
    }
    for name in ["a", "b"] {
        let made = tenure(&["cluster", "restore", &path("one.bak"), "--data-dir", &path(name), "-o", "json"]);
        assert!(made.status.success(), "{}", said(&made));
        let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
        assert!(made["fence_above"].as_u64().unwrap() > 1 << 36);
        let fence = next_fence(&home.path().join(name)).await;
        assert!(fence > *given.last().unwrap(), "{fence} was given out before");
        given.push(fence);
    }
    // What was in it is in it, and what can be watched begins anew.
    let server = Server::start(&home.path().join("b"));
    let restored = server.client().await;
    assert!(resources(&restored).await.iter().any(|it| it.name == "before"));
    let mut watch = restored.watch("").after(v1::Cursor { revision: 1, n: 0 });
    assert_eq!(watch.next().await.unwrap_err().code(), Some(Code::Compacted));
    let again = tenure(&["cluster", "restore", &path("one.bak"), "--data-dir", &path("a")]);
    assert!(!again.status.success() && said(&again).contains("there is data"), "{}", said(&again));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_backup_is_not_restored() {
    let home = tempfile::TempDir::new().unwrap();
    let server = Server::start(&home.path().join("data"));
    let path = |name: &str| home.path().join(name).display().to_string();
    let taken = server.tenure(&["cluster", "backup", &path("good.bak")]);
    assert!(taken.status.success(), "{}", said(&taken));
    let good = std::fs::read(home.path().join("good.bak")).unwrap();
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(home.path().join("bad.bak"), bad).unwrap();
        let refused = tenure(&["cluster", "restore", &path("bad.bak"), "--data-dir", &path("new")]);
        assert!(!refused.status.success() && said(&refused).contains("the backup"), "{at}: {}", said(&refused));
    }
    assert!(!home.path().join("new").join("identity").exists());
    // Nobody has to say a fence, but may.
    let below = tenure(&["cluster", "restore", &path("good.bak"), "--data-dir", &path("new"), "--fence-above", "0"]);
    assert!(below.status.success(), "a cluster that gave out nothing: {}", said(&below));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_has_left_becomes_a_new_cluster() {
    let mut cluster = Cluster::start(3).await;
    let mut last = 0;
    for number in 1..50 {
        last = acquires(&cluster, &format!("kept/{number}"), number).await;
    }
    cluster.are_equal().await;
    let left = cluster.followers().await[0];
    let home = tempfile::TempDir::new().unwrap();
    let (from, new) = (cluster.directory(left), home.path().join("new"));
    let recover = || {
        let args = ["cluster", "recover", "--from", from.to_str().unwrap(), "--data-dir", new.to_str().unwrap()];
        tenure(&args)
    };
    let refused = recover();
    assert!(!refused.status.success() && said(&refused).contains("in use"), "{}", said(&refused));
    cluster.kill9_all();
    let made = recover();
    assert!(made.status.success(), "{}", said(&made));
    let server = Server::start(&new);
    let recovered = server.client().await;
    assert_eq!(resources(&recovered).await.len(), 49);
    let fence = acquire(&recovered, claim("after", 9_999, "eve", 600_000)).await.unwrap();
    assert!(fence > last + (1 << 36));
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_log_is_damaged_refuses_and_the_others_go_on() {
    let mut cluster = Cluster::start(3).await;
    for number in 1..50 {
        acquires(&cluster, &format!("kept/{number}"), number).await;
    }
    let hurt = cluster.followers().await[0];
    cluster.kill9(hurt);
    let log = std::fs::read_dir(cluster.directory(hurt)).unwrap().flatten().map(|file| file.path());
    let log = log.filter(|path| path.extension().is_some_and(|it| it == "seg")).min().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x40;
    std::fs::write(&log, bytes).unwrap();
    cluster.begin(hurt);
    // The one that is hurt has ended, and its address is not among those that are asked.
    cluster.ended(hurt, "cannot open");
    acquires(&cluster, "on", 99).await;
    assert_eq!(resources(&cluster.client().await).await.len(), 50, "nothing of the damage has spread");
    cluster.tell_faults();
}

/// What the doctor finds at a node, as lines.
fn doctor(cluster: &Cluster, node: u64) -> (String, Option<i32>) {
    let home = tempfile::tempdir().unwrap();
    let output = cluster.node(node).tenure(&["doctor", "--data-dir", home.path().to_str().unwrap()]);
    (text(&output.stdout), output.status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_and_status_name_a_member_that_is_dead() {
    let mut cluster = Cluster::start(3).await;
    assert!(!cluster.words().contains("cluster add"), "--peers needs no admission: {}", cluster.words());
    let follower = cluster.followers().await[0];
    let (found, _) = doctor(&cluster, follower);
    assert!(found.contains(&format!("node {follower} answers and follows node ")), "{found}");
    assert!(found.contains("all 3 answer; 1 may fail"), "{found}");
    let dead = cluster.followers().await.into_iter().find(|node| *node != follower).unwrap();
    cluster.kill9(dead);
    let (found, code) = doctor(&cluster, follower);
    assert!(found.contains(&format!("node {dead} does not answer: no server answers at")), "{found}");
    assert_eq!(code, Some(1), "{found}");
    let status = cluster.node(follower).tenure(&["cluster", "status"]);
    let words = text(&status.stderr);
    assert!(words.contains(&format!("node {dead} could not be asked: no server answers at")), "{words}");
    assert!(words.contains("2 of 3 voting members answer; none of them may fail"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_node_says_that_it_was_removed() {
    let mut cluster = Cluster::start(3).await;
    let (dead, leader) = (cluster.followers().await[0], cluster.leader().await);
    // It does not have the entry that removed it.
    cluster.kill9(dead);
    types(&cluster, leader, &["cluster", "remove", &dead.to_string()]);
    cluster.begin(dead);
    let said = format!("node {dead} was removed from cluster ");
    cluster.node(dead).until_said(&said);
    let words = cluster.node(dead).words();
    let wire = cluster.wire(dead);
    assert!(words.contains(&format!("type: tenure cluster add {dead}={wire}")) && words.contains("Stop it"), "{words}");
    for node in cluster.living().into_iter().filter(|node| *node != dead) {
        assert!(!cluster.node(node).words().contains("was removed from cluster"), "{}", cluster.node(node).words());
    }
    // One that runs while it is removed has that entry, or is told by the others.
    let living = cluster.followers().await.into_iter().find(|node| *node != dead).unwrap();
    let leader = cluster.leader_among(&[leader, living]).await;
    let living = if living == leader {
        cluster.living().into_iter().find(|n| *n != leader && *n != dead).unwrap()
    } else {
        living
    };
    types(&cluster, leader, &["cluster", "remove", &living.to_string()]);
    cluster.node(living).until_said(&format!("node {living} was removed from cluster "));
}
