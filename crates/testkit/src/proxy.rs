//! A wire between client and server that can be made slow or cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

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
    /// What clients send over the first so many connections is held back.
    stalled: watch::Sender<u64>,
    /// How many bytes are held back so.
    held: AtomicU64,
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

    /// What clients send over the connections that are open now stays on its way. Later connections work.
    pub fn stall(&self) {
        self.state.stalled.send_replace(self.connections());
    }

    /// How many bytes are held back by `stall`.
    pub fn held(&self) -> u64 {
        self.state.held.load(Ordering::SeqCst)
    }

    /// What was held back by `stall` arrives.
    pub fn resume(&self) {
        self.state.stalled.send_replace(0);
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
        let number = state.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let state = state.clone();
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(server).await else { return };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let requests = carry(from_client, to_server, &state, Some(number));
            tokio::join!(requests, carry(from_server, to_client, &state, None));
        });
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    state: &State,
    // Of requests: the number of their connection.
    connection: Option<u64>,
) {
    let mut bytes = vec![0; 65_536];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        match connection {
            Some(number) => {
                let mut stalled = state.stalled.subscribe();
                if number <= *stalled.borrow() {
                    state.held.fetch_add(count as u64, Ordering::SeqCst);
                }
                drop(stalled.wait_for(|stalled| number > *stalled).await);
            }
            None => tokio::time::sleep(Duration::from_millis(state.delay_ms.load(Ordering::SeqCst))).await,
        }
        if state.is_mute.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
