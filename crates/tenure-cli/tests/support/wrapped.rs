//! Commands under `tenure run` for tests: what they write down, who of their group lives, how they end.

use super::{PATIENCE, Server, binary};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A script under `tenure run`. It finds a directory to write to in `$OUT`, where it may also wait for the file `end`.
/// Dropping it kills it, with its group and its guard.
pub struct Wrapped {
    child: Child,
    out: TempDir,
}

/// What every script begins with: the number of its group, and a way to wait for a file.
const PREFACE: &str = r#"
    note() { echo "$2" > "$OUT/$1.new"; mv "$OUT/$1.new" "$OUT/$1"; }
    until_there() { until [ -e "$OUT/$1" ]; do sleep 0.02; done; }
    note group $$
"#;

impl Wrapped {
    pub fn start(server: &Server, flags: &[&str], script: &str) -> Self {
        let out = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary());
        command.arg("run").args(flags).args(["--", "bash", "-c"]).arg(format!("{PREFACE}\n{script}"));
        command.env("TENURE_ADDR", &server.addr).env("OUT", out.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(out.path().join("words")).unwrap());
        Self { child: command.spawn().unwrap(), out }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.out.path().join(name)
    }

    /// What the script has written to a file by now.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has what is looked for, and gives it.
    pub fn until(&self, name: &str, is_there: impl Fn(&str) -> bool) -> String {
        until(&format!("{name}: {:?}, {}", self.read(name), self.read("words")), || is_there(&self.read(name)));
        self.read(name)
    }

    /// Lets a script that waits for it end.
    pub fn let_end(&self) {
        fs::write(self.path("end"), "").unwrap();
    }

    /// The group of the script, which has started by then.
    pub fn group(&self) -> i32 {
        self.until("group", |text| text.ends_with('\n')).trim().parse().unwrap()
    }

    /// The guard of the script's group, if there is one now.
    pub fn guard(&self) -> Option<i32> {
        let (us, words) = (self.child.id().to_string(), format!("guard-group\0{}\0", self.group()));
        let is_guard = |process: &Process| {
            let line = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            process.parent.to_string() == us && String::from_utf8_lossy(&line).contains(&words)
        };
        processes().iter().find(|process| process.is_living && is_guard(process)).map(|process| process.pid)
    }

    /// Sends a signal to the wrapper.
    pub fn signal(&self, name: &str) {
        signal(name, &self.child.id().to_string());
    }

    /// Waits for the end of the wrapper, and gives its exit code and what it said.
    pub fn ends(&mut self) -> (Option<i32>, String) {
        let mut code = None;
        until(&format!("the end of the wrapper: {}", self.read("words")), || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        (code.unwrap().code(), self.read("words"))
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Ok(group) = self.read("group").trim().parse::<i32>() {
            let gone =
                Command::new("kill").args(["-s", "KILL", "--", &format!("-{group}")]).stderr(Stdio::null()).status();
            let _ = gone;
        }
    }
}

/// Waits until it is so, looking again and again.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_or(|| what.to_owned(), is_so);
}

/// The same; if the words never come, the failure shows the text as it is then.
pub fn until_or(what: impl Fn() -> String, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{} never came", what());
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn signal(name: &str, to: &str) {
    assert!(Command::new("kill").args(["-s", name, "--", to]).status().unwrap().success());
}

/// A process as the kernel sees it.
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub state: char,
    /// It has not exited.
    pub is_living: bool,
}

pub fn processes() -> Vec<Process> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("stat"));
    let process = |line: String| {
        let (name, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let state = fields[0].chars().next()?;
        Some(Process {
            pid: name.split(' ').next()?.parse().ok()?,
            parent: fields[1].parse().ok()?,
            group: fields[2].parse().ok()?,
            state,
            is_living: !matches!(state, 'Z' | 'X'),
        })
    };
    names.filter_map(|path| fs::read_to_string(path).ok()).filter_map(process).collect()
}

/// How many of a group run.
pub fn living(group: i32) -> usize {
    processes().iter().filter(|process| process.group == group && process.is_living).count()
}

/// Whether the first of a group is stopped.
pub fn is_stopped(group: i32) -> bool {
    processes().iter().any(|process| process.pid == group && process.state == 'T')
}
