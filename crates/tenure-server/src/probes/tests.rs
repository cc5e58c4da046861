//! Probes of real sockets by real nodes: what strange targets come to, and that nobody is in the way of others.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use super::ask::Found;
use super::follow::checks;
use super::{Networks, probe};
use crate::cluster::tests::{Room, leader, open};
use crate::disk::MemoryDisk;
use crate::environment::Environment;
use crate::limits::{PROBE_QUICK, PROBES_QUICK_MAX, PROBES_SLOW_MAX};
use crate::node::Node;
use crate::workers::Workers;
use axum::body::{Body, Bytes};
use axum::http::Response;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::{
    Ask, Check, Command, Deregister, Details, Draft, Endpoint, Grant, Health, Holder, InstanceId, InstanceKey, Ledger,
    Name, On, Probe, Register, Source, Span, Ttl, Word,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(30);

/// A node that is alone, and serves.
pub(crate) async fn alone() -> Node {
    let disk = Arc::new(MemoryDisk::new());
    let environment = Environment { workers: Workers::Tasks, ..Environment::alone(disk) };
    let (node, _) = Node::open(environment).await.unwrap();
    node.ready().await.unwrap();
    node
}

async fn node(allowed: &[&str]) -> Node {
    let node = alone().await;
    tokio::spawn(probe(node.clone(), Networks::parse(allowed).unwrap()));
    node
}

fn key(id: &str) -> InstanceKey {
    InstanceKey { service: Name::parse("agents").unwrap(), id: InstanceId::parse(id).unwrap() }
}

fn http(path: &str) -> Ask {
    Ask::Http { path: path.into(), statuses: 200..=299 }
}

fn span(ms: u64) -> Span {
    Span::at_most(ms, u64::MAX).unwrap()
}

/// The shortest interval of a check, and its timeout: for targets that are probed again and again.
const QUICK: u64 = 1_000;

/// For targets that answer: also on a machine that stands still for a while.
const PATIENT: u64 = 10_000;

/// One result is enough.
fn check(ask: Ask, timeout_ms: u64) -> Check {
    let probe = Probe {
        endpoint: 0,
        ask,
        interval: span(timeout_ms.max(QUICK)),
        timeout: span(timeout_ms),
        degraded_after: 1,
        failures: 1,
        successes: 1,
    };
    Check { name: Word::parse("probe").unwrap(), source: Source::Probed(probe) }
}

async fn register(node: &Node, id: &str, endpoint: &str, check: Check) {
    let mut draft = Draft::at(vec![Endpoint::parse(endpoint).unwrap()]);
    draft.checks = vec![check];
    let (lease, holder) = (node.draw_lease(), Holder::parse("ann").unwrap());
    let grant = Grant::plain(lease, holder, Ttl::from_millis(600_000).unwrap(), 1);
    let details = Details::new(draft).unwrap();
    let register = Register { instance: key(id), epoch: None, on: On::New(grant), details, request: None };
    node.propose(Command::Register(register)).await.unwrap().unwrap();
}

/// What the check of an instance says, and in which words.
fn says(ledger: &Ledger, id: &str) -> (Health, String) {
    let instance = ledger.instance(&key(id)).unwrap();
    let (_, finding) = instance.findings().next().unwrap();
    (finding.health, finding.note.to_string())
}

/// Waits until something is so in the ledger.
async fn until(node: &Node, what: &str, is_so: impl Fn(&Ledger) -> bool) {
    let waiting = async {
        while !node.read_stale(&is_so) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

async fn until_says(node: &Node, id: &str, health: Health, words: &str) {
    until(node, &format!("{id} never was {health} with {words:?}"), |ledger| {
        let (is, note) = says(ledger, id);
        is == health && note.contains(words)
    })
    .await;
}

/// A target that does the same with every connection, and counts them.
struct Target {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Target {
    async fn new<F: Future<Output = ()> + Send + 'static>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { address, connections }
    }

    /// Answers every request with these bytes, and then reads until it is left.
    async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |mut stream| {
            let answer = answer.clone();
            async move {
                request(&mut stream).await;
                let _ = stream.write_all(&answer).await;
                while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
            }
        })
        .await
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads the head of a request.
async fn request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => read.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn well_and_ill_targets_are_told_apart() {
    let node = node(&["127.0.0.0/8"]).await;
    let well = Target::answering(OK).await;
    let ill = Target::answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    register(&node, "well", &well.url(), check(http("/healthz"), PATIENT)).await;
    register(&node, "ill", &ill.url(), check(http("/"), PATIENT)).await;
    register(&node, "open", &well.url(), check(Ask::Tcp, PATIENT)).await;
    register(&node, "gone", &format!("http://{gone}"), check(Ask::Tcp, PATIENT)).await;
    until_says(&node, "well", Health::Passing, "answered 200").await;
    until_says(&node, "ill", Health::Critical, "answered 503, not 200 to 299").await;
    until_says(&node, "open", Health::Passing, "accepts connections").await;
    until_says(&node, "gone", Health::Critical, "connection refused").await;
}

#[tokio::test]
async fn strange_targets_are_ill_and_cost_no_more_than_their_timeout() {
    let node = node(&["127.0.0.0/8"]).await;
    let hangs = Target::new(|mut stream| async move {
        request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let closes = Target::new(|stream| async move { drop(stream) }).await;
    let rubbish = Target::answering("\0\u{1}rubbish \r\n\r\n\r\n").await;
    let endless_head = Target::new(|mut stream| async move {
        request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n").await.is_ok() {}
    })
    .await;
    for (id, target) in [("hangs", &hangs), ("closes", &closes), ("rubbish", &rubbish), ("head", &endless_head)] {
        let timeout = if id == "hangs" { 600 } else { PATIENT };
        register(&node, id, &target.url(), check(http("/"), timeout)).await;
        register(&node, &format!("{id}-grpc"), &target.url(), check(Ask::Grpc { service: "".into() }, timeout)).await;
        register(&node, &format!("{id}-tls"), &target.url().replace("http", "https"), check(http("/"), timeout)).await;
    }
    until_says(&node, "hangs", Health::Critical, "no answer within 600 ms").await;
    until_says(&node, "closes", Health::Critical, "closed the connection").await;
    until_says(&node, "rubbish", Health::Critical, "does not answer in HTTP").await;
    until_says(&node, "head", Health::Critical, "does not answer in HTTP").await;
    for id in ["hangs", "closes", "rubbish", "head"] {
        until_says(&node, &format!("{id}-grpc"), Health::Critical, "").await;
        until_says(&node, &format!("{id}-tls"), Health::Critical, "").await;
    }
}

#[tokio::test]
async fn a_health_service_that_answers_for_ever_is_ill_and_not_listened_to() {
    let node = node(&["127.0.0.0/8"]).await;
    let many = Target::new(|stream| async move {
        let serve = hyper::service::service_fn(|_| async {
            // A message that says that it serves, again and again.
            let frames =
                futures::stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1])));
            let answer = Response::builder().header("content-type", "application/grpc").body(Body::from_stream(frames));
            Ok::<_, Infallible>(answer.unwrap())
        });
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(TokioIo::new(stream), serve).await;
    })
    .await;
    register(&node, "many", &many.url(), check(Ask::Grpc { service: "".into() }, PATIENT)).await;
    until_says(&node, "many", Health::Critical, "does not answer once").await;
}

#[tokio::test]
async fn no_more_than_a_little_of_an_answer_is_read() {
    let node = node(&["127.0.0.0/8"]).await;
    let written = Arc::new(AtomicUsize::new(0));
    let (count, cut) = (written.clone(), Arc::new(AtomicUsize::new(0)));
    let cuts = cut.clone();
    let large = Target::new(move |mut stream| {
        let (count, cuts) = (count.clone(), cuts.clone());
        async move {
            request(&mut stream).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 100 << 20);
            stream.write_all(head.as_bytes()).await.unwrap();
            while stream.write_all(&[0; 65_536]).await.is_ok() {
                count.fetch_add(65_536, Ordering::SeqCst);
            }
            cuts.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    // It drips for ever: its status is there, so it is well.
    let drips = Target::new(|mut stream| async move {
        request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    register(&node, "large", &large.url(), check(http("/"), PATIENT)).await;
    register(&node, "drips", &drips.url(), check(http("/"), PATIENT)).await;
    until_says(&node, "large", Health::Passing, "answered 200").await;
    until_says(&node, "drips", Health::Passing, "answered 200").await;
    until(&node, "the large answer is never cut off", |_| cut.load(Ordering::SeqCst) > 0).await;
    let each = written.load(Ordering::SeqCst) / large.count();
    assert!(each < 32 << 20, "what the kernel buffers was taken, not all: {each} bytes");
}

#[tokio::test]
async fn nobody_is_followed_elsewhere() {
    let node = node(&["127.0.0.0/8"]).await;
    let elsewhere = Target::answering(OK).await;
    let to = |place: &str| format!("HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n");
    let near = Target::answering(to(&elsewhere.url())).await;
    let secret = Target::answering(to("http://169.254.169.254/latest/meta-data/")).await;
    register(&node, "near", &near.url(), check(http("/"), PATIENT)).await;
    register(&node, "secret", &secret.url(), check(http("/"), PATIENT)).await;
    until_says(&node, "near", Health::Critical, "answered 302").await;
    until_says(&node, "secret", Health::Critical, "answered 302").await;
    assert_eq!(elsewhere.count(), 0);
}

#[tokio::test]
async fn what_is_not_allowed_is_not_touched_and_stays_unknown_with_a_note() {
    let target = Target::answering(OK).await;
    let closed = node(&[]).await;
    register(&closed, "a", &target.url(), check(http("/"), PATIENT)).await;
    until_says(&closed, "a", Health::Unknown, "--probe-allow").await;

    let open = node(&["10.0.0.0/8", "0.0.0.0/0", "::/0"]).await;
    for (id, endpoint) in [("meta", "http://169.254.169.254:80"), ("mapped", "http://[::ffff:169.254.169.254]:80")] {
        register(&open, id, endpoint, check(http("/"), PATIENT)).await;
        until_says(&open, id, Health::Unknown, "its address is never probed").await;
    }
    // A name is as good as its worst address, and this one's is not in the network.
    let other = node(&["10.0.0.0/8"]).await;
    let named = format!("http://localhost:{}", target.address.port());
    register(&other, "named", &named, check(http("/"), PATIENT)).await;
    until_says(&other, "named", Health::Unknown, "is in none of the networks").await;
    assert_eq!(target.count(), 0);
    // It is told once: only other words are news.
    let (_, note) = other.read_stale(|ledger| says(ledger, "named"));
    let mut watched =
        other.read_stale(|ledger| checks(&key("named"), ledger.instance(&key("named")).unwrap())).remove(0);
    assert_eq!(watched.verdict(&other, Found::Forbidden(note)), None);
    assert!(watched.verdict(&other, Found::Forbidden("something else".into())).is_some());
}

#[tokio::test]
async fn more_hanging_targets_than_there_is_room_for_hold_up_nobody() {
    let node = node(&["127.0.0.0/8"]).await;
    let now = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (open, peak) = (now.clone(), most.clone());
    let hangs = Target::new(move |mut stream| {
        let (open, peak) = (open.clone(), peak.clone());
        async move {
            peak.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // It never answers, and sees when it is left.
            while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
            open.fetch_sub(1, Ordering::SeqCst);
        }
    })
    .await;
    let hanging = PROBES_QUICK_MAX + PROBES_SLOW_MAX + 50;
    for number in 0..hanging {
        register(&node, &format!("h{number}"), &hangs.url(), check(http("/"), PATIENT)).await;
    }
    let well = Target::answering(OK).await;
    register(&node, "well", &well.url(), check(http("/"), QUICK)).await;
    until_says(&node, "well", Health::Passing, "").await;
    until(&node, "the others are never tried", |_| hangs.count() >= hanging).await;
    until(&node, "it is probed too seldom", |_| well.count() >= 4).await;
    // Who takes long and is well has a turn, too.
    let slow = Target::new(|mut stream| async move {
        request(&mut stream).await;
        tokio::time::sleep(PROBE_QUICK * 2).await;
        let _ = stream.write_all(OK.as_bytes()).await;
    })
    .await;
    register(&node, "slow", &slow.url(), check(http("/"), QUICK)).await;
    until_says(&node, "slow", Health::Passing, "").await;
    let most = most.load(Ordering::SeqCst);
    // What was left a moment ago is seen to be a moment later.
    assert!(most <= PROBES_SLOW_MAX + 2 * PROBES_QUICK_MAX, "{most} at once");
    assert!(most >= PROBES_SLOW_MAX, "{most} at once: the test tests nothing");
}

#[tokio::test]
async fn only_changes_go_into_the_log_and_what_goes_is_forgotten() {
    let node = node(&["127.0.0.0/8"]).await;
    let well = Target::answering(OK).await;
    register(&node, "a", &well.url(), check(http("/"), QUICK)).await;
    until_says(&node, "a", Health::Passing, "").await;
    let (revision, count) = (node.read_stale(Ledger::revision), well.count());
    until(&node, "it is not probed again", |_| well.count() >= count + 3).await;
    assert_eq!(node.read_stale(Ledger::revision), revision, "three probes said nothing new");
    // One that goes is not probed any longer, while others are.
    let other = Target::answering(OK).await;
    register(&node, "b", &other.url(), check(http("/"), QUICK)).await;
    let lease = node.read_stale(|ledger| ledger.instance(&key("a")).unwrap().lease());
    let gone = Deregister { instance: key("a"), lease: Some(lease), force: None, request: None };
    node.propose(Command::Deregister(gone)).await.unwrap().unwrap();
    until(&node, "the other is not probed", |_| other.count() >= 1).await;
    let count = well.count();
    until(&node, "the other is not probed", |_| other.count() >= 4).await;
    assert!(well.count() <= count + 1, "one may have been under way");
}

#[tokio::test]
async fn health_of_grpc_is_asked() {
    let node = node(&["127.0.0.0/8"]).await;
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("up", tonic_health::ServingStatus::Serving).await;
    reporter.set_service_status("down", tonic_health::ServingStatus::NotServing).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("grpc://{}", listener.local_addr().unwrap());
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    for id in ["up", "down", "nowhere"] {
        register(&node, id, &url, check(Ask::Grpc { service: id.into() }, PATIENT)).await;
    }
    until_says(&node, "up", Health::Passing, "it serves").await;
    until_says(&node, "down", Health::Critical, "NOT_SERVING").await;
    until_says(&node, "nowhere", Health::Critical, "NotFound").await;
}

#[tokio::test]
async fn after_a_failover_the_new_leader_probes_and_nobody_else() {
    let room = Room::default();
    let disks = [MemoryDisk::new(), MemoryDisk::new(), MemoryDisk::new()];
    let mut nodes = Vec::new();
    for (disk, number) in disks.iter().zip(1..) {
        let node = open(&room, number, disk).await;
        tokio::spawn(probe(node.clone(), Networks::parse(&["127.0.0.0/8"]).unwrap()));
        nodes.push(node);
    }
    let first = tokio::time::timeout(PATIENCE, leader(&nodes)).await.unwrap();
    let (asked, is_well) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(1)));
    let (heard, well) = (asked.clone(), is_well.clone());
    let target = Target::new(move |mut stream| {
        let (heard, well) = (heard.clone(), well.clone());
        async move {
            let head = request(&mut stream).await;
            let node = head.split("node ").nth(1).and_then(|rest| rest.split(')').next()).unwrap().to_owned();
            heard.lock().unwrap().push(node);
            let status = if well.load(Ordering::SeqCst) == 1 { "200 OK" } else { "500 No" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    register(&first, "a", &target.url(), check(http("/"), QUICK)).await;
    until_says(&first, "a", Health::Passing, "").await;
    until(&first, "it is not probed again", |_| target.count() >= 3).await;
    first.stop().await;
    let old = first.identity().node;
    assert!(asked.lock().unwrap().iter().all(|node| *node == old.to_string()), "{asked:?}");
    asked.lock().unwrap().clear();
    is_well.store(0, Ordering::SeqCst);
    let left: Vec<Node> = nodes.iter().filter(|node| node.identity().node != old).cloned().collect();
    let second = tokio::time::timeout(PATIENCE, leader(&left)).await.unwrap();
    until_says(&second, "a", Health::Critical, "answered 500").await;
    let new = second.identity().node.to_string();
    assert!(asked.lock().unwrap().iter().all(|node| *node == new || *node == old.to_string()), "{asked:?}");
    assert!(asked.lock().unwrap().contains(&new));
}
