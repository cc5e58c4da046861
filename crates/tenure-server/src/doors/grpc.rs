//! The native gRPC door: `tenure.v1`.

use super::{stream, unready, watch};
use crate::limits::{LISTED_STAKES_MAX, PAGE, PAGE_BYTES, PAGE_MAX};
use crate::node::Node;
use prost::Message;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use tenure_api::v1::tenure_server::Tenure;
use tenure_api::{BadRequest, failure, failure_status, read_handle, read_request, v1, write_outcome};
use tenure_core::{Handle, LeaseId, Ledger, Moment, Refusal, Stake};
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct NativeDoor {
    node: Node,
}

impl NativeDoor {
    pub(crate) fn new(node: Node) -> Self {
        Self { node }
    }

    /// Orders what one unary request asks for.
    async fn order(&self, ask: Ask) -> Result<Tell, Status> {
        let command = read_request(Some(ask), &|| self.node.draw_lease()).map_err(|bad| bad_request(&bad))?;
        let outcome = self.node.order(command).await.map_err(|not_yet| failure_status(&unready(&not_yet)))?;
        match write_outcome(&outcome) {
            Tell::Failure(failure) => Err(failure_status(&failure)),
            tell => Ok(tell),
        }
    }

    async fn read<T>(&self, stale: bool, look: impl FnOnce(&Ledger, Moment) -> T) -> Result<T, Status> {
        let look = |ledger: &Ledger| look(ledger, self.node.service_time().unwrap_or(ledger.now()));
        if stale {
            return Ok(self.node.read_stale(look));
        }
        let read = self.node.read(look).await;
        read.map_err(|not_yet| failure_status(&unready(&not_yet)))
    }
}

fn bad_request(bad: &BadRequest) -> Status {
    failure_status(&bad.failure())
}

/// Turns a unary request into an order and its answer into the reply of that call.
macro_rules! ordered {
    ($self:ident, $request:ident, $kind:ident) => {
        match $self.order(Ask::$kind($request.into_inner())).await? {
            Tell::$kind(reply) => Ok(Response::new(reply)),
            other => unreachable!("a command is answered by a reply of its own kind, not {other:?}"),
        }
    };
}

#[tonic::async_trait]
impl Tenure for NativeDoor {
    type StreamStream = stream::Answers;
    type WatchStream = watch::Replies;

    async fn stream(&self, request: Request<Streaming<v1::Request>>) -> Result<Response<stream::Answers>, Status> {
        Ok(Response::new(stream::open(self.node.clone(), request.into_inner())))
    }

    async fn grant(&self, request: Request<v1::GrantRequest>) -> Result<Response<v1::GrantReply>, Status> {
        ordered!(self, request, Grant)
    }

