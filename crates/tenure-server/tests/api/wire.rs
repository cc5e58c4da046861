//! The stream, the watch and the reads as clients see them over the wire.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use tenure::v1::acquire_reply::State;
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, Conversation, v1};
use tenure_testkit as support;
use tenure_testkit::holds::events;
use tenure_testkit::{Server, acquire, claim, grant, soon};

const MINUTE_MS: i64 = 60_000;

async fn ask(stream: &Conversation, id: u64, body: Ask) {
    stream.send(v1::Request { id, body: Some(body) }).await.unwrap();
}

fn in_line(name: &str, lease: u64, holder: &str) -> Ask {
    Ask::Acquire(v1::AcquireRequest { wait: true, ..claim(name, lease, holder, MINUTE_MS) })
}

async fn state(stream: &mut Conversation, id: u64) -> State {
    let answer = soon("an answer", stream.next()).await.unwrap();
    assert_eq!(answer.id, id);
    match answer.body {
        Some(Tell::Acquire(reply)) => reply.state.unwrap(),
        other => panic!("an acquire was answered {other:?}"),
    }
}

async fn release(client: &Client, name: &str, fence: u64) {
    client.release(v1::ReleaseRequest { handle: format!("{name}@{fence}"), release_secret: 0 }).await.unwrap();
}

#[tokio::test]
async fn a_waiting_acquire_is_answered_waiting_and_later_seated() {
    let server = Server::start();
    let client = server.client().await;
    let first = acquire(&client, claim("db", 1, "ann", MINUTE_MS)).await.unwrap();
    let mut stream = client.converse().await.unwrap();
    ask(&stream, 10, in_line("db", 2, "bob")).await;
    assert_eq!(state(&mut stream, 10).await, State::Place(1));
    ask(&stream, 11, in_line("db", 3, "cat")).await;
    assert_eq!(state(&mut stream, 11).await, State::Place(2));
    // Other requests go on meanwhile on the same stream.
    ask(&stream, 12, in_line("log", 4, "dan")).await;
    assert!(matches!(state(&mut stream, 12).await, State::Fence(_)));
    release(&client, "db", first).await;
    let State::Fence(second) = state(&mut stream, 10).await else { panic!("bob is next") };
    assert!(second > first);
    // A waiter whose lease ends is told so, and is never seated.
    client.revoke(support::revoke(3, "op", "test")).await.unwrap();
    let answer = soon("an answer", stream.next()).await.unwrap();
    assert_eq!(answer.id, 11);
    let Some(Tell::Failure(failure)) = answer.body else { panic!("cat's lease is over") };
    assert_eq!((failure.code.as_str(), failure.end.unwrap().how.as_str()), ("lapsed", "revoked"));
    release(&client, "db", second).await;
    assert_eq!(support::resources(&client).await.len(), 1, "nobody holds db any more");
}

#[tokio::test]
async fn a_waiter_that_cancels_leaves_the_line_and_one_that_reconnects_keeps_its_place() {
    let server = Server::start();
    let client = server.client().await;
    let fence = acquire(&client, claim("db", 1, "ann", MINUTE_MS)).await.unwrap();
    let mut lost = client.converse().await.unwrap();
    for (id, lease) in [(1, 2), (2, 3), (3, 4)] {
        ask(&lost, id, in_line("db", lease, "waiter")).await;
        assert_eq!(state(&mut lost, id).await, State::Place(id));
    }
    drop(lost);
    let mut stream = client.converse().await.unwrap();
    ask(&stream, 7, in_line("db", 4, "waiter")).await;
    assert_eq!(state(&mut stream, 7).await, State::Place(3), "the same lease keeps its place");
    client.cancel(v1::CancelRequest { lease: 2, resource: "db".into(), ..Default::default() }).await.unwrap();
    client.cancel(v1::CancelRequest { lease: 3, resource: "db".into(), ..Default::default() }).await.unwrap();
    release(&client, "db", fence).await;
    assert!(matches!(state(&mut stream, 7).await, State::Fence(next) if next > fence));
}

