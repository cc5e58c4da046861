//! Three real servers as one: what they promise when one of them is killed, paused or cut off.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test stops where it is surprised"
)]

use crate::support::cluster::Cluster;
use crate::support::load::{Load, all_there};
use crate::support::{acquire, claim, resources, rounds, soon, text};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure::{Client, v1};
use tokio::task::JoinHandle;

#[tokio::test(flavor = "multi_thread")]
async fn any_node_is_asked_and_all_of_them_know() {
    let cluster = Cluster::start(3).await;
    for node in cluster.living() {
        let said = cluster.node(node).tenure(&["acquire", &format!("jobs/{node}"), "--ttl", "60s"]);
        assert_eq!(text(&said.stdout), format!("jobs/{node}@{node}\n"), "{}", text(&said.stderr));
        // Whoever asked a node sees what was done there, and whoever asks another one sees it, too.
        for other in cluster.living() {
            let listed = cluster.node(other).tenure(&["ls", "-o", "name"]);
            assert!(text(&listed.stdout).contains(&format!("jobs/{node}")), "{}", text(&listed.stdout));
        }
    }
    cluster.are_equal().await;
    let states = || {
        let status = cluster.node(1).tenure(&["cluster", "status", "-o", "json"]);
        assert_eq!(text(&status.stdout).matches("\"node\":").count(), 3, "each node is numbered once");
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let items = status["items"].as_array().unwrap().iter();
        let mut states: Vec<String> = items.map(|it| it["state"].as_str().unwrap().to_owned()).collect();
        states.sort_unstable();
        states
    };
    soon("one leads and two follow", async {
        while states() != ["follows", "follows", "leads"] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_takes_nothing_with_it() {
    let mut cluster = Cluster::start(3).await;
    let load = Load::start(&cluster.addrs_from(1), 8);
    for _ in 0..rounds(2) {
        load.more(50).await;
        let leader = cluster.leader().await;
        cluster.kill9(leader);
        load.more(50).await;
        cluster.begin(leader);
        cluster.node(leader).until_ready();
    }
    let acknowledged = load.end().await;
    cluster.are_equal().await;
    all_there(&cluster.client().await, &acknowledged).await;
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_killed_at_once_and_everything_acknowledged_is_there() {
    let mut cluster = Cluster::start(3).await;
    let load = Load::start(&cluster.addrs_from(2), 8);
    load.more(100).await;
    cluster.kill9_all();
    for node in 1..=3 {
        cluster.begin(node);
    }
    load.more(20).await;
    let acknowledged = load.end().await;
    cluster.are_equal().await;
    all_there(&cluster.client().await, &acknowledged).await;
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_paused_longer_than_the_ttl_ends_no_lease_that_was_renewed() {
    let mut cluster = Cluster::start(3).await;
    let ttl = Duration::from_secs(8);
    let client = cluster.client().await;
    let hold = client.lease("db/leader").ttl(ttl).acquire().await.unwrap();
    for _ in 0..rounds(1) {
        let leader = cluster.leader().await;
        cluster.pause(leader);
        let others: Vec<u64> = cluster.living().into_iter().filter(|node| *node != leader).collect();
        cluster.leader_among(&others).await;
        tokio::time::sleep(ttl + Duration::from_secs(1)).await;
        assert!(hold.ensure().is_ok(), "it was renewed through the new leader");
        cluster.go_on(leader);
        cluster.leader().await;
        assert!(hold.ensure().is_ok());
        cluster.are_equal().await;
    }
    let shown = client.show(v1::ShowRequest { resource: "db/leader".into(), stale: false }).await.unwrap();
    assert_eq!(shown.holders[0].fence, hold.fence());
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_acknowledges_nothing_and_the_majority_goes_on() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let alone = cluster.client_of(leader).await;
    cluster.isolate(leader);
    let lost = tokio::spawn(async move { acquire(&alone, claim("split", 7, "minority", 600_000)).await });
    let others: Vec<u64> = cluster.living().into_iter().filter(|node| *node != leader).collect();
    let next = cluster.leader_among(&others).await;
    let fence = soon("a grant", acquire(&cluster.client_of(next).await, claim("split", 8, "majority", 600_000))).await;
    let fence = fence.unwrap();
    // Nor does it answer what it cannot know: the majority may have gone on, and here it has.
    let known = cluster.client_of(leader).await;
    let asked = known.show(v1::ShowRequest { resource: "split".into(), stale: false });
    let told = tokio::time::timeout(Duration::from_secs(5), asked).await;
    assert!(!matches!(told, Ok(Ok(_))), "the minority answered {told:?}");
    cluster.heal();
    let lost = soon("an answer for the minority", lost).await.unwrap();
    assert!(lost.is_err(), "the minority acknowledged {lost:?}");
    cluster.leader().await;
    cluster.are_equal().await;
    let shown = cluster.client().await.show(v1::ShowRequest { resource: "split".into(), stale: false }).await.unwrap();
    assert_eq!((shown.holders[0].fence, shown.holders[0].holder.as_str()), (fence, "majority"));
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn cuts_of_one_way_and_between_two_do_not_stop_the_majority() {
    let mut cluster = Cluster::start(3).await;
    let load = Load::start(&cluster.addrs_from(3), 4);
    load.more(20).await;
    let leader = cluster.leader().await;
    let [one, other] = cluster.followers().await[..] else { panic!("two follow") };
    // Two that do not see each other, but both see the third.
    cluster.cut(one, other);
    cluster.cut(other, one);
    load.more(50).await;
    cluster.heal();
    // The leader hears a follower that does not hear it.
    cluster.cut(leader, one);
    load.more(50).await;
    cluster.heal();
    // The leader is heard and hears nobody: it cannot know that anything is on a majority.
    cluster.cut(one, leader);
    cluster.cut(other, leader);
    load.more(50).await;
    cluster.heal();
    // Those two see each other no longer, and one of them may lead.
    cluster.cut(leader, one);
    cluster.cut(one, leader);
    load.more(50).await;
    cluster.heal();
    let acknowledged = load.end().await;
    cluster.leader().await;
    cluster.are_equal().await;
    all_there(&cluster.client().await, &acknowledged).await;
    cluster.tell_faults();
}

/// Tries to renew now and then, whatever happens, and counts the answers. It is never told that it was too late.
fn keep_trying(client: Client, lease: u64, answers: Arc<AtomicU64>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let request = v1::RenewRequest { leases: vec![lease], ..Default::default() };
            if let Ok(Ok(reply)) = tokio::time::timeout(Duration::from_secs(1), client.renew(request)).await {
                assert!(reply.failures.is_empty(), "a holder that kept trying lost its lease: {reply:?}");
                answers.fetch_add(1, Ordering::SeqCst);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_that_was_away_for_three_ttls_costs_no_lease_of_whoever_kept_trying() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let client = cluster.client_of(leader).await;
    let ttl = Duration::from_secs(4);
    // So many that some of them are not heard at the very moment at which it goes on, but a little later.
    let leases: Vec<u64> = (71..79).collect();
    let mut holders = Vec::new();
    for lease in &leases {
        acquire(&client, claim(&format!("kept/{lease}"), *lease, "ann", 4_000)).await.unwrap();
        let answers = Arc::new(AtomicU64::new(0));
        holders.push((keep_trying(client.clone(), *lease, answers.clone()), answers));
        tokio::time::sleep(Duration::from_millis(37)).await;
    }
    let followers = cluster.followers().await;
    followers.iter().for_each(|node| cluster.pause(*node));
    // Real time is the subject: the leader is there, and nobody hears it.
    tokio::time::sleep(3 * ttl).await;
    followers.iter().for_each(|node| cluster.go_on(*node));
    for (holder, answers) in &holders {
        let before = answers.load(Ordering::SeqCst);
        let answered = async {
            while answers.load(Ordering::SeqCst) < before + 2 {
                assert!(!holder.is_finished(), "a holder was told that its lease is gone");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon("a renewal", answered).await;
    }
    let held: Vec<u64> = resources(&cluster.client().await).await.iter().map(|it| it.lease).collect();
    assert_eq!(held, leases);
    holders.iter().for_each(|(holder, _)| holder.abort());
    cluster.tell_faults();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_at_another_node_without_a_gap_or_a_repetition() {
    let mut cluster = Cluster::start(3).await;
    let followers = cluster.followers().await;
    let watcher = Client::connect(&cluster.addrs_from(followers[0])).await.unwrap();
    let mut watch = watcher.watch("seen/").after(v1::Cursor { revision: 0, n: u32::MAX });
    let client = Client::connect(&cluster.addrs_from(cluster.leader().await)).await.unwrap();
    let mut seen = Vec::new();
    for number in 1..=60_u64 {
        // When the leader is killed, whether it was done is not known: the same ids mean the same claim.
        while acquire(&client, claim(&format!("seen/{number:03}"), number, "ann", 600_000)).await.is_err() {}
        if number == 20 || number == 40 {
            while seen.len() < number as usize - 5 {
                seen.extend(next_events(&mut watch).await);
            }
        }
        if number == 20 {
            // The one that is watched goes, and comes back.
            cluster.kill9(followers[0]);
            cluster.begin(followers[0]);
            cluster.node(followers[0]).until_ready();
        }
        if number == 40 {
            let leader = cluster.leader().await;
            cluster.kill9(leader);
        }
    }
    while seen.len() < 60 {
        seen.extend(next_events(&mut watch).await);
    }
    let expected: Vec<String> = (1..=60).map(|number| format!("seen/{number:03}")).collect();
    assert_eq!(seen, expected);
    cluster.tell_faults();
}

async fn next_events(watch: &mut tenure::Watch) -> Vec<String> {
    let reply = soon("an event", watch.next()).await.unwrap();
    reply.events.into_iter().filter(|event| event.fence != 0).map(|event| event.resource).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_stopped_hands_over_first() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let hold = client.lease("db").ttl(Duration::from_secs(15)).acquire().await.unwrap();
    for _ in 0..3 {
        let leader = cluster.leader().await;
        assert!(cluster.stop(leader).success());
        cluster.begin(leader);
        cluster.node(leader).until_ready();
        assert!(hold.ensure().is_ok());
    }
    hold.release().await.unwrap();
    cluster.tell_faults();
}
