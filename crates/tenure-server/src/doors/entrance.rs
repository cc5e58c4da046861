//! In front of all doors: whether whoever asks may. The one place where that is decided; what is not named here needs a key
//! that may do everything. A client that names another cluster than this one is refused, too.

use super::revocable::revocable;
use super::{etcd, http, xds};
use crate::access::{Access, Need};
use crate::listen::Peer;
use crate::metrics::{Call, Door};
use crate::node::Node;
use crate::shares::Client;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, header};
use axum::response::Response;
use tenure_api::v1::Failure;
use tenure_api::{CLUSTER_HEADER, Code, failure_status};

/// Paths that say only whether the server is there.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];
const HEALTH: &str = "/grpc.health.v1.Health/";

/// Calls of gRPC that change nothing. The stream is not one of them: all that it carries are orders.
const REFLECTION: &str = "/grpc.reflection.";
const NATIVE: &str = "/tenure.v1.Tenure/";
const READS: [&str; 16] = [
    "Discover",
    "GetKey",
    "History",
    "ListClasses",
    "ListKeys",
    "ListLeases",
    "ListResources",
    "ListServices",
    "Members",
    "Show",
    "ShowInstance",
    "ShowLease",
    "Status",
    "Verify",
    "Watch",
    "WatchInstances",
];

/// Looks at whoever asks.
#[derive(Clone)]
pub(crate) struct Entrance {
    access: Access,
    node: Node,
}

impl Entrance {
    pub(crate) fn new(access: Access, node: Node) -> Self {
        Self { access, node }
    }

    /// What a request shows, and what it needs; or the answer to one that may not ask, in the words of its protocol.
    pub(super) fn admit(&self, request: &Request, door: Door) -> Result<Ticket, Response> {
        let (path, headers) = (request.uri().path(), request.headers());
        let is_etcd = etcd::is_etcd(door, path);
        let (need, shown) = match door {
            _ if is_etcd => (etcd::need(door, path), etcd::token(headers)),
            Door::Http => (need_of_http(request.method(), path), shown(headers)),
            Door::Etcd | Door::Grpc | Door::Stream => (need_of_grpc(path), shown(headers)),
        };
        let refusal = self.access.refusal(shown, need).or_else(|| self.other_cluster(headers));
        let Some(failure) = refusal else {
            if need != Need::Nothing
                && let Some(peer) = request.extensions().get::<Peer>()
            {
                peer.is_known();
            }
            return Ok(Ticket { need, shown: shown.filter(|_| self.access.is_asked_for()).map(<[u8]>::to_vec) });
        };
        tracing::debug!(path, code = failure.code, "a request was refused");
        self.node.metrics().asked(door, Call::Other).answered(&failure.code);
        Err(match door {
            _ if is_etcd => etcd::refusal(door, headers, &failure),
            Door::Http => http::refused(failure),
            Door::Etcd | Door::Grpc | Door::Stream => failure_status(&failure).into_http::<Body>(),
        })
    }

    /// The refusal of a client that has been using another cluster. One that names none is answered by any.
    fn other_cluster(&self, headers: &HeaderMap) -> Option<Failure> {
        let meant = headers.get(CLUSTER_HEADER)?.as_bytes();
        let ours = self.node.identity().cluster;
        if ours == 0 || meant == cluster_text(ours).as_bytes() {
            return None;
        }
        let code = Code::OtherCluster.text().into();
        let message = format!(
            "this server belongs to cluster {}, and the client has been using cluster {}; nothing was changed",
            cluster_text(ours),
            String::from_utf8_lossy(meant).escape_default()
        );
        Some(Failure { code, message, ..Failure::default() })
    }

    /// Names the cluster in an answer, so that the client notices another one at the same address.
    pub(super) fn name_cluster(&self, response: &mut Response) {
        let ours = self.node.identity().cluster;
        if ours != 0
            && let Ok(name) = HeaderValue::from_str(&cluster_text(ours))
        {
            response.headers_mut().insert(CLUSTER_HEADER, name);
        }
    }

    /// Who makes a request that was let in.
    pub(super) fn caller(&self, ticket: &Ticket, request: &Request) -> Caller {
        let peer = request.extensions().get::<Peer>().cloned();
        Caller { access: self.access.clone(), shown: ticket.shown.clone(), peer }
    }

    /// Ends an answer that takes long when the key of its request is revoked.
    pub(super) fn follow(&self, ticket: &Ticket, door: Door, response: Response) -> Response {
        revocable(response, &self.access, ticket.shown.as_deref(), ticket.need, door != Door::Http)
    }
}

/// Who makes a request, worked out when it is needed.
#[derive(Clone)]
pub(crate) struct Caller {
    access: Access,
    shown: Option<Vec<u8>>,
    peer: Option<Peer>,
}

