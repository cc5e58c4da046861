//! Lies to one process about its clocks and its disk, by a small library that is loaded before all others (`shim.c`).
//! Whoever uses it has to see that the lie is believed.

use super::PATIENCE;
use super::cluster::Cluster;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a process finds in its environment.
pub type Environment = Vec<(String, String)>;

/// The library, and where disks are said to be full.
pub struct Shim {
    home: TempDir,
}

impl Shim {
    /// Compiles the library. A C compiler is wherever Rust links.
    pub fn build() -> Self {
        let home = TempDir::new().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/shim.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(home.path().join("shim.so"));
        let status = compiler.arg(source).arg("-ldl").status().unwrap();
        assert!(status.success(), "the shim is not compiled");
        Self { home }
    }

    fn with(&self, variables: &[(&str, String)]) -> Environment {
        let library = ("LD_PRELOAD", self.home.path().join("shim.so").display().to_string());
        [library].iter().chain(variables).map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    /// Clocks that run at this rate.
    pub fn rate(&self, rate: f64) -> Environment {
        self.with(&[("SHIM_RATE", rate.to_string())])
    }

    /// A wall clock that is off by so many seconds.
    pub fn wall(&self, off_s: i64) -> Environment {
        self.with(&[("SHIM_WALL_S", off_s.to_string())])
    }

    /// A disk that this node's data is on, and that can be full.
    pub fn disk(&self, node: u64, data: &Path) -> Environment {
        let flag = self.flag(node).display().to_string();
        self.with(&[("SHIM_FULL", flag), ("SHIM_BELOW", data.display().to_string())])
    }

    fn flag(&self, node: u64) -> PathBuf {
        self.home.path().join(format!("{node} is full"))
    }

    /// Nothing more goes onto that disk.
    pub fn fill(&self, node: u64) {
        std::fs::write(self.flag(node), "").unwrap();
    }

    /// There is room on that disk again.
    pub fn make_room(&self, node: u64) {
        std::fs::remove_file(self.flag(node)).unwrap();
    }
}

/// A reading of a leader's service time, and between which readings of our own clock it was made.
struct Reading {
    asked: Instant,
    told: Instant,
    term: u64,
    /// With what was dropped: what its monotonic clock has counted.
    counted_ms: u64,
}

/// Reads the clock of a node that leads, after it was made to.
async fn read(cluster: &Cluster, node: u64) -> Reading {
    loop {
        cluster.hand_to(node).await;
        let asked = Instant::now();
        if let Some(status) = cluster.status(node).await.filter(|status| status.leads) {
            let (told, counted_ms) = (Instant::now(), status.now_ms + status.dropped_ms);
            return Reading { asked, told, term: status.term, counted_ms };
        }
    }
}

/// The same, once its time runs: a leadership begins with a step in which it stands still.
async fn read_running(cluster: &Cluster, node: u64) -> Reading {
    loop {
        let first = read(cluster, node).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let last = read(cluster, node).await;
        let passed_ms = last.asked.duration_since(first.told).as_millis() as f64;
        if last.term == first.term && (last.counted_ms - first.counted_ms) as f64 > 0.9 * passed_ms {
            return last;
        }
    }
}

/// Waits until it is certain that the clock of a node runs faster, or slower, than ours, by half a percent at least. It
/// has to lead for that, and to count, so some lease must live.
pub async fn see_rate(cluster: &Cluster, node: u64, rate: f64) {
    let start = Instant::now();
    let mut first = read_running(cluster, node).await;
    let mut in_a_row = 0;
    // A stall hides time until the next entry is stamped, and that looks like a slow clock: once is not enough.
    while in_a_row < 5 {
        assert!(
            start.elapsed() < 3 * PATIENCE,
            "the clock of node {node} does not run at {rate}: the shim does nothing"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
        let last = read(cluster, node).await;
        if last.term != first.term {
            first = read_running(cluster, node).await;
            continue;
        }
        let counted = (last.counted_ms - first.counted_ms) as f64 / 1e3;
        let least = counted / last.told.duration_since(first.asked).as_secs_f64();
        let most = counted / last.asked.duration_since(first.told).as_secs_f64();
        let is_seen = if rate > 1.0 { least > 1.005 && most < 1.02 } else { most < 0.995 && least > 0.98 };
        in_a_row = if is_seen { in_a_row + 1 } else { 0 };
    }
}
