//! Calls of etcd's that this server has no use for: each refusal says what does the same here.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::alarm_request::AlarmAction;
use tenure_api::etcd::etcdserverpb::auth_client::AuthClient;
use tenure_api::etcd::etcdserverpb::cluster_client::ClusterClient;
use tenure_api::etcd::etcdserverpb::maintenance_client::MaintenanceClient;
use tenure_server::{Access, ApiKeys, Role, Settings, draw_api_key};
use tenure_testkit::Server;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

async fn channel(server: &Server) -> Channel {
    Endpoint::from_shared(server.addr.clone()).unwrap().connect().await.unwrap()
}

fn says(refused: &Status, words: &str) {
    assert_eq!(refused.code(), Code::Unimplemented, "{refused:?}");
    let message = refused.message();
    assert!(message.starts_with("tenure: ") && message.contains(words), "{message}");
    assert!(message.ends_with("Nothing was changed"), "{message}");
}

#[tokio::test]
async fn members_are_changed_by_the_command_line() {
    let server = Server::start();
    let mut client = ClusterClient::new(channel(&server).await);
    says(&client.member_add(pb::MemberAddRequest::default()).await.unwrap_err(), "`tenure cluster add");
    says(&client.member_remove(pb::MemberRemoveRequest { id: 1 }).await.unwrap_err(), "`tenure cluster remove");
    says(&client.member_update(pb::MemberUpdateRequest::default()).await.unwrap_err(), "`--peer-advertise`");
    says(&client.member_promote(pb::MemberPromoteRequest { id: 1 }).await.unwrap_err(), "votes by itself");
    assert_eq!(client.member_list(pb::MemberListRequest::default()).await.unwrap().into_inner().members.len(), 1);
}

#[tokio::test]
async fn alarms_are_listed_and_disarmed_and_never_set() {
    let server = Server::start();
    let mut client = MaintenanceClient::new(channel(&server).await);
    let alarm = |action: AlarmAction| pb::AlarmRequest {
        action: action.into(),
        alarm: pb::AlarmType::Nospace.into(),
        ..pb::AlarmRequest::default()
    };
    for action in [AlarmAction::Get, AlarmAction::Deactivate] {
        assert!(client.alarm(alarm(action)).await.unwrap().into_inner().alarms.is_empty(), "{action:?}");
    }
    says(&client.alarm(alarm(AlarmAction::Activate)).await.unwrap_err(), "raises NOSPACE by itself");
}

#[tokio::test]
async fn a_snapshot_is_refused_and_the_backup_is_named() {
    let server = Server::start();
    let mut client = MaintenanceClient::new(channel(&server).await);
    says(&client.snapshot(pb::SnapshotRequest {}).await.unwrap_err(), "`tenure cluster backup FILE`");
}

#[tokio::test]
async fn users_are_refused_and_api_keys_are_named() {
    let server = Server::start();
    let mut client = AuthClient::new(channel(&server).await);
    says(&client.auth_enable(pb::AuthEnableRequest {}).await.unwrap_err(), "`tenure cluster keygen NAME`");
    says(&client.user_list(pb::AuthUserListRequest {}).await.unwrap_err(), "`tenure serve --api-keys FILE`");
    says(&client.role_list(pb::AuthRoleListRequest {}).await.unwrap_err(), "`--user NAME:KEY`");
    assert!(!client.auth_status(pb::AuthStatusRequest {}).await.unwrap().into_inner().enabled);
    // With API keys it is asked who calls, and a key gets in as its name and password.
    let (secret, line) = draw_api_key("ann", Role::Full).unwrap();
    let access = Access::by(ApiKeys::parse(&line).unwrap());
    let server = Server::start_with(Settings { access, ..Settings::default() });
    let mut client = AuthClient::new(channel(&server).await);
    let ask = pb::AuthenticateRequest { name: "ann".into(), password: secret };
    let token = client.authenticate(ask).await.unwrap().into_inner().token;
    let mut status = Request::new(pb::AuthStatusRequest {});
    status.metadata_mut().insert("token", token.parse().unwrap());
    assert!(client.auth_status(status).await.unwrap().into_inner().enabled);
}
