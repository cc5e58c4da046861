//! One probe: a name is looked up, every address that it has is held against what is allowed, and the connection goes to an
//! address that was looked at, never to the name again. It follows nobody elsewhere, and believes nothing of what it reads
//! but a status.

use super::allow::{Forbidden, Networks};
use super::secured;
use crate::limits::{PROBE_ADDRESSES_MAX, PROBE_HEAD_BYTES_MAX, PROBE_MESSAGE_BYTES_MAX, PROBE_WINDOW};
use axum::body::Body;
use axum::http::uri::PathAndQuery;
use axum::http::{Request, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{Ask, Endpoint, Probe};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_prost::ProstCodec;

/// What a probe found, in words for people. None of them are the target's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Well(String),
    Ill(String),
    /// It may not be probed.
    Forbidden(String),
    /// This server had no room to find out.
    Nothing,
}

/// What is probed, and by whom.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) endpoint: Endpoint,
    pub(super) probe: Probe,
    pub(super) networks: Networks,
    /// Who asks, as the target is told.
    pub(super) agent: Arc<str>,
}

/// A connection, in the clear or not.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

type Asked = Result<String, Found>;

impl Question {
    /// Asks, for no longer than the probe may take.
    pub(super) async fn ask(self, lookups: Arc<Semaphore>) -> Found {
        if self.networks.are_none() {
            let why = "this server probes nothing: allow the network with --probe-allow, or push the status";
            return Found::Forbidden(why.into());
        }
        let ms = self.probe.timeout.millis();
        match tokio::time::timeout(Duration::from_millis(ms), self.find_out(lookups)).await {
            Ok(Ok(words)) => Found::Well(words),
            Ok(Err(found)) => found,
            Err(_) => Found::Ill(format!("no answer within {ms} ms")),
        }
    }

    async fn find_out(&self, lookups: Arc<Semaphore>) -> Asked {
        let addresses = self.addresses(lookups).await?;
        // Every one of them: whoever owns the name chooses which comes first.
        for address in &addresses {
            self.networks.judge(address.ip()).map_err(|why: Forbidden| Found::Forbidden(why.to_string()))?;
        }
        let stream = connect(&addresses).await?;
        match &self.probe.ask {
            Ask::Tcp => Ok("it accepts connections".into()),
            Ask::Http { path, statuses } => self.get(stream, path, statuses).await,
            Ask::Grpc { service } => self.health(stream, service).await,
        }
    }

    /// The addresses of the target. A lookup cannot be called off, so its room is kept until it is over.
    async fn addresses(&self, lookups: Arc<Semaphore>) -> Result<Vec<SocketAddr>, Found> {
        let (host, port) = (self.endpoint.host().to_owned(), self.endpoint.port());
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, port).into()]);
        }
        let room = lookups.try_acquire_owned().map_err(|_| Found::Nothing)?;
        let looking = tokio::spawn(async move {
            let found = tokio::net::lookup_host((host, port)).await.map(Vec::from_iter);
            drop(room);
            found
        });
        let nowhere = || Found::Ill("its name has no address".into());
        let found = looking.await.map_err(|_| Found::Nothing)?.map_err(|_| nowhere())?;
        if found.is_empty() || found.len() > PROBE_ADDRESSES_MAX { Err(nowhere()) } else { Ok(found) }
    }

    async fn wire(&self, stream: TcpStream, protocol: &[u8]) -> Result<Box<dyn Wire>, Found> {
        if !matches!(self.endpoint.scheme(), "https" | "grpcs") {
            return Ok(Box::new(stream));
        }
        let secured = secured::connect(stream, self.endpoint.host(), protocol).await;
        secured.map_err(|_| Found::Ill("it accepts connections, and does not speak TLS".into()))
    }

    async fn get(&self, stream: TcpStream, path: &str, statuses: &RangeInclusive<u16>) -> Asked {
        let wire = self.wire(stream, b"http/1.1").await?;
        let request = Request::get(path)
            .header(header::HOST, self.authority())
            .header(header::USER_AGENT, &*self.agent)
            .header(header::CONNECTION, "close")
            .body(Body::empty())
            .map_err(|_| Found::Ill("its path or its host cannot be asked for by HTTP".into()))?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(PROBE_HEAD_BYTES_MAX);
        let (mut sender, connection) = builder.handshake(TokioIo::new(wire)).await.map_err(|error| unheard(&error))?;
        // What follows the head is of no interest: what came with it is dropped, and the rest is not read.
        let mut answered = pin!(sender.send_request(request));
        let answer = tokio::select! {
            answer = &mut answered => answer,
            // Whatever came of it is told to whoever asked, also when the connection is over.
            _ = connection => answered.await,
        };
        let status = answer.map_err(|error| unheard(&error))?.status().as_u16();
        match statuses.contains(&status) {
            true => Ok(format!("answered {status}")),
            false => Err(Found::Ill(format!("answered {status}, not {} to {}", statuses.start(), statuses.end()))),
        }
    }

    async fn health(&self, stream: TcpStream, service: &str) -> Asked {
        let wire = self.wire(stream, b"h2").await?;
        let unheard = |_| Found::Ill("it accepts connections, and does not speak gRPC".into());
        let origin: Uri = format!("http://{}", self.authority()).parse().map_err(|_| cut_off())?;
        let mut wire = Some(TokioIo::new(wire));
        let once = tower::service_fn(move |_: Uri| {
            let wire = wire.take().ok_or(io::ErrorKind::NotConnected);
            std::future::ready(wire.map_err(io::Error::from))
        });
        let channel = tonic::transport::Endpoint::from(origin)
            .user_agent(&*self.agent)
            .map_err(|_| cut_off())?
            .http2_max_header_list_size(PROBE_MESSAGE_BYTES_MAX)
            .initial_stream_window_size(PROBE_WINDOW)
            .initial_connection_window_size(PROBE_WINDOW)
            .connect_with_connector(once)
            .await
            .map_err(unheard)?;
        let refused = |status: Status| Found::Ill(format!("its health service answered {:?}", status.code()));
        match check(channel, service).await.map_err(refused)? {
            Some(ServingStatus::Serving) => Ok("it serves".into()),
            Some(status) => Err(Found::Ill(format!("its health is {}", status.as_str_name()))),
            None => Err(Found::Ill("its health service does not answer once".into())),
        }
    }

    fn authority(&self) -> String {
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Asks for the health of a service. None: the answer is not one message. A call for one answer would read on for as long
/// as there are more, so this is asked as if for many.
async fn check(channel: Channel, service: &str) -> Result<Option<ServingStatus>, Status> {
    let mut client = Grpc::new(channel).max_decoding_message_size(PROBE_MESSAGE_BYTES_MAX as usize);
    let closed = |_| Status::unavailable("the connection is closed");
    client.ready().await.map_err(closed)?;
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
    let mut answers = client.server_streaming(request, path, codec).await?.into_inner();
    let Some(answer) = answers.message().await? else { return Ok(None) };
    Ok(answers.message().await?.is_none().then(|| answer.status()))
}

/// Connects to the first of some addresses that can be connected to.
async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, Found> {
    let mut last = cut_off();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Found::Ill(format!("{address}: {}", error.kind())),
        }
    }
    Err(last)
}

fn cut_off() -> Found {
    Found::Ill("it closed the connection before it answered".into())
}

fn unheard(error: &hyper::Error) -> Found {
    match () {
        () if error.is_parse() || error.is_parse_too_large() => Found::Ill("it does not answer in HTTP".into()),
        () => cut_off(),
    }
}
