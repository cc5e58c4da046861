//! The etcd v3 dialect: the calls that etcd's clients make, answered by the same ledger. `desk.rs` orders, the other files
//! look; this one is only how it is on the wire of gRPC.

mod about;
mod access;
mod desk;
pub(crate) mod gateway;
mod json_values;
mod kv;
mod lease;
mod lock;
mod slices;
mod watch;
mod watchers;

pub(crate) use access::{in_words_of_etcd, is_etcd, refusal, rule, token};
pub(crate) use desk::EtcdDesk;

use crate::access::Access;
use crate::limits::{ETCD_MESSAGE_BYTES_MAX, SMALL_BYTES_MAX};
use crate::metrics::{Call, Door, OK};
use crate::node::Node;
use futures::stream::BoxStream;
use tenure_api::etcd::Fault;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::auth_server::{Auth, AuthServer};
use tenure_api::etcd::etcdserverpb::cluster_server::{Cluster, ClusterServer};
use tenure_api::etcd::etcdserverpb::kv_server::{Kv, KvServer};
use tenure_api::etcd::etcdserverpb::lease_server::{Lease, LeaseServer};
use tenure_api::etcd::etcdserverpb::maintenance_server::{Maintenance, MaintenanceServer};
use tenure_api::etcd::etcdserverpb::watch_server::{Watch, WatchServer};
use tenure_api::etcd::v3electionpb as election;
use tenure_api::etcd::v3electionpb::election_server::{Election, ElectionServer};
use tenure_api::etcd::v3lockpb as lock_pb;
use tenure_api::etcd::v3lockpb::lock_server::{Lock, LockServer};
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use watch::Led;

/// What is told bit by bit.
pub(super) type Replies<T> = BoxStream<'static, Result<T, Status>>;

/// All calls of the dialect.
#[derive(Clone)]
pub(crate) struct EtcdDoor {
    desk: EtcdDesk,
    access: Access,
    /// How the nodes of a cluster speak to each other.
    peer_scheme: &'static str,
    /// Whether somebody leads, for streams that need it.
    led: tokio::sync::watch::Sender<bool>,
}

/// Adds the calls of the dialect to others.
pub(crate) fn add(routes: Routes, door: EtcdDoor) -> Routes {
    let max = ETCD_MESSAGE_BYTES_MAX;
    routes
        .add_service(KvServer::new(door.clone()).max_decoding_message_size(max).max_encoding_message_size(usize::MAX))
        .add_service(
            WatchServer::new(door.clone()).max_decoding_message_size(max).max_encoding_message_size(usize::MAX),
        )
        .add_service(LeaseServer::new(door.clone()).max_decoding_message_size(max))
        .add_service(ClusterServer::new(door.clone()).max_decoding_message_size(max))
        .add_service(MaintenanceServer::new(door.clone()).max_decoding_message_size(max))
        .add_service(AuthServer::new(door.clone()).max_decoding_message_size(SMALL_BYTES_MAX))
        .add_service(LockServer::new(door.clone()).max_decoding_message_size(max))
        .add_service(ElectionServer::new(door).max_decoding_message_size(max))
}

impl EtcdDoor {
    pub(crate) fn new(node: Node, access: Access, peers_speak_tls: bool) -> Self {
        let peer_scheme = if peers_speak_tls { "https" } else { "http" };
        let (desk, led) = (EtcdDesk::new(node), tokio::sync::watch::Sender::new(true));
        tokio::spawn(watch::look_for_leader(desk.clone(), led.clone()));
        Self { desk, access, peer_scheme, led }
    }

    /// Answers one unary call, and counts it.
    async fn tell<T>(&self, call: Call, answer: impl Future<Output = Result<T, Fault>>) -> Result<Response<T>, Status> {
        let asked = self.desk.node().metrics().asked(Door::Etcd, call);
        let answer = asked.follow(answer).await;
        asked.answered(match &answer {
            Ok(_) => OK,
            Err(Fault { code: tonic::Code::Unavailable, .. }) => tenure_api::Code::NotLeader.text(),
            Err(_) => "refused",
        });
        answer.map(Response::new).map_err(|fault| fault.status())
    }

