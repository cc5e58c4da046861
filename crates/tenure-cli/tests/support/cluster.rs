//! A cluster of real processes. Every byte between two of them goes through the test, which can hold it back: by pair and
//! by direction, as a network that loses packets would.

use super::{PATIENCE, Server, binary, reserved};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tempfile::TempDir;
use tenure::{Client, v1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Which node cannot send to which.
type Cuts = Vec<(u64, u64)>;

/// What the wires know of the nodes: their processes, and what is cut.
#[derive(Clone)]
struct Wires {
    cuts: watch::Sender<Cuts>,
    pids: Arc<Mutex<BTreeMap<u64, String>>>,
}

pub struct Cluster {
    home: TempDir,
    nodes: BTreeMap<u64, Server>,
    plans: BTreeMap<u64, Plan>,
    wires: Wires,
    flags: Vec<String>,
    /// What each node finds in its environment beside ours.
    environment: BTreeMap<u64, Vec<(String, String)>>,
    /// The faults that were injected, by their kind.
    pub faults: BTreeMap<&'static str, u64>,
}

/// Where a node is.
#[derive(Clone)]
struct Plan {
    client: SocketAddr,
    peer: SocketAddr,
    /// Where its peers find it: at the test.
    wire: SocketAddr,
}

impl Cluster {
    /// Plans for so many nodes; none runs yet.
    pub async fn plan(size: u64, flags: &[&str]) -> Self {
        let wires = Wires { cuts: watch::Sender::new(Vec::new()), pids: Arc::default() };
        let mut plans = BTreeMap::new();
        for node in 1..=size {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let plan = Plan { client: reserved(), peer: reserved(), wire: listener.local_addr().unwrap() };
            tokio::spawn(forward_all(listener, node, plan.peer, wires.clone()));
            plans.insert(node, plan);
        }
        Self {
            home: TempDir::new().unwrap(),
            nodes: BTreeMap::new(),
            plans,
            wires,
            flags: flags.iter().map(ToString::to_string).collect(),
            environment: BTreeMap::new(),
            faults: BTreeMap::new(),
        }
    }

    /// A cluster of so many that is ready.
    pub async fn start(size: u64) -> Self {
        Self::start_shimmed(size, |_, _| Vec::new()).await
    }

    /// The same, where each node finds this in its environment; it is told where its data is to be.
    pub async fn start_shimmed(size: u64, shim: impl Fn(u64, &Path) -> Vec<(String, String)>) -> Self {
        let mut cluster = Self::plan(size, &["--election-timeout", "1s"]).await;
        cluster.environment = (1..=size).map(|node| (node, shim(node, &cluster.directory(node)))).collect();
        for node in 1..=size {
            cluster.begin(node);
        }
        cluster.all_ready();
        cluster
    }

    pub fn directory(&self, node: u64) -> PathBuf {
        self.home.path().join(node.to_string())
    }

    pub fn wire(&self, node: u64) -> String {
        self.plans[&node].wire.to_string()
    }

    /// Starts a node as one of all, and does not wait for it.
    pub fn begin(&mut self, node: u64) {
        let peers: Vec<String> = self.plans.iter().map(|(node, plan)| format!("{node}={}", plan.wire)).collect();
        self.begin_with(node, &["--peers", &peers.join(",")]);
    }

    pub fn begin_with(&mut self, node: u64, more: &[&str]) {
        let plan = &self.plans[&node];
        let mut command = Command::new(binary());
        command.args(["serve", "--node-id", &node.to_string(), "--listen", &plan.client.to_string()]);
        command.args(["--peer-listen", &plan.peer.to_string(), "--peer-advertise", &plan.wire.to_string()]);
        command.args(&self.flags).args(more).arg("--data-dir").arg(self.directory(node));
        command.envs(self.environment.get(&node).into_iter().flatten().cloned());
        let server = Server::begin(command, format!("http://{}", plan.client));
        self.wires.pids.lock().unwrap().insert(node, server.pid());
        self.nodes.insert(node, server);
    }

    pub fn all_ready(&self) {
        self.nodes.values().for_each(Server::until_ready);
    }

    pub fn node(&self, node: u64) -> &Server {
        &self.nodes[&node]
    }

    pub fn living(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// Notes a fault that the test did by itself.
    pub fn count(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub fn kill9(&mut self, node: u64) {
        self.count("kill -9");
        self.nodes.remove(&node).unwrap().kill9();
    }

    pub fn kill9_all(&mut self) {
        for node in self.living() {
            self.nodes[&node].signal("STOP");
        }
        for node in self.living() {
            self.kill9(node);
        }
    }

    pub fn stop(&mut self, node: u64) -> ExitStatus {
        self.count("stop");
        self.nodes.remove(&node).unwrap().stop()
    }

    /// Waits for a node that ends by itself, and gives how, and what it said.
    pub fn ended(&mut self, node: u64, last_words: &str) -> (ExitStatus, String) {
        let mut server = self.nodes.remove(&node).unwrap();
        server.until_said(last_words);
        (server.ends(), server.words())
    }

    /// Hands the lead to a node, as an operator does, unless it leads.
    pub async fn hand_to(&self, node: u64) {
        let start = Instant::now();
        while self.leader().await != node {
            let output = self.nodes[&node].tenure(&["cluster", "transfer", &node.to_string()]);
            assert!(start.elapsed() < PATIENCE, "node {node} never leads: {output:?}");
        }
    }

    pub fn pause(&mut self, node: u64) {
        self.count("pause");
        self.nodes[&node].signal("STOP");
    }

    pub fn go_on(&self, node: u64) {
        self.nodes[&node].signal("CONT");
    }

    /// Loses everything that one node sends to another from now on.
    pub fn cut(&mut self, from: u64, to: u64) {
        self.count("cut");
        self.wires.cuts.send_modify(|cuts| cuts.push((from, to)));
    }

    /// Cuts a node off from all others, both ways.
    pub fn isolate(&mut self, node: u64) {
        for other in self.plans.keys().copied().filter(|other| *other != node).collect::<Vec<_>>() {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    pub fn heal(&self) {
        self.wires.cuts.send_replace(Vec::new());
    }

    /// All addresses, the given node first.
    pub fn addrs_from(&self, first: u64) -> String {
        let others = self.plans.keys().filter(|node| **node != first);
        let addrs: Vec<String> =
            [&first].into_iter().chain(others).map(|node| format!("http://{}", self.plans[node].client)).collect();
        addrs.join(",")
    }

    /// A client of the whole cluster.
    pub async fn client(&self) -> Client {
        let first = self.living()[0];
        Client::connect(&self.addrs_from(first)).await.unwrap()
    }

    /// A client of one node.
    pub async fn client_of(&self, node: u64) -> Client {
        Client::connect(&format!("http://{}", self.plans[&node].client)).await.unwrap()
    }

    /// The same, of one that has just begun.
    pub async fn client_of_when_up(&self, node: u64) -> Client {
        let start = Instant::now();
        loop {
            match Client::connect(&format!("http://{}", self.plans[&node].client)).await {
                Ok(client) => return client,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    pub async fn status(&self, node: u64) -> Option<v1::StatusReply> {
        self.nodes.get(&node)?;
        let address = format!("http://{}", self.plans[&node].client);
        let asked = async { Client::connect(&address).await.ok()?.status(v1::StatusRequest {}).await.ok() };
        tokio::time::timeout(std::time::Duration::from_secs(2), asked).await.ok().flatten()
    }

    /// Waits until one of these leads and all of them say so.
    pub async fn leader_among(&self, nodes: &[u64]) -> u64 {
        let start = Instant::now();
        loop {
            let mut leaders = Vec::new();
            for node in nodes {
                leaders.push(self.status(*node).await.map_or(0, |status| status.leader));
            }
            let leader = leaders[0];
            if nodes.contains(&leader)
                && leaders.iter().all(|other| *other == leader)
                && self.status(leader).await.is_some_and(|status| status.leads)
            {
                return leader;
            }
            assert!(start.elapsed() < PATIENCE, "nobody leads among {nodes:?}: {leaders:?}\n{}", self.words());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    pub async fn leader(&self) -> u64 {
        self.leader_among(&self.living()).await
    }

    pub async fn followers(&self) -> Vec<u64> {
        let leader = self.leader().await;
        self.living().into_iter().filter(|node| *node != leader).collect()
    }

    /// What all nodes have said.
    pub fn words(&self) -> String {
        self.nodes.iter().map(|(node, server)| format!("--- node {node}\n{}", server.words())).collect()
    }

    /// Waits until all living nodes hold the same, to the last event.
    pub async fn are_equal(&self) {
        let start = Instant::now();
        loop {
            let mut copies = Vec::new();
            for node in self.living() {
                copies.push(copy(&self.client_of(node).await).await);
            }
            if copies.windows(2).all(|two| two[0] == two[1]) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "the replicas differ: {copies:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Prints what was done to it, and fails if that was nothing.
    pub fn tell_faults(&self) {
        println!("faults: {:?}", self.faults);
        assert!(self.faults.values().sum::<u64>() > 0, "no fault was injected");
    }
}

/// A test that fails shows what the nodes have said.
impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("faults: {:?}\n{}", self.faults, self.words());
        }
    }
}

/// A node's own copy: who holds what by which fence, which leases live, and what happened.
async fn copy(client: &Client) -> (Vec<(String, u64, u64)>, Vec<u64>, Vec<(u64, u32, String)>) {
    let request = v1::ListResourcesRequest { limit: 10_000, stale: true, ..Default::default() };
    let resources = client.list_resources(request).await.unwrap().items;
    let request = v1::ListLeasesRequest { limit: 10_000, stale: true, ..Default::default() };
    let leases = client.list_leases(request).await.unwrap().items;
    let request = v1::HistoryRequest { limit: 1_000, stale: true, ..Default::default() };
    let events = client.history(request).await.unwrap().events;
    (
        resources.into_iter().map(|it| (it.name, it.fence, it.waiting)).collect(),
        leases.into_iter().map(|it| it.lease).collect(),
        events.into_iter().map(|it| (it.revision, it.n, format!("{} {}", it.kind, it.resource))).collect(),
    )
}

async fn forward_all(listener: TcpListener, to: u64, peer: SocketAddr, wires: Wires) {
    let wire = listener.local_addr().unwrap();
    while let Ok((incoming, from)) = listener.accept().await {
        let wires = wires.clone();
        tokio::spawn(async move {
            let Some(from) = wires.owner((from, wire)).await else { return };
            let is_new_allowed = |cuts: &Cuts| !cuts.contains(&(from, to));
            let mut cuts = wires.cuts.subscribe();
            // A connection that is cut is made when the cut is healed.
            if cuts.wait_for(is_new_allowed).await.is_err() {
                return;
            }
            let Ok(outgoing) = TcpStream::connect(peer).await else { return };
            let (from_there, to_there) = incoming.into_split();
            let (from_here, to_here) = outgoing.into_split();
            tokio::join!(
                carry(from_there, to_here, (from, to), wires.cuts.subscribe()),
                carry(from_here, to_there, (to, from), wires.cuts.subscribe()),
            );
        });
    }
}

/// Both ends of a connection, the one that connected first.
type Ends = (SocketAddr, SocketAddr);

/// The number of a connection that no node has made: a test did.
const STRANGER: u64 = 0;

impl Wires {
    /// The node whose process has made this connection. None: no process has it open any longer. A connection without an owner
    /// must not be carried: no cut would hold it back.
    async fn owner(&self, ends: Ends) -> Option<u64> {
        let is_ours = |pid: &str, socket: &str| {
            let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|link| link.to_string_lossy() == socket)
        };
        let start = Instant::now();
        loop {
            // The kernel's list is not read in one piece, and a process may have begun a moment ago.
            if let Some(socket) = socket_of(ends) {
                let pids = self.pids.lock().unwrap().clone();
                let node = pids.iter().find(|(_, pid)| is_ours(pid, &socket)).map(|(node, _)| *node);
                if node.is_some() || is_ours("self", &socket) {
                    return node.or(Some(STRANGER));
                }
            }
            if start.elapsed() > PATIENCE / 10 {
                return None;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

/// What the end that connected is called among the open files of its process. Both ends are compared: another connection to another
/// address may have had the same port, and is listed for a while after it was closed.
fn socket_of((from, to): Ends) -> Option<String> {
    let listed = |address: SocketAddr| match address.ip() {
        std::net::IpAddr::V4(ip) => format!("{:08X}:{:04X}", u32::from_le_bytes(ip.octets()), address.port()),
        std::net::IpAddr::V6(_) => unreachable!("wires listen at 127.0.0.1"),
    };
    let sockets = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let (from, to) = (listed(from), listed(to));
    let mut lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|line| line.get(1) == Some(&from.as_str()) && line.get(2) == Some(&to.as_str()))?;
    Some(format!("socket:[{}]", line.get(9)?))
}

/// Carries bytes one way. What is cut waits, as it would for packets that are sent again and again.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: (u64, u64), mut cuts: watch::Receiver<Cuts>) {
    let mut bytes = vec![0; 65_536];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        if cuts.wait_for(|cuts| !cuts.contains(&way)).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