#[tokio::test]
async fn a_stream_answers_many_requests_in_flight_by_their_ids() {
    let server = Server::start();
    let (requests, mut responses) = server.client().await.converse().await.unwrap().split();
    let sender = tokio::spawn(async move {
        for n in 1..=5_000 {
            let body = Some(Ask::Acquire(claim(&format!("many/{n}"), n, "ann", MINUTE_MS)));
            requests.send(v1::Request { id: n, body }).await.unwrap();
        }
    });
    let mut ids = std::collections::BTreeSet::new();
    let mut fences = std::collections::BTreeSet::new();
    while let Some(answer) = responses.message().await.unwrap() {
        let Some(Tell::Acquire(reply)) = answer.body else { panic!("{answer:?}") };
        let Some(State::Fence(fence)) = reply.state else { panic!("{reply:?}") };
        assert!(ids.insert(answer.id) && fences.insert(fence), "each is answered once, with a fence of its own");
    }
    sender.await.unwrap();
    assert_eq!(ids.len(), 5_000);
}

#[tokio::test]
async fn a_watch_that_is_too_old_is_told_where_to_resume() {
    let server = Server::start();
    let client = server.client().await;
    let (requests, mut responses) = client.converse().await.unwrap().split();
    let sender = tokio::spawn(async move {
        // Two events each: one more revision than is kept.
        for n in 1..=40_000 {
            let body = Some(Ask::Acquire(claim(&format!("n/{n}"), n, "ann", 10 * MINUTE_MS)));
            requests.send(v1::Request { id: n, body }).await.unwrap();
        }
    });
    while responses.message().await.unwrap().is_some() {}
    sender.await.unwrap();
    let request =
        |cursor| v1::WatchRequest { prefix: String::new(), after: Some(cursor), ..v1::WatchRequest::default() };
    let mut watch = client.watch_stream(request(v1::Cursor::default())).await.unwrap();
    let too_old = tenure::Error::from(watch.message().await.expect_err("it is too old"));
    let tenure::Error::Refused(failure) = too_old else { panic!("{too_old:?}") };
    assert_eq!(failure.code, "compacted");
    let mut ahead = client.watch_stream(request(v1::Cursor { revision: 1 << 40, n: 0 })).await.unwrap();
    let ahead = tenure::Error::from(ahead.message().await.expect_err("it has not happened"));
    assert_eq!(ahead.code().unwrap().text(), "ahead");
    let after = v1::Cursor { revision: failure.oldest, n: u32::MAX };
    let mut watch = client.watch_stream(request(after)).await.unwrap();
    let first = watch.message().await.unwrap().unwrap().events;
    assert_eq!((first[0].revision, first[0].n), (failure.oldest + 1, 0), "it goes on without a gap");
}

/// Keys may be nearly as long as a request, and a message to a client is not much longer.
#[tokio::test]
async fn long_keys_fit_into_watches_and_pages() {
    let server = Server::start();
    let client = server.client().await;
    let lease = client.grant(grant(1, "ann", 10 * MINUTE_MS)).await.unwrap().lease;
    for n in b'a'..=b'h' {
        let put = v1::PutRequest { key: vec![n; 1_000_000], value: Some(vec![n]), lease, keep_lease: false };
        client.put(put).await.unwrap();
    }
    let after = Some(v1::Cursor::default());
    let mut watch = client
        .watch_stream(v1::WatchRequest { prefix: String::new(), after, ..v1::WatchRequest::default() })
        .await
        .unwrap();
    let mut written = Vec::new();
    while written.len() < 8 {
        let events = soon("the next events", watch.message()).await.unwrap().unwrap().events;
        written.extend(events.into_iter().filter(|event| event.kind == "put").map(|event| event.key[0]));
    }
    assert_eq!(written, b"abcdefgh");
    let shown = client.show_lease(v1::ShowLeaseRequest { lease, stale: false }).await.unwrap();
    assert!(!shown.keys.is_empty() && shown.keys.len() < 8, "a page ends before it is too large");
    let Some(v1::show_lease_reply::State::Living(living)) = shown.state else { panic!("it lives") };
    assert_eq!(living.keys, 8, "all of them are counted");
}

