//! Agents for tests: `tenure register` and `tenure discover` as processes, with what they print.

use super::{PATIENCE, binary};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A command that runs, and what it has printed. Dropping it kills it.
pub struct Agent {
    child: Child,
    out: TempDir,
}

impl Agent {
    pub fn start(addr: &str, args: &[&str]) -> Self {
        let out = tempfile::tempdir().unwrap();
        let file = |name: &str| File::create(out.path().join(name)).unwrap();
        let mut command = Command::new(binary());
        command.args(args).env("TENURE_ADDR", addr).env("USER", "ann").env("OUT", out.path()).stdin(Stdio::null());
        let child = command.stdout(file("stdout")).stderr(file("stderr")).spawn().unwrap();
        Self { child, out }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.out.path().join(name)
    }

    /// What it has written to a file by now; `stdout` and `stderr` are two of them.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has what is looked for, and gives it.
    pub fn until(&self, name: &str, is_there: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let text = self.read(name);
            if is_there(&text) {
                return text;
            }
            assert!(start.elapsed() < PATIENCE, "{name} never came: {text:?}, {}", self.read("stderr"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub fn ends(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it still runs: {}", self.read("stderr"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