    async fn acquire(&self, request: Request<v1::AcquireRequest>) -> Result<Response<v1::AcquireReply>, Status> {
        ordered!(self, request, Acquire)
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::RenewReply>, Status> {
        ordered!(self, request, Renew)
    }

    async fn renew_handle(
        &self,
        request: Request<v1::RenewHandleRequest>,
    ) -> Result<Response<v1::RenewHandleReply>, Status> {
        ordered!(self, request, RenewHandle)
    }

    async fn release(&self, request: Request<v1::ReleaseRequest>) -> Result<Response<v1::ReleaseReply>, Status> {
        ordered!(self, request, Release)
    }

    async fn cancel(&self, request: Request<v1::CancelRequest>) -> Result<Response<v1::CancelReply>, Status> {
        ordered!(self, request, Cancel)
    }

    async fn revoke(&self, request: Request<v1::RevokeRequest>) -> Result<Response<v1::RevokeReply>, Status> {
        ordered!(self, request, Revoke)
    }

    async fn verify(&self, request: Request<v1::VerifyRequest>) -> Result<Response<v1::VerifyReply>, Status> {
        let handle = read_handle(&request.get_ref().handle).map_err(|bad| bad_request(&bad))?;
        let verified = self.read(false, |ledger, now| verify(ledger, &handle, now)).await?;
        verified.map(Response::new).map_err(|refusal| failure_status(&failure(&refusal)))
    }

    async fn list_resources(
        &self,
        request: Request<v1::ListResourcesRequest>,
    ) -> Result<Response<v1::ListResourcesReply>, Status> {
        let request = request.into_inner();
        self.read(request.stale, |ledger, now| list_resources(ledger, &request, now)).await.map(Response::new)
    }

    async fn list_leases(
        &self,
        request: Request<v1::ListLeasesRequest>,
    ) -> Result<Response<v1::ListLeasesReply>, Status> {
        let request = request.into_inner();
        self.read(request.stale, |ledger, now| list_leases(ledger, request, now)).await.map(Response::new)
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<watch::Replies>, Status> {
        Ok(Response::new(watch::open(self.node.clone(), request.into_inner())))
    }

    async fn status(&self, _request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        let status = self.node.status();
        Ok(Response::new(v1::StatusReply {
            version: env!("CARGO_PKG_VERSION").into(),
            cluster: status.identity.cluster,
            node: status.identity.node,
            leads: status.leads_in.is_some(),
            term: status.leads_in.unwrap_or_default(),
            applied_index: status.applied,
            revision: status.revision.0,
            leases: status.leases as u64,
            now_ms: status.now.millis(),
            dropped_ms: status.dropped_ms,
        }))
    }
}

fn verify(ledger: &Ledger, handle: &Handle, now: Moment) -> Result<v1::VerifyReply, Refusal> {
    let id = ledger.behind(handle)?;
    let lease = ledger.lease(id).expect("every stake hangs on a living lease");
    Ok(v1::VerifyReply {
        lease: id.number(),
        holder: lease.holder().to_string(),
        remaining_ms: lease.deadline().millis_since(now),
    })
}

fn list_resources(ledger: &Ledger, request: &v1::ListResourcesRequest, now: Moment) -> v1::ListResourcesReply {
    let mut page = Page::new(request.limit);
    let mut reply = v1::ListResourcesReply {
        revision: ledger.revision().0,
        now_ms: now.millis(),
        ..v1::ListResourcesReply::default()
    };
    let from = request.from.as_str().max(&request.prefix);
    let named = ledger.resources_from(from).take_while(|(name, _)| name.as_str().starts_with(&request.prefix));
    for (name, resource) in named {
        let mut item = v1::Resource { name: name.to_string(), waiting: resource.waiting(), ..v1::Resource::default() };
        if let Some(holding) = resource.holding() {
            let lease = ledger.lease(holding.lease).expect("every stake hangs on a living lease");
            item.holder = lease.holder().to_string();
            item.fence = holding.fence.number();
            item.lease = holding.lease.number();
            item.ttl_ms = lease.ttl().millis();
            item.remaining_ms = lease.deadline().millis_since(now);
            item.since_wall_ms = holding.since_wall_ms;
        }
        if !page.takes(&item) {
            reply.next = item.name;
            break;
        }
        reply.items.push(item);
    }
    reply
}

fn list_leases(ledger: &Ledger, request: v1::ListLeasesRequest, now: Moment) -> v1::ListLeasesReply {
    let mut page = Page::new(request.limit);
    let mut reply =
        v1::ListLeasesReply { revision: ledger.revision().0, now_ms: now.millis(), ..v1::ListLeasesReply::default() };
    for (id, lease) in ledger.leases_from(LeaseId::from_number(request.from)) {
        let mut item = v1::Lease {
            lease: id.number(),
            holder: lease.holder().to_string(),
            ttl_ms: lease.ttl().millis(),
            remaining_ms: lease.deadline().millis_since(now),
            granted_wall_ms: lease.granted_wall_ms(),
            attached: lease.stakes().count() as u64,
            ..v1::Lease::default()
        };
        for (name, stake) in lease.stakes().take(LISTED_STAKES_MAX) {
            match stake {
                Stake::Holding { fence } => item.holds.push(format!("{name}@{fence}")),
                Stake::Waiting { .. } => item.waits.push(name.to_string()),
            }
        }
        if !page.takes(&item) {
            reply.next = id.number();
            break;
        }
        reply.items.push(item);
    }
    reply
}

/// What still fits on a page: so many items, and about so many bytes. The first item always fits.
struct Page {
    items: usize,
    bytes: usize,
    empty: bool,
}

impl Page {
    fn new(limit: u32) -> Self {
        let items = match limit as usize {
            0 => PAGE,
            limit => limit.min(PAGE_MAX),
        };
        Self { items, bytes: PAGE_BYTES, empty: true }
    }

    fn takes(&mut self, item: &impl Message) -> bool {
        let bytes = item.encoded_len();
        let fits = self.empty || (self.items > 0 && bytes <= self.bytes);
        if fits {
            self.items = self.items.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(bytes);
            self.empty = false;
        }
        fits
    }
}