impl Caller {
    /// A caller of which only the secret is known.
    #[cfg(test)]
    pub(super) fn showing(access: Access, shown: Option<Vec<u8>>) -> Self {
        Self { access, shown, peer: None }
    }

    /// The name of its API key; without one, its address.
    pub(super) fn client(&self) -> Client {
        let name = self.shown.as_deref().and_then(|secret| self.access.name_of(secret));
        let address = || Some(self.peer.as_ref()?.ip()?.to_canonical().to_string());
        name.or_else(address).map_or_else(Client::default, |name| Client::named(&name))
    }
}

/// Who makes the request with these extensions.
pub(super) fn client_of(extensions: &Extensions) -> Client {
    extensions.get::<Caller>().map_or_else(Client::default, Caller::client)
}

/// What a request that was let in has shown, and what for.
pub(super) struct Ticket {
    pub(super) need: Need,
    shown: Option<Vec<u8>>,
}

/// A cluster as clients and people see it.
fn cluster_text(cluster: u64) -> String {
    format!("{cluster:016x}")
}

fn need_of_http(method: &Method, path: &str) -> Need {
    match *method {
        _ if PROBES.contains(&path) => Need::Nothing,
        Method::GET | Method::HEAD => Need::Read,
        _ => Need::Full,
    }
}

fn need_of_grpc(path: &str) -> Need {
    let is_read = path.strip_prefix(NATIVE).is_some_and(|call| READS.contains(&call));
    match path {
        _ if path.starts_with(HEALTH) => Need::Nothing,
        _ if is_read || path.starts_with(REFLECTION) || xds::is_xds(path) => Need::Read,
        _ => Need::Full,
    }
}

/// The secret that is shown. Whoever shows two shows none.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let mut said = headers.get_all(header::AUTHORIZATION).iter();
    let (scheme, secret) = said.next()?.as_bytes().split_at_checked("Bearer ".len())?;
    (said.next().is_none() && scheme.eq_ignore_ascii_case(b"Bearer ")).then_some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use prost::Message;

    /// What a call needs is decided by whoever adds it, not by chance.
    #[test]
    fn every_call_of_the_treaty_is_a_read_or_is_known_to_write() {
        let writes = [
            "Stream",
            "Grant",
            "Acquire",
            "Renew",
            "RenewHandle",
            "Release",
            "Cancel",
            "Revoke",
            "ReleaseLease",
            "BreakClaims",
            "Transfer",
            "AddMember",
            "RemoveMember",
            "TransferLead",
            "Backup",
            "DefineResource",
            "SetClass",
            "Put",
            "Delete",
            "Register",
            "UpdateInstance",
            "Drain",
            "Deregister",
            "SetHealth",
        ];
        let set = prost_types::FileDescriptorSet::decode(tenure_api::v1::DESCRIPTORS).unwrap();
        let services = set.file.iter().flat_map(|file| &file.service).filter(|service| service.name() == "Tenure");
        let calls: Vec<&str> = services.flat_map(|service| &service.method).map(|method| method.name()).collect();
        assert_eq!(calls.len(), writes.len() + READS.len());
        for call in calls {
            let need = if writes.contains(&call) { Need::Full } else { Need::Read };
            assert_eq!(need_of_grpc(&format!("{NATIVE}{call}")), need, "{call}");
        }
    }

    #[test]
    fn what_is_not_named_needs_a_key_that_may_do_everything() {
        for path in ["", "/", "/tenure.v1.Tenure/Show/", "/tenure.v1.Tenure/show", "/tenure.v2.Tenure/Show", "/healthz"]
        {
            assert_eq!(need_of_grpc(path), Need::Full, "{path}");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            assert_eq!(need_of_http(&method, "/v1/leases"), Need::Full, "{method}");
        }
        for path in ["/metrics", "/openapi.json", "/v1/watch", "/healthz/", "//healthz", "/nowhere"] {
            assert_eq!(need_of_http(&Method::GET, path), Need::Read, "{path}");
        }
    }

    #[test]
    fn what_envoy_asks_changes_nothing() {
        for path in [
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
            "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints",
            "/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints",
        ] {
            assert_eq!(need_of_grpc(path), Need::Read, "{path}");
        }
        assert_eq!(need_of_grpc("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"), Need::Full);
    }

    #[test]
    fn one_secret_is_shown_or_none() {
        let shown_by = |said: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for said in said {
                headers.append(header::AUTHORIZATION, HeaderValue::from_static(said));
            }
            shown(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(shown_by(&["Bearer tnr_a"]), Some(b"tnr_a".to_vec()));
        assert_eq!(shown_by(&["bearer tnr_a"]), Some(b"tnr_a".to_vec()));
        for none in [&[][..], &["tnr_a"], &["Basic tnr_a"], &["Bearer"], &["Bearer tnr_a", "Bearer tnr_b"]] {
            assert_eq!(shown_by(none), None, "{none:?}");
        }
    }
}
