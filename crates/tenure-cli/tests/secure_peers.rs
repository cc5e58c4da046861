//! Peers over TLS: three nodes that prove themselves to each other are a cluster; one that cannot is never part of it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::wrapped::until;
use crate::support::{Running, binary, text};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

/// A node that may still wait for its peers. Dropping it kills it.
struct Node {
    words: Arc<Mutex<String>>,
    _process: Running,
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
        Self { words, _process: Running(child) }
    }

    fn says(&self, words: &str) -> bool {
        self.words.lock().unwrap().contains(words)
    }

    fn until_it_says(&self, words: &str) {
        until(&format!("{words:?} in {}", self.words.lock().unwrap()), || self.says(words));
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
        // All six at once, so that none is given out twice.
        let bound: Vec<TcpListener> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let address = |n: usize| bound[n].local_addr().unwrap().to_string();
        let (clients, peers) = ([0, 1, 2].map(address), [3, 4, 5].map(address));
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
        let (pair, keys) = (self.file(&format!("pki/node-{node}")), self.file("keys"));
        let (cert, key) = (format!("{pair}.crt"), format!("{pair}.key"));
        let clients = ["--tls-cert", &cert, "--tls-key", &key, "--api-keys", &keys].map(str::to_owned);
        [self.peer_tls("pki", node), clients.to_vec()].concat()
    }

    /// Types a command at one of the nodes.
    fn types(&self, node: usize, args: &[&str]) -> Output {
        let (addr, authority, secret) =
            (format!("https://{}", self.clients[node - 1]), self.file("pki/ca.crt"), self.file("secret"));
        types(args, &[("TENURE_ADDR", &addr), ("TENURE_CA_FILE", &authority), ("TENURE_API_KEY_FILE", &secret)])
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
