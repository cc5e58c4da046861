//! The registry on several nodes: any of them finds and tells of everybody, one that is cut off lets what it has told run
//! out, and probes go on under the next leader.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised, and gives up after a while"
)]

use crate::support::cluster::Cluster;
use crate::support::{PATIENCE, soon};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure::registry::{RegisterAsk, View};
use tenure::v1::Health;
use tenure::{Client, v1};

const SERVICE: &str = "agents/planner";
const TTL: Duration = Duration::from_secs(9);

fn ask(client: &Client, id: &str) -> RegisterAsk {
    client.register(SERVICE).id(id).endpoint("http://127.0.0.1:9").ttl(TTL)
}

fn ids(view: &View) -> Vec<String> {
    view.instances().iter().map(|found| found.instance.id.clone()).collect()
}

async fn until(view: &mut View, what: &str, is_so: impl Fn(&View) -> bool) {
    soon(what, async {
        while !is_so(view) {
            view.changed().await;
        }
    })
    .await;
}

async fn found(client: &Client) -> Vec<String> {
    let request = v1::DiscoverRequest { service: SERVICE.into(), ..Default::default() };
    client.discover_page(request).await.unwrap().items.into_iter().map(|item| item.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_knows_everybody_and_one_that_is_cut_off_lets_what_it_told_run_out() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let lonely = cluster.followers().await[0];
    let others: Vec<u64> = cluster.living().into_iter().filter(|node| *node != lonely).collect();
    let client = Client::connect(&cluster.addrs_from(leader)).await.unwrap();
    let (_a1, a2) = (ask(&client, "a1").begin().await.unwrap(), ask(&client, "a2").begin().await.unwrap());
    for node in cluster.living() {
        assert_eq!(
            found(&cluster.client_of(node).await).await,
            ["a1", "a2"],
            "what was acknowledged is found at {node}"
        );
    }
    // Both are told by a node that does not lead; one of the two stays with it.
    let near = cluster.client_of(lonely).await;
    let mut stuck = near.discover(SERVICE).view().await.unwrap();
    let mut moving =
        Client::connect(&cluster.addrs_from(lonely)).await.unwrap().discover(SERVICE).view().await.unwrap();
    for view in [&mut stuck, &mut moving] {
        until(view, "both", |view| ids(view) == ["a1", "a2"]).await;
    }
    let began = Instant::now();
    while began.elapsed() < TTL * 3 / 2 {
        assert_eq!(ids(&stuck), ["a1", "a2"], "heartbeats are heard of by way of a node that does not lead");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    cluster.isolate(lonely);
    a2.deregister().await.unwrap();
    until(&mut stuck, "what the lonely node told runs out", |view| ids(view).is_empty()).await;
    let asked = near.discover_page(v1::DiscoverRequest { service: SERVICE.into(), ..Default::default() });
    let answer = tokio::time::timeout(Duration::from_secs(1), asked).await;
    assert!(!matches!(answer, Ok(Ok(_))), "a node that hears no leader does not say who is there: {answer:?}");
    for node in &others {
        assert_eq!(found(&cluster.client_of(*node).await).await, ["a1"], "the others go on, at {node}");
    }

    until(&mut moving, "who can go elsewhere is told there", |view| ids(view) == ["a1"]).await;

    cluster.heal();
    until(&mut stuck, "the one that is left, after the cut", |view| ids(view) == ["a1"]).await;
    cluster.are_equal().await;
    cluster.tell_faults();
}

/// Service time stands still there, and so would what it tells, if that were all that counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_lets_what_it_told_run_out_too() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let client = Client::connect(&cluster.addrs_from(leader)).await.unwrap();
    let _a1 = ask(&client, "a1").begin().await.unwrap();
    let mut stuck = cluster.client_of(leader).await.discover(SERVICE).view().await.unwrap();
    until(&mut stuck, "the instance", |view| ids(view) == ["a1"]).await;
    cluster.isolate(leader);
    until(&mut stuck, "what the old leader told runs out", |view| ids(view).is_empty()).await;
    cluster.heal();
    until(&mut stuck, "it is there again", |view| ids(view) == ["a1"]).await;
    cluster.tell_faults();
}

/// A target of probes: says how it is, and notes who asked.
struct Target {
    address: String,
    is_well: Arc<AtomicBool>,
    askers: Arc<Mutex<Vec<String>>>,
}

impl Target {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let target = Self { address, is_well: Arc::new(AtomicBool::new(true)), askers: Arc::default() };
        let (is_well, askers) = (target.is_well.clone(), target.askers.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(&stream, &is_well, &askers);
            }
        });
        target
    }

    fn be_well(&self, is_well: bool) {
        self.is_well.store(is_well, Ordering::SeqCst);
    }

    /// Forgets who asked so far, and says who has asked by then.
    fn askers(&self) -> Vec<String> {
        std::mem::take(&mut *self.askers.lock().unwrap())
    }
}

fn answer(mut stream: &TcpStream, is_well: &AtomicBool, askers: &Mutex<Vec<String>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    for line in BufReader::new(stream).lines() {
        let line = line?.to_ascii_lowercase();
        if let Some(agent) = line.strip_prefix("user-agent: ") {
            askers.lock().unwrap().push(agent.to_owned());
        }
        if line.is_empty() {
            break;
        }
    }
    let status = if is_well.load(Ordering::SeqCst) { "200 OK" } else { "503 Not Now" };
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

async fn until_health(cluster: &Cluster, what: &str, wanted: Health) {
    let start = Instant::now();
    loop {
        let client = cluster.client().await;
        let request = v1::ShowInstanceRequest { service: SERVICE.into(), id: "a1".into(), stale: false };
        let shown = client.show_instance(request).await;
        if shown.is_ok_and(|shown| shown.living.is_some_and(|living| living.health() == wanted)) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_goes_on_probing_and_nobody_else_does() {
    let mut cluster = Cluster::plan(3, &["--election-timeout", "2s", "--probe-allow", "127.0.0.0/8"]).await;
    (1..=3).for_each(|node| cluster.begin(node));
    cluster.all_ready();
    let target = Target::start();
    let client = cluster.client().await;
    let check = v1::Check {
        name: "http".into(),
        kind: v1::CheckKind::Http.into(),
        path: "/healthz".into(),
        interval_ms: Some(1_000),
        ..v1::Check::default()
    };
    let url = format!("http://{}", target.address);
    let ask = client.register(SERVICE).id("a1").endpoint(url).ttl(Duration::from_secs(60)).check(check);
    let listed = ask.begin().await.unwrap();
    until_health(&cluster, "the first probe", Health::Passing).await;
    let leader = cluster.leader().await;
    let by = |node: u64| format!("(probe; node {node})");
    assert!(target.askers().iter().all(|asker| asker.ends_with(&by(leader))), "only the leader asks");

    cluster.kill9(leader);
    target.askers();
    target.be_well(false);
    until_health(&cluster, "the next leader finds it ill", Health::Critical).await;
    let next = cluster.leader().await;
    // A last one of the dead may have been on its way.
    let askers: Vec<String> = target.askers().into_iter().filter(|asker| !asker.ends_with(&by(leader))).collect();
    assert!(!askers.is_empty() && askers.iter().all(|asker| asker.ends_with(&by(next))), "{askers:?}, not {next}");
    target.be_well(true);
    until_health(&cluster, "and well again", Health::Passing).await;
    assert!(!listed.remaining().is_zero(), "its lease has nothing to do with it");
    cluster.tell_faults();
}
