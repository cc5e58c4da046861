//! Three real servers as one, when the clock or the disk of some of them cannot be trusted.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test stops where it is surprised, and real time is the subject"
)]

use crate::support::cluster::Cluster;
use crate::support::load::{Load, all_there};
use crate::support::shim::{Shim, see_rate};
use crate::support::{Server, acquire, binary, claim, resources, rounds, soon, text};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure::clock::Clock;
use tenure::timing::safe_for;
use tenure::{Client, Hold, v1};

const DAY_S: i64 = 86_400;

/// The node whose clock or disk is at fault, where only one is.
const ODD: u64 = 2;

/// A cluster of which one node has a clock that runs at this rate.
async fn with_rate(shim: &Shim, rate: f64) -> Cluster {
    Cluster::start_shimmed(3, |node, _| if node == ODD { shim.rate(rate) } else { Vec::new() }).await
}

/// Takes over from a holder that stops renewing: not before that one's own time is over, and with a higher fence.
async fn takes_over(client: &Client, before: Hold, ttl: Duration) -> Hold {
    let (promises, fence) = (before.promises(), before.fence());
    before.leave();
    let next = soon("a seat", client.lease("db").ttl(ttl).wait_for_ever().acquire()).await.unwrap();
    let (now, safe_until) = (Clock::system().now(), *promises.borrow());
    assert!(now >= safe_until, "the next one holds {:?} before the other has stopped", safe_until.since(now));
    println!("fence {} holds {:?} after the other one's time was over", next.fence(), now.since(safe_until));
    assert!(next.fence() > fence, "fence {} follows {fence}", next.fence());
    next
}

/// Waits until a hold was renewed by whoever leads now.
async fn renewed(hold: &Hold) {
    let mut promises = hold.promises();
    promises.mark_unchanged();
    for _ in 0..2 {
        soon("a renewal", promises.changed()).await.unwrap();
    }
    assert!(hold.ensure().is_ok());
}