    /// How a stream that needs a leader hears that there is none, unless it is known already.
    fn needs_leader(&self, metadata: &MetadataMap) -> Result<Option<Led>, Status> {
        let needs = metadata.get("hasleader").is_some_and(|value| value.as_bytes() == b"true");
        if needs && (self.desk.node().consensus().leader().is_none() || !*self.led.borrow()) {
            return Err(Fault::no_leader().status());
        }
        Ok(needs.then(|| self.led.subscribe()))
    }
}

fn unimplemented<T>(what: &str) -> Result<Response<T>, Status> {
    Err(Status::unimplemented(format!("tenure: {what}")))
}

#[tonic::async_trait]
impl Kv for EtcdDoor {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        self.tell(Call::ListKeys, self.desk_of(&request).range(request.get_ref())).await
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        self.tell(Call::Put, self.desk_of(&request).put_key(request.into_inner())).await
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        self.tell(Call::Delete, self.desk_of(&request).delete_range(request.into_inner())).await
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        self.tell(Call::Other, self.desk_of(&request).transact(request.into_inner())).await
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        self.tell(Call::Other, self.desk_of(&request).compaction(request.into_inner())).await
    }
}

#[tonic::async_trait]
impl Watch for EtcdDoor {
    type WatchStream = Replies<pb::WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (needs, desk) = (self.needs_leader(request.metadata())?, self.desk_of(&request));
        Ok(Response::new(desk.watch(request.into_inner(), needs)))
    }
}

#[tonic::async_trait]
impl Lease for EtcdDoor {
    type LeaseKeepAliveStream = Replies<pb::LeaseKeepAliveResponse>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let desk = self.desk_of(&request);
        self.tell(Call::Grant, desk.lease_grant(request.into_inner())).await
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        self.tell(Call::ReleaseLease, self.desk_of(&request).lease_revoke(request.into_inner())).await
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        self.needs_leader(request.metadata())?;
        Ok(Response::new(self.desk_of(&request).keep_alives(request.into_inner())))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        self.tell(Call::ShowLease, self.desk_of(&request).time_to_live(request.into_inner())).await
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        self.tell(Call::ListLeases, self.desk_of(&request).leases()).await
    }
}

/// What `member promote` does elsewhere happens by itself here.
const NO_PROMOTION: &str = "a new member votes by itself once it has caught up; `tenure cluster status` shows it. Nothing was \
     changed";
/// Members say themselves where they are.
const NO_UPDATE: &str =
    "a member says itself where it is: start it with `--peer-advertise` and `--advertise`. Nothing was changed";
const NO_ADDITION: &str = "members are added with `tenure cluster add ID=HOST:PORT`. Nothing was changed";
const NO_REMOVAL: &str = "members are removed with `tenure cluster remove ID`. Nothing was changed";

#[tonic::async_trait]
impl Cluster for EtcdDoor {
    async fn member_add(
        &self,
        _request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        unimplemented(NO_ADDITION)
    }

    async fn member_remove(
        &self,
        _request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        unimplemented(NO_REMOVAL)
    }

    async fn member_update(
        &self,
        _request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        unimplemented(NO_UPDATE)
    }

    async fn member_list(
        &self,
        _request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        self.tell(Call::Members, async { Ok(self.desk.member_list(self.peer_scheme)) }).await
    }

    async fn member_promote(
        &self,
        _request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        unimplemented(NO_PROMOTION)
    }
}

#[tonic::async_trait]
impl Maintenance for EtcdDoor {
    type SnapshotStream = Replies<pb::SnapshotResponse>;

    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        self.tell(Call::Other, async { self.desk.alarm(request.get_ref()) }).await
    }

    async fn status(&self, _request: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        self.tell(Call::Status, async { Ok(self.desk.status()) }).await
    }

    /// There is nothing to defragment: what was compacted is gone.
    async fn defragment(
        &self,
        _request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        self.tell(Call::Other, async { Ok(self.desk.defragmented()) }).await
    }

    async fn hash(&self, _request: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        self.tell(Call::Other, self.desk.hash()).await
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
        self.tell(Call::Other, self.desk.hash_kv(request.into_inner())).await
    }

    async fn snapshot(&self, _request: Request<pb::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        self.tell(Call::Backup, async { Err(about::no_snapshot()) }).await
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        self.tell(Call::TransferLead, self.desk_of(&request).move_leader(request.into_inner())).await
    }

    async fn downgrade(
        &self,
        _request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        unimplemented("there is no older version to go back to")
    }
}

