//! Accepting connections: no more than there are files for, and without spinning when there are none.

use crate::limits::{ACCEPT_PAUSE, CONNECTIONS_MAX, FILES_RESERVED};
use futures::Stream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// A connection that counts until it is closed.
pub(crate) struct Connection {
    stream: TcpStream,
    _room: OwnedSemaphorePermit,
}

/// Connections as they come. Beyond the limit they wait in the kernel.
pub(crate) fn accept(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> {
    let room = Arc::new(Semaphore::new(connections_max()));
    futures::stream::unfold((listener, room), |(listener, room)| async {
        let one = room.clone().acquire_owned().await.ok()?;
        let stream = accept_one(&listener).await;
        Some((Ok(Connection { stream, _room: one }), (listener, room)))
    })
}

async fn accept_one(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers must not wait for the acknowledgement of the ones before. Without it they are only late.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// As many as files allow. The process asks for as many files as it may have.
fn connections_max() -> usize {
    let wanted = (CONNECTIONS_MAX + FILES_RESERVED) as u64;
    let files = rlimit::increase_nofile_limit(wanted).unwrap_or(1024);
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    files.saturating_sub(FILES_RESERVED).clamp(1, CONNECTIONS_MAX)
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
