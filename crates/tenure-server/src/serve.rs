//! Listening: the doors on one port, with limits on what a stranger may cost.

use crate::access::Access;
use crate::addresses::Addresses;
use crate::compactor::{Compaction, compact};
use crate::doors::etcd::{self, EtcdDoor};
use crate::doors::{Answers, Entrance, NativeDoor, both, http, xds};
use crate::guests::Trust;
use crate::limits::{
    BODIES_KIB_MAX, CONNECTION_STREAMS_MAX, CONNECTIONS_PER_ADDRESS, HEADER_BYTES_MAX, KEEPALIVE, REQUEST_BYTES_MAX,
    SMALL_BYTES_MAX, STOP_PATIENCE,
};
use crate::listen::accept;
use crate::node::Node;
use crate::probes::{Networks, probe};
use crate::tls::Tls;
use futures::StreamExt;
use futures::stream::select_all;
use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use tenure_api::v1::DESCRIPTORS;
use tenure_api::v1::tenure_server::TenureServer;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tonic::service::Routes;
use tonic::transport::Server;

/// Why serving ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// It was asked to stop, and did.
    Stopped,
    /// The node cannot go on; the process must stop.
    Failed(String),
}

/// What an operator chooses about the doors.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Host names, beside loopback, under which HTTP clients may ask.
    pub hosts: Vec<String>,
    /// How they speak TLS; without it, in the clear.
    pub tls: Option<Tls>,
    /// Who may ask.
    pub access: Access,
    /// Whether the nodes of the cluster speak TLS among themselves, which clients are told.
    pub peers_speak_tls: bool,
    /// What of the past of keys is kept.
    pub compaction: Compaction,
    /// Which networks the leader may probe.
    pub probe_allow: Networks,
    /// How many connections one address may have, beside loopback; [`CONNECTIONS_PER_ADDRESS`] unless said.
    ///
    /// [`CONNECTIONS_PER_ADDRESS`]: crate::CONNECTIONS_PER_ADDRESS
    pub connections_per_address: Option<NonZeroUsize>,
}

/// Why serving could not start or go on.
#[derive(Debug, thiserror::Error)]
#[error("the server cannot listen: {0}")]
pub struct ServeError(String);

/// Serves a node on listeners until `stop` resolves or the node fails.
pub async fn serve(
    node: Node,
    listeners: Vec<TcpListener>,
    settings: &Settings,
    stop: impl Future<Output = ()> + Send,
) -> Result<Served, ServeError> {
    let error = |error: &dyn std::fmt::Display| ServeError(error.to_string());
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tenure_api::etcd::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|e| error(&e))?
        .max_decoding_message_size(SMALL_BYTES_MAX);
    let (health_reporter, health) = tonic_health::server::health_reporter();
    let health = health.max_decoding_message_size(SMALL_BYTES_MAX);
    health_reporter.set_serving::<TenureServer<NativeDoor>>().await;
    let native = TenureServer::new(NativeDoor::new(node.clone())).max_decoding_message_size(REQUEST_BYTES_MAX);
    let (ended, mut end) = tokio::sync::watch::channel(None);
    let (stops, stopping) = tokio::sync::watch::channel(false);
    let until = async {
        let why = tokio::select! {
            () = stop => {
                node.hand_over().await;
                Served::Stopped
            }
            reason = node.failed() => Served::Failed(reason),
        };
        health_reporter.set_not_serving::<TenureServer<NativeDoor>>().await;
        ended.send_replace(Some(why));
        stops.send_replace(true);
    };
    let is_loopback = |listener: &TcpListener| listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let is_local = listeners.iter().all(is_loopback);
    tokio::spawn(compact(node.clone(), settings.compaction));
    tokio::spawn(probe(node.clone(), settings.probe_allow.clone()));
    let per_address = settings.connections_per_address.map_or(CONNECTIONS_PER_ADDRESS, NonZeroUsize::get);
    let addresses = Addresses::at_most(per_address);
    let connections = listeners
        .into_iter()
        .map(|listener| accept(listener, settings.tls.clone(), Trust::OnceAllowed, Some(addresses.clone())).boxed());
    let dialect = EtcdDoor::new(node.clone(), settings.access.clone(), settings.peers_speak_tls);
    let grpc = etcd::add(Routes::new(reflection).add_service(health).add_service(native), dialect.clone());
    let grpc = xds::add(grpc, node.clone());
    // Room for bodies and messages that are arriving, in KiB.
    let bodies = Arc::new(Semaphore::new(BODIES_KIB_MAX));
    let guard = http::Guard::new(&settings.hosts, is_local);
    let json = http::router(node.clone(), dialect, guard, http::Stop::new(stopping), bodies.clone());
    let entrance = Entrance::new(settings.access.clone(), node.clone());
    let routes = Routes::from(both(grpc.prepare().into_axum_router(), json, entrance, bodies, Answers::new()));
    let listening = Server::builder()
        .accept_http1(true)
        .max_concurrent_streams(Some(CONNECTION_STREAMS_MAX))
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_routes(routes)
        .serve_with_incoming_shutdown(select_all(connections), until);
    // Streams may stay open for days; a client that does not hang up gets a moment for what is under way.
    let patience = async {
        let told = end.wait_for(Option::is_some).await.map(drop);
        tokio::time::sleep(STOP_PATIENCE).await;
        told
    };
    tokio::select! {
        served = listening => served.map_err(|e| error(&e))?,
        _ = patience => {}
    }
    node.stop().await;
    let why = end.borrow().clone();
    Ok(why.unwrap_or(Served::Stopped))
}