/// Users and roles of which there are none: whoever may ask has an API key.
macro_rules! no_users {
    ($($call:ident($request:ident) -> $response:ident;)*) => {
        #[tonic::async_trait]
        impl Auth for EtcdDoor {
            async fn auth_status(
                &self,
                _request: Request<pb::AuthStatusRequest>,
            ) -> Result<Response<pb::AuthStatusResponse>, Status> {
                self.tell(Call::Other, async { Ok(self.auth_status()) }).await
            }

            async fn authenticate(
                &self,
                request: Request<pb::AuthenticateRequest>,
            ) -> Result<Response<pb::AuthenticateResponse>, Status> {
                self.tell(Call::Other, async { self.authenticate(request.get_ref()) }).await
            }

            $(async fn $call(
                &self,
                _request: Request<pb::$request>,
            ) -> Result<Response<pb::$response>, Status> {
                unimplemented(access::NO_USERS)
            })*
        }
    };
}

no_users! {
    auth_enable(AuthEnableRequest) -> AuthEnableResponse;
    auth_disable(AuthDisableRequest) -> AuthDisableResponse;
    user_add(AuthUserAddRequest) -> AuthUserAddResponse;
    user_get(AuthUserGetRequest) -> AuthUserGetResponse;
    user_list(AuthUserListRequest) -> AuthUserListResponse;
    user_delete(AuthUserDeleteRequest) -> AuthUserDeleteResponse;
    user_change_password(AuthUserChangePasswordRequest) -> AuthUserChangePasswordResponse;
    user_grant_role(AuthUserGrantRoleRequest) -> AuthUserGrantRoleResponse;
    user_revoke_role(AuthUserRevokeRoleRequest) -> AuthUserRevokeRoleResponse;
    role_add(AuthRoleAddRequest) -> AuthRoleAddResponse;
    role_get(AuthRoleGetRequest) -> AuthRoleGetResponse;
    role_list(AuthRoleListRequest) -> AuthRoleListResponse;
    role_delete(AuthRoleDeleteRequest) -> AuthRoleDeleteResponse;
    role_grant_permission(AuthRoleGrantPermissionRequest) -> AuthRoleGrantPermissionResponse;
    role_revoke_permission(AuthRoleRevokePermissionRequest) -> AuthRoleRevokePermissionResponse;
}

#[tonic::async_trait]
impl Lock for EtcdDoor {
    async fn lock(&self, request: Request<lock_pb::LockRequest>) -> Result<Response<lock_pb::LockResponse>, Status> {
        let desk = self.desk_of(&request);
        self.tell(Call::Acquire, desk.lock(request.into_inner())).await
    }

    async fn unlock(
        &self,
        request: Request<lock_pb::UnlockRequest>,
    ) -> Result<Response<lock_pb::UnlockResponse>, Status> {
        self.tell(Call::Release, self.desk_of(&request).unlock(request.into_inner())).await
    }
}

#[tonic::async_trait]
impl Election for EtcdDoor {
    type ObserveStream = Replies<election::LeaderResponse>;

    async fn campaign(
        &self,
        request: Request<election::CampaignRequest>,
    ) -> Result<Response<election::CampaignResponse>, Status> {
        let desk = self.desk_of(&request);
        self.tell(Call::Acquire, desk.campaign(request.into_inner())).await
    }

    async fn proclaim(
        &self,
        request: Request<election::ProclaimRequest>,
    ) -> Result<Response<election::ProclaimResponse>, Status> {
        self.tell(Call::Other, self.desk_of(&request).proclaim(request.into_inner())).await
    }

    async fn leader(
        &self,
        request: Request<election::LeaderRequest>,
    ) -> Result<Response<election::LeaderResponse>, Status> {
        self.tell(Call::Other, self.desk_of(&request).leader(request.get_ref())).await
    }

    async fn observe(
        &self,
        request: Request<election::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let replies = self.desk_of(&request).observe(request.get_ref()).map_err(|fault| fault.status())?;
        Ok(Response::new(replies))
    }

    async fn resign(
        &self,
        request: Request<election::ResignRequest>,
    ) -> Result<Response<election::ResignResponse>, Status> {
        self.tell(Call::Release, self.desk_of(&request).resign(request.into_inner())).await
    }
}