/// Leaders change while one holds and another waits. At the end of each hold the odd one leads, and then another.
async fn one_at_a_time(rate: f64) {
    let shim = Shim::build();
    let mut cluster = with_rate(&shim, rate).await;
    let client = cluster.client().await;
    // Long enough for the margin of the clocks to be larger than what it takes to be told of a seat.
    let (long, short) = (Duration::from_secs(10), Duration::from_secs(7));
    let mut hold = client.lease("db").ttl(long).acquire().await.unwrap();
    for round in 0..rounds(1) {
        cluster.hand_to(ODD).await;
        cluster.count("a leader with another clock");
        renewed(&hold).await;
        if round == 0 {
            see_rate(&cluster, ODD, rate).await;
        }
        hold = takes_over(&client, hold, short).await;
        cluster.hand_to(1).await;
        cluster.count("a leader with another clock");
        renewed(&hold).await;
        hold = takes_over(&client, hold, long).await;
        // It is granted by one clock and ends by another.
        let taken = tokio::spawn({
            let client = client.clone();
            async move { takes_over(&client, hold, long).await }
        });
        cluster.hand_to(ODD).await;
        cluster.count("a leader with another clock");
        hold = taken.await.unwrap();
    }
    hold.release().await.unwrap();
    cluster.are_equal().await;
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_holds_at_a_time_when_a_clock_is_one_percent_fast() {
    one_at_a_time(1.01).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_holds_at_a_time_when_a_clock_is_one_percent_slow() {
    one_at_a_time(0.99).await;
}

fn said(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn wall_s() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// The newest event about a resource.
async fn newest(client: &Client, resource: &str) -> v1::Event {
    let request = v1::HistoryRequest { resource: resource.into(), limit: 1, ..Default::default() };
    client.history(request).await.unwrap().events.remove(0)
}

/// A lease that nobody renews ends when its time is over: not earlier by our clock, and not later by the service's than a
/// stall explains. None: the node did not lead all the while.
async fn ends_on_time(cluster: &Cluster, leader: u64, lease: u64, off_s: i64) -> Option<u64> {
    cluster.hand_to(leader).await;
    let term = cluster.status(leader).await?.term;
    let (client, name, ttl_ms) = (cluster.client_of(leader).await, format!("short/{lease}"), 2_000);
    let sent = Clock::system().now();
    let fence = acquire(&client, claim(&name, lease, "ann", ttl_ms)).await.ok()?;
    let granted = newest(&client, &name).await;
    let ended = async {
        loop {
            let event = newest(&client, &name).await;
            if event.kind != granted.kind {
                return event;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let ended = soon("the end of a lease", ended).await;
    let lived = Clock::system().now().since(sent);
    assert!(lived >= safe_for(Duration::from_millis(ttl_ms as u64)), "it ended after {lived:?}");
    let late_ms = ended.at_ms - granted.at_ms - ttl_ms as u64;
    assert!(late_ms <= 1_000, "it ended {late_ms} ms late");
    cluster.status(leader).await.filter(|status| status.leads && status.term == term)?;
    let seen_s = i64::try_from(granted.wall_ms / 1_000).unwrap() - wall_s();
    println!("{name}: ended {late_ms} ms late by a leader whose wall clock is off by {seen_s} s");
    assert!((seen_s - off_s).abs() < 3_600, "the wall clock is off by {seen_s} s, not by {off_s} s");
    Some(fence)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_is_a_day_off_changes_nothing() {
    let shim = Shim::build();
    for off_s in [DAY_S, -DAY_S] {
        let start = |node, _: &Path| if node == ODD { shim.wall(off_s) } else { Vec::new() };
        let mut cluster = Cluster::start_shimmed(3, start).await;
        cluster.count("a wall clock that is off");
        let client = cluster.client().await;
        let kept = client.lease("kept").ttl(Duration::from_secs(8)).acquire().await.unwrap();
        let mut fences = vec![kept.fence()];
        let mut leaders = [ODD, 1, ODD, 3].into_iter().peekable();
        for lease in 100.. {
            let Some(leader) = leaders.peek() else { break };
            let off_s = if *leader == ODD { off_s } else { 0 };
            if let Some(fence) = ends_on_time(&cluster, *leader, lease, off_s).await {
                fences.push(fence);
                leaders.next();
            }
            assert!(kept.ensure().is_ok(), "a lease that is renewed goes on");
        }
        assert!(fences.windows(2).all(|two| two[0] < two[1]), "{fences:?}");
        cluster.are_equal().await;
        cluster.kill9(ODD);
        cluster.begin(ODD);
        cluster.node(ODD).until_ready();
        cluster.leader().await;
        cluster.are_equal().await;
        let shown = client.show(v1::ShowRequest { resource: "kept".into(), stale: false }).await.unwrap();
        assert_eq!(shown.holders[0].fence, kept.fence());
        kept.release().await.unwrap();
        cluster.tell_faults();
    }
}

/// Makes a new cluster of a backup, on a machine with this wall clock.
fn restore(shim: &Shim, off_s: i64, backup: &Path, to: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["cluster", "restore"]).arg(backup).arg("--data-dir").arg(to).args(more);
    command.envs(shim.wall(off_s)).output().unwrap()
}

/// The fence that the next claim gets in a directory.
async fn next_fence(directory: &Path) -> u64 {
    let server = Server::start(directory);
    let fence = acquire(&server.client().await, claim("after", 9_999, "eve", 600_000)).await.unwrap();
    assert!(server.stop().success());
    fence
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_time_to_come_is_restored_by_what_the_operator_knows() {
    let (shim, home) = (Shim::build(), tempfile::TempDir::new().unwrap());
    let path = |name: &str| home.path().join(name);
    let start = |node, _: &Path| if node == ODD { shim.wall(DAY_S) } else { Vec::new() };
    let mut cluster = Cluster::start_shimmed(3, start).await;
    cluster.count("a wall clock that is off");
    let client = cluster.client().await;
    acquire(&client, claim("before", 1, "ann", 600_000)).await.unwrap();
    for (node, file) in [(ODD, "ahead.bak"), (1, "right.bak")] {
        let taken = cluster.node(node).tenure(&["cluster", "backup", path(file).to_str().unwrap()]);
        assert!(taken.status.success(), "{}", said(&taken));
    }
    let last = acquire(&client, claim("later", 2, "ann", 600_000)).await.unwrap();
    // The node that took it was ahead, or the machine that restores it is behind: it is the same.
    for (file, off_s) in [("ahead.bak", 0), ("right.bak", -DAY_S)] {
        let new = path(&format!("from {file}"));
        let refused = restore(&shim, off_s, &path(file), &new, &[]);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        assert!(said(&refused).contains("--fence-above") && said(&refused).contains("Nothing was changed"));
        assert!(!new.join("identity").exists(), "it was refused and made all the same");
        let made = restore(&shim, off_s, &path(file), &new, &["--fence-above", &last.to_string()]);
        assert!(made.status.success(), "{}", said(&made));
        assert!(next_fence(&new).await > last, "a fence was given out twice");
    }
    // Clocks that are past the backup are as good as right.
    for (file, off_s) in [("ahead.bak", 2 * DAY_S), ("right.bak", DAY_S)] {
        let new = path(&format!("past {file}"));
        let made = restore(&shim, off_s, &path(file), &new, &[]);
        assert!(made.status.success(), "{}", said(&made));
        assert!(next_fence(&new).await > last + (1 << 36), "a fence may be given out twice");
    }
    cluster.tell_faults();
}

/// A cluster whose disks can be full.
async fn with_disks(shim: &Shim) -> Cluster {
    Cluster::start_shimmed(3, |node, data| shim.disk(node, data)).await
}

/// What a node whose disk is full says last.
const LAST_WORDS: &str = "See When things break";

/// Waits for a node whose disk is full: it stops, and says why.
fn stops_for_want_of_room(cluster: &mut Cluster, node: u64) {
    let (status, words) = cluster.ended(node, LAST_WORDS);
    assert_eq!(status.code(), Some(1), "{words}");
    assert!(words.contains("the server has stopped itself") && words.contains("No space left on device"), "{words}");
    assert!(words.contains("free some space, and start it again"), "{words}");
}

/// How the members are, by the command line of one of them.
fn states(cluster: &Cluster, asked: u64) -> Vec<(u64, String)> {
    let output = cluster.node(asked).tenure(&["cluster", "status", "-o", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let state = |it: &serde_json::Value| (it["node"].as_u64().unwrap(), it["state"].as_str().unwrap().to_owned());
    status["items"].as_array().unwrap().iter().map(state).collect()
}

/// Starts a node on a disk that is still full, then makes room and starts it again.
fn starts_once_there_is_room(cluster: &mut Cluster, shim: &Shim, node: u64) {
    cluster.begin(node);
    let (status, words) = cluster.ended(node, "No space left on device");
    assert_eq!(status.code(), Some(1), "{words}");
    shim.make_room(node);
    cluster.begin(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_disk_is_full_stops_and_the_others_go_on() {
    let shim = Shim::build();
    let mut cluster = with_disks(&shim).await;
    let load = Load::start(&cluster.addrs_from(1), 4);
    for _ in 0..rounds(1) {
        for is_leader in [false, true] {
            load.more(30).await;
            let (leader, followers) = (cluster.leader().await, cluster.followers().await);
            let (full, other) = if is_leader { (leader, followers[0]) } else { (followers[0], leader) };
            shim.fill(full);
            cluster.count("a full disk");
            stops_for_want_of_room(&mut cluster, full);
            load.more(30).await;
            cluster.leader().await;
            assert!(states(&cluster, other).contains(&(full, "unreachable".into())), "{:?}", states(&cluster, other));
            starts_once_there_is_room(&mut cluster, &shim, full);
            cluster.node(full).until_ready();
        }
    }
    let acknowledged = load.end().await;
    cluster.leader().await;
    cluster.are_equal().await;
    all_there(&cluster.client().await, &acknowledged).await;
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_disks_are_full_nothing_is_acknowledged_and_nothing_is_lost() {
    let shim = Shim::build();
    let mut cluster = with_disks(&shim).await;
    let load = Load::start(&cluster.addrs_from(1), 8);
    for _ in 0..rounds(1) {
        load.more(50).await;
        for node in 1..=3 {
            shim.fill(node);
            cluster.count("a full disk");
        }
        let has_stopped = |cluster: &Cluster, node| cluster.node(node).words().contains(LAST_WORDS);
        let most_stop = async {
            while (1..=3).filter(|node| has_stopped(&cluster, *node)).count() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon("the end of two", most_stop).await;
        for node in 1..=3 {
            match has_stopped(&cluster, node) {
                true => stops_for_want_of_room(&mut cluster, node),
                // One that is alone has nothing to write: nobody would vote for it, so it does not even try.
                false => cluster.kill9(node),
            }
        }
        let before = load.so_far().await;
        for node in 1..=3 {
            starts_once_there_is_room(&mut cluster, &shim, node);
            assert!(node > 1 || load.so_far().await == before, "one of three acknowledged something");
        }
        cluster.all_ready();
        load.more(20).await;
    }
    let acknowledged = load.end().await;
    cluster.leader().await;
    cluster.are_equal().await;
    let client = cluster.client().await;
    all_there(&client, &acknowledged).await;
    assert!(resources(&client).await.len() >= acknowledged.len());
    cluster.tell_faults();
}
