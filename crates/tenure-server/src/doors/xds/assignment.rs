//! What Envoy is told of a service: its instances by zone, with weight and health, and for how long that may be relied on.

use super::pb::envoy::config::core::v3::address::Address as Place;
use super::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use super::pb::envoy::config::core::v3::{Address, HealthStatus, Locality, Metadata, SocketAddress};
use super::pb::envoy::config::endpoint::v3::cluster_load_assignment::Policy;
use super::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use super::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints};
use crate::limits::{XDS_ENDPOINTS_MAX, XDS_SLACK};
use prost_types::value::Kind;
use prost_types::{Duration as Lasting, Struct, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use tenure_core::{Health, Instance, InstanceId, Ledger, Moment, Name};

/// Where Envoy looks for what it chooses subsets by.
const SUBSETS: &str = "envoy.lb";

/// What is told of one service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assigned {
    pub(super) assignment: ClusterLoadAssignment,
    /// When it is to be told anew at the latest; none, if there is nothing in it that could end.
    pub(super) fresh_for: Option<Duration>,
    /// Instances that could not be told.
    pub(super) left_out: usize,
}

/// What there is to tell of a service at a moment. One that has no instances, or a name that no service can have, is told
/// as one without endpoints: Envoy waits for an answer for every name.
pub(super) fn assigned(ledger: &Ledger, service: &str, now: Moment) -> Assigned {
    let mut zones: BTreeMap<&str, Vec<LbEndpoint>> = BTreeMap::new();
    let (mut told, mut left_out, mut valid_ms) = (0, 0, u64::MAX);
    let name = Name::parse(service).ok();
    for (id, instance) in name.iter().flat_map(|name| ledger.instances(name, "")) {
        match endpoint(id, instance).filter(|_| told < XDS_ENDPOINTS_MAX) {
            Some(endpoint) => {
                told += 1;
                valid_ms = valid_ms.min(ledger.valid_for(instance, now).millis());
                let zone = instance.details().zone.as_ref().map_or("", |zone| zone.as_str());
                zones.entry(zone).or_default().push(endpoint);
            }
            None => left_out += 1,
        }
    }
    let stale_after = (told > 0).then(|| Duration::from_millis(valid_ms).saturating_add(XDS_SLACK));
    let assignment = ClusterLoadAssignment {
        cluster_name: service.to_owned(),
        endpoints: zones.into_iter().map(|(zone, endpoints)| in_zone(zone, endpoints)).collect(),
        policy: stale_after.map(|after| Policy { endpoint_stale_after: Some(lasting(after)) }),
    };
    Assigned { assignment, fresh_for: stale_after.map(|after| after / 2), left_out }
}

fn in_zone(zone: &str, endpoints: Vec<LbEndpoint>) -> LocalityLbEndpoints {
    let weights = endpoints.iter().filter_map(|endpoint| endpoint.load_balancing_weight);
    // As many endpoints as there may be, of the greatest weight that there is, are just below the greatest number.
    const _: () = assert!(XDS_ENDPOINTS_MAX as u64 * tenure_core::limits::WEIGHT_MAX as u64 <= u32::MAX as u64);
    let weight = weights.sum();
    LocalityLbEndpoints {
        locality: Some(Locality { zone: zone.to_owned() }),
        lb_endpoints: endpoints,
        load_balancing_weight: Some(weight),
    }
}

/// An instance as Envoy knows it: its first endpoint, if that is an address, since Envoy takes no names here. One of weight 0
/// is left out: it is for those who ask for it by name, and Envoy knows no such weight.
fn endpoint(id: &InstanceId, instance: &Instance) -> Option<LbEndpoint> {
    let details = instance.details();
    let at = details.endpoints.first()?;
    let address = at.host().parse::<IpAddr>().ok().filter(|_| details.weight > 0)?;
    let socket = SocketAddress {
        address: address.to_string(),
        port_specifier: Some(PortSpecifier::PortValue(at.port().into())),
    };
    let endpoint = Endpoint {
        address: Some(Address { address: Some(Place::SocketAddress(socket)) }),
        observability_name: id.as_str().to_owned(),
    };
    Some(LbEndpoint {
        health_status: health(instance).into(),
        metadata: Some(Metadata { filter_metadata: BTreeMap::from([(SUBSETS.to_owned(), words(id, instance))]) }),
        load_balancing_weight: Some(details.weight),
        host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
    })
}

fn health(instance: &Instance) -> HealthStatus {
    match instance.overall() {
        _ if instance.draining().is_some() => HealthStatus::Draining,
        Health::Passing => HealthStatus::Healthy,
        Health::Degraded => HealthStatus::Degraded,
        Health::Unknown | Health::Critical => HealthStatus::Unhealthy,
    }
}

/// What subsets can be chosen by: labels under their own names, the rest under ours.
fn words(id: &InstanceId, instance: &Instance) -> Struct {
    let details = instance.details();
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let labels = details.labels.iter().map(|(key, value)| (key.to_string(), text(value)));
    let capabilities = details.capabilities.iter().map(|word| (format!("tenure.capability.{word}"), text("true")));
    let version = details.version.iter().map(|version| ("tenure.version".to_owned(), text(version.as_str())));
    let id = [("tenure.instance".to_owned(), text(id.as_str()))];
    Struct { fields: labels.chain(capabilities).chain(version).chain(id).collect() }
}

fn lasting(time: Duration) -> Lasting {
    // Envoy takes no longer ones than some hundred years.
    let seconds = time.as_secs().min(1 << 32);
    Lasting { seconds: seconds.cast_signed(), nanos: time.subsec_nanos().cast_signed() }
}
