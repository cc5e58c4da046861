//! The native gRPC door: `tenure.v1`. What the reads show is in `look/`.

use super::look::{key, lease, past, resource};
use super::{stream, unready, watch};
use crate::metrics::{Call, Door, OK};
use crate::node::Node;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use tenure_api::v1::tenure_server::Tenure;
use tenure_api::{
    BadRequest, failure, failure_status, read_handle, read_key, read_lease, read_name, read_request, read_status, v1,
    write_outcome,
};
use tenure_core::{Ledger, Moment, Refusal};
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct NativeDoor {
    node: Node,
}

impl NativeDoor {
    pub(crate) fn new(node: Node) -> Self {
        Self { node }
    }

    /// Answers one unary call, and counts it.
    async fn answer<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let asked = self.node.metrics().asked(Door::Grpc, call);
        let answer = answer.await;
        match &answer {
            Ok(_) => asked.answered(OK),
            Err(status) => asked.answered(&read_status(status).unwrap_or_default().code),
        }
        answer.map(Response::new)
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

fn refused(refusal: &Refusal) -> Status {
    failure_status(&failure(refusal))
}

/// Turns a unary request into an order and its answer into the reply of that call.
macro_rules! ordered {
    ($self:ident, $request:ident, $kind:ident) => {
        ordered!($self, $request, $kind, $kind)
    };
    ($self:ident, $request:ident, $kind:ident, $answer:ident) => {{
        let ask = Ask::$kind($request.into_inner());
        let call = Call::of(Some(&ask));
        let answer = async {
            match $self.order(ask).await? {
                Tell::$answer(reply) => Ok(reply),
                other => unreachable!("a command is answered by a reply of its own kind, not {other:?}"),
            }
        };
        $self.answer(call, answer).await
    }};
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

    async fn release_lease(
        &self,
        request: Request<v1::ReleaseLeaseRequest>,
    ) -> Result<Response<v1::ReleaseReply>, Status> {
        ordered!(self, request, ReleaseLease, Release)
    }

    async fn break_claims(&self, request: Request<v1::BreakRequest>) -> Result<Response<v1::BreakReply>, Status> {
        ordered!(self, request, BreakClaims)
    }

    async fn transfer(&self, request: Request<v1::TransferRequest>) -> Result<Response<v1::AcquireReply>, Status> {
        ordered!(self, request, Transfer, Acquire)
    }

    async fn define_resource(
        &self,
        request: Request<v1::DefineResourceRequest>,
    ) -> Result<Response<v1::DefineResourceReply>, Status> {
        ordered!(self, request, DefineResource)
    }

    async fn set_class(&self, request: Request<v1::SetClassRequest>) -> Result<Response<v1::SetClassReply>, Status> {
        ordered!(self, request, SetClass)
    }

    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutReply>, Status> {
        ordered!(self, request, Put)
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> Result<Response<v1::DeleteReply>, Status> {
        ordered!(self, request, Delete)
    }

    async fn show(&self, request: Request<v1::ShowRequest>) -> Result<Response<v1::ShowReply>, Status> {
        let answer = async {
            let name = read_name(&request.get_ref().resource).map_err(|bad| bad_request(&bad))?;
            let stale = request.get_ref().stale;
            self.read(stale, |ledger, now| resource::show(ledger, &name, now)).await
        };
        self.answer(Call::Show, answer).await
    }

    async fn show_lease(&self, request: Request<v1::ShowLeaseRequest>) -> Result<Response<v1::ShowLeaseReply>, Status> {
        let answer = async {
            let id = read_lease(request.get_ref().lease).map_err(|bad| bad_request(&bad))?;
            let shown = self.read(request.get_ref().stale, |ledger, now| lease::show(ledger, id, now)).await?;
            shown.map_err(|refusal| refused(&refusal))
        };
        self.answer(Call::ShowLease, answer).await
    }

    async fn list_classes(
        &self,
        request: Request<v1::ListClassesRequest>,
    ) -> Result<Response<v1::ListClassesReply>, Status> {
        let answer = async { self.read(request.get_ref().stale, |ledger, _| lease::classes(ledger)).await };
        self.answer(Call::ListClasses, answer).await
    }

    async fn get_key(&self, request: Request<v1::GetKeyRequest>) -> Result<Response<v1::GetKeyReply>, Status> {
        let answer = async {
            let key = read_key(&request.get_ref().key).map_err(|bad| bad_request(&bad))?;
            self.read(request.get_ref().stale, |ledger, _| key::get(ledger, &key)).await
        };
        self.answer(Call::GetKey, answer).await
    }

    async fn list_keys(&self, request: Request<v1::ListKeysRequest>) -> Result<Response<v1::ListKeysReply>, Status> {
        let answer = async {
            let request = request.into_inner();
            self.read(request.stale, |ledger, _| key::list(ledger, &request)).await
        };
        self.answer(Call::ListKeys, answer).await
    }

    async fn history(&self, request: Request<v1::HistoryRequest>) -> Result<Response<v1::HistoryReply>, Status> {
        let answer = async {
            let request = request.into_inner();
            let wanted = past::Wanted::read(&request).map_err(|bad| bad_request(&bad))?;
            self.read(request.stale, |ledger, now| past::history(ledger, &request, &wanted, now)).await
        };
        self.answer(Call::History, answer).await
    }

    async fn verify(&self, request: Request<v1::VerifyRequest>) -> Result<Response<v1::VerifyReply>, Status> {
        let answer = async {
            let handle = read_handle(&request.get_ref().handle).map_err(|bad| bad_request(&bad))?;
            let verified = self.read(false, |ledger, now| resource::verify(ledger, &handle, now)).await?;
            verified.map_err(|refusal| refused(&refusal))
        };
        self.answer(Call::Verify, answer).await
    }

    async fn list_resources(
        &self,
        request: Request<v1::ListResourcesRequest>,
    ) -> Result<Response<v1::ListResourcesReply>, Status> {
        let answer = async {
            let request = request.into_inner();
            self.read(request.stale, |ledger, now| resource::list(ledger, &request, now)).await
        };
        self.answer(Call::ListResources, answer).await
    }

    async fn list_leases(
        &self,
        request: Request<v1::ListLeasesRequest>,
    ) -> Result<Response<v1::ListLeasesReply>, Status> {
        let answer = async {
            let request = request.into_inner();
            let wanted = lease::Wanted::read(&request).map_err(|bad| bad_request(&bad))?;
            self.read(request.stale, |ledger, now| lease::list(ledger, &request, &wanted, now)).await
        };
        self.answer(Call::ListLeases, answer).await
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<watch::Replies>, Status> {
        let replies = watch::open(self.node.clone(), request.into_inner());
        self.answer(Call::Watch, async { Ok(replies) }).await
    }

    async fn status(&self, _request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        let answer = async {
            let status = self.node.status();
            Ok(v1::StatusReply {
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
            })
        };
        self.answer(Call::Status, answer).await
    }
}
