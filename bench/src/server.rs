//! Server processes, each on a fresh data directory.

use crate::Failure;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A server and its data, gone when dropped.
pub(crate) struct Server {
    pub(crate) addr: String,
    _child: Child,
    _data: TempDir,
}

impl Server {
    /// Starts `binary` with the arguments that `args` makes of a port and a data directory, and waits until it listens.
    pub(crate) async fn start(
        binary: &Path,
        below: &Path,
        args: impl Fn(u16, &str) -> Vec<String>,
    ) -> Result<Self, Failure> {
        let data = tempfile::Builder::new().prefix("bench-").tempdir_in(below)?;
        let port = free_port()?;
        let directory = data.path().join("data");
        let mut command = Command::new(binary);
        command.args(args(port, &directory.to_string_lossy())).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.kill_on_drop(true).spawn()?;
        let addr = format!("http://127.0.0.1:{port}");
        let start = Instant::now();
        while tonic::transport::Endpoint::from_shared(addr.clone())?.connect().await.is_err() {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(format!("{} does not listen", binary.display()).into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { addr, _child: child, _data: data })
    }
}

fn free_port() -> Result<u16, Failure> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
