//! API keys: a stream does not outlive the key that opened it.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use futures::StreamExt;
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, v1};
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tenure_api::etcd::etcdserverpb::lease_client::LeaseClient;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::etcdserverpb::watch_request::RequestUnion as Watch;
use tenure_server::{Access, ApiKeys, Role, Settings, draw_api_key};
use tenure_testkit::http::Line;
use tenure_testkit::{Server, claim, resources, soon};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;

const MINUTE_MS: i64 = 60_000;

/// Returns when the answer has ended. The connection may be kept.
fn until_last_chunk(line: &mut Line) {
    while line.line().expect("the stream ends") != "0" {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_ends_its_streams_and_no_others() {
    let (ann, ann_line) = draw_api_key("ann", Role::Full).unwrap();
    let (bob, bob_line) = draw_api_key("bob", Role::Full).unwrap();
    let access = Access::by(ApiKeys::parse(&format!("{ann_line}\n{bob_line}\n")).unwrap());
    let server = Server::start_with(Settings { access: access.clone(), ..Settings::default() });
    let connect = async |key: &str| Client::builder().addrs(&server.addr).api_key(key).connect().await.unwrap();
    let (of_ann, of_bob) = (connect(&ann).await, connect(&bob).await);
    let (mut revoked, mut kept) = (of_ann.converse().await.unwrap(), of_bob.converse().await.unwrap());
    let acquire = |name: &str, lease| Some(Ask::Acquire(claim(name, lease, "holder", MINUTE_MS)));
    for (lease, stream) in [(1, &mut revoked), (2, &mut kept)] {
        stream.send(v1::Request { id: 1, body: acquire(&format!("before/{lease}"), lease) }).await.unwrap();
        let answer = soon("an answer", stream.next()).await.unwrap();
        assert!(matches!(answer.body, Some(Tell::Acquire(_))), "{answer:?}");
    }
    let mut watch = Line::open(&server);
    watch.ask("GET", "/v1/watch", &[&format!("authorization: Bearer {ann}")], b"");
    assert_eq!(watch.head().status, 200);

    access.replace(ApiKeys::parse(&bob_line).unwrap());
    let ended = soon("the end of the stream", revoked.next()).await.unwrap_err();
    assert_eq!(ended.code(), Some(tenure::Code::Unauthenticated), "{ended}");
    // Whether the request still goes out or not, it does nothing.
    let _ = revoked.send(v1::Request { id: 2, body: acquire("after/1", 3) }).await;
    until_last_chunk(&mut watch);
    kept.send(v1::Request { id: 2, body: acquire("after/2", 4) }).await.unwrap();
    let answer = soon("an answer", kept.next()).await.unwrap();
    assert!(matches!(answer.body, Some(Tell::Acquire(_))), "{answer:?}");
    let held: Vec<String> = resources(&of_bob).await.into_iter().map(|resource| resource.name).collect();
    assert_eq!(held, ["after/2", "before/1", "before/2"]);
}

/// The streams of etcd's clients: watches and keep-alives over gRPC, and a watch as JSON.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_ends_the_streams_of_etcd() {
    let (ann, ann_line) = draw_api_key("ann", Role::Full).unwrap();
    let (bob, bob_line) = draw_api_key("bob", Role::Full).unwrap();
    let access = Access::by(ApiKeys::parse(&format!("{ann_line}\n{bob_line}\n")).unwrap());
    let server = Server::start_with(Settings { access: access.clone(), ..Settings::default() });
    let channel = Endpoint::from_shared(server.addr.clone()).unwrap().connect().await.unwrap();
    let with = |key: &str| {
        let token: MetadataValue<Ascii> = key.parse().unwrap();
        move |mut request: tonic::Request<()>| {
            request.metadata_mut().insert("authorization", token.clone());
            Ok(request)
        }
    };
    let (mut revoked, mut kept) = (
        WatchClient::with_interceptor(channel.clone(), with(&ann)),
        WatchClient::with_interceptor(channel.clone(), with(&bob)),
    );
    let create = pb::WatchCreateRequest { key: b"k".to_vec(), ..pb::WatchCreateRequest::default() };
    let create = pb::WatchRequest { request_union: Some(Watch::CreateRequest(create)) };
    let ask = || futures::stream::iter([create.clone()]).chain(futures::stream::pending());
    let mut of_ann = revoked.watch(ask()).await.unwrap().into_inner();
    let mut of_bob = kept.watch(ask()).await.unwrap().into_inner();
    for stream in [&mut of_ann, &mut of_bob] {
        assert!(soon("a watcher", stream.message()).await.unwrap().unwrap().created);
    }
    let mut keep = LeaseClient::with_interceptor(channel.clone(), with(&ann));
    let lease = keep.lease_grant(pb::LeaseGrantRequest { ttl: 600, id: 7 }).await.unwrap().into_inner().id;
    let ping = pb::LeaseKeepAliveRequest { id: lease };
    let pings = futures::stream::iter([ping]).chain(futures::stream::pending());
    let mut alive = keep.lease_keep_alive(pings).await.unwrap().into_inner();
    assert_eq!(soon("a renewal", alive.message()).await.unwrap().unwrap().ttl, 600);
    let mut json = Line::open(&server);
    json.ask("POST", "/v3/watch", &[&format!("authorization: {ann}")], br#"{"create_request":{"key":"aw=="}}"#);
    assert_eq!(json.head().status, 200);

    access.replace(ApiKeys::parse(&bob_line).unwrap());
    let ended = soon("the end of the watch", of_ann.message()).await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unauthenticated, "{ended}");
    let ended = soon("the end of the keep-alives", alive.message()).await.unwrap_err();
    assert_eq!(ended.code(), tonic::Code::Unauthenticated, "{ended}");
    until_last_chunk(&mut json);
    let mut kv = KvClient::with_interceptor(channel, with(&bob));
    kv.put(pb::PutRequest { key: b"k".to_vec(), ..pb::PutRequest::default() }).await.unwrap();
    assert_eq!(soon("a change", of_bob.message()).await.unwrap().unwrap().events.len(), 1, "others go on");
}
