//! A connection to a server, and the calls over it.

use crate::ask::Ask;
use crate::chance::{Chance, draw_lease};
use crate::clock::Clock;
use crate::cluster::Connection;
use crate::election::Election;
use crate::endpoint::{Endpoint, Wire};
use crate::error::Error;
use crate::keeper::{Keeper, Order, OrderQueue, Orders};
use crate::keys::Keys;
use crate::lease::GrantAsk;
use crate::registry::{Discovery, RegisterAsk};
use crate::security::Said;
use crate::watch::Watch;
use crate::way::{Repeat, Way};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_api::v1::tenure_client::TenureClient;
use tenure_api::v1::{self, Request, Response};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// Where a server listens unless it is told otherwise.
pub const ADDR_DEFAULT: &str = "http://127.0.0.1:7420";

/// The variable of the environment that says where the servers are.
pub const ADDR_VARIABLE: &str = "TENURE_ADDR";

/// Requests that wait to be sent on one conversation.
const UNSENT_MAX: usize = 1024;

/// A client of a server, or of several that are one. Clones are the same client, with the same keeper.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    way: Way,
    clock: Clock,
    chance: Chance,
    holder: String,
    keeper: Mutex<Option<Orders>>,
}

/// How a client is made, if it is not the plain one.
#[derive(Debug, Default)]
#[must_use = "nothing is connected until `connect`"]
pub struct ClientBuilder {
    endpoints: Vec<Endpoint>,
    clock: Clock,
    holder: Option<String>,
    said: Said,
}

impl ClientBuilder {
    /// Servers, comma-separated. They are tried in this order.
    pub fn addrs(mut self, addrs: &str) -> Self {
        self.endpoints.extend(Endpoint::list(addrs));
        self
    }

