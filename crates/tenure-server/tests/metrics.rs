//! What a node measures about itself: it reads as OpenMetrics, it moves when something happens, and no client can make
//! more of it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::openmetrics::Exposition;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tenure_api::v1;
use tenure_api::v1::tenure_client::TenureClient;
use tenure_core::{
    Check, Command, Deregister, Details, Draft, Endpoint, Grant, Health, Holder, InstanceKey, Kind, LeaseId, Note, On,
    Register, ReleaseLease, Renew, Renewal, SetHealth, Source, Ttl, Word,
};
use tenure_server::disk::MemoryDisk;
use tenure_server::{Clock, Environment, Node, SystemClock, Workers};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::transport::Channel;

/// The time of tokio, which a test can pause and move.
struct Simulated(Instant);

impl Clock for Simulated {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        1
    }
}

async fn open(disk: &MemoryDisk, clock: Arc<dyn Clock>) -> Node {
    let alone = Environment::alone(Arc::new(disk.attach()));
    let environment = Environment { clock, workers: Workers::Tasks, ..alone };
    let (node, _) = Node::open(environment).await.unwrap();
    node.ready().await.unwrap();
    node
}

fn read(node: &Node) -> Exposition {
    let text = node.metrics_text();
    Exposition::read(&text).unwrap_or_else(|wrong| panic!("{wrong}:\n{text}"))
}

fn lease(n: u64) -> LeaseId {
    LeaseId::from_number(n).unwrap()
}

fn grant(n: u64, ttl_ms: u64) -> Command {
    let (holder, ttl) = (Holder::parse("ann").unwrap(), Ttl::from_millis(ttl_ms).unwrap());
    Command::Grant(Grant::plain(lease(n), holder, ttl, n))
}

fn renew(leases: &[u64]) -> Command {
    let leases = leases.iter().map(|n| Renewal { lease: lease(*n), ttl: None }).collect();
    Command::Renew(Renew { leases, kind: Kind::Auto })
}

