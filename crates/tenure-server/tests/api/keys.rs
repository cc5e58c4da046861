//! API keys: a stream does not outlive the key that opened it.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, v1};
use tenure_server::{Access, ApiKeys, Role, Settings, draw_api_key};
use tenure_testkit::http::Line;
use tenure_testkit::{Server, claim, resources, soon};

const MINUTE_MS: i64 = 60_000;

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
    while watch.line().is_some() {}
    kept.send(v1::Request { id: 2, body: acquire("after/2", 4) }).await.unwrap();
    let answer = soon("an answer", kept.next()).await.unwrap();
    assert!(matches!(answer.body, Some(Tell::Acquire(_))), "{answer:?}");
    let held: Vec<String> = resources(&of_bob).await.into_iter().map(|resource| resource.name).collect();
    assert_eq!(held, ["after/2", "before/1", "before/2"]);
}
