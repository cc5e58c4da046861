//! Server processes, each on a fresh data directory.

use crate::Failure;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A server of one node or of several, and its data, gone when dropped.
pub(crate) struct Server {
    /// Where its leader is asked.
    pub(crate) addr: String,
    pub(crate) nodes: Vec<Node>,
}

/// A process, and where it is.
pub(crate) struct Node {
    pub(crate) addr: String,
    pub(crate) process: Child,
    _data: TempDir,
}

/// What a node is started with.
pub(crate) struct Seat {
    /// From 1 on.
    pub(crate) number: usize,
    pub(crate) port: u16,
    pub(crate) data: String,
    /// The ports at which all nodes listen for each other, in the order of their numbers.
    pub(crate) peers: Vec<u16>,
}

impl Server {
    /// Starts `binary` so many times with the arguments that `args` makes of a seat, and waits until all listen.
    pub(crate) async fn start(
        binary: &Path,
        below: &Path,
        nodes: usize,
        args: impl Fn(Seat) -> Vec<String>,
    ) -> Result<Self, Failure> {
        let peers = (0..nodes).map(|_| free_port()).collect::<Result<Vec<_>, _>>()?;
        let mut started = Vec::new();
        for number in 1..=nodes {
            let data = tempfile::Builder::new().prefix("bench-").tempdir_in(below)?;
            let port = free_port()?;
            let directory = data.path().join("data").to_string_lossy().into_owned();
            let mut command = Command::new(binary);
            command.args(args(Seat { number, port, data: directory, peers: peers.clone() }));
            let process = command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
            started.push(Node { addr: format!("http://127.0.0.1:{port}"), process, _data: data });
        }
        for node in &started {
            listens(&node.addr).await.map_err(|error| format!("{}: {error}", binary.display()))?;
        }
        Ok(Self { addr: started[0].addr.clone(), nodes: started })
    }

    /// All addresses, for a client that goes on to the next.
    pub(crate) fn addrs(&self) -> String {
        self.nodes.iter().map(|node| node.addr.as_str()).collect::<Vec<_>>().join(",")
    }
}

async fn listens(addr: &str) -> Result<(), Failure> {
    let start = Instant::now();
    while tonic::transport::Endpoint::from_shared(addr.to_owned())?.connect().await.is_err() {
        if start.elapsed() > PATIENCE {
            return Err("it does not listen".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Nothing that is waited for takes this long unless it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

fn free_port() -> Result<u16, Failure> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