#[tokio::test]
async fn a_read_sees_every_write_that_was_answered_before_it() {
    let server = Server::start();
    let (writer, reader) = (server.client().await, server.client().await);
    for n in 1..=200 {
        let fence = acquire(&writer, claim("db", n, "ann", MINUTE_MS)).await.unwrap();
        let handle = format!("db@{fence}");
        let verified = reader.verify(v1::VerifyRequest { handle: handle.clone() }).await.unwrap();
        assert_eq!(verified.lease, n);
        writer.release(v1::ReleaseRequest { handle: handle.clone(), release_secret: 0 }).await.unwrap();
        let stale = reader.verify(v1::VerifyRequest { handle }).await.expect_err("it was released");
        assert_eq!(stale.code().unwrap().text(), "stale");
    }
}

#[tokio::test]
async fn lists_come_in_pages_without_gaps() {
    let server = Server::start();
    let client = server.client().await;
    for n in 1..=25 {
        acquire(&client, claim(&format!("p/{n:02}"), n, "ann", MINUTE_MS)).await.unwrap();
    }
    acquire(&client, claim("q", 99, "ann", MINUTE_MS)).await.unwrap();
    let mut request = v1::ListResourcesRequest { prefix: "p/".into(), limit: 10, ..Default::default() };
    let mut names = Vec::new();
    loop {
        let page = client.list_resources(request.clone()).await.unwrap();
        assert!(page.items.len() <= 10);
        names.extend(page.items.into_iter().map(|item| item.name));
        if page.next.is_empty() {
            break;
        }
        request.from = page.next;
    }
    assert_eq!(names, (1..=25).map(|n| format!("p/{n:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn health_and_reflection_answer_for_the_service() {
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::health_client::HealthClient;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let server = Server::start();
    let channel = tonic::transport::Endpoint::from_shared(server.addr.clone()).unwrap().connect().await.unwrap();
    let check = tonic_health::pb::HealthCheckRequest { service: "tenure.v1.Tenure".into() };
    let health = HealthClient::new(channel.clone()).check(check).await.unwrap().into_inner();
    assert_eq!(health.status(), ServingStatus::Serving);
    let list = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut reflection = ServerReflectionClient::new(channel);
    let mut answers = reflection.server_reflection_info(tokio_stream::once(list)).await.unwrap().into_inner();
    let Some(MessageResponse::ListServicesResponse(services)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("the services are listed")
    };
    assert!(services.service.iter().any(|service| service.name == "tenure.v1.Tenure"));
}

#[tokio::test]
async fn a_watch_goes_on_over_its_pages_and_resumes_after_every_event() {
    let server = Server::start();
    let client = server.client().await;
    // One revision of one event, so that pages of an even length end within a revision of two.
    client.grant(grant(1, "ann", MINUTE_MS)).await.unwrap();
    for n in 2..=300 {
        acquire(&client, claim(&format!("n/{n}"), n, "ann", MINUTE_MS)).await.unwrap();
    }
    let (all, _) = events(&client, Some(v1::Cursor::default()), 1 + 2 * 299).await;
    for (event, next) in all.iter().zip(&all[1..]) {
        let follows = if event.last { (event.revision + 1, 0) } else { (event.revision, event.n + 1) };
        assert_eq!((next.revision, next.n), follows, "no gap and no repeat");
    }
    for at in 0..20 {
        let after = v1::Cursor { revision: all[at].revision, n: all[at].n };
        assert_eq!(events(&client, Some(after), 1).await.0[0], all[at + 1]);
    }
}

#[tokio::test]
async fn leases_are_listed_in_pages_without_gaps() {
    let server = Server::start();
    let client = server.client().await;
    for n in 1..=25 {
        client.grant(grant(n, "ann", MINUTE_MS)).await.unwrap();
    }
    let mut ids = Vec::new();
    let mut request = v1::ListLeasesRequest { limit: 10, ..Default::default() };
    loop {
        let page = client.list_leases(request.clone()).await.unwrap();
        ids.extend(page.items.iter().map(|item| item.lease));
        if page.next == 0 {
            break;
        }
        request.from = page.next;
    }
    assert_eq!(ids, (1..=25).collect::<Vec<_>>());
}
