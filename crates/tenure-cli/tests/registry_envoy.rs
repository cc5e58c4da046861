//! A real Envoy that routes to agents by what Tenure tells it: whoever is dead gets no request once its lease has ended and
//! Envoy knows, and neither does whoever has left.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test stops where it is surprised, and measures how long it waits"
)]

use crate::support;
use crate::support::{PATIENCE, Server, reserved};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tenure::{Client, v1};

const SERVICE: &str = "agents/planner";

/// Says that this process is an agent, and where it is to listen.
const AGENT: &str = "TENURE_TEST_AGENT";

/// Long enough for a heartbeat on a busy machine.
const TTL_MS: i64 = 10_000;
const TTL: Duration = Duration::from_secs(10);

/// Not a test: what an agent does when this program is started as one. Its answer to every request is its own port.
#[test]
fn agent() {
    let Ok(port) = std::env::var(AGENT) else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse().unwrap())).unwrap();
    for stream in listener.incoming().flatten() {
        let port = port.clone();
        std::thread::spawn(move || answer(stream, &port));
    }
}

fn answer(mut stream: TcpStream, words: &str) -> std::io::Result<()> {
    let mut requests = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        while requests.read_line(&mut line)? > 0 && line != "\r\n" {
            line.clear();
        }
        if line.is_empty() {
            return Ok(());
        }
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{words}", words.len())?;
    }
}

/// A process with a lease that is renewed as long as the process lives.
struct Agent {
    process: Child,
    port: u16,
    lease: u64,
}

