//! Envoy's dialect: endpoints of services by xDS (EDS, alone or aggregated), all of them or as deltas. `feed.rs` has the
//! stream, `assignment.rs` what is told of a service; this file is only how it is on the wire of gRPC.

mod assignment;
mod dialect;
mod feed;
/// The generated messages and calls of Envoy's API.
#[allow(unreachable_pub, unused_qualifications, clippy::all, clippy::too_many_lines, reason = "generated code")]
mod pb {
    include!(concat!(env!("OUT_DIR"), "/envoy.rs"));
}
#[cfg(test)]
mod tests;
mod wanted;

use super::entrance::client_of;
use crate::limits::REQUEST_BYTES_MAX;
use crate::node::Node;
use dialect::{Delta, Whole};
use feed::Replies;
use pb::envoy::service::discovery::v3::aggregated_discovery_service_server as aggregated;
use pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use pb::envoy::service::endpoint::v3::endpoint_discovery_service_server as endpoint;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

/// Where its calls are. They change nothing.
const CALLS: [&str; 2] =
    ["/envoy.service.discovery.v3.AggregatedDiscoveryService/", "/envoy.service.endpoint.v3.EndpointDiscoveryService/"];

/// Whether a call of gRPC is one of the dialect.
pub(super) fn is_xds(path: &str) -> bool {
    CALLS.iter().any(|calls| path.starts_with(calls))
}

/// All calls of the dialect.
#[derive(Clone)]
pub(crate) struct XdsDoor {
    node: Node,
}

/// Adds the calls of the dialect to others.
pub(crate) fn add(routes: Routes, node: Node) -> Routes {
    let door = XdsDoor { node };
    let aggregated = aggregated::AggregatedDiscoveryServiceServer::new(door.clone());
    let endpoint = endpoint::EndpointDiscoveryServiceServer::new(door);
    routes
        .add_service(aggregated.max_decoding_message_size(REQUEST_BYTES_MAX))
        .add_service(endpoint.max_decoding_message_size(REQUEST_BYTES_MAX))
}

impl XdsDoor {
    fn whole(&self, asks: Request<Streaming<DiscoveryRequest>>) -> Response<Replies<DiscoveryResponse>> {
        Response::new(feed::open(self.node.clone(), client_of(asks.extensions()), asks.into_inner(), Whole::default()))
    }

    fn delta(&self, asks: Request<Streaming<DeltaDiscoveryRequest>>) -> Response<Replies<DeltaDiscoveryResponse>> {
        Response::new(feed::open(self.node.clone(), client_of(asks.extensions()), asks.into_inner(), Delta::default()))
    }
}

#[tonic::async_trait]
impl aggregated::AggregatedDiscoveryService for XdsDoor {
    type StreamAggregatedResourcesStream = Replies<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Replies<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Replies<DiscoveryResponse>>, Status> {
        Ok(self.whole(request))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Replies<DeltaDiscoveryResponse>>, Status> {
        Ok(self.delta(request))
    }
}

#[tonic::async_trait]
impl endpoint::EndpointDiscoveryService for XdsDoor {
    type StreamEndpointsStream = Replies<DiscoveryResponse>;
    type DeltaEndpointsStream = Replies<DeltaDiscoveryResponse>;

    async fn stream_endpoints(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Replies<DiscoveryResponse>>, Status> {
        Ok(self.whole(request))
    }

    async fn delta_endpoints(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Replies<DeltaDiscoveryResponse>>, Status> {
        Ok(self.delta(request))
    }

    async fn fetch_endpoints(&self, _: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        Err(Status::unimplemented("endpoints are told by a stream: set api_type to GRPC or DELTA_GRPC"))
    }
}
