//! Where a server is, and how to get there.

use crate::cluster::Connection;
use crate::error::Error;
use crate::security::{Security, unsecured};
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustix::net::{RecvFlags, recv};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tenure_api::never_made;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint as Target};
use tower::ServiceExt;

/// Longer than a server takes to say that it does not know.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server may be silent while something is asked of it, and how long it may then take to say that it is there.
const SILENCE: Duration = Duration::from_secs(20);

/// A connection that carries bytes both ways.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Wire for T {}

type Dial = dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Wire>>> + Send + Sync;

/// One server.
#[derive(Clone)]
pub struct Endpoint {
    to: To,
    security: Security,
    /// Whether it was spoken to in the clear, and answered with TLS.
    wants_tls: Arc<AtomicBool>,
}

#[derive(Clone)]
enum To {
    /// By its address.
    Address(String),
    /// By whatever makes a connection to it: a server in the same process.
    Dial(Arc<Dial>),
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Endpoint {
    fn new(to: To) -> Self {
        Self { to, security: Security::default(), wants_tls: Arc::default() }
    }

    /// The servers of a comma-separated list.
    pub(crate) fn list(addrs: &str) -> Vec<Self> {
        let addrs = addrs.split(',').map(str::trim).filter(|addr| !addr.is_empty());
        addrs.map(|addr| Self::new(To::Address(addr.into()))).collect()
    }

    /// A server that `dial` connects to.
    pub(crate) fn dial<W: Wire, F: Future<Output = io::Result<W>> + Send + 'static>(
        dial: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self::new(To::Dial(Arc::new(move || {
            let dialled = dial();
            Box::pin(async move { Ok(Box::new(dialled.await?) as Box<dyn Wire>) })
        })))
    }

    /// The same server, secured so.
    pub(crate) fn secured(self, security: &Security) -> Self {
        Self { security: security.clone(), ..self }
    }

    /// Whether an address that a server gave is this one.
    pub(crate) fn is_at(&self, address: &str) -> bool {
        let bare = |address: &str| address.split_once("://").map_or(address, |(_, rest)| rest).to_owned();
        matches!(&self.to, To::Address(ours) if bare(ours) == bare(address))
    }

    /// Another server of the same service.
    pub(crate) fn moved_to(&self, address: &str) -> Self {
        Self::new(To::Address(address.into())).secured(&self.security)
    }

    /// Its address, if it has one.
    pub fn name(&self) -> &str {
        match &self.to {
            To::Address(addr) => addr,
            To::Dial(_) => "the server in this process",
        }
    }

    /// Connects, on the runtime that this is called on.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        let connected = match &self.to {
            To::Address(addr) if self.is_secured() => self.target(addr)?.connect().await,
            To::Address(addr) => self.in_the_clear(self.target(addr)?).await,
            To::Dial(dial) => {
                let dial = dial.clone();
                let connector = tower::service_fn(move |_| {
                    let dialled = dial();
                    async move { dialled.await.map(TokioIo::new) }
                });
                settled(Target::from_static("http://in.process")).connect_with_connector(connector).await
            }
        };
        let channel = connected.map_err(|error| match unsecured(&error) {
            Some(why) => Error::Handshake { addr: self.name().into(), why },
            None => self.unreachable(root_cause(&error)),
        })?;
        Ok(Connection::new(channel, self.security.bearer.clone(), self.security.cluster.clone()))
    }

    /// What a call came to that was not answered with a yes.
    pub(crate) fn failed(&self, status: Status) -> Error {
        if self.wants_tls.load(Ordering::Acquire) {
            return Error::Handshake { addr: self.name().into(), why: "it speaks TLS; write https://".into() };
        }
        match never_made(&status) {
            Some(why) => self.unreachable(why),
            None => status.into(),
        }
    }

    /// Connects as tonic would, and looks at the first byte that comes back.
    async fn in_the_clear(&self, target: Target) -> Result<Channel, tonic::transport::Error> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let wants_tls = self.wants_tls.clone();
        let connector = connector.map_response(move |stream: TokioIo<TcpStream>| {
            TokioIo::new(Opening { stream: stream.into_inner(), unheard: Some(wants_tls) })
        });
        target.connect_with_connector(connector).await
    }

    fn is_secured(&self) -> bool {
        matches!(&self.to, To::Address(addr) if addr.starts_with("https://"))
    }

    fn unreachable(&self, why: String) -> Error {
        Error::Unreachable { addr: self.name().into(), why }
    }

    fn target(&self, addr: &str) -> Result<Target, Error> {
        let with_scheme = if addr.contains("://") { addr.to_owned() } else { format!("http://{addr}") };
        let target = match with_scheme.split_once("://") {
            Some(("http", _)) => {
                let target = Target::from_shared(with_scheme);
                // Decided before any connection is made, also for a leader that another server names.
                if target.as_ref().is_ok_and(|target| self.would_leak_key(target)) {
                    return Err(Error::KeyInTheClear { addr: self.name().into() });
                }
                target
            }
            Some(("https", _)) => {
                Target::from_shared(with_scheme).and_then(|target| target.tls_config(self.security.tls()))
            }
            _ => return Err(self.unreachable("only http:// and https:// are spoken".into())),
        };
        target.map(settled).map_err(|error| self.unreachable(root_cause(&error)))
    }

    fn would_leak_key(&self, target: &Target) -> bool {
        self.security.bearer.has_key() && !target.uri().host().is_some_and(is_loopback)
    }
}

/// Whether a host, as it is written in an address, is this machine.
fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip = bare.parse::<IpAddr>();
    ip.map_or(host.eq_ignore_ascii_case("localhost"), |ip| ip.to_canonical().is_loopback())
}

/// What TLS begins an alert with. HTTP/2 begins with the length of a frame, which is never so large.
const ALERT: u8 = 21;

/// A connection in the clear of which it is not known yet what comes back.
struct Opening {
    stream: TcpStream,
    /// To be told of an alert, until something has come.
    unheard: Option<Arc<AtomicBool>>,
}

impl Opening {
    fn heard(&mut self, first: u8) {
        if let Some(wants_tls) = self.unheard.take() {
            wants_tls.store(first == ALERT, Ordering::Release);
        }
    }

    /// Whoever has sent an alert hangs up, and a write may notice that before the alert is read.
    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let mut first = [0];
        // Past tokio, which may not have heard yet that there is something to read.
        if matches!(written, Poll::Ready(Err(_))) && recv(&self.stream, &mut first, RecvFlags::PEEK).is_ok() {
            self.heard(first[0]);
        }
        written
    }
}

impl AsyncRead for Opening {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if let Some(first) = into.filled().get(before) {
            self.heard(*first);
        }
        read
    }
}

impl AsyncWrite for Opening {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.wrote(written)
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

fn settled(target: Target) -> Target {
    let target = target.tcp_nodelay(true).connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT);
    // Somebody who accepts and then says nothing is found out, too.
    target.http2_keep_alive_interval(SILENCE).keep_alive_timeout(SILENCE)
}

fn root_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => root_cause(source),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn loopback_is_this_machine_alone() {
        for host in ["127.0.0.1", "127.8.9.10", "[::1]", "::1", "[::ffff:127.0.0.1]", "localhost", "LocalHost"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["0.0.0.0", "10.0.0.1", "128.0.0.1", "[::]", "[::2]", "localhost.example", "127.0.0.1.example", ""]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
