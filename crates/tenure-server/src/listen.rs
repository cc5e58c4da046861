//! Accepting connections: no more than there are files for, without spinning when there are none, not for whoever says
//! nothing, and not for peers that are gone without a word. Whoever shakes hands for TLS holds up nobody else.

use crate::limits::{ACCEPT_PAUSE, CONNECTIONS_MAX, FILES_RESERVED, FIRST_WORD_PATIENCE, PEER_PATIENCE};
use crate::tls::Tls;
use futures::{FutureExt, Stream, StreamExt, ready};
use socket2::{SockRef, TcpKeepalive};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Shutdown};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

/// As many bytes tell which protocol is spoken: HTTP/2 begins with a line of this length, HTTP/1 has told before it.
const FIRST_WORD_BYTES: usize = 24;

/// A connection that counts until it is closed.
pub(crate) struct Connection {
    wire: Wire,
    peer: Peer,
    silence: Option<Silence>,
    _room: OwnedSemaphorePermit,
}

/// How bytes come over it.
enum Wire {
    Plain(Socket),
    Secured(Box<TlsStream<Socket>>),
}

/// A socket that others may look at while it is read.
struct Socket(Arc<TcpStream>);

/// What a connection still has to say, and until when. Later silences are the protocol's own business.
struct Silence {
    missing: usize,
    until: Pin<Box<Sleep>>,
}

/// Who is at the other end of a request's connection.
#[derive(Clone)]
pub(crate) struct Peer {
    stream: Weak<TcpStream>,
}

impl Peer {
    /// Where it is, as long as the connection is open.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.stream.upgrade()?.peer_addr().ok().map(|address| address.ip())
    }

    /// Whether the peer has hung up. Unlike whoever reads, this sees it behind bytes that nobody has read.
    pub(crate) fn has_hung_up(&self) -> bool {
        let Some(stream) = self.stream.upgrade() else { return true };
        let ready = stream.ready(Interest::READABLE).now_or_never();
        matches!(ready, Some(Ok(ready)) if ready.is_read_closed())
    }

    /// From now on a peer that vanishes without a word is found out within so long, in whole seconds and not less than
    /// three.
    pub(crate) fn must_answer_within(&self, patience: Duration) {
        if let Some(stream) = self.stream.upgrade() {
            expect_answers(&stream, patience);
        }
    }
}

/// Lets the kernel ask a silent peer whether it is there. Without it the connection is only found dead late.
fn expect_answers(stream: &TcpStream, patience: Duration) {
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new()
        .with_time((patience / 3).max(second))
        .with_interval((patience / 6).max(second))
        .with_retries(2);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&keepalive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(patience.max(3 * second)));
}

/// Connections as they come. Beyond the limit they wait in the kernel; those that shake hands count, too.
pub(crate) fn accept(listener: TcpListener, tls: Option<Tls>) -> impl Stream<Item = io::Result<Connection>> {
    let room = Arc::new(Semaphore::new(connections_max()));
    let accepted = futures::stream::unfold((listener, room), |(listener, room)| async {
        let one = room.clone().acquire_owned().await.ok()?;
        let socket = Socket(Arc::new(accept_one(&listener).await));
        Some(((socket, one), (listener, room)))
    });
    let opened = accepted.map(move |(socket, room)| open(socket, room, tls.clone()));
    opened.buffer_unordered(CONNECTIONS_MAX).filter_map(|opened| std::future::ready(opened.map(Ok)))
}

/// A connection that can be read, unless it was to be secured and could not be.
async fn open(socket: Socket, room: OwnedSemaphorePermit, tls: Option<Tls>) -> Option<Connection> {
    let peer = Peer { stream: Arc::downgrade(&socket.0) };
    let wire = match tls {
        None => Wire::Plain(socket),
        // On a task of its own, so that the arithmetic of one handshake does not hold up the others.
        Some(tls) => match tokio::spawn(async move { tls.accept(socket).await }).await.ok()? {
            Ok(stream) => Wire::Secured(Box::new(stream)),
            Err(error) => {
                tracing::debug!(%error, "a connection was not secured");
                return None;
            }
        },
    };
    let until = Box::pin(tokio::time::sleep(FIRST_WORD_PATIENCE));
    let silence = Some(Silence { missing: FIRST_WORD_BYTES, until });
    Some(Connection { wire, peer, silence, _room: room })
}

async fn accept_one(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers must not wait for the acknowledgement of the ones before. Without it they are only late.
                let _ = stream.set_nodelay(true);
                expect_answers(&stream, PEER_PATIENCE);
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
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

/// Tries until the socket takes or gives something, or has an error.
fn attempt<T>(
    mut is_ready: impl FnMut() -> Poll<io::Result<()>>,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        ready!(is_ready())?;
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        attempt(|| self.0.poll_read_ready(context), || self.0.try_read_buf(into)).map_ok(drop)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        attempt(|| self.0.poll_write_ready(context), || self.0.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        attempt(|| self.0.poll_write_ready(context), || self.0.try_write_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

/// Whatever the wire is, the same is asked of it.
macro_rules! over {
    ($connection:ident, $wire:ident => $asked:expr) => {
        match &mut $connection.wire {
            Wire::Plain(socket) => {
                let $wire = Pin::new(socket);
                $asked
            }
            Wire::Secured(stream) => {
                let $wire = Pin::new(&mut **stream);
                $asked
            }
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = over!(self, wire => wire.poll_read(context, into));
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
        over!(self, wire => wire.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        over!(self, wire => wire.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.wire {
            Wire::Plain(socket) => socket.is_write_vectored(),
            Wire::Secured(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        over!(self, wire => wire.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        over!(self, wire => wire.poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    /// A connection, and who is at its other end.
    async fn connected() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepted = Box::pin(accept(listener, None));
        let (connection, client) = tokio::join!(accepted.next(), TcpStream::connect(address));
        (connection.unwrap().unwrap(), client.unwrap())
    }

    #[tokio::test]
    async fn who_hangs_up_is_seen_behind_bytes_that_nobody_has_read() {
        let (connection, mut client) = connected().await;
        let peer = connection.connect_info();
        client.write_all(b"unread").await.unwrap();
        peer.stream.upgrade().unwrap().ready(Interest::READABLE).await.unwrap();
        assert!(!peer.has_hung_up());
        drop(client);
        while !peer.has_hung_up() {
            tokio::task::yield_now().await;
        }
        drop(connection);
        assert!(peer.has_hung_up(), "a connection that is gone has no peer");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_peer_that_vanishes_is_found_out_within_the_ttl_that_it_waits_with() {
        let (connection, _client) = connected().await;
        let stream = connection.peer.stream.upgrade().unwrap();
        let socket = SockRef::from(&*stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(PEER_PATIENCE));
        for (ttl_s, within_s) in [(30, 30), (9, 9), (1, 3)] {
            connection.connect_info().must_answer_within(Duration::from_secs(ttl_s));
            let ask = socket.tcp_keepalive_time().unwrap();
            let again = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
            assert!(ask + again <= Duration::from_secs(within_s), "{ttl_s}: {ask:?} {again:?}");
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(within_s)));
        }
    }
}
