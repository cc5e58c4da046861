//! The native gRPC door: `tenure.v1`. What the reads show is in `look/`.

use super::answers::{Answers, Kind, is_upkeep};
use super::desk::Desk;
use super::entrance::Entrance;
use super::frames::bounded;
use super::{etcd, fleet, stream, watch};
use crate::access::Caller;
use crate::limits::{BACKUP_PART_BYTES, REFUSED_BYTES_MAX, REFUSED_PATIENCE};
use crate::metrics::{Call, Door, OK};
use crate::node::Node;
use crate::trace;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Version, header};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::sync::Arc;
use tenure_api::v1::Failure;
use tenure_api::v1::request::Body as Ask;
use tenure_api::v1::response::Body as Tell;
use tenure_api::v1::tenure_server::Tenure;
use tenure_api::{failure_status, v1};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};
use tower::ServiceExt;

/// Both doors on one port, behind one entrance. Only HTTP/2 with a content type of gRPC comes to the calls of gRPC: no page in a browser can
/// send that, so they need no other guard. Whatever else comes is the HTTP door's, with its rules.
pub(crate) fn both(grpc: Router, json: Router, entrance: Entrance, bodies: Arc<Semaphore>, answers: Answers) -> Router {
    let choose = move |mut request: axum::extract::Request| {
        let (grpc, json, entrance) = (grpc.clone(), json.clone(), entrance.clone());
        let (bodies, answers) = (bodies.clone(), answers.clone());
        async move {
            let parent = request.headers().get(trace::PARENT).cloned();
            let door = if is_grpc(&request) { Door::Grpc } else { Door::Http };
            let is_etcd = etcd::is_etcd(door, request.uri().path());
            let answer = async {
                let ticket = match entrance.admit(&request, door) {
                    Ok(ticket) => ticket,
                    Err(refusal) => {
                        if door == Door::Http {
                            drain(request.into_body()).await;
                        }
                        return refusal;
                    }
                };
                let (caller, need) = (ticket.caller.clone(), ticket.need());
                request.extensions_mut().insert(caller.clone());
                let is_upkeep = is_upkeep(request.uri().path());
                let answer = match door {
                    Door::Http => json.oneshot(request).await.into_response(),
                    _ => grpc.oneshot(bounded(request, &bodies)).await.into_response(),
                };
                let answer = if is_etcd && door != Door::Http { etcd::in_words_of_etcd(answer) } else { answer };
                let answer = entrance.follow(ticket, door, answer);
                let kind = Kind { door, is_etcd, need, caller };
                let mut answer = if is_upkeep { answer } else { answers.charge(answer, kind) };
                if !is_etcd {
                    entrance.name_cluster(&mut answer);
                }
                answer
            };
            trace::under(parent, answer).await
        }
    };
    Router::new().fallback(choose)
}

/// Reads what is left of a request that is refused, if that is little: many clients do not hear an answer that comes while
/// they are sending.
async fn drain(body: Body) {
    let mut left = REFUSED_BYTES_MAX;
    let reading = async {
        let mut parts = body.into_data_stream();
        while let Some(Ok(part)) = parts.next().await {
            left = left.saturating_sub(part.len());
            if left == 0 {
                return;
            }
        }
    };
    // Whoever takes longer is refused all the same.
    let _ = tokio::time::timeout(REFUSED_PATIENCE, reading).await;
}

