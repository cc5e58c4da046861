//! Accepting connections: no more than there are files for, without spinning when there are none, not for whoever says
//! nothing, and not for peers that are gone without a word. Whoever shakes hands for TLS holds up nobody else.

use crate::addresses::{Addresses, Place};
use crate::certificates::{BadCertificate, Certificate};
use crate::guests::{Guest, Guests, Trust};
use crate::limits::{ACCEPT_PAUSE, CONNECTIONS_MAX, FILES_RESERVED, FIRST_WORD_PATIENCE, PEER_PATIENCE};
use crate::tls::Tls;
use futures::{FutureExt, Stream, StreamExt, ready};
use socket2::{SockRef, TcpKeepalive};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Shutdown};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
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
    _guest: Arc<Guest>,
    _place: Option<Place>,
    _room: OwnedSemaphorePermit,
}

/// A connection that was accepted and is not open yet, and what it takes up.
struct Accepted {
    socket: Socket,
    guest: Arc<Guest>,
    place: Option<Place>,
    room: OwnedSemaphorePermit,
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
    guest: Weak<Guest>,
    is_known: Arc<AtomicBool>,
    certificate: Option<Arc<Certificate>>,
}

impl Peer {
    /// Where it is, as long as the connection is open.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.stream.upgrade()?.peer_addr().ok().map(|address| address.ip())
    }

    /// The certificate that it showed, where one is asked for.
    pub(crate) fn certificate(&self) -> Option<Arc<Certificate>> {
        self.certificate.clone()
    }

    /// A request of its was allowed: from now on its connection is not closed to make room for others.
    pub(crate) fn is_known(&self) {
        if !self.is_known.swap(true, Ordering::Relaxed)
            && let Some(guest) = self.guest.upgrade()
        {
            guest.is_known();
        }
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

/// Connections as they come. Where there is no room for another, the oldest one that has not proved itself is closed; if all
/// have, the next waits in the kernel. Those that shake hands count, too. One whose address has as many as it may is closed at
/// once, whether or not there is room.
pub(crate) fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    trust: Trust,
    addresses: Option<Arc<Addresses>>,
) -> impl Stream<Item = io::Result<Connection>> {
    accept_at_most(connections_max(), listener, tls, trust, addresses)
}

fn accept_at_most(
    max: usize,
    listener: TcpListener,
    tls: Option<Tls>,
    trust: Trust,
    addresses: Option<Arc<Addresses>>,
) -> impl Stream<Item = io::Result<Connection>> {
    let (room, guests) = (Arc::new(Semaphore::new(max)), Arc::new(Guests::default()));
    let begin = (listener, room, guests, addresses);
    let accepted = futures::stream::unfold(begin, |(listener, room, guests, addresses)| async {
        let (stream, place) = accept_within_limit(&listener, addresses.as_ref()).await;
        let stream = Arc::new(stream);
        let room_of_one = make_room(&room, &guests).await?;
        let guest = guests.welcome(&stream);
        let accepted = Accepted { socket: Socket(stream), guest, place, room: room_of_one };
        Some((accepted, (listener, room, guests, addresses)))
    });
    let opened = accepted.map(move |accepted| open(accepted, tls.clone(), trust));
    opened.buffer_unordered(CONNECTIONS_MAX).filter_map(|opened| std::future::ready(opened.map(Ok)))
}

/// Room for one more connection.
async fn make_room(room: &Arc<Semaphore>, guests: &Guests) -> Option<OwnedSemaphorePermit> {
    if let Ok(one) = room.clone().try_acquire_owned() {
        return Some(one);
    }
    let mut is_warned = false;
    loop {
        let closed = guests.close_oldest();
        if !closed && !std::mem::replace(&mut is_warned, true) {
            tracing::warn!("all connections are in use: the next client waits until one is closed");
        }
        // One that was closed is gone in a moment. Where none could be, one that is known has to go by itself.
        if let Ok(one) = tokio::time::timeout(ACCEPT_PAUSE, room.clone().acquire_owned()).await {
            return one.ok();
        }
    }
}

/// A connection that can be read, unless it was to be secured and could not be.
async fn open(accepted: Accepted, tls: Option<Tls>, trust: Trust) -> Option<Connection> {
    let Accepted { socket, guest, place, room } = accepted;
    let stream = Arc::downgrade(&socket.0);
    let mut certificate = None;
    let wire = match tls {
        None => Wire::Plain(socket),
        // On a task of its own, so that the arithmetic of one handshake does not hold up the others.
        Some(tls) => match tokio::spawn(async move { tls.accept(socket).await }).await.ok()? {
            Ok(stream) => {
                certificate = shown(&stream).map_err(|error| not_secured(&error)).ok()?;
                Wire::Secured(Box::new(stream))
            }
            Err(error) => {
                not_secured(&error);
                return None;
            }
        },
    };
    if trust == Trust::OnceOpen {
        guest.is_known();
    }
    let peer = Peer { stream, guest: Arc::downgrade(&guest), is_known: Arc::default(), certificate };
    let until = Box::pin(tokio::time::sleep(FIRST_WORD_PATIENCE));
    let silence = Some(Silence { missing: FIRST_WORD_BYTES, until });
    Some(Connection { wire, peer, silence, _guest: guest, _place: place, _room: room })
}

