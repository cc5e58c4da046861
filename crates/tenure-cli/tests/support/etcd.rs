//! Real etcd servers for tests, from the package that `make test` unpacks. Never a test.

use super::reserved;
use super::{PATIENCE, Server};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The etcd that others are held against. Only 3.5 will do: older ones answer otherwise here and there.
pub fn reference() -> Option<PathBuf> {
    let program = tool("etcd")?;
    let version = Command::new(&program).arg("--version").output().unwrap();
    needed(super::text(&version.stdout).contains("etcd Version: 3.5."), "etcd 3.5").then_some(program)
}

/// A program of the etcd packages.
pub fn tool(name: &str) -> Option<PathBuf> {
    fetched(&format!("etcd/usr/bin/{name}"))
}

/// Something that `make test` fetches.
pub fn fetched(path: &str) -> Option<PathBuf> {
    let path = tools().join(path);
    needed(path.exists(), path.to_str().unwrap()).then_some(path)
}

/// Without what it needs a test is skipped, but never in CI.
fn needed(found: bool, what: &str) -> bool {
    assert!(found || std::env::var_os("CI").is_none(), "CI needs {what}: scripts/fetch-deb, scripts/need-etcd-clients");
    if !found {
        println!("skipped: {what} is missing; `make test` fetches it");
    }
    found
}

/// Where `make test` puts what is not the system's.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools")
}

/// A server that speaks etcd's dialect, with its data. Dropping it kills it.
pub struct Peer {
    pub name: &'static str,
    /// `http://host:port`.
    pub endpoint: String,
    _process: Process,
    _data: TempDir,
}

enum Process {
    Etcd(Child),
    Tenure(#[expect(dead_code, reason = "kept for its end")] Server),
}

impl Peer {
    /// The server under test: `tenure`, or the etcd that `TENURE_SECOND_ETCD` names, to test the tests.
    pub fn under_test() -> Self {
        match std::env::var_os("TENURE_SECOND_ETCD") {
            Some(program) => Self::etcd(Path::new(&program)),
            None => Self::tenure(),
        }
    }

    fn tenure() -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = Server::start(data.path());
        let endpoint = format!("http://{}", server.addr.trim_start_matches("http://"));
        Self { name: "tenure", endpoint, _process: Process::Tenure(server), _data: data }
    }

    /// A real etcd. Two ports are free when it is asked to take them; should another program be faster, it is asked again.
    pub fn etcd(program: &Path) -> Self {
        for _ in 0..5 {
            if let Some(peer) = Self::try_etcd(program) {
                return peer;
            }
        }
        panic!("{} does not start", program.display());
    }

    fn try_etcd(program: &Path) -> Option<Self> {
        let data = tempfile::tempdir().unwrap();
        let [endpoint, peers] = [(); 2].map(|()| format!("http://{}", reserved()));
        let mut child = Command::new(program)
            .args(["--name", "one", "--log-level", "error", "--unsafe-no-fsync", "--data-dir"])
            .arg(data.path())
            .args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("one={peers}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !is_healthy(&endpoint) {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(start.elapsed() < PATIENCE, "etcd is not healthy");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { name: "etcd", endpoint, _process: Process::Etcd(child), _data: data })
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        self.endpoint.trim_start_matches("http://")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Self::Etcd(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn is_healthy(endpoint: &str) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = TcpStream::connect(endpoint.trim_start_matches("http://")) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut answer = String::new();
    let asked = stream.write_all(b"GET /health HTTP/1.0\r\n\r\n");
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(r#""health":"true""#)
}