fn is_grpc(request: &axum::extract::Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    request.version() == Version::HTTP_2 && kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

pub(crate) struct NativeDoor {
    desk: Desk,
}

impl NativeDoor {
    pub(crate) fn new(node: Node) -> Self {
        Self { desk: Desk::new(node) }
    }

    /// The desk for the caller of a request.
    fn desk_of<T>(&self, request: &Request<T>) -> Desk {
        self.desk.of(Caller::of(request.extensions()))
    }

    /// Answers one unary call, and counts it.
    async fn tell<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Response<T>, Status> {
        let asked = self.desk.node().metrics().asked(Door::Grpc, call);
        let answer = asked.follow(answer).await;
        asked.answered(answer.as_ref().err().map_or(OK, |failure| &failure.code));
        answer.map(Response::new).map_err(|failure| failure_status(&failure))
    }
}

/// Turns a unary request into an order and its answer into the reply of that call.
macro_rules! ordered {
    ($self:ident, $request:ident, $kind:ident) => {
        ordered!($self, $request, $kind, $kind)
    };
    ($self:ident, $request:ident, $kind:ident, $answer:ident) => {{
        let desk = $self.desk_of(&$request);
        let ask = Ask::$kind($request.into_inner());
        let call = Call::of(Some(&ask));
        let answer = async {
            match desk.order(ask).await? {
                Tell::$answer(reply) => Ok(reply),
                other => unreachable!("a command is answered by a reply of its own kind, not {other:?}"),
            }
        };
        $self.tell(call, answer).await
    }};
}

#[tonic::async_trait]
impl Tenure for NativeDoor {
    type StreamStream = stream::StreamAnswers;
    type BackupStream = BoxStream<'static, Result<v1::BackupPart, Status>>;
    type WatchStream = BoxStream<'static, Result<v1::WatchReply, Status>>;
    type WatchInstancesStream = BoxStream<'static, Result<v1::WatchInstancesReply, Status>>;

    async fn stream(
        &self,
        request: Request<Streaming<v1::Request>>,
    ) -> Result<Response<stream::StreamAnswers>, Status> {
        Ok(Response::new(stream::open(self.desk_of(&request), request.into_inner())))
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

    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterReply>, Status> {
        ordered!(self, request, Register)
    }

    async fn update_instance(
        &self,
        request: Request<v1::UpdateInstanceRequest>,
    ) -> Result<Response<v1::UpdateInstanceReply>, Status> {
        ordered!(self, request, UpdateInstance)
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainReply>, Status> {
        ordered!(self, request, Drain)
    }

    async fn deregister(
        &self,
        request: Request<v1::DeregisterRequest>,
    ) -> Result<Response<v1::DeregisterReply>, Status> {
        ordered!(self, request, Deregister)
    }

    async fn set_health(&self, request: Request<v1::SetHealthRequest>) -> Result<Response<v1::SetHealthReply>, Status> {
        ordered!(self, request, SetHealth)
    }

    async fn discover(&self, request: Request<v1::DiscoverRequest>) -> Result<Response<v1::DiscoverReply>, Status> {
        self.tell(Call::Discover, self.desk_of(&request).discover(request.get_ref())).await
    }

    async fn show_instance(
        &self,
        request: Request<v1::ShowInstanceRequest>,
    ) -> Result<Response<v1::ShowInstanceReply>, Status> {
        self.tell(Call::ShowInstance, self.desk_of(&request).show_instance(request.get_ref())).await
    }

    async fn list_services(
        &self,
        request: Request<v1::ListServicesRequest>,
    ) -> Result<Response<v1::ListServicesReply>, Status> {
        self.tell(Call::ListServices, self.desk_of(&request).list_services(request.get_ref())).await
    }

    async fn watch_instances(
        &self,
        request: Request<v1::WatchInstancesRequest>,
    ) -> Result<Response<Self::WatchInstancesStream>, Status> {
        let desk = self.desk_of(&request);
        let open = async { fleet::open(desk, request.into_inner()).map_err(|failure| *failure) };
        let told = self.tell(Call::WatchInstances, open).await?;
        Ok(told.map(|replies| replies.map(|reply| reply.map_err(|failure| failure_status(&failure))).boxed()))
    }

    async fn show(&self, request: Request<v1::ShowRequest>) -> Result<Response<v1::ShowReply>, Status> {
        self.tell(Call::Show, self.desk_of(&request).show(request.get_ref())).await
    }

    async fn show_lease(&self, request: Request<v1::ShowLeaseRequest>) -> Result<Response<v1::ShowLeaseReply>, Status> {
        self.tell(Call::ShowLease, self.desk_of(&request).show_lease(request.into_inner())).await
    }

    async fn list_classes(
        &self,
        request: Request<v1::ListClassesRequest>,
    ) -> Result<Response<v1::ListClassesReply>, Status> {
        self.tell(Call::ListClasses, self.desk_of(&request).list_classes(request.into_inner())).await
    }

    async fn get_key(&self, request: Request<v1::GetKeyRequest>) -> Result<Response<v1::GetKeyReply>, Status> {
        self.tell(Call::GetKey, self.desk_of(&request).get_key(request.get_ref())).await
    }

    async fn list_keys(&self, request: Request<v1::ListKeysRequest>) -> Result<Response<v1::ListKeysReply>, Status> {
        self.tell(Call::ListKeys, self.desk_of(&request).list_keys(request.get_ref())).await
    }

    async fn history(&self, request: Request<v1::HistoryRequest>) -> Result<Response<v1::HistoryReply>, Status> {
        self.tell(Call::History, self.desk_of(&request).history(request.get_ref())).await
    }

    async fn verify(&self, request: Request<v1::VerifyRequest>) -> Result<Response<v1::VerifyReply>, Status> {
        self.tell(Call::Verify, self.desk_of(&request).verify(request.get_ref())).await
    }

    async fn list_resources(
        &self,
        request: Request<v1::ListResourcesRequest>,
    ) -> Result<Response<v1::ListResourcesReply>, Status> {
        self.tell(Call::ListResources, self.desk_of(&request).list_resources(request.get_ref())).await
    }

    async fn list_leases(
        &self,
        request: Request<v1::ListLeasesRequest>,
    ) -> Result<Response<v1::ListLeasesReply>, Status> {
        self.tell(Call::ListLeases, self.desk_of(&request).list_leases(request.get_ref())).await
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let open = async { watch::open(&self.desk_of(&request), request.into_inner()).map_err(|failure| *failure) };
        let told = self.tell(Call::Watch, open).await?;
        Ok(told.map(|replies| replies.map(|reply| reply.map_err(|failure| failure_status(&failure))).boxed()))
    }

    async fn members(&self, _request: Request<v1::MembersRequest>) -> Result<Response<v1::MembersReply>, Status> {
        self.tell(Call::Members, async { Ok(self.desk.members()) }).await
    }

    async fn add_member(&self, request: Request<v1::AddMemberRequest>) -> Result<Response<v1::MembersReply>, Status> {
        self.tell(Call::AddMember, self.desk_of(&request).add_member(request.get_ref())).await
    }

    async fn remove_member(
        &self,
        request: Request<v1::RemoveMemberRequest>,
    ) -> Result<Response<v1::MembersReply>, Status> {
        self.tell(Call::RemoveMember, self.desk_of(&request).remove_member(request.get_ref().node)).await
    }

    async fn transfer_lead(
        &self,
        request: Request<v1::TransferLeadRequest>,
    ) -> Result<Response<v1::MembersReply>, Status> {
        self.tell(Call::TransferLead, self.desk_of(&request).transfer_lead(request.get_ref().node)).await
    }

    async fn backup(&self, request: Request<v1::BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let told = self.tell(Call::Backup, self.desk_of(&request).backup()).await?;
        let part = |bytes: &[u8]| Ok(v1::BackupPart { bytes: bytes.to_vec() });
        let parts = |whole: Bytes| {
            let count = whole.len().div_ceil(BACKUP_PART_BYTES);
            let at = move |n: usize| part(&whole[n * BACKUP_PART_BYTES..whole.len().min((n + 1) * BACKUP_PART_BYTES)]);
            futures::stream::iter((0..count).map(at)).boxed()
        };
        Ok(told.map(parts))
    }

    async fn status(&self, _request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        self.tell(Call::Status, async { Ok(self.desk.status()) }).await
    }
}
