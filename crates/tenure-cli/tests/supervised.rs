//! A server under a supervisor: what it tells systemd, and whether what is packaged fits what is there.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops where it is surprised, and says what it skips"
)]

use crate::support::{PATIENCE, binary, text};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server that tells a socket how it is. Dropping it kills it.
struct Supervised {
    child: Child,
    socket: UnixDatagram,
}

impl Supervised {
    fn start(directory: &Path, address: &str, watchdog_usec: u64) -> Self {
        let path = directory.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = Command::new(binary());
        command.args(["serve", "--listen", address, "--data-dir"]).arg(directory.join("data"));
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", watchdog_usec.to_string()).env_remove("WATCHDOG_PID");
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, socket }
    }

    fn told(&self) -> String {
        let mut bytes = [0; 1024];
        let len = self.socket.recv(&mut bytes).expect("the server tells something");
        text(&bytes[..len]).trim().to_owned()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn systemd_is_told_when_the_server_is_ready_that_it_lives_and_when_it_stops() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut server = Supervised::start(directory.path(), &address, 200_000);
    assert_eq!(server.told(), "READY=1", "nothing is said before");
    let ping = Command::new(binary()).args(["ping", "--addr", &format!("http://{address}")]).output().unwrap();
    assert!(ping.status.success(), "ready is ready: {}", text(&ping.stderr));
    for _ in 0..3 {
        assert_eq!(server.told(), "WATCHDOG=1");
    }
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    let last = std::iter::repeat_with(|| server.told()).find(|told| told != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    assert!(server.child.wait().unwrap().success());
}

/// A file of the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(project(path)).unwrap()
}

#[test]
fn the_unit_is_one_that_systemd_takes_and_finds_well_shut() {
    if Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: the Debian package systemd is missing");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("tenure.service");
    std::fs::write(&unit, read("packaging/systemd/tenure.service").replace("/usr/bin/tenure", binary())).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
    let words = text(&verified.stderr);
    assert!(verified.status.success() && !words.contains("tenure.service:"), "{words}");
    // The scale is systemd's own, in tenths: 0 is shut, 100 is open.
    let judged =
        Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=20"]).arg(&unit).output();
    let judged = judged.unwrap();
    assert!(judged.status.success(), "{}{}", text(&judged.stdout), text(&judged.stderr));
}

#[test]
fn the_image_is_built_from_what_is_there() {
    let recipe = read("packaging/docker/Dockerfile");
    let mut copied = 0;
    for line in recipe.lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from=")) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        for from in &words[..words.len() - 1] {
            assert!(project(from).exists(), "{line}");
            copied += 1;
        }
    }
    assert!(copied > 3, "{recipe}");
    let toolchain = read("rust-toolchain.toml");
    let image = recipe.lines().find_map(|line| line.strip_prefix("FROM rust:")?.split('-').next()).unwrap();
    assert!(toolchain.contains(&format!("channel = \"{image}")), "{image}: {toolchain}");
}
