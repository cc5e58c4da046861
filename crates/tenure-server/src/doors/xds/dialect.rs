//! The two ways of xDS to ask and to tell: the whole list of names every time, or what changes about it.

use super::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use super::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use super::pb::google::rpc::Status as Complaint;
use super::wanted::Wanted;
use crate::limits::{XDS_NAMES_BYTES_MAX, XDS_NAMES_MAX};
use prost::Message;
use prost_types::Any;
use std::collections::BTreeSet;
use tenure_core::Revision;
use tenure_core::limits::NAME_BYTES_MAX;
use tonic::Status;

/// The only type of resource that is served.
pub(super) const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

fn packed(assignment: &ClusterLoadAssignment) -> Any {
    Any { type_url: ENDPOINTS.to_owned(), value: assignment.encode_to_vec() }
}

/// A way to ask and to tell.
pub(super) trait Dialect: Send + 'static {
    type Ask: Send + 'static;
    type Tell: Send + 'static;

    /// The names that are asked for.
    fn names(ask: &Self::Ask) -> &[String];

    /// Reads what is asked: it changes what is wanted, and says what became of what was told.
    fn read(&mut self, ask: Self::Ask, wanted: &mut Wanted) -> Result<Heard, Status>;

    /// Writes what is told.
    fn write(&mut self, assignments: Vec<ClusterLoadAssignment>, revision: Revision) -> Self::Tell;
}

/// What became of what was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing is said of it, or not of the newest.
    Nothing,
    Taken,
    /// Envoy goes on with what it had before.
    Rejected(String),
}

/// The numbers of what was told on a stream.
#[derive(Debug, Default)]
struct Nonces {
    last: u64,
}

impl Nonces {
    fn next(&mut self) -> String {
        self.last += 1;
        self.last.to_string()
    }

    /// Whether something was told and this is an answer to something else than the newest of it.
    fn is_stale(&self, nonce: &str) -> bool {
        self.last > 0 && nonce != self.last.to_string()
    }

    fn heard(&self, nonce: &str, complaint: Option<Complaint>) -> Heard {
        match complaint {
            _ if self.last == 0 => Heard::Nothing,
            // Whatever it is that was not taken, nobody else hears of it.
            Some(complaint) => Heard::Rejected(complaint.message),
            None if self.is_stale(nonce) => Heard::Nothing,
            None => Heard::Taken,
        }
    }
}

/// All names are said with every request, and those that are not said are not wanted.
#[derive(Debug, Default)]
pub(super) struct Whole {
    nonces: Nonces,
    has_asked: bool,
}

impl Dialect for Whole {
    type Ask = DiscoveryRequest;
    type Tell = DiscoveryResponse;

    fn names(ask: &DiscoveryRequest) -> &[String] {
        &ask.resource_names
    }

    fn read(&mut self, ask: DiscoveryRequest, wanted: &mut Wanted) -> Result<Heard, Status> {
        must_be_endpoints(&ask.type_url)?;
        // It was sent before the newest was read: what is wanted then is said with the answer to that.
        if self.nonces.is_stale(&ask.response_nonce) {
            return Ok(self.nonces.heard(&ask.response_nonce, ask.error_detail));
        }
        must_be_names(&ask.resource_names)?;
        if !self.has_asked && ask.resource_names.is_empty() {
            return Err(everything());
        }
        let names: BTreeSet<String> = ask.resource_names.into_iter().collect();
        self.has_asked = true;
        wanted.replace(names);
        must_be_few(wanted)?;
        Ok(self.nonces.heard(&ask.response_nonce, ask.error_detail))
    }

    fn write(&mut self, assignments: Vec<ClusterLoadAssignment>, revision: Revision) -> DiscoveryResponse {
        DiscoveryResponse {
            version_info: revision.0.to_string(),
            resources: assignments.iter().map(packed).collect(),
            type_url: ENDPOINTS.into(),
            nonce: self.nonces.next(),
        }
    }
}

/// Only what changes about the names is said.
#[derive(Debug, Default)]
pub(super) struct Delta {
    nonces: Nonces,
    has_asked: bool,
}

impl Dialect for Delta {
    type Ask = DeltaDiscoveryRequest;
    type Tell = DeltaDiscoveryResponse;

    fn names(ask: &DeltaDiscoveryRequest) -> &[String] {
        &ask.resource_names_subscribe
    }

    fn read(&mut self, ask: DeltaDiscoveryRequest, wanted: &mut Wanted) -> Result<Heard, Status> {
        must_be_endpoints(&ask.type_url)?;
        must_be_names(&ask.resource_names_subscribe)?;
        if !self.has_asked && ask.resource_names_subscribe.is_empty() {
            return Err(everything());
        }
        self.has_asked = true;
        ask.resource_names_unsubscribe.iter().for_each(|name| wanted.remove(name));
        ask.resource_names_subscribe.into_iter().for_each(|name| wanted.add(name));
        must_be_few(wanted)?;
        Ok(self.nonces.heard(&ask.response_nonce, ask.error_detail))
    }

    fn write(&mut self, assignments: Vec<ClusterLoadAssignment>, revision: Revision) -> DeltaDiscoveryResponse {
        let resource = |assignment: ClusterLoadAssignment| Resource {
            name: assignment.cluster_name.clone(),
            version: revision.0.to_string(),
            resource: Some(packed(&assignment)),
        };
        DeltaDiscoveryResponse {
            system_version_info: revision.0.to_string(),
            resources: assignments.into_iter().map(resource).collect(),
            type_url: ENDPOINTS.into(),
            nonce: self.nonces.next(),
        }
    }
}

fn must_be_endpoints(kind: &str) -> Result<(), Status> {
    if kind.is_empty() || kind == ENDPOINTS {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "only endpoints are sent here ({ENDPOINTS}), not {kind}; configure the rest in Envoy"
    )))
}

fn must_be_names(names: &[String]) -> Result<(), Status> {
    if names.iter().any(|name| name == "*") {
        return Err(everything());
    }
    match names.iter().find(|name| name.len() > NAME_BYTES_MAX) {
        None => Ok(()),
        Some(name) => {
            let text = format!("a service's name has at most {NAME_BYTES_MAX} bytes, and one here has {}", name.len());
            Err(Status::invalid_argument(text))
        }
    }
}

fn must_be_few(wanted: &Wanted) -> Result<(), Status> {
    let (count, bytes) = (wanted.len(), wanted.bytes());
    if count > XDS_NAMES_MAX {
        let text = format!("{count} services are wanted on one stream, more than {XDS_NAMES_MAX}");
        return Err(Status::resource_exhausted(text));
    }
    if bytes > XDS_NAMES_BYTES_MAX {
        let text = format!("the names wanted on one stream have {bytes} bytes, more than {XDS_NAMES_BYTES_MAX}");
        return Err(Status::resource_exhausted(text));
    }
    Ok(())
}

fn everything() -> Status {
    Status::invalid_argument("not all services are told at once: name those that are wanted, as EDS clusters do")
}
