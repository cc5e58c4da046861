//! Peers over gRPC: what comes over a connection is answered by the host.

use super::{Host, Refused};
use crate::certificates::Certificate;
use crate::guests::Trust;
use crate::limits::{
    CONNECTION_STREAMS_MAX, HEADER_BYTES_MAX, PEER_MESSAGE_BYTES_MAX, PEER_SILENCE_MAX, PEER_WINDOW_BYTES,
};
use crate::listen::{Peer as Remote, accept};
use crate::peers::v1::peer_server::{Peer, PeerServer};
use crate::peers::v1::{Answer, AppendReply, AppendRequest, Question};
use crate::tls::PeerTls;
use futures::StreamExt;
use futures::future::ready;
use futures::stream::BoxStream;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};

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
        // A connection that breaks ends the entries; their sender notices by itself.
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
