//! A whole server in the process of the test.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use tenure::Client;
use tenure_server::disk::MemoryDisk;
use tenure_server::{Environment, Node, Settings};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// A server with all its protocols, on a port and a thread of its own. Dropping it ends it at once, as kill -9 would.
pub struct Server {
    /// `http://host:port`.
    pub addr: String,
    stop: Option<oneshot::Sender<()>>,
    runtime: Option<Runtime>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(Settings::default())
    }

    /// Starts a server as an operator has set it.
    pub fn start_with(settings: Settings) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = format!("http://{}", listener.local_addr().unwrap());
        let (ready, is_ready) = sync_channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(async move {
            let disk = Arc::new(MemoryDisk::new().attach());
            let (node, _) = Node::open(Environment::alone(disk)).await.unwrap();
            node.ready().await.unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            ready.send(()).unwrap();
            let stopped = async { drop(stopped.await) };
            tenure_server::serve(node, vec![listener], &settings, stopped).await.unwrap();
        });
        is_ready.recv().expect("the server starts");
        Self { addr, stop: Some(stop), runtime: Some(runtime) }
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        self.addr.trim_start_matches("http://")
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.addr).await.unwrap()
    }

    /// Asks it to stop, as SIGTERM does; it goes on to answer what is under way.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
