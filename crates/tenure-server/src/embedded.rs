//! The same engine inside another program's process: no port, no second process, the same log, the same rules.

use crate::disk::{Directory, MemoryDisk, SharedDisk};
use crate::doors::NativeDoor;
use crate::environment::Environment;
use crate::limits::{CONNECTION_STREAMS_MAX, HEADER_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::lock::Lock;
use crate::node::Node;
use crate::probes::{Networks, probe};
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tenure_api::v1::tenure_server::TenureServer;
use tokio::io::DuplexStream;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

/// Bytes on their way between client and engine, each way.
const WIRE_BYTES: usize = 256 * 1024;

/// Connections that wait to be taken.
const DIALS_MAX: usize = 16;

/// An engine in this process, on threads of its own. Dropping it stops it soon; everything acknowledged is on disk. Its
/// directory is free for others when the last of it was written.
///
/// A client gets to it with `Client::builder().dial(engine.dial())`.
#[derive(Debug)]
pub struct Embedded {
    dials: mpsc::Sender<DuplexStream>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    _threads: Threads,
}

/// A runtime that may be dropped where nothing may block.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
#[error("the engine cannot start: {0}")]
pub struct CannotEmbed(String);

/// Starts an engine whose data is in a directory, as `tenure serve --data-dir` would have it. One engine at a time.
pub async fn embedded(directory: &Path) -> Result<Embedded, CannotEmbed> {
    let lock = Lock::take(directory).map_err(|error| CannotEmbed(error.to_string()))?;
    Embedded::start(Arc::new(Directory::locked(directory, lock))).await
}

/// Starts an engine whose data is gone with it: for tests, and for programs that coordinate only within themselves.
pub async fn embedded_in_memory() -> Result<Embedded, CannotEmbed> {
    Embedded::start(Arc::new(MemoryDisk::new())).await
}

impl Embedded {
    async fn start(disk: SharedDisk) -> Result<Self, CannotEmbed> {
        // Threads of its own: a program that is busy does not stop the time of its leases.
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let built = builder.worker_threads(2).thread_name("tenure-engine").enable_all().build();
        let runtime = built.map_err(|error| CannotEmbed(error.to_string()))?;
        let handle = runtime.handle().clone();
        let threads = Threads(Some(runtime));
        let opened = handle.spawn(open(disk)).await.map_err(|error| CannotEmbed(error.to_string()))?;
        let node = opened.map_err(CannotEmbed)?;
        let ((dials, taken), (stop, stopped)) = (mpsc::channel(DIALS_MAX), oneshot::channel());
        let serving = handle.spawn(serve(node, taken, stopped));
        Ok(Self { dials, stop: Some(stop), serving: Some(serving), _threads: threads })
    }

    /// Stops it, and returns when it has stopped.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            // It ends by itself, or has failed and said so.
            let _ = serving.await;
        }
    }

    /// What connects a client to it.
    pub fn dial(&self) -> impl Fn() -> DialFuture + Clone + Send + Sync + 'static {
        let dials = self.dials.clone();
        move || {
            let dials = dials.clone();
            Box::pin(async move {
                let (ours, theirs) = tokio::io::duplex(WIRE_BYTES);
                let gone = |_| io::Error::new(io::ErrorKind::ConnectionRefused, "the engine has stopped");
                dials.send(theirs).await.map_err(gone)?;
                Ok(ours)
            })
        }
    }
}

/// A connection to an engine that is being made.
pub type DialFuture = std::pin::Pin<Box<dyn Future<Output = io::Result<DuplexStream>> + Send>>;

async fn open(disk: SharedDisk) -> Result<Node, String> {
    let (node, _) = Node::open(Environment::alone(disk)).await.map_err(|error| error.to_string())?;
    node.ready().await?;
    Ok(node)
}

/// Serves until it is stopped, or until the node cannot go on: then every connection ends, and whoever holds something
/// learns that it is not renewed.
async fn serve(node: Node, taken: mpsc::Receiver<DuplexStream>, stopped: oneshot::Receiver<()>) {
    // Nothing is probed, and that is said of every check that waits for it.
    tokio::spawn(probe(node.clone(), Networks::default()));
    let native = TenureServer::new(NativeDoor::new(node.clone())).max_decoding_message_size(REQUEST_BYTES_MAX);
    let serving = Server::builder()
        .max_concurrent_streams(Some(CONNECTION_STREAMS_MAX))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .add_service(native)
        .serve_with_incoming(ReceiverStream::new(taken).map(Ok::<_, io::Error>));
    tokio::select! {
        served = serving => if let Err(error) = served {
            tracing::error!("the engine in this process does not serve any longer: {error}");
        },
        // Told, or nobody is left who could tell.
        _ = stopped => {}
        why = node.failed() => tracing::error!("the engine in this process has stopped itself: {why}"),
    }
    node.stop().await;
}
