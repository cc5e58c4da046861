//! Other nodes over gRPC: one connection to each, made when it is needed and given up when the other side says nothing.

use super::connector::Connector;
use super::v1::peer_client::PeerClient;
use super::v1::{Answer, AppendRequest, Question};
use super::{AppendReplies, Network};
use crate::certificates::PeerIdentities;
use crate::limits::{PEER_CONNECT_TIMEOUT, PEER_MESSAGE_BYTES_MAX, PEER_SILENCE_MAX, PEER_WINDOW_BYTES, PEERS_MAX};
use crate::tls::PeerTls;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tenure_api::never_made;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

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
