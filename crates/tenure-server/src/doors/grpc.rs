//! The native gRPC door: `tenure.v1`.

use super::{stream, unready, watch};
use crate::limits::{PAGE, PAGE_MAX};
use crate::node::Node;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use tenure_api::v1::tenure_server::Tenure;
use tenure_api::{BadRequest, failure, failure_status, read_handle, read_request, v1, write_outcome};
use tenure_core::{Handle, LeaseId, Ledger, Moment, Name, Refusal, Stake};
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
        let now = self.node.now();
        if stale {
            return Ok(self.node.read_stale(|ledger| look(ledger, now)));
        }
        let read = self.node.read(|ledger| look(ledger, now)).await;
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
        // A page starts at its `from`, or else where names with the prefix start.
        let from = if request.from.is_empty() { &request.prefix } else { &request.from };
        let from = match from.trim_end_matches('/') {
            "" => None,
            from => Some(Name::parse(from).map_err(|bad| bad_request(&BadRequest::Name(bad)))?),
        };
        let look = |ledger: &Ledger, now| list_resources(ledger, &request, from.as_ref(), now);
        self.read(request.stale, look).await.map(Response::new)
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
            now_ms: self.node.now().millis(),
            dropped_ms: status.dropped_ms,
        }))
    }
}

fn page(limit: u32) -> usize {
    match limit as usize {
        0 => PAGE,
        limit => limit.min(PAGE_MAX),
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

fn list_resources(
    ledger: &Ledger,
    request: &v1::ListResourcesRequest,
    from: Option<&Name>,
    now: Moment,
) -> v1::ListResourcesReply {
    let limit = page(request.limit);
    let mut reply = v1::ListResourcesReply {
        revision: ledger.revision().0,
        now_ms: now.millis(),
        ..v1::ListResourcesReply::default()
    };
    let reached = |name: &&Name| name.as_str() < request.prefix.as_str();
    let named = ledger.resources_from(from).skip_while(|(name, _)| reached(name));
    for (name, resource) in named.take_while(|(name, _)| name.as_str().starts_with(&request.prefix)) {
        if reply.items.len() == limit {
            reply.next = name.to_string();
            break;
        }
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
        reply.items.push(item);
    }
    reply
}

fn list_leases(ledger: &Ledger, request: v1::ListLeasesRequest, now: Moment) -> v1::ListLeasesReply {
    let limit = page(request.limit);
    let mut reply =
        v1::ListLeasesReply { revision: ledger.revision().0, now_ms: now.millis(), ..v1::ListLeasesReply::default() };
    for (id, lease) in ledger.leases_from(LeaseId::from_number(request.from)) {
        if reply.items.len() == limit {
            reply.next = id.number();
            break;
        }
        let mut item = v1::Lease {
            lease: id.number(),
            holder: lease.holder().to_string(),
            ttl_ms: lease.ttl().millis(),
            remaining_ms: lease.deadline().millis_since(now),
            granted_wall_ms: lease.granted_wall_ms(),
            ..v1::Lease::default()
        };
        for (name, stake) in lease.stakes() {
            match stake {
                Stake::Holding { fence } => item.holds.push(format!("{name}@{fence}")),
                Stake::Waiting { .. } => item.waits.push(name.to_string()),
            }
        }
        reply.items.push(item);
    }
    reply
}
