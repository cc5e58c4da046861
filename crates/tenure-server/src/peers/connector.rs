//! A connection to a peer over TLS: both sides show certificates, and the one that the peer shows has to be that of the node
//! that is meant.

use crate::certificates::Certificate;
use crate::limits::PEER_CONNECT_TIMEOUT;
use crate::tls::PeerTls;
use axum::http::Uri;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tower::Service;

/// Connects to one node at its address.
#[derive(Clone)]
pub(super) struct Connector {
    tls: PeerTls,
    /// 0 if any node may answer.
    node: u64,
}

impl Connector {
    pub(super) fn new(tls: PeerTls, node: u64) -> Self {
        Self { tls, node }
    }

    /// With the certificates as they are now: they may have been renewed since the last connection.
    async fn connect(self, uri: Uri) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or_default());
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let stream = within(TcpStream::connect((host, port))).await?;
        stream.set_nodelay(true)?;
        let stream = within(TlsConnector::from(self.tls.asking()).connect(name, stream)).await?;
        self.check(&stream)?;
        Ok(TokioIo::new(stream))
    }

    fn check(&self, stream: &TlsStream<TcpStream>) -> io::Result<()> {
        let refuse = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown = shown.ok_or_else(|| refuse("the peer showed no certificate".into()))?;
        let shown = Certificate::read(shown).map_err(|bad| refuse(format!("the certificate of the peer: {bad}")))?;
        self.tls.identities().check(&shown, self.node).map_err(|why| refuse(why.to_string()))
    }
}

async fn within<T>(connect: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    tokio::time::timeout(PEER_CONNECT_TIMEOUT, connect).await.unwrap_or_else(late)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        self.clone().connect(uri).boxed()
    }
}
