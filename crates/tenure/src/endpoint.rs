//! Where a server is, and how to get there.

use crate::error::Error;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint as Target};

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
pub(crate) enum Endpoint {
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
    /// The servers of a comma-separated list.
    pub(crate) fn list(addrs: &str) -> Vec<Self> {
        addrs.split(',').map(str::trim).filter(|addr| !addr.is_empty()).map(|addr| Self::Address(addr.into())).collect()
    }

    /// A server that `dial` connects to.
    pub(crate) fn dial<W: Wire, F: Future<Output = io::Result<W>> + Send + 'static>(
        dial: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self::Dial(Arc::new(move || {
            let dialled = dial();
            Box::pin(async move { Ok(Box::new(dialled.await?) as Box<dyn Wire>) })
        }))
    }

    /// Whether an address that a server gave is this one.
    pub(crate) fn is_at(&self, address: &str) -> bool {
        let bare = |address: &str| address.split_once("://").map_or(address, |(_, rest)| rest).to_owned();
        matches!(self, Self::Address(ours) if bare(ours) == bare(address))
    }

    /// Another server of the same service.
    pub(crate) fn moved_to(&self, address: &str) -> Self {
        Self::Address(address.into())
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Address(addr) => addr,
            Self::Dial(_) => "the server in this process",
        }
    }

    /// Connects, on the runtime that this is called on.
    pub(crate) async fn connect(&self) -> Result<Channel, Error> {
        let connected = match self {
            Self::Address(addr) => match target(addr) {
                Ok(target) => target.connect().await.map_err(|error| root_cause(&error)),
                Err(why) => Err(why),
            },
            Self::Dial(dial) => {
                let dial = dial.clone();
                let connector = tower::service_fn(move |_| {
                    let dialled = dial();
                    async move { dialled.await.map(TokioIo::new) }
                });
                let target = settled(Target::from_static("http://in.process"));
                target.connect_with_connector(connector).await.map_err(|error| root_cause(&error))
            }
        };
        connected.map_err(|why| Error::Unreachable { addr: self.name().into(), why })
    }
}

fn target(addr: &str) -> Result<Target, String> {
    let with_scheme = if addr.contains("://") { addr.to_owned() } else { format!("http://{addr}") };
    if !with_scheme.starts_with("http://") {
        return Err("only http:// is spoken; there is no TLS yet".into());
    }
    Ok(settled(Target::from_shared(with_scheme).map_err(|error| error.to_string())?))
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
