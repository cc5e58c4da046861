//! A wire between client and server that can be made slow or cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Forwards every connection to a server.
pub struct Proxy {
    pub addr: String,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct State {
    /// What comes from the server is held back for so long.
    delay_ms: AtomicU64,
    /// Nothing goes through, in neither direction; connections stay open.
    is_mute: AtomicBool,
    connections: AtomicU64,
}

impl Proxy {
    pub async fn start(server: &str) -> Self {
        let server: SocketAddr = server.trim_start_matches("http://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let task = tokio::spawn(forward_all(listener, server, state.clone()));
        Self { addr, state, task }
    }

    /// Answers come so much later.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_ms.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Nothing goes through any longer.
    pub fn mute(&self) {
        self.state.is_mute.store(true, Ordering::SeqCst);
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward_all(listener: TcpListener, server: SocketAddr, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        state.connections.fetch_add(1, Ordering::SeqCst);
        let state = state.clone();
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else { return };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::join!(carry(from_client, to_server, &state, false), carry(from_server, to_client, &state, true));
        });
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    state: &State,
    is_answer: bool,
) {
    let mut bytes = vec![0; 65_536];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        if is_answer {
            tokio::time::sleep(Duration::from_millis(state.delay_ms.load(Ordering::SeqCst))).await;
        }
        if state.is_mute.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
