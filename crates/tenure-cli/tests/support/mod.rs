//! Real servers for tests: started, asked, stopped, killed. Never a test.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "each test file uses its own part of this"
)]

pub mod agents;
pub mod cluster;
pub mod etcd;
pub mod load;

pub mod raw;
pub mod shim;
pub mod terminal;
pub mod wrapped;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure::Client;
pub use tenure_testkit::ports::reserved;
pub use tenure_testkit::{
    PATIENCE, acquire, claim, deadlines, grant, http, proxy, renew, resources, revoke, soon, until, until_so,
};

pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_tenure")
}

/// How often the long tests go round: `make soak` asks for more.
pub fn rounds(few: u64) -> u64 {
    std::env::var("TENURE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(few)
}

/// Whether a tool is there. Without it the test is skipped, but never in CI.
pub fn have(tool: &str) -> bool {
    let found = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "CI needs the Debian package {tool}");
    if !found {
        println!("skipped: the Debian package {tool} is missing");
    }
    found
}

/// A server process. Dropping it kills it.
pub struct Server {
    child: Child,
    pub addr: String,
    words: Arc<Mutex<String>>,
}

impl Server {
    pub fn start(directory: &Path) -> Self {
        Self::start_under(&[], directory)
    }

    /// Starts a server where one was before.
    pub fn start_at(directory: &Path, address: &str) -> Self {
        Self::spawn(&[], directory, address)
    }

    /// Starts a server under another program, such as strace with a fault to inject.
    pub fn start_under(wrapper: &[&str], directory: &Path) -> Self {
        // A port of its own, so that a later server can have the same address.
        Self::spawn(wrapper, directory, &reserved().to_string())
    }

    fn spawn(wrapper: &[&str], directory: &Path, listen: &str) -> Self {
        let mut words = wrapper.iter().copied().chain([binary()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).args(["serve", "--listen", listen, "--data-dir"]).arg(directory);
        Self::run(command)
    }

    /// Starts a server by these flags alone.
    pub fn start_with(flags: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command.arg("serve").args(flags);
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        // What is looked for below are the words for people.
        command.env("TENURE_LOG_FORMAT", "text");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let words = Arc::new(Mutex::new(String::new()));
        let mut addr = None;
        let mut ready = false;
        while !ready {
            let mut line = String::new();
            if stderr.read_line(&mut line).unwrap() == 0 {
                panic!("the server did not start: {}", words.lock().unwrap());
            }
            addr = addr.or_else(|| Some(line.split("listening  ").nth(1)?.trim().to_owned()));
            ready = line.contains("ready      in");
            words.lock().unwrap().push_str(&line);
        }
        let heard = words.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                heard.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self { child, addr: addr.expect("the banner names the address"), words }
    }

    /// Starts a server whose address is known, and does not wait until it is ready.
    pub fn begin(mut command: Command, addr: String) -> Self {
        command.env("TENURE_LOG_FORMAT", "text");
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let words = Arc::new(Mutex::new(String::new()));
        let heard = words.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                heard.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        Self { child, addr, words }
    }

    /// Waits until a server that was begun can be used.
    pub fn until_ready(&self) {
        self.until_said("ready      in");
    }

    pub fn until_said(&self, words: &str) {
        let start = Instant::now();
        while !self.words().contains(words) {
            assert!(start.elapsed() < PATIENCE, "the server never said {words:?}: {}", self.words());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the server has said so far.
    pub fn words(&self) -> String {
        self.words.lock().unwrap().clone()
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.addr).await.unwrap()
    }

    /// The process that listens, which under a wrapper is a child of the one that was started.
    pub fn pid(&self) -> String {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().next().map_or_else(|| pid.to_string(), ToOwned::to_owned)
    }

    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args(["-s", name, &self.pid()]).status().unwrap().success());
    }

    pub fn kill9(mut self) {
        self.signal("KILL");
        self.child.wait().unwrap();
    }

    /// Stops the server as an operator does.
    pub fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        let status = self.child.wait().unwrap();
        assert!(!self.words().contains("was not sealed"), "a clean stop seals the log: {}", self.words());
        status
    }

    /// Waits for a server that was told to stop.
    pub fn stop_ended(mut self) -> ExitStatus {
        self.ends()
    }

    /// Waits for the server to end by itself.
    pub fn ends(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the server still runs: {}", self.words());
            std::thread::yield_now();
        }
    }

    /// Runs the command line against this server.
    pub fn tenure(&self, args: &[&str]) -> Output {
        Command::new(binary()).args(args).env("TENURE_ADDR", &self.addr).env("USER", "ann").output().unwrap()
    }
}

impl http::Listens for Server {
    fn addr(&self) -> &str {
        &self.addr
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = Command::new("kill").args(["-s", "KILL", &self.pid()]).status();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A process that does not outlive its test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
