//! Accepting connections: no more than there are files for, without spinning when there are none, and not for whoever
//! says nothing.

use crate::limits::{ACCEPT_PAUSE, CONNECTIONS_MAX, FILES_RESERVED, FIRST_WORD_PATIENCE};
use futures::Stream;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// As many bytes tell which protocol is spoken: HTTP/2 begins with a line of this length, HTTP/1 has told before it.
const FIRST_WORD_BYTES: usize = 24;

/// A connection that counts until it is closed.
pub(crate) struct Connection {
    stream: TcpStream,
    silence: Option<Silence>,
    _room: OwnedSemaphorePermit,
}

/// What a connection still has to say, and until when. Later silences are the protocol's own business.
struct Silence {
    missing: usize,
    until: Pin<Box<Sleep>>,
}

/// Connections as they come. Beyond the limit they wait in the kernel.
pub(crate) fn accept(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> {
    let room = Arc::new(Semaphore::new(connections_max()));
    futures::stream::unfold((listener, room), |(listener, room)| async {
        let one = room.clone().acquire_owned().await.ok()?;
        let stream = accept_one(&listener).await;
        let until = Box::pin(tokio::time::sleep(FIRST_WORD_PATIENCE));
        let silence = Some(Silence { missing: FIRST_WORD_BYTES, until });
        Some((Ok(Connection { stream, silence, _room: one }), (listener, room)))
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
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if let Some(silence) = &mut self.silence {
            silence.missing = silence.missing.saturating_sub(into.filled().len() - before);
            if silence.missing == 0 {
                self.silence = None;
            } else if read.is_pending() && silence.until.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
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