impl Agent {
    async fn start(client: &Client, id: &str) -> Self {
        let port = reserved().port();
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "registry_envoy::agent", "--nocapture"])
            .env(AGENT, port.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut agent = Self { process, port, lease: 0 };
        until("the agent listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()).await;
        let details = v1::Details { endpoints: vec![format!("http://127.0.0.1:{port}")], ..Default::default() };
        let request = v1::RegisterRequest {
            service: SERVICE.into(),
            id: id.into(),
            grant: Some(v1::GrantRequest { ttl_ms: TTL_MS, holder: id.into(), ..Default::default() }),
            details: Some(details),
            ..Default::default()
        };
        agent.lease = client.register_instance(request).await.unwrap().lease;
        agent
    }

    async fn beat(&mut self, client: &Client) {
        if self.process.try_wait().unwrap().is_none() {
            client.renew(v1::RenewRequest { leases: vec![self.lease], ..Default::default() }).await.unwrap();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for something, and lets others work meanwhile.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An Envoy by the configuration of docs/envoy.md, on ports of its own. Dropping it kills it.
struct Envoy {
    process: Child,
    admin: u16,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Envoy {
    fn start(program: &Path, tenure: SocketAddr, api_type: &str) -> Self {
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/envoy.md")).unwrap();
        let mut config = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap().to_owned();
        let (admin, port) = (reserved().port(), reserved().port());
        for (said, meant) in [
            ("port_value: 9901", format!("port_value: {admin}")),
            ("port_value: 10000", format!("port_value: {port}")),
            ("port_value: 7420", format!("port_value: {}", tenure.port())),
            ("api_type: DELTA_GRPC", format!("api_type: {api_type}")),
        ] {
            assert_eq!(config.matches(said).count(), 1, "docs/envoy.md says {said} once");
            config = config.replace(said, &meant);
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("envoy.yaml");
        std::fs::write(&file, config).unwrap();
        let log = std::fs::File::create(directory.path().join("log")).unwrap();
        let process = Command::new(program)
            .arg("-c")
            .arg(&file)
            .args(["--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process, admin, port, _directory: directory }
    }

    /// The ports of the agents that Envoy knows.
    fn knows(&self) -> BTreeSet<u16> {
        let (_, text) = get(self.admin, "/clusters").unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.strip_prefix("planner::127.0.0.1:"));
        lines.filter_map(|line| line.split("::").next()?.parse().ok()).collect()
    }

    /// Who answers requests, of many.
    fn answered_by(&self) -> BTreeSet<(u16, String)> {
        (0..60).map(|_| get(self.port, "/").unwrap_or_default()).collect()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The status and the body of an answer.
fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: agents\r\nconnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
}

/// How an instance has ended; nothing while it lives.
async fn end_of(client: &Client, id: &str) -> Option<v1::End> {
    let request = v1::ShowInstanceRequest { service: SERVICE.into(), id: id.into(), stale: false };
    let shown = client.show_instance(request).await.unwrap();
    shown.living.is_none().then(|| shown.past[0].end.clone().unwrap())
}

fn envoy() -> Option<PathBuf> {
    support::etcd::fetched("envoy/bin/envoy")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_is_dead_or_has_left_gets_no_request_by_deltas() {
    route("DELTA_GRPC").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_is_dead_or_has_left_gets_no_request_by_the_state_of_the_world() {
    route("GRPC").await;
}

async fn route(api_type: &str) {
    let Some(program) = envoy() else { return };
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let address: SocketAddr = server.addr.trim_start_matches("http://").parse().unwrap();
    let client = server.client().await;
    let mut agents = Vec::new();
    for id in ["a", "b", "c"] {
        agents.push(Agent::start(&client, id).await);
    }
    let [a, b, c] = [0, 1, 2].map(|at| (agents[at].port, agents[at].process.id(), agents[at].lease));
    let beating = server.client().await;
    tokio::spawn(async move {
        loop {
            for agent in &mut agents {
                agent.beat(&beating).await;
            }
            tokio::time::sleep(TTL / 6).await;
        }
    });
    let envoy = Envoy::start(&program, address, api_type);
    let alive = |ports: &[u16]| -> BTreeSet<u16> { ports.iter().copied().collect() };
    let answers = |ports: &[u16]| -> BTreeSet<(u16, String)> { ports.iter().map(|p| (200, p.to_string())).collect() };
    until("Envoy knows all agents", || envoy.knows() == alive(&[a.0, b.0, c.0])).await;
    until("all agents are routed to", || envoy.answered_by() == answers(&[a.0, b.0, c.0])).await;

    // Killed: it stays in the ledger until its lease has ended, and then Envoy is told.
    assert!(Command::new("kill").args(["-9", &a.1.to_string()]).status().unwrap().success());
    let end = support::soon("the lease of the dead ends", async {
        loop {
            match end_of(&client, "a").await {
                Some(end) => return end,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    assert_eq!(end.await.how, "expired");
    let ended = Instant::now();
    until("Envoy forgets the dead", || envoy.knows() == alive(&[b.0, c.0])).await;
    println!("{api_type}: Envoy knew {:?} after the lease of the dead was seen to have ended", ended.elapsed());
    // Whoever came to where it was would be heard.
    let grave = TcpListener::bind((Ipv4Addr::LOCALHOST, a.0)).unwrap();
    grave.set_nonblocking(true).unwrap();
    until("its worker knows it, too", || envoy.answered_by() == answers(&[b.0, c.0])).await;
    while grave.accept().is_ok() {}
    assert_eq!(envoy.answered_by(), answers(&[b.0, c.0]));
    assert!(grave.accept().is_err(), "a request went to the dead");

    // Left: its process still listens, and answers if it is asked.
    let leave = v1::DeregisterRequest { service: SERVICE.into(), id: "b".into(), lease: b.2, ..Default::default() };
    let left = Instant::now();
    client.deregister(leave).await.unwrap();
    until("Envoy forgets who left", || envoy.knows() == alive(&[c.0])).await;
    println!("{api_type}: Envoy knew {:?} after one was asked to be taken out", left.elapsed());
    until("its worker knows it, too", || envoy.answered_by() == answers(&[c.0])).await;
    assert!(end_of(&client, "c").await.is_none(), "the last one was kept alive all the time");
    // For longer than an assignment may be relied on, nothing changes, and Envoy does not forget.
    let lasting = TTL + Duration::from_secs(6);
    let start = Instant::now();
    while start.elapsed() < lasting {
        assert_eq!(envoy.answered_by(), answers(&[c.0]));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