fn not_secured(error: &dyn std::error::Error) {
    tracing::debug!(%error, "a connection was not secured");
}

/// The certificate that the other end has shown, which was verified.
fn shown(stream: &TlsStream<Socket>) -> Result<Option<Arc<Certificate>>, BadCertificate> {
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    Ok(shown.map(Certificate::read).transpose()?.map(Arc::new))
}

/// The next connection of an address that may have one more.
async fn accept_within_limit(listener: &TcpListener, addresses: Option<&Arc<Addresses>>) -> (TcpStream, Option<Place>) {
    loop {
        let stream = accept_one(listener).await;
        let (Some(addresses), Ok(address)) = (addresses, stream.peer_addr()) else { return (stream, None) };
        if let Some(place) = addresses.enter(address.ip()) {
            return (stream, Some(place));
        }
    }
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A connection, and who is at its other end.
    async fn connected() -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepted = Box::pin(accept(listener, None, Trust::OnceAllowed, None));
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

    /// The next connection, and its client's end.
    async fn next(
        accepted: &mut (impl Stream<Item = io::Result<Connection>> + Unpin),
        address: std::net::SocketAddr,
    ) -> (Connection, TcpStream) {
        let (connection, client) = tokio::join!(accepted.next(), TcpStream::connect(address));
        (connection.unwrap().unwrap(), client.unwrap())
    }

    /// Reads until the connection is closed by the other side, and drops it, as a server does.
    async fn serve(mut connection: Connection) {
        let mut bytes = [0; 64];
        while matches!(connection.read(&mut bytes).await, Ok(1..)) {}
    }

    #[tokio::test]
    async fn where_there_is_no_room_the_oldest_stranger_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepted = Box::pin(accept_at_most(3, listener, None, Trust::OnceAllowed, None));
        let (known, mut of_known) = next(&mut accepted, address).await;
        known.connect_info().is_known();
        let mut clients = Vec::new();
        tokio::spawn(serve(known));
        for _ in 0..10 {
            let (connection, client) = next(&mut accepted, address).await;
            tokio::spawn(serve(connection));
            clients.push(client);
        }
        let mut byte = [0; 1];
        for gone in &mut clients[..8] {
            assert!(!matches!(gone.read(&mut byte).await, Ok(1..)), "it was closed");
        }
        for here in clients[8..].iter().chain([&of_known]) {
            let closed = here.ready(Interest::READABLE).now_or_never();
            assert!(closed.is_none_or(|ready| !ready.unwrap().is_read_closed()), "it was not closed");
        }
        of_known.write_all(b"still here").await.unwrap();
    }

    /// Where all have proved themselves, none of them is closed: the next one waits until one goes by itself.
    #[tokio::test]
    async fn a_connection_that_proved_itself_is_not_closed_for_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepted = Box::pin(accept_at_most(1, listener, None, Trust::OnceOpen, None));
        let (known, of_known) = next(&mut accepted, address).await;
        let serving = tokio::spawn(serve(known));
        let waiting = TcpStream::connect(address).await.unwrap();
        let next = tokio::time::timeout(2 * ACCEPT_PAUSE, accepted.next()).await;
        assert!(next.is_err(), "there was room for another connection");
        assert!(!serving.is_finished(), "the connection that proved itself was closed");
        drop(of_known);
        serving.await.unwrap();
        assert!(accepted.next().await.unwrap().is_ok());
        drop(waiting);
    }

    /// One more connection of an address that has as many as it may is closed at once, also where there is room.
    #[tokio::test]
    async fn an_address_with_its_connections_gets_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let addresses = Some(Addresses::with_loopback(2));
        let mut accepted = Box::pin(accept_at_most(10, listener, None, Trust::OnceAllowed, addresses));
        let (one, of_one) = next(&mut accepted, address).await;
        let (_two, _of_two) = next(&mut accepted, address).await;
        let mut refused = TcpStream::connect(address).await.unwrap();
        let mut byte = [0; 1];
        tokio::select! {
            closed = refused.read(&mut byte) => assert!(!matches!(closed, Ok(1..)), "it was closed"),
            _ = accepted.next() => panic!("it was accepted"),
        }
        drop((one, of_one));
        let _three = next(&mut accepted, address).await;
    }
}