/// Waits, on simulated time, until so many leases are left.
async fn left(node: &Node, leases: usize) {
    while node.status().leases != leases {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_leases_go_through_is_counted() {
    let disk = MemoryDisk::new();
    let node = open(&disk, Arc::new(Simulated(Instant::now()))).await;
    for n in 1..=3 {
        node.propose(grant(n, 10_000)).await.unwrap().unwrap();
    }
    // Simulated time, here and in `left`: it goes on when everybody waits, and nobody does in earnest.
    tokio::time::sleep(Duration::from_millis(6_500)).await;
    node.propose(renew(&[1, 99])).await.unwrap().unwrap();
    node.propose(Command::ReleaseLease(ReleaseLease::plain(lease(2)))).await.unwrap().unwrap();
    left(&node, 1).await;
    let seen = read(&node);
    assert_eq!(seen.value("tenure_grants_total"), 3.0);
    assert_eq!(seen.value("tenure_leases"), 1.0);
    assert_eq!(seen.value("tenure_leader"), 1.0);
    assert_eq!(seen.value("tenure_renewals_total{result=\"ok\"}"), 1.0);
    assert_eq!(seen.value("tenure_renewals_total{result=\"no_lease\"}"), 1.0);
    assert_eq!(seen.value("tenure_renewal_slack_ratio_bucket{le=\"0.3\"}"), 0.0);
    assert_eq!(seen.value("tenure_renewal_slack_ratio_bucket{le=\"0.4\"}"), 1.0, "3.5 of 10 s were left");
    assert_eq!(seen.value("tenure_lease_ends_total{how=\"released\"}"), 1.0);
    assert_eq!(seen.value("tenure_lease_ends_total{how=\"expired\"}"), 1.0);
    assert_eq!(seen.value("tenure_expiry_lag_seconds_count"), 1.0, "what was released was not late");
    assert_eq!(seen.value("tenure_expiry_lag_seconds_bucket{le=\"0.2\"}"), 1.0, "it was late by no more than a tick");
    assert_eq!(seen.value("tenure_batch_size_sum"), 5.0, "ticks hold no commands");
    assert_eq!(seen.value("tenure_revision"), 5.0);
    assert!(seen.value("tenure_service_time_seconds") >= 10.0);
    assert!(seen.value("tenure_monotonic_seconds") >= seen.value("tenure_service_time_seconds"));
    assert_eq!(seen.value("tenure_service_time_dropped_seconds"), 0.0);
    assert!(seen.value("tenure_log_fsync_seconds_count") >= 5.0);
    assert!(seen.value("tenure_log_bytes_total") > 100.0);
    node.stop().await;

    let again = open(&disk, Arc::new(Simulated(Instant::now()))).await;
    let seen = read(&again);
    assert_eq!(seen.value("tenure_leases"), 1.0);
    assert_eq!(seen.value("tenure_grants_total"), 0.0, "a replayed log is nothing that happens");
    assert_eq!(seen.value("tenure_expiry_lag_seconds_count"), 0.0);
    again.stop().await;
}

fn register(n: u64, ttl_ms: u64, checks: Vec<Check>) -> Command {
    let endpoints = vec![Endpoint::parse("http://10.0.0.7:80").unwrap()];
    let holder = Holder::parse("ann").unwrap();
    Command::Register(Register {
        instance: InstanceKey::parse(&format!("s/i{n}")).unwrap(),
        epoch: None,
        on: On::New(Grant::plain(lease(n), holder, Ttl::from_millis(ttl_ms).unwrap(), n)),
        details: Details::new(Draft { checks, ..Draft::at(endpoints) }).unwrap(),
        request: None,
    })
}

#[tokio::test(start_paused = true)]
async fn what_instances_go_through_is_counted() {
    let node = open(&MemoryDisk::new(), Arc::new(Simulated(Instant::now()))).await;
    let check = Word::parse("ready").unwrap();
    let checks = vec![Check { name: check.clone(), source: Source::Pushed { ttl: None } }];
    for n in 1..=3 {
        node.propose(register(n, 600_000, Vec::new())).await.unwrap().unwrap();
    }
    node.propose(register(4, 600_000, checks)).await.unwrap().unwrap();
    node.propose(register(5, 1_000, Vec::new())).await.unwrap().unwrap();
    let of = |seen: &Exposition, health: &str| seen.value(&format!("tenure_instances{{health=\"{health}\"}}"));
    let seen = read(&node);
    assert_eq!((of(&seen, "passing"), of(&seen, "unknown"), of(&seen, "critical")), (4.0, 1.0, 0.0));
    assert_eq!((seen.value("tenure_services"), seen.value("tenure_registrations_total")), (1.0, 5.0));
    let instance = InstanceKey::parse("s/i4").unwrap();
    let told = SetHealth { instance, lease: lease(4), check, health: Health::Critical, note: Note::default() };
    for _ in 0..2 {
        node.propose(Command::SetHealth(told.clone())).await.unwrap().unwrap();
    }
    let instance = InstanceKey::parse("s/i1").unwrap();
    node.propose(Command::Deregister(Deregister { instance, lease: None, force: None, request: None }))
        .await
        .unwrap()
        .unwrap();
    left(&node, 3).await;
    let seen = read(&node);
    assert_eq!((of(&seen, "passing"), of(&seen, "unknown"), of(&seen, "critical")), (2.0, 0.0, 1.0));
    assert_eq!(seen.value("tenure_health_changes_total{health=\"critical\"}"), 1.0, "the same again is no change");
    assert_eq!(seen.value("tenure_deregistrations_total{how=\"released\"}"), 1.0);
    assert_eq!(seen.value("tenure_deregistrations_total{how=\"expired\"}"), 1.0);
    assert_eq!(seen.value("tenure_suspects_total"), 0.0);
    node.stop().await;
}

/// A node behind its doors, on real sockets.
struct House {
    node: Node,
    client: TenureClient<Channel>,
    _open: oneshot::Sender<()>,
}

async fn house() -> House {
    let node = open(&MemoryDisk::new(), Arc::new(SystemClock::start())).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (held_open, stop) = oneshot::channel::<()>();
    let served = node.clone();
    tokio::spawn(async move {
        tenure_server::serve(served, vec![listener], &tenure_server::Settings::default(), async { drop(stop.await) })
            .await
    });
    House { node, client: TenureClient::connect(address).await.unwrap(), _open: held_open }
}

fn claim(name: &str, n: u64) -> v1::AcquireRequest {
    let grant = v1::GrantRequest { lease: n, holder: format!("{name}-holder"), ttl_ms: 60_000, ..Default::default() };
    v1::AcquireRequest { resource: name.into(), grant: Some(grant), ..Default::default() }
}

/// Asks in every way that people get wrong, with words of its own; each answer is somebody's.
async fn ask_with(house: &mut House, word: &str, n: u64) {
    let client = &mut house.client;
    client.acquire(claim(word, n)).await.unwrap();
    assert!(client.acquire(claim(word, n + 1)).await.is_err(), "it is taken");
    assert!(client.acquire(claim(&format!("{word}//"), n + 2)).await.is_err(), "no such name");
    assert!(client.verify(v1::VerifyRequest { handle: format!("{word}@999") }).await.is_err());
    client.renew(v1::RenewRequest { leases: vec![n, n + 1], ..Default::default() }).await.unwrap();
    client.show(v1::ShowRequest { resource: word.into(), stale: false }).await.unwrap();
    let put = v1::PutRequest { key: word.into(), value: Some(word.into()), ..Default::default() };
    client.put(put).await.unwrap();
    let ask = v1::request::Body::Acquire(claim(word, n + 3));
    let requests = tokio_stream::once(v1::Request { id: 1, body: Some(ask) });
    let mut answers = client.stream(requests).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
}

#[tokio::test]
async fn no_word_of_a_client_makes_a_series() {
    let mut house = house().await;
    ask_with(&mut house, "first", 1_000).await;
    let before = read(&house.node);
    assert_eq!(before.value("tenure_requests_total{door=\"grpc\",call=\"acquire\",code=\"ok\"}"), 1.0);
    assert_eq!(before.value("tenure_requests_total{door=\"grpc\",call=\"acquire\",code=\"taken\"}"), 1.0);
    assert_eq!(before.value("tenure_requests_total{door=\"grpc\",call=\"acquire\",code=\"bad_name\"}"), 1.0);
    assert_eq!(before.value("tenure_requests_total{door=\"stream\",call=\"acquire\",code=\"taken\"}"), 1.0);
    assert_eq!(before.value("tenure_request_seconds_count{door=\"grpc\",call=\"acquire\"}"), 3.0);
    for n in 1..=50 {
        ask_with(&mut house, &format!("other-{n}/\u{201c}quoted\""), 10_000 + 10 * n).await;
    }
    let after = read(&house.node);
    assert_eq!(after.value("tenure_requests_total{door=\"grpc\",call=\"acquire\",code=\"ok\"}"), 51.0);
    assert!(before.series.keys().eq(after.series.keys()), "the same series as before");
}

#[tokio::test]
async fn watches_are_counted_while_they_are_open() {
    let mut house = house().await;
    let mut replies = house.client.watch(v1::WatchRequest::default()).await.unwrap().into_inner();
    replies.message().await.unwrap();
    assert_eq!(read(&house.node).value("tenure_watchers"), 1.0);
    drop(replies);
    let closed = async {
        while read(&house.node).value("tenure_watchers") > 0.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closed).await.expect("a watch that was dropped ends");
}

/// A file of the project.
fn project_file(path: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The metrics that a text names, as people query them: the parts of a histogram are that histogram.
fn named(text: &str) -> BTreeSet<String> {
    let is_of_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_of_word(c)).filter(|word| word.starts_with("tenure_"));
    let whole = |word: &str| {
        let part = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| word.strip_suffix(part));
        part.unwrap_or(word).to_owned()
    };
    words.map(whole).collect()
}

#[tokio::test(start_paused = true)]
async fn the_page_and_the_dashboard_name_what_is_there_and_all_of_it() {
    let node = open(&MemoryDisk::new(), Arc::new(Simulated(Instant::now()))).await;
    node.certificate_expires("clients", 1_800_000_000);
    let there = read(&node).names();
    assert!(there.len() > 20, "{there:?}");
    assert_eq!(named(&project_file("docs/metrics.md")), there);

    let dashboard: serde_json::Value = serde_json::from_str(&project_file("packaging/grafana/tenure.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert_eq!(named(&queries.join("\n")), there);
}
