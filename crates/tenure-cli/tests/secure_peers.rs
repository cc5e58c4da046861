//! Peers over TLS: three nodes that prove themselves to each other are a cluster. A node that cannot is never part of it, and no
//! node sends messages in the name of another one.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::wrapped::{signal, until, until_or};
use crate::support::{Running, binary, reserved, text};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure_server::peers::v1::answer::Body as Tell;
use tenure_server::peers::v1::peer_client::PeerClient;
use tenure_server::peers::v1::question::Body as Ask;
use tenure_server::peers::v1::{
    AppendRequest, CurrentVote, Envelope, Hello, HelloReply, LogId, Question, Vote, VoteRequest,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// A node that may still wait for its peers. Dropping it kills it.
struct Node {
    words: Arc<Mutex<String>>,
    process: Running,
}

impl Node {
    fn start(flags: &[String]) -> Self {
        let mut command = Command::new(binary());
        command.arg("serve").args(flags).env("TENURE_LOG_FORMAT", "text");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let words = Arc::new(Mutex::new(String::new()));
        let (heard, stderr) = (words.clone(), BufReader::new(child.stderr.take().unwrap()));
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| heard.lock().unwrap().push_str(&(line + "\n")));
        });
        Self { words, process: Running(child) }
    }

    fn says(&self, words: &str) -> bool {
        self.words.lock().unwrap().contains(words)
    }

    fn signal(&self, name: &str) {
        signal(name, &self.process.0.id().to_string());
    }

    fn until_it_says(&self, words: &str) {
        until_or(|| format!("{words:?} in {}", self.words.lock().unwrap()), || self.says(words));
    }
}

/// Three places on this machine.
struct Cluster {
    directory: tempfile::TempDir,
    clients: [String; 3],
    peers: [String; 3],
}

