//! A connection to a server, and the calls over it.

use crate::error::Error;
use std::time::Duration;
use tenure_api::v1::tenure_client::TenureClient;
use tenure_api::v1::{self, Request, Response};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// Where a server listens unless it is told otherwise.
pub const ADDR_DEFAULT: &str = "http://127.0.0.1:7420";

/// Requests that wait to be sent on one conversation.
const UNSENT_MAX: usize = 1024;

/// A connection to one server.
#[derive(Clone, Debug)]
pub struct Client {
    rpc: TenureClient<Channel>,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($request:ident) -> $reply:ident;)*) => {$(
        $(#[$doc])*
        pub async fn $name(&self, request: v1::$request) -> Result<v1::$reply, Error> {
            Ok(self.rpc.clone().$name(request).await?.into_inner())
        }
    )*};
}

impl Client {
    /// Connects to the first server of a comma-separated list that answers.
    pub async fn connect(addrs: &str) -> Result<Self, Error> {
        let mut last = Error::Unreachable { addr: addrs.into(), why: "no address was given".into() };
        for addr in addrs.split(',').map(str::trim).filter(|addr| !addr.is_empty()) {
            match connect_one(addr).await {
                Ok(channel) => return Ok(Self { rpc: TenureClient::new(channel) }),
                Err(why) => last = Error::Unreachable { addr: addr.into(), why },
            }
        }
        Err(last)
    }

    calls! {
        /// Begins a lease.
        grant(GrantRequest) -> GrantReply;
        /// Claims resources.
        acquire(AcquireRequest) -> AcquireReply;
        /// Extends leases.
        renew(RenewRequest) -> RenewReply;
        /// Extends the lease behind a handle.
        renew_handle(RenewHandleRequest) -> RenewHandleReply;
        /// Gives a resource back.
        release(ReleaseRequest) -> ReleaseReply;
        /// Gives a lease back with all that hangs on it.
        release_lease(ReleaseLeaseRequest) -> ReleaseReply;
        /// Leaves lines.
        cancel(CancelRequest) -> CancelReply;
        /// Ends leases.
        revoke(RevokeRequest) -> RevokeReply;
        /// Ends claims on a resource, at once or after a delay. Never repeated: an unknown outcome is said to be unknown.
        break_claims(BreakRequest) -> BreakReply;
        /// Gives a claim to another lease. Never repeated, like a break.
        transfer(TransferRequest) -> AcquireReply;
        /// Says how many units a resource has.
        define_resource(DefineResourceRequest) -> DefineResourceReply;
        /// Defines or changes a class.
        set_class(SetClassRequest) -> SetClassReply;
        /// Writes a key. Never repeated, like a break.
        put(PutRequest) -> PutReply;
        /// Removes keys.
        delete(DeleteRequest) -> DeleteReply;
        /// Whether a handle's claim holds its resource.
        verify(VerifyRequest) -> VerifyReply;
        /// One resource in full.
        show(ShowRequest) -> ShowReply;
        /// One lease in full, or how it ended.
        show_lease(ShowLeaseRequest) -> ShowLeaseReply;
        /// A page of the resources that are claimed or defined.
        list_resources(ListResourcesRequest) -> ListResourcesReply;
        /// A page of the living leases.
        list_leases(ListLeasesRequest) -> ListLeasesReply;
        /// All classes.
        list_classes(ListClassesRequest) -> ListClassesReply;
        /// One key.
        get_key(GetKeyRequest) -> GetKeyReply;
        /// A page of the keys.
        list_keys(ListKeysRequest) -> ListKeysReply;
        /// A page of what happened, newest first.
        history(HistoryRequest) -> HistoryReply;
        /// How the server is doing.
        status(StatusRequest) -> StatusReply;
    }

    /// What happens, from a place in the stream on.
    pub async fn watch(&self, request: v1::WatchRequest) -> Result<Streaming<v1::WatchReply>, Error> {
        Ok(self.rpc.clone().watch(request).await?.into_inner())
    }

    /// Opens a stream on which many requests may be in flight.
    pub async fn converse(&self) -> Result<Conversation, Error> {
        let (requests, unsent) = mpsc::channel(UNSENT_MAX);
        let responses = self.rpc.clone().stream(ReceiverStream::new(unsent)).await?.into_inner();
        Ok(Conversation { requests, responses })
    }
}

/// Longer than a server takes to say that it does not know.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server may be silent while something is asked of it, and how long it may then take to say that it is there.
const SILENCE: Duration = Duration::from_secs(20);

async fn connect_one(addr: &str) -> Result<Channel, String> {
    let with_scheme = if addr.contains("://") { addr.to_owned() } else { format!("http://{addr}") };
    if !with_scheme.starts_with("http://") {
        return Err("only http:// is spoken; there is no TLS yet".into());
    }
    let endpoint = Endpoint::from_shared(with_scheme).map_err(|error| error.to_string())?;
    let endpoint = endpoint.tcp_nodelay(true).connect_timeout(CONNECT_TIMEOUT).timeout(ANSWER_TIMEOUT);
    // Somebody who accepts and then says nothing is found out, too.
    let endpoint = endpoint.http2_keep_alive_interval(SILENCE).keep_alive_timeout(SILENCE);
    endpoint.connect().await.map_err(|error| root_cause(&error))
}

fn root_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => root_cause(source),
        None => error.to_string(),
    }
}

/// One multiplexed stream.
#[derive(Debug)]
pub struct Conversation {
    requests: mpsc::Sender<Request>,
    responses: Streaming<Response>,
}

impl Conversation {
    /// Sends a request; its answers come under its id.
    pub async fn send(&self, request: Request) -> Result<(), Error> {
        self.requests.send(request).await.map_err(|_| Error::Broken("the stream is closed".into()))
    }

    /// The next answer, to whichever request.
    pub async fn next(&mut self) -> Result<Response, Error> {
        self.responses.message().await?.ok_or_else(|| Error::Broken("the server closed the stream".into()))
    }

    /// The two halves, for callers that send and receive on their own.
    pub fn split(self) -> (mpsc::Sender<Request>, Streaming<Response>) {
        (self.requests, self.responses)
    }
}
