//! Peers over gRPC: one connection to each, made when it is needed and given up when the other side says nothing.

use super::host::{Host, Refused};
use super::v1::peer_client::PeerClient;
use super::v1::peer_server::{Peer, PeerServer};
use super::v1::{Answer, AppendReply, AppendRequest, Question};
use super::{AppendReplies, Network};
use crate::limits::{
    CONNECTION_STREAMS_MAX, HEADER_BYTES_MAX, PEER_CONNECT_TIMEOUT, PEER_MESSAGE_BYTES_MAX, PEER_SILENCE_MAX,
    PEER_WINDOW_BYTES, PEERS_MAX,
};
use crate::listen::accept;
use crate::tls::PeerTls;
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;
use tenure_api::never_made;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};

/// Peers over TCP.
#[derive(Debug, Default)]
pub struct Wire {
    channels: Mutex<BTreeMap<String, Channel>>,
    tls: Option<PeerTls>,
}

impl Wire {
    /// A way to any address, secured if it is said how.
    pub fn new(tls: Option<PeerTls>) -> Self {
        Self { channels: Mutex::default(), tls }
    }

    /// The connection to an address: it is made by the first question, and made anew after it broke.
    fn client(&self, address: &str) -> io::Result<PeerClient<Channel>> {
        let mut channels = self.channels.lock().expect("nobody panics while holding the channels");
        let channel = match channels.get(address) {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.endpoint(address)?.connect_lazy();
                // Members change rarely; what they leave behind is forgotten all at once.
                if channels.len() >= PEERS_MAX {
                    channels.clear();
                }
                channels.insert(address.to_owned(), channel.clone());
                channel
            }
        };
        let client = PeerClient::new(channel).max_decoding_message_size(PEER_MESSAGE_BYTES_MAX);
        Ok(client.max_encoding_message_size(PEER_MESSAGE_BYTES_MAX))
    }

    /// Secured, the host of the address is the name that the peer has to prove.
    fn endpoint(&self, address: &str) -> io::Result<Endpoint> {
        let endpoint = match &self.tls {
            None => Endpoint::from_shared(format!("http://{address}")),
            Some(tls) => Endpoint::from_shared(format!("https://{address}"))
                .and_then(|endpoint| endpoint.tls_config(tls.asking.clone())),
        };
        Ok(endpoint
            .map_err(io::Error::other)?
            .connect_timeout(PEER_CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PEER_SILENCE_MAX)
            .keep_alive_timeout(PEER_SILENCE_MAX)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(PEER_WINDOW_BYTES)
            .initial_connection_window_size(PEER_WINDOW_BYTES))
    }
}

impl Network for Wire {
    fn ask(&self, address: &str, question: Question, patience: Duration) -> BoxFuture<'static, io::Result<Answer>> {
        let client = self.client(address);
        let ask = async move { client?.ask(question).await.map(Response::into_inner).map_err(failed) };
        tokio::time::timeout(patience, ask).map(|answer| answer.unwrap_or_else(|_| Err(late()))).boxed()
    }

    fn append(
        &self,
        address: &str,
        requests: BoxStream<'static, AppendRequest>,
    ) -> BoxFuture<'static, io::Result<AppendReplies>> {
        let client = self.client(address);
        Box::pin(async move {
            let replies = client?.append(Requests(requests)).await.map_err(failed)?.into_inner();
            Ok(replies.map(|reply| reply.map_err(failed)).boxed())
        })
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
    let kind = match status.code() {
        Code::PermissionDenied => io::ErrorKind::PermissionDenied,
        Code::FailedPrecondition => io::ErrorKind::Other,
        _ if never_made(&status).is_some() => io::ErrorKind::ConnectionRefused,
        _ => io::ErrorKind::ConnectionReset,
    };
    io::Error::new(kind, status.message().to_owned())
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
        .serve_with_incoming(accept(listener, tls.map(|tls| tls.listening)));
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
        self.0.answer(question.into_inner()).await.map(Response::new).map_err(refused)
    }

    async fn append(
        &self,
        requests: Request<Streaming<AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        // A connection that breaks ends the entries; whoever sent them notices by itself.
        let requests = requests.into_inner().take_while(|request| ready(request.is_ok()));
        let replies = self.0.append(requests.filter_map(|request| ready(request.ok())).boxed());
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