impl Cluster {
    fn new() -> Self {
        let three = || [(); 3].map(|()| reserved().to_string());
        let (clients, peers) = (three(), three());
        let cluster = Self { directory: tempfile::tempdir().unwrap(), clients, peers };
        for pki in ["pki", "foreign"] {
            let dir = cluster.file(pki);
            let made =
                types(&["cluster", "pki", "init", "--dir", &dir, "1=127.0.0.1", "2=127.0.0.1", "3=127.0.0.1"], &[]);
            assert!(made.status.success(), "{}", text(&made.stderr));
        }
        let drawn = text(&types(&["cluster", "keygen", "ann"], &[]).stdout);
        std::fs::write(cluster.path("keys"), drawn.lines().nth(1).unwrap()).unwrap();
        std::fs::write(cluster.path("secret"), drawn.lines().next().unwrap()).unwrap();
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Starts a node, with further flags, and with its data in a directory of that name.
    fn start(&self, node: usize, data: &str, more: &[String]) -> Node {
        let peers: Vec<String> = (1..).zip(&self.peers).map(|(n, at)| format!("{n}={at}")).collect();
        let flags = ["--node-id", &node.to_string(), "--peers", &peers.join(","), "--listen", &self.clients[node - 1]];
        let data = self.file(data);
        let flags = flags.into_iter().chain(["--data-dir", &data]).map(str::to_owned);
        Node::start(&flags.chain(more.iter().cloned()).collect::<Vec<_>>())
    }

    /// Shows peers the certificate of a node, by the authority of this directory.
    fn peer_tls(&self, pki: &str, node: usize) -> Vec<String> {
        let (ca, pair) = (self.file(&format!("{pki}/ca.crt")), self.file(&format!("{pki}/node-{node}")));
        let flags =
            ["--peer-tls-ca", &ca, "--peer-tls-cert", &format!("{pair}.crt"), "--peer-tls-key", &format!("{pair}.key")];
        flags.map(str::to_owned).to_vec()
    }

    /// The same, and TLS and API keys for clients.
    fn secured(&self, node: usize) -> Vec<String> {
        self.secured_by("pki", node)
    }

    /// The same, with another certificate for peers.
    fn secured_by(&self, pki: &str, node: usize) -> Vec<String> {
        let (pair, keys) = (self.file(&format!("pki/node-{node}")), self.file("keys"));
        let (cert, key) = (format!("{pair}.crt"), format!("{pair}.key"));
        let clients = ["--tls-cert", &cert, "--tls-key", &key, "--api-keys", &keys].map(str::to_owned);
        [self.peer_tls(pki, node), clients.to_vec()].concat()
    }

    /// Starts three nodes with certificates for peers from this directory, and waits until they are a cluster.
    fn begin(&self, pki: &str, more: &[&str]) -> Vec<Node> {
        let more: Vec<String> = more.iter().map(ToString::to_string).collect();
        let start = |node| self.start(node, &node.to_string(), &[self.secured_by(pki, node), more.clone()].concat());
        let nodes: Vec<Node> = (1..=3).map(start).collect();
        nodes.iter().for_each(|node| node.until_it_says("ready"));
        nodes
    }

    /// Makes certificates by the same authority, in a directory of their own: with an identity in this cluster, or with none.
    fn certify(&self, dir: &str, cluster: Option<&str>, nodes: &[&str]) {
        if !self.path(dir).exists() {
            std::fs::create_dir(self.path(dir)).unwrap();
            for file in ["ca.crt", "ca.key"] {
                std::fs::copy(self.path("pki").join(file), self.path(dir).join(file)).unwrap();
            }
        }
        let dir = self.file(dir);
        let named = cluster.map_or(vec![], |name| vec!["--cluster-name", name]);
        let made = types(&[&["cluster", "pki", "add", "--dir", &dir], &named[..], nodes].concat(), &[]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        assert_eq!(text(&made.stderr).contains("have no identity"), cluster.is_none(), "{}", text(&made.stderr));
    }

    fn cluster_name(&self) -> String {
        std::fs::read_to_string(self.path("pki/cluster-name")).unwrap().trim_end().to_owned()
    }

    /// The newest term that the cluster knows.
    fn term(&self) -> u64 {
        let status = self.types(1, &["cluster", "status", "-o", "json"]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        status["items"].as_array().unwrap().iter().filter_map(|item| item["term"].as_u64()).max().unwrap()
    }

    /// Connects to the peer port of node 1, with the certificate of a node.
    async fn peer(&self, pki: &str, node: usize) -> Peer {
        let read = |file: String| std::fs::read(self.path(pki).join(file)).unwrap();
        let identity = Identity::from_pem(read(format!("node-{node}.crt")), read(format!("node-{node}.key")));
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca.crt".into()))).identity(identity);
        let endpoint = Endpoint::from_shared(format!("https://{}", self.peers[0])).unwrap().tls_config(tls).unwrap();
        Peer(PeerClient::new(endpoint.timeout(Duration::from_secs(60)).connect().await.unwrap()))
    }

    /// Types a command at one of the nodes.
    fn types(&self, node: usize, args: &[&str]) -> Output {
        let (addr, authority, secret) =
            (format!("https://{}", self.clients[node - 1]), self.file("pki/ca.crt"), self.file("secret"));
        types(args, &[("TENURE_ADDR", &addr), ("TENURE_CA_FILE", &authority), ("TENURE_API_KEY_FILE", &secret)])
    }
}

/// A connection to the peer port of node 1.
struct Peer(PeerClient<Channel>);

impl Peer {
    /// The answer, or why there is none.
    async fn asks(&mut self, envelope: Envelope, body: Ask) -> Result<Tell, String> {
        let asked = self.0.ask(Question { envelope: Some(envelope), body: Some(body) }).await;
        asked.map(|answer| answer.into_inner().body.unwrap()).map_err(|status| status.message().to_owned())
    }

    async fn appends(&mut self, envelope: Envelope, vote: Vote) -> Result<(), String> {
        let request = AppendRequest { envelope: Some(envelope), vote: Some(vote), ..AppendRequest::default() };
        // The stream stays open, as a leader leaves it.
        let requests = tokio_stream::StreamExt::chain(tokio_stream::once(request), tokio_stream::pending());
        let replies = self.0.append(requests).await.map_err(|status| status.message().to_owned())?;
        let reply = replies.into_inner().message().await;
        reply.map(drop).map_err(|status| status.message().to_owned())
    }

    /// Says hello in the name of a node.
    async fn hello(&mut self, from: u64) -> Result<HelloReply, String> {
        match self.asks(Envelope { from, ..Envelope::default() }, Ask::Hello(Hello {})).await? {
            Tell::Hello(hello) => Ok(hello),
            other => panic!("{other:?}"),
        }
    }
}

fn types(args: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(binary()).args(args).envs(environment.iter().copied()).output().unwrap()
}

#[test]
fn three_nodes_that_prove_themselves_are_a_cluster_and_a_stranger_is_not() {
    let cluster = Cluster::new();
    let waits_for_all = format!("waiting for 1={}, 2={}", cluster.peers[0], cluster.peers[1]);
    let waits_for_it = format!("waiting for 3={}\n", cluster.peers[2]);
    // A stranger with certificates of its own authority, and one without any: each stands where node 3 is expected.
    let strangers = [cluster.peer_tls("foreign", 3), Vec::new()];
    let mut nodes = Vec::new();
    for (n, flags) in strangers.iter().enumerate() {
        let stranger = cluster.start(3, &format!("stranger-{n}"), flags);
        stranger.until_it_says(&waits_for_all);
        // The others find each other, and do not find it.
        nodes = [1, 2].map(|node| cluster.start(node, &format!("{n}-{node}"), &cluster.secured(node))).into();
        nodes.iter().for_each(|node: &Node| node.until_it_says(&waits_for_it));
        stranger.until_it_says(&waits_for_all);
        let said = stranger.words.lock().unwrap().clone();
        assert!(
            !said.contains("ready") && said.matches("waiting for").count() == said.matches(&waits_for_all).count(),
            "{said}"
        );
        assert!(nodes.iter().all(|node| !node.says("ready")), "a cluster of three does not begin with two");
        if n + 1 < strangers.len() {
            nodes.clear();
        }
    }
    nodes.push(cluster.start(3, "3", &cluster.secured(3)));
    nodes.iter().for_each(|node| node.until_it_says("ready"));
    for (node, name) in [(1, "a"), (2, "b"), (3, "c")] {
        let got = cluster.types(node, &["acquire", name, "--ttl", "1m", "--holder", "ann"]);
        assert_eq!(text(&got.stdout), format!("{name}@{node}\n"), "{}", text(&got.stderr));
    }
}

#[test]
fn cluster_status_and_doctor_reach_members_that_are_secured() {
    let cluster = Cluster::new();
    let nodes = [1, 2, 3].map(|node| cluster.start(node, &node.to_string(), &cluster.secured(node)));
    nodes.iter().for_each(|node| node.until_it_says("ready"));
    until("a status with a leader and two followers", || {
        let status = cluster.types(1, &["cluster", "status"]);
        let (seen, words) = (text(&status.stdout), text(&status.stderr));
        assert!(!seen.contains("unreachable") && !words.contains("could not be asked"), "{seen}{words}");
        assert!(words.contains("3 of 3 voting members answer; 1 of them may fail"), "{seen}{words}");
        status.status.success() && seen.matches("follows").count() == 2
    });
    let home = cluster.file("home");
    let found = text(&cluster.types(2, &["doctor", "--data-dir", &home]).stdout);
    assert!(found.contains("all 3 answer; 1 may fail"), "{found}");
}

/// What a member of the cluster writes on its messages to node 1.
fn envelope(hello: &HelloReply, from: u64, from_incarnation: u64) -> Envelope {
    let (cluster, to_incarnation) = (hello.cluster, hello.member.as_ref().unwrap().incarnation);
    Envelope { cluster, from, from_incarnation, to: 1, to_incarnation, members: None }
}

/// The number of a data directory, as its own file says.
fn incarnation(cluster: &Cluster, data: &str) -> u64 {
    let text = std::fs::read_to_string(cluster.path(data).join("identity")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("incarnation ")).unwrap();
    u64::from_str_radix(line, 16).unwrap()
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_of_a_removed_node_is_refused() {
    let cluster = Cluster::new();
    let made_at = seconds();
    let mut nodes = cluster.begin("pki", &[]);
    // It leads, so it sees its own removal through.
    let led = cluster.types(1, &["cluster", "transfer", "3"]);
    assert!(led.status.success(), "{}", text(&led.stderr));
    let removed = cluster.types(1, &["cluster", "remove", "3"]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    drop(nodes.pop());
    until("another leader", || cluster.types(1, &["cluster", "status"]).status.success());
    let (mut two, mut three) = (cluster.peer("pki", 2).await, cluster.peer("pki", 3).await);
    let hello = two.hello(2).await.unwrap();
    let term = cluster.term();
    let (incarnation_2, incarnation_3) = (incarnation(&cluster, "2"), incarnation(&cluster, "3"));
    let as_two = envelope(&hello, 2, incarnation_2);
    let higher = |node| Vote { term: term + 1_000, node, committed: false };
    let leads = |node| Vote { committed: true, ..higher(node) };
    let last = Some(LogId { term: term + 1_000, index: 1 << 40 });
    let ballot = |node| VoteRequest { vote: Some(higher(node)), last, is_transfer: true };

    // In the name of a member it is refused, whatever it asks.
    let not_two = "the certificate is for node 3, not for node 2";
    assert_eq!(three.hello(2).await, Err(not_two.into()));
    for ask in [Ask::Vote(ballot(2)), Ask::PreVote(ballot(2)), Ask::CurrentVote(CurrentVote {})] {
        assert_eq!(three.asks(as_two, ask).await, Err(not_two.into()));
    }
    assert_eq!(three.appends(as_two, leads(2)).await, Err(not_two.into()));

    // In its own name as well, also if it says that it knows of a newer membership.
    let as_three = envelope(&hello, 3, incarnation_3);
    let ahead = Envelope { members: last, ..as_three };
    let was_removed = |refused: Result<(), String>| {
        assert!(refused.as_ref().is_err_and(|why| why.starts_with("node 3 was removed, and")), "{refused:?}");
    };
    was_removed(three.hello(3).await.map(drop));
    for envelope in [as_three, ahead] {
        was_removed(three.asks(envelope, Ask::Vote(ballot(3))).await.map(drop));
        was_removed(three.appends(envelope, leads(3)).await);
    }

    // A member does not vote for another one either; what it says for itself is heard.
    let refused = two.asks(as_two, Ask::Vote(ballot(3))).await;
    assert_eq!(refused, Err("node 2 sends a vote for node 3".into()));
    let elsewhere = Envelope { from_incarnation: incarnation_2 + 1, members: last, ..as_two };
    let refused = two.asks(elsewhere, Ask::Vote(ballot(2))).await;
    assert_eq!(refused, Err("node 2 is a member with another data directory".into()));
    assert!(matches!(two.asks(as_two, Ask::CurrentVote(CurrentVote {})).await, Ok(Tell::CurrentVote(_))));
    assert_eq!(cluster.term(), term, "no term was raised");

    // The number is used again: not with the old certificate, but with a newer one.
    let join = ["--join".to_owned(), cluster.peers[0].clone()];
    let flags = |pki: &str| {
        let own = ["--node-id", "3", "--listen", &cluster.clients[2], "--peer-listen", &cluster.peers[2]];
        [own.map(str::to_owned).to_vec(), join.to_vec(), cluster.secured_by(pki, 3)].concat()
    };
    let place = format!("3={}", cluster.peers[2]);
    let old = Node::start(&[flags("pki"), vec!["--data-dir".into(), cluster.file("3-old")]].concat());
    old.until_it_says("node 3 was removed, and the certificate is not newer");
    let refused = cluster.types(1, &["cluster", "add", &place]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("node 3 was removed, and"), "{refused:?}");
    drop(old);
    until("a second later than the first certificates", || seconds() > made_at + 1);
    cluster.certify("newer", Some(&cluster.cluster_name()), &["3=127.0.0.1"]);
    let new = Node::start(&[flags("newer"), vec!["--data-dir".into(), cluster.file("3-new")]].concat());
    let added = cluster.types(1, &["cluster", "add", &place]);
    assert!(added.status.success(), "{}", text(&added.stderr));
    new.until_it_says("ready");
    was_removed(cluster.peer("pki", 3).await.hello(3).await.map(drop));
    let as_new = envelope(&hello, 3, incarnation(&cluster, "3-new"));
    was_removed(three.asks(as_new, Ask::Vote(ballot(3))).await.map(drop));
    assert!(cluster.peer("newer", 3).await.hello(3).await.is_ok());
    assert_eq!(cluster.term(), term, "no term was raised");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_cluster_is_refused_on_both_sides() {
    let cluster = Cluster::new();
    let ours = cluster.cluster_name();
    cluster.certify("other", Some("other"), &["2=127.0.0.1", "3=127.0.0.1"]);
    cluster.certify("stranger", Some(&ours), &["9=127.0.0.1"]);
    let _nodes = cluster.begin("pki", &[]);
    let why = format!("the certificate is for node 2 of cluster other, and this node belongs to cluster {ours}");
    let mut other = cluster.peer("other", 2).await;
    assert_eq!(other.hello(2).await, Err(why.clone()));
    let hello = cluster.peer("pki", 2).await.hello(2).await.unwrap();
    let as_two = envelope(&hello, 2, incarnation(&cluster, "2"));
    assert_eq!(other.asks(as_two, Ask::CurrentVote(CurrentVote {})).await, Err(why));
    // One of this cluster that is no member may say who it is, and nothing else.
    let mut stranger = cluster.peer("stranger", 9).await;
    assert!(stranger.hello(9).await.is_ok());
    let term = cluster.term();
    let vote = Some(Vote { term: term + 1_000, node: 9, committed: false });
    let ballot = VoteRequest { vote, last: None, is_transfer: true };
    let refused = stranger.asks(envelope(&hello, 9, 9), Ask::Vote(ballot)).await;
    assert_eq!(refused, Err("node 9 is no member of this cluster".into()));
    assert_eq!(cluster.term(), term);
}

#[test]
fn a_node_does_not_connect_to_one_with_the_certificate_of_another() {
    let cluster = Cluster::new();
    // By the same authority, for the same host: the one is of another cluster, the other of another number.
    cluster.certify("other", Some("other"), &["3=127.0.0.1"]);
    let _first = cluster.start(1, "1", &cluster.secured(1));
    let other = cluster.start(3, "other", &cluster.secured_by("other", 3));
    let one = cluster.start(2, "2", &cluster.secured(2));
    one.until_it_says(&format!("3={} (the certificate is for node 3 of cluster other", cluster.peers[2]));
    drop(other);
    // A node does not start with the certificate of another one.
    let wrong = cluster.start(3, "wrong", &cluster.secured_by("pki", 2));
    wrong.until_it_says("the peer certificate is for node 2, and this is node 3. Nothing was changed");
    drop(wrong);
    let right = cluster.start(3, "3", &cluster.secured(3));
    [&one, &right].iter().for_each(|node| node.until_it_says("ready"));
}

#[test]
fn certificates_without_an_identity_are_allowed_or_refused_as_was_said() {
    let cluster = Cluster::new();
    cluster.certify("nameless", None, &["1=127.0.0.1", "2=127.0.0.1", "3=127.0.0.1"]);
    // By default a new cluster refuses them, if its own certificates have one.
    let first = cluster.start(1, "1", &cluster.secured(1));
    let nameless = cluster.start(3, "nameless", &cluster.secured_by("nameless", 3));
    let refused = "has no identity (tenure://CLUSTER/node/N), and --peer-identity is `require`";
    first.until_it_says(refused);
    drop((first, nameless));
    // Where they are allowed, each peer is warned of once.
    let allow = ["--peer-identity", "allow"];
    let cluster = Cluster::new();
    cluster.certify("nameless", None, &["1=127.0.0.1", "2=127.0.0.1", "3=127.0.0.1"]);
    let nodes = cluster.begin("nameless", &allow);
    for (us, node) in (1..).zip(&nodes) {
        for peer in (1..=3).filter(|peer| *peer != us) {
            let words = format!("the certificate of node {peer} has no identity");
            node.until_it_says(&words);
            assert_eq!(node.words.lock().unwrap().matches(&words).count(), 1);
        }
        assert!(!node.says(refused));
    }
    drop(nodes);
    // The same nodes, one of which requires an identity now.
    let strict = [cluster.secured(1), vec!["--peer-identity".into(), "require".into()]].concat();
    let strict = cluster.start(1, "1", &strict);
    let lax = [cluster.secured_by("nameless", 2), allow.map(str::to_owned).to_vec()].concat();
    let _lax = cluster.start(2, "2", &lax);
    strict.until_it_says(&format!("the certificate of node 2 {refused}"));
    assert!(!strict.says("ready"));
}

#[test]
fn a_new_authority_takes_the_place_of_the_old_one_without_a_restart() {
    let cluster = Cluster::new();
    let nodes = ["1=127.0.0.1", "2=127.0.0.1", "3=127.0.0.1"];
    let init = ["cluster", "pki", "init", "--cluster-name", &cluster.cluster_name(), "--dir", &cluster.file("new")];
    assert!(types(&[&init[..], &nodes].concat(), &[]).status.success());
    let live = cluster.path("live");
    std::fs::create_dir(&live).unwrap();
    let read = |file: &str| std::fs::read_to_string(cluster.path(file)).unwrap();
    // As others see it: the file is there, whole, or is what it was.
    let put = |name: &str, text: &str| {
        std::fs::write(live.join("part"), text).unwrap();
        std::fs::rename(live.join("part"), live.join(name)).unwrap();
    };
    let put_pairs = |from: &str| {
        let names = (1..=3).flat_map(|node| ["crt", "key"].map(|end| format!("node-{node}.{end}")));
        names.for_each(|name| put(&name, &read(&format!("{from}/{name}"))));
    };
    put("ca.crt", &read("pki/ca.crt"));
    put_pairs("pki");
    let mut nodes = cluster.begin("live", &[]);
    let again = |nodes: &[Node], count: usize| {
        nodes.iter().for_each(|node| node.signal("HUP"));
        for node in nodes {
            let words = "the certificate was read again; new connections use it";
            until("the files are read again", || node.words.lock().unwrap().matches(words).count() == count);
        }
    };
    put("ca.crt", &(read("pki/ca.crt") + &read("new/ca.crt")));
    again(&nodes, 1);
    put_pairs("new");
    again(&nodes, 2);
    put("ca.crt", &read("new/ca.crt"));
    again(&nodes, 3);
    // One of them makes all of its connections again, and believes the new authority alone.
    drop(nodes.pop());
    nodes.push(cluster.start(3, "3", &cluster.secured_by("live", 3)));
    nodes[2].until_it_says("ready");
    let got = cluster.types(3, &["acquire", "a", "--ttl", "1m", "--holder", "ann"]);
    assert_eq!(text(&got.stdout), "a@1\n", "{}", text(&got.stderr));
    // The certificate of another node is none for this one, and changes nothing.
    put("node-1.crt", &read("new/node-2.crt"));
    put("node-1.key", &read("new/node-2.key"));
    nodes[0].signal("HUP");
    nodes[0].until_it_says("the certificate for peers is as it was: ");
    assert!(nodes[0].says("node-1.crt: it is for tenure://"));
}
