//! Peers over gRPC: one connection to each, made when it is needed and given up when the other side says nothing.

use super::connector::Connector;
use super::host::{Host, Refused};
use super::v1::peer_client::PeerClient;
use super::v1::peer_server::{Peer, PeerServer};
use super::v1::{Answer, AppendReply, AppendRequest, Question};
use super::{AppendReplies, Certificate, Network, PeerIdentities};
use crate::guests::Trust;
use crate::limits::{
    CONNECTION_STREAMS_MAX, HEADER_BYTES_MAX, PEER_CONNECT_TIMEOUT, PEER_MESSAGE_BYTES_MAX, PEER_SILENCE_MAX,
    PEER_WINDOW_BYTES, PEERS_MAX,
};
use crate::listen::{Peer as Remote, accept};
use crate::tls::PeerTls;
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tenure_api::never_made;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};

/// Peers over TCP.
#[derive(Debug, Default)]
pub struct Wire {
    /// By address, and by the node that has to be there; with 0, any may be.
    channels: Mutex<BTreeMap<(String, u64), Channel>>,
    tls: Option<PeerTls>,
}

impl Wire {
    /// A way to any address, secured if it is said how.
    pub fn new(tls: Option<PeerTls>) -> Self {
        Self { channels: Mutex::default(), tls }
    }

    /// The connection to a node at an address: the first question makes it, and the first one after it broke makes another.
    /// Without TLS the node cannot be checked here, and its answer tells.
    fn client(&self, address: &str, node: u64) -> io::Result<PeerClient<Channel>> {
        let mut channels = self.channels.lock().expect("nobody panics while holding the channels");
        let key = (address.to_owned(), if self.tls.is_some() { node } else { 0 });
        let channel = match channels.get(&key) {
            Some(channel) => channel.clone(),
            None => {
                let endpoint = endpoint(address)?;
                let channel = match &self.tls {
                    None => endpoint.connect_timeout(PEER_CONNECT_TIMEOUT).connect_lazy(),
                    Some(tls) => endpoint.connect_with_connector_lazy(Connector::new(tls.clone(), node)),
                };
                // Members change rarely; what they leave behind is forgotten all at once.
                if channels.len() >= PEERS_MAX {
                    channels.clear();
                }
                channels.insert(key, channel.clone());
                channel
            }
        };
        let client = PeerClient::new(channel).max_decoding_message_size(PEER_MESSAGE_BYTES_MAX);
        Ok(client.max_encoding_message_size(PEER_MESSAGE_BYTES_MAX))
    }
}

/// Without its security, which is the connector's business.
fn endpoint(address: &str) -> io::Result<Endpoint> {
    Ok(Endpoint::from_shared(format!("http://{address}"))
        .map_err(io::Error::other)?
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PEER_SILENCE_MAX)
        .keep_alive_timeout(PEER_SILENCE_MAX)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(PEER_WINDOW_BYTES)
        .initial_connection_window_size(PEER_WINDOW_BYTES))
}

impl Network for Wire {
    fn ask(&self, address: &str, question: Question, patience: Duration) -> BoxFuture<'static, io::Result<Answer>> {
        let to = question.envelope.as_ref().map_or(0, |envelope| envelope.to);
        let client = self.client(address, to);
        let ask = async move { client?.ask(question).await.map(Response::into_inner).map_err(failed) };
        tokio::time::timeout(patience, ask).map(|answer| answer.unwrap_or_else(|_| Err(late()))).boxed()
    }

    fn append(
        &self,
        node: u64,
        address: &str,
        requests: BoxStream<'static, AppendRequest>,
    ) -> BoxFuture<'static, io::Result<AppendReplies>> {
        let client = self.client(address, node);
        Box::pin(async move {
            let replies = client?.append(Requests(requests)).await.map_err(failed)?.into_inner();
            Ok(replies.map(|reply| reply.map_err(failed)).boxed())
        })
    }

    fn identities(&self) -> Option<Arc<PeerIdentities>> {
        self.tls.as_ref().map(|tls| tls.identities().clone())
    }
}

/// A stream by a name: the compiler does not see otherwise that whoever sends it may be sent.
struct Requests(BoxStream<'static, AppendRequest>);

impl Stream for Requests {
    type Item = AppendRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AppendRequest>> {
        self.0.poll_next_unpin(context)
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn failed(status: Status) -> io::Error {
    if let Some(why) = refused_here(&status) {
        return io::Error::new(io::ErrorKind::PermissionDenied, why);
    }
    let kind = match status.code() {
        Code::PermissionDenied => io::ErrorKind::PermissionDenied,
        Code::FailedPrecondition => io::ErrorKind::Other,
        _ if never_made(&status).is_some() => io::ErrorKind::ConnectionRefused,
        _ => io::ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, status.message().to_owned())
}

/// Why this node refused the connection: who listens there is not who is meant, so nothing was asked.
fn refused_here(status: &Status) -> Option<String> {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        match error.downcast_ref::<io::Error>() {
            Some(error) if error.kind() == io::ErrorKind::PermissionDenied => return Some(error.to_string()),
            _ => source = error.source(),
        }
    }
    None
}

/// The certificate that the sender of a request has shown.
fn shown<T>(request: &Request<T>) -> Option<Arc<Certificate>> {
    request.extensions().get::<Remote>().and_then(Remote::certificate)
}

/// Answers peers on a listener until `stop` resolves; secured, only those that prove to be some.
pub async fn serve_peers(
    host: Host,
    listener: TcpListener,
    tls: Option<PeerTls>,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let peer = PeerServer::new(Door(host))
        .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX);
    let listening = Server::builder()
        .max_concurrent_streams(Some(CONNECTION_STREAMS_MAX))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(PEER_SILENCE_MAX))
        .http2_keepalive_timeout(Some(PEER_SILENCE_MAX))
        .initial_stream_window_size(PEER_WINDOW_BYTES)
        .initial_connection_window_size(PEER_WINDOW_BYTES)
        .add_service(peer)
        .serve_with_incoming(accept(listener, tls.map(|tls| tls.listening().clone()), Trust::OnceOpen, None));
    tokio::select! {
        served = listening => served.map_err(io::Error::other),
        () = stop => Ok(()),
    }
}

struct Door(Host);

#[tonic::async_trait]
impl Peer for Door {
    type AppendStream = BoxStream<'static, Result<AppendReply, Status>>;

    async fn ask(&self, question: Request<Question>) -> Result<Response<Answer>, Status> {
        let certificate = shown(&question);
        let answered = self.0.answer_shown(question.into_inner(), certificate.as_deref()).await;
        answered.map(Response::new).map_err(refused)
    }

    async fn append(
        &self,
        requests: Request<Streaming<AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let certificate = shown(&requests);
        // A connection that breaks ends the entries; whoever sent them notices by itself.
        let requests = requests.into_inner().take_while(|request| ready(request.is_ok()));
        let replies = self.0.append_shown(requests.filter_map(|request| ready(request.ok())).boxed(), certificate);
        Ok(Response::new(replies.map(|reply| reply.map_err(refused)).boxed()))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn refused(refused: Refused) -> Status {
    let code = match refused {
        Refused::NotMeant(_) => Code::PermissionDenied,
        Refused::No(_) => Code::FailedPrecondition,
        Refused::Stopped => Code::Unavailable,
    };
    Status::new(code, refused.to_string())
}