    /// A server that `dial` makes connections to: one in this process.
    pub fn dial<W: Wire, F: Future<Output = io::Result<W>> + Send + 'static>(
        mut self,
        dial: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        self.endpoints.push(Endpoint::dial(dial));
        self
    }

    /// The holder of leases that do not name one.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// The clock by which leases are held.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The authorities, as PEM, whose certificates are believed at `https://` addresses. Without any, those of the system
    /// are.
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.said.authority = Some(pem.into());
        self
    }

    /// The API key that is shown with every call. It is never printed; give it `https://` addresses alone.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.said.api_key = Some(key.into());
        self
    }

    /// What the environment says of the two, unless they were said: `TENURE_CA_FILE`, and `TENURE_API_KEY` or
    /// `TENURE_API_KEY_FILE`.
    pub fn security_from_env(mut self) -> Result<Self, Error> {
        self.said = self.said.or_environment()?;
        Ok(self)
    }

    /// Connects to the first server that answers.
    pub async fn connect(self) -> Result<Client, Error> {
        let mut last = Error::Unreachable { addr: String::new(), why: "no address was given".into() };
        let security = self.said.check()?;
        let mut endpoints: Vec<Endpoint> =
            self.endpoints.into_iter().map(|endpoint| endpoint.secured(&security)).collect();
        for (place, endpoint) in endpoints.iter().enumerate() {
            match endpoint.connect().await {
                Ok(connection) => {
                    endpoints.rotate_left(place);
                    let inner = Inner {
                        way: Way::new(endpoints.into(), self.clock.clone(), Some(TenureClient::new(connection))),
                        clock: self.clock,
                        chance: Chance::default(),
                        holder: self.holder.unwrap_or_else(default_holder),
                        keeper: Mutex::new(None),
                    };
                    return Ok(Client { inner: Arc::new(inner) });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Whether a claim or a registration may be sent again if its outcome is unknown: the server tells a copy apart by the ids of the new
/// lease, or by the number of the request. A copy of any other one could take again what was given back meanwhile.
const fn repeat_of(has_grant: bool, number: u64) -> Repeat {
    if has_grant || number > 0 { Repeat::Safe } else { Repeat::Never }
}

/// Draws the ids that a grant does not name: asked again with the same ones, it is the same grant.
fn named(grant: &mut v1::GrantRequest) {
    if grant.lease == 0 {
        grant.lease = draw_lease();
    }
    if grant.request == 0 {
        grant.request = rand::random();
    }
}

macro_rules! calls {
    ($repeat:ident: $($(#[$doc:meta])* $name:ident($request:ident) -> $reply:ident;)*) => {$(
        $(#[$doc])*
        pub async fn $name(&self, request: v1::$request) -> Result<v1::$reply, Error> {
            let call = |mut rpc: TenureClient<Connection>| {
                let request = request.clone();
                async move { rpc.$name(request).await }
            };
            self.inner.way.call(Repeat::$repeat, call).await
        }
    )*};
}

impl Client {
    /// Connects to the first server of a comma-separated list that answers.
    pub async fn connect(addrs: &str) -> Result<Self, Error> {
        Self::builder().addrs(addrs).connect().await
    }

    /// Connects to the server that the environment names in `TENURE_ADDR`, else to the one on this machine. It believes the
    /// authority of `TENURE_CA_FILE` and shows the API key of `TENURE_API_KEY` or `TENURE_API_KEY_FILE`, if they are set.
    pub async fn from_env() -> Result<Self, Error> {
        let addrs = std::env::var(ADDR_VARIABLE).ok().filter(|addrs| !addrs.trim().is_empty());
        Self::builder().addrs(addrs.as_deref().unwrap_or(ADDR_DEFAULT)).security_from_env()?.connect().await
    }

    /// A client with more to say about it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), tenure::Error> {
    /// let client = tenure::Client::builder().addrs("10.0.0.1:7420,10.0.0.2:7420").holder("worker-7").connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Asks for a resource, on a lease of its own.
    pub fn lease(&self, resource: impl Into<String>) -> Ask {
        Ask::new(self.clone(), resource.into())
    }

    /// Asks for what a request of the treaty says, on its lease or on a new one. This client renews that lease from then on,
    /// for as long as it waits or holds, whoever has begun it.
    pub fn ask(&self, request: &v1::AcquireRequest) -> Ask {
        Ask::of(self.clone(), request)
    }

    /// Asks for a lease without claims, on which many things can hang under one heartbeat.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let life = client.begin().holder("agent-7").begin().await?;
    /// let gpu = life.claim("gpu/0").acquire().await?;
    /// life.put("agents/7", "10.0.0.7:9000").await?;
    /// # Ok(()) }
    /// ```
    pub fn begin(&self) -> GrantAsk {
        GrantAsk::new(self.clone())
    }

    /// An election: whoever holds this name leads.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.clone(), name.into())
    }

    /// Asks for an instance of a service to be listed: see [`crate::registry`].
    pub fn register(&self, service: impl Into<String>) -> RegisterAsk {
        RegisterAsk::new(self.clone(), service.into())
    }

    /// Asks which instances of a service are there: see [`crate::registry`].
    pub fn discover(&self, service: impl Into<String>) -> Discovery {
        let request = v1::WatchInstancesRequest { service: service.into(), ..v1::WatchInstancesRequest::default() };
        Discovery::new(self.clone(), request)
    }

    /// Asks which instances are there of all services whose name starts so.
    pub fn discover_under(&self, prefix: impl Into<String>) -> Discovery {
        let request =
            v1::WatchInstancesRequest { service_prefix: prefix.into(), ..v1::WatchInstancesRequest::default() };
        Discovery::new(self.clone(), request)
    }

    /// The keys.
    pub fn keys(&self) -> Keys {
        Keys::new(self.clone())
    }

    /// What happens to resources whose names start so, through every reconnect; from the first `next` on, unless it is
    /// said otherwise.
    pub fn watch(&self, prefix: impl Into<String>) -> Watch {
        Watch::new(self.clone(), v1::WatchRequest { prefix: prefix.into(), ..v1::WatchRequest::default() })
    }

    /// Waits until everything that was let go was given back, at most for so long. It tells how many are left; those run
    /// out by themselves. Guards that live are not touched.
    pub async fn close(&self, patience: Duration) -> usize {
        let keeper = self.inner.keeper.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(orders) = keeper else { return 0 };
        let (reply, left) = oneshot::channel();
        orders.tell(Order::Flush { until: orders.clock.now() + patience, reply });
        left.await.unwrap_or_default()
    }

    /// A client of the servers at these addresses, with a keeper that nothing runs yet, and the orders to it.
    pub(crate) fn with_keeper(addrs: &str, holder: &str, clock: Clock, chance: Chance) -> (Self, Keeper, OrderQueue) {
        let endpoints: Arc<[Endpoint]> = Endpoint::list(addrs).into();
        let (orders, keeper, queue) = Orders::to_a_new_keeper(endpoints.clone(), clock.clone(), chance.clone());
        let way = Way::new(endpoints, clock.clone(), None);
        let inner = Inner { way, clock, chance, holder: holder.into(), keeper: Mutex::new(Some(orders)) };
        (Self { inner: Arc::new(inner) }, keeper, queue)
    }

    pub(crate) fn chance(&self) -> &Chance {
        &self.inner.chance
    }

    pub(crate) fn clock(&self) -> Clock {
        self.inner.clock.clone()
    }

    /// Asks another server from now on, if there is one.
    pub(crate) fn turn_away(&self) {
        self.inner.way.turn_away();
    }

    /// The holder of leases that do not name one.
    pub fn holder(&self) -> &str {
        &self.inner.holder
    }

    /// The way to the keeper, which is started when it is first needed.
    pub(crate) fn orders(&self) -> Result<Orders, Error> {
        let mut keeper = self.inner.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(orders) = &*keeper {
            return Ok(orders.clone());
        }
        let orders = Orders::start(self.inner.way.endpoints().clone(), self.inner.clock.clone())
            .map_err(|error| Error::Local(format!("the thread that renews leases cannot start: {error}")))?;
        Ok(keeper.insert(orders).clone())
    }

    /// Begins a lease. Ids that it does not name are drawn here, so that it can be asked again until it is known.
    pub async fn grant(&self, mut request: v1::GrantRequest) -> Result<v1::GrantReply, Error> {
        named(&mut request);
        let call = |mut rpc: TenureClient<Connection>| {
            let request = request.clone();
            async move { rpc.grant(request).await }
        };
        self.inner.way.call(Repeat::Safe, call).await
    }

    /// Claims resources. Ids that it does not name are drawn here, so that it can be asked again until it is known. On a lease
    /// that lives already it is asked again only with a number: without one, an unknown outcome is said to be unknown.
    pub async fn acquire(&self, mut request: v1::AcquireRequest) -> Result<v1::AcquireReply, Error> {
        request.grant.iter_mut().for_each(named);
        let call = |mut rpc: TenureClient<Connection>| {
            let request = request.clone();
            async move { rpc.acquire(request).await }
        };
        self.inner.way.call(repeat_of(request.grant.is_some(), request.number), call).await
    }

    calls! { Never:
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
        /// Lets a node that waits for it join the cluster.
        add_member(AddMemberRequest) -> MembersReply;
        /// Takes a node out of the cluster.
        remove_member(RemoveMemberRequest) -> MembersReply;
        /// Hands the lead to another node.
        transfer_lead(TransferLeadRequest) -> MembersReply;
    }

    calls! { Safe:
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
        /// Changes what an instance says of itself, in part.
        update_instance(UpdateInstanceRequest) -> UpdateInstanceReply;
        /// Keeps new work from an instance, or lets it have some again.
        drain(DrainRequest) -> DrainReply;
        /// Takes an instance out.
        deregister(DeregisterRequest) -> DeregisterReply;
        /// Tells what a check of an instance found.
        set_health(SetHealthRequest) -> SetHealthReply;
        /// One instance in full, and how those before it ended.
        show_instance(ShowInstanceRequest) -> ShowInstanceReply;
        /// A page of the services that have instances.
        list_services(ListServicesRequest) -> ListServicesReply;
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
        /// The members of the cluster, as far as the asked node knows them.
        members(MembersRequest) -> MembersReply;
    }

    /// What happens, from a place in the stream on, over one connection. [`Client::watch`] outlives it.
    pub async fn watch_stream(&self, request: v1::WatchRequest) -> Result<Streaming<v1::WatchReply>, Error> {
        let call = |mut rpc: TenureClient<Connection>| {
            let request = request.clone();
            async move { rpc.watch(request).await }
        };
        self.inner.way.call(Repeat::Safe, call).await
    }

    /// Registers an instance, or replaces what it says of itself. Ids that a new lease does not name are drawn here. Nobody
    /// renews it: [`Client::register`] does. On a lease that lives already it is asked again only with a number.
    pub async fn register_instance(&self, mut request: v1::RegisterRequest) -> Result<v1::RegisterReply, Error> {
        request.grant.iter_mut().for_each(named);
        let call = |mut rpc: TenureClient<Connection>| {
            let request = request.clone();
            async move { rpc.register(request).await }
        };
        self.inner.way.call(repeat_of(request.grant.is_some(), request.number), call).await
    }

    /// A page of the instances of a service.
    pub async fn discover_page(&self, request: v1::DiscoverRequest) -> Result<v1::DiscoverReply, Error> {
        let call = |mut rpc: TenureClient<Connection>| {
            let request = request.clone();
            async move { rpc.discover(request).await }
        };
        self.inner.way.call(Repeat::Safe, call).await
    }

    /// The instances of a service and what changes of them, over one connection. [`Discovery::view`] outlives it.
    pub async fn watch_instances(
        &self,
        request: v1::WatchInstancesRequest,
    ) -> Result<Streaming<v1::WatchInstancesReply>, Error> {
        let call = |mut rpc: TenureClient<Connection>| {
            let request = request.clone();
            async move { rpc.watch_instances(request).await }
        };
        self.inner.way.call(Repeat::Safe, call).await
    }

    /// A backup of everything that was acknowledged before the call, in parts.
    pub async fn backup(&self) -> Result<Streaming<v1::BackupPart>, Error> {
        let call = |mut rpc: TenureClient<Connection>| async move { rpc.backup(v1::BackupRequest {}).await };
        self.inner.way.call(Repeat::Safe, call).await
    }

    /// Opens a stream on which many requests may be in flight.
    pub async fn converse(&self) -> Result<Conversation, Error> {
        let (requests, unsent) = mpsc::channel(UNSENT_MAX);
        let responses = self.inner.way.connected().await?.stream(ReceiverStream::new(unsent)).await?.into_inner();
        Ok(Conversation { requests, responses })
    }
}

/// Who asks, unless it was said: `user@host:pid`.
pub fn default_holder() -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = if host.is_empty() { "localhost" } else { &host };
    format!("{user}@{host}:{}", std::process::id())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_ids_are_never_repeated() {
        assert_eq!([repeat_of(true, 0), repeat_of(false, 1)], [Repeat::Safe, Repeat::Safe]);
        assert_eq!(repeat_of(false, 0), Repeat::Never);
    }
}
