//! Whatever comes in at the door: a clear refusal with a stable code, nothing changed, the server up.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, Error, v1};
use tenure_testkit::{Server, acquire, claim, grant, revoke};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

async fn revision(client: &Client) -> u64 {
    client.status(v1::StatusRequest {}).await.unwrap().revision
}

fn code(error: Error) -> String {
    match error {
        Error::Refused(failure) => {
            assert!(failure.message.contains("nothing was changed"), "{}", failure.message);
            failure.code
        }
        other => panic!("not a refusal: {other:?}"),
    }
}

fn bad_requests() -> Vec<(Ask, &'static str)> {
    let name = |name: &str| Ask::Acquire(claim(name, 5, "ann", 1_000));
    let holder = |holder: &str| Ask::Grant(grant(5, holder, 1_000));
    let ttl = |ttl_ms: i64| Ask::Grant(grant(5, "ann", ttl_ms));
    let handle = |handle: &str| Ask::Release(v1::ReleaseRequest { handle: handle.into(), release_secret: 0 });
    let renew = |leases: Vec<u64>, ttls_ms: Vec<i64>| Ask::Renew(v1::RenewRequest { leases, ttls_ms, kind: 0 });
    let revoke = |by: &str, reason: &str| Ask::Revoke(revoke(1, by, reason));
    let no_lease = v1::AcquireRequest { resource: "a".into(), ..Default::default() };
    let two_leases = v1::AcquireRequest { lease: 7, ..claim("a", 5, "ann", 1_000) };
    vec![
        (name(""), "bad_name"),
        (name(&"n".repeat(1_025)), "bad_name"),
        (name("a\u{7}b"), "bad_name"),
        (name("a\u{202e}b"), "bad_name"),
        (name("a//b"), "bad_name"),
        (name("/a"), "bad_name"),
        (holder(""), "bad_holder"),
        (holder(&"h".repeat(257)), "bad_holder"),
        (holder("a\nb"), "bad_holder"),
        (holder("a\u{200b}b"), "bad_holder"),
        (ttl(0), "bad_ttl"),
        (ttl(-1), "bad_ttl"),
        (ttl(99), "bad_ttl"),
        (ttl(i64::MIN), "bad_ttl"),
        (ttl(i64::MAX), "bad_ttl"),
        (ttl(9_000_000_000_001), "bad_ttl"),
        (Ask::Grant(grant(u64::MAX, "ann", 1_000)), "bad_lease"),
        (Ask::Acquire(no_lease), "bad_request"),
        (Ask::Acquire(two_leases), "bad_request"),
        (handle("db"), "bad_handle"),
        (handle("db@"), "bad_handle"),
        (handle("db@0"), "bad_handle"),
        (handle("db@-1"), "bad_handle"),
        (handle("@7"), "bad_handle"),
        (handle("db@99999999999999999999"), "bad_handle"),
        (handle("db@7"), "stale"),
        (renew(vec![1, 2], vec![1_000]), "bad_request"),
        (renew(vec![1; 4_097], Vec::new()), "too_many"),
        (renew(vec![0], Vec::new()), "bad_lease"),
        (revoke("", "why"), "bad_holder"),
        (revoke("ann", &"r".repeat(1_025)), "bad_reason"),
        (revoke("ann", "\u{2067}why"), "bad_reason"),
        (revoke("ann", "no such lease"), "no_lease"),
        (
            Ask::Cancel(v1::CancelRequest { lease: 1, resource: "db".into(), ..v1::CancelRequest::default() }),
            "no_lease",
        ),
    ]
}

/// The same for what is asked of several resources, by order, and of classes and keys: a slice, for the reader's own
/// tests go through every field.
fn more_bad_requests() -> Vec<(Ask, &'static str)> {
    let plain = || claim("", 5, "ann", 1_000);
    let want = |name: &str, mode: v1::Mode, units, capacity| v1::Want {
        resource: name.into(),
        mode: mode.into(),
        units,
        capacity,
    };
    let wants = |wants: Vec<v1::Want>| Ask::Acquire(v1::AcquireRequest { wants, ..plain() });
    let shared = |name: &str| want(name, v1::Mode::Shared, 0, 0);
    let grant_of = |class: &str| Ask::Grant(v1::GrantRequest { class: class.into(), ..grant(5, "ann", 1_000) });
    let define =
        |capacity| Ask::DefineResource(v1::DefineResourceRequest { resource: "pool".into(), capacity: Some(capacity) });
    let break_of = |resource: &str, delay_ms| {
        let (by, resource) = ("op".into(), resource.into());
        Ask::BreakClaims(v1::BreakRequest { resource, by, delay_ms, ..Default::default() })
    };
    let transfer = |handle: &str, to| Ask::Transfer(v1::TransferRequest { handle: handle.into(), to, force: None });
    let class = v1::Class { name: "batch".into(), ttl_ms: 1_000, ttl_min_ms: 2_000, ..Default::default() };
    let put = |key: &[u8], lease| Ask::Put(v1::PutRequest { key: key.into(), lease, ..Default::default() });
    vec![
        (wants(vec![shared("a"), shared("a")]), "bad_wants"),
        (wants((0..17).map(|n| shared(&format!("r/{n}"))).collect()), "bad_wants"),
        (wants(vec![want("a", v1::Mode::Units, 0, 0)]), "bad_units"),
        (wants(vec![want("a", v1::Mode::Units, 2, 1)]), "too_big"),
        (grant_of("a//b"), "bad_class"),
        (grant_of("nowhere"), "no_class"),
        (Ask::Grant(v1::GrantRequest { parent: 5, ..grant(5, "ann", 1_000) }), "own_parent"),
        (Ask::Grant(v1::GrantRequest { parent: 6, ..grant(5, "ann", 1_000) }), "no_lease"),
        (Ask::ReleaseLease(v1::ReleaseLeaseRequest { lease: 6, release_secret: 0 }), "no_lease"),
        (define(0), "bad_capacity"),
        (break_of("db", -1), "bad_span"),
        (break_of("db", 0), "not_held"),
        (transfer("db", 6), "bad_handle"),
        (transfer("db@7", 6), "stale"),
        (Ask::SetClass(v1::SetClassRequest { class: Some(class) }), "ttl_of_class"),
        (put(b"", 0), "bad_key"),
        (put(b"k", 0), "no_key"),
        (Ask::Delete(v1::DeleteRequest { which: None }), "bad_request"),
    ]
}

async fn unary(client: &Client, ask: Ask) -> Result<(), Error> {
    match ask {
        Ask::Grant(request) => client.grant(request).await.map(drop),
        Ask::Acquire(request) => client.acquire(request).await.map(drop),
        Ask::Renew(request) => client.renew(request).await.map(drop),
        Ask::RenewHandle(request) => client.renew_handle(request).await.map(drop),
        Ask::Release(request) => client.release(request).await.map(drop),
        Ask::Cancel(request) => client.cancel(request).await.map(drop),
        Ask::Revoke(request) => client.revoke(request).await.map(drop),
        Ask::ReleaseLease(request) => client.release_lease(request).await.map(drop),
        Ask::BreakClaims(request) => client.break_claims(request).await.map(drop),
        Ask::Transfer(request) => client.transfer(request).await.map(drop),
        Ask::DefineResource(request) => client.define_resource(request).await.map(drop),
        Ask::SetClass(request) => client.set_class(request).await.map(drop),
        Ask::Put(request) => client.put(request).await.map(drop),
        Ask::Delete(request) => client.delete(request).await.map(drop),
        Ask::Register(_) | Ask::UpdateInstance(_) | Ask::Drain(_) | Ask::Deregister(_) | Ask::SetHealth(_) => {
            unreachable!("what is bad about instances is asked in registry_http.rs")
        }
    }
}

#[tokio::test]
async fn bad_requests_are_refused_by_name_and_change_nothing() {
    let server = Server::start();
    let client = server.client().await;
    let before = revision(&client).await;
    let mut stream = client.converse().await.unwrap();
    for (id, (ask, expected)) in (0..).zip(bad_requests().into_iter().chain(more_bad_requests())) {
        let refused = unary(&client, ask.clone()).await.expect_err(expected);
        assert_eq!(code(refused), expected, "{ask:?}");
        stream.send(v1::Request { id, body: Some(ask.clone()) }).await.unwrap();
        let answer = stream.next().await.unwrap();
        assert_eq!(answer.id, id);
        match answer.body {
            Some(Tell::Failure(failure)) => assert_eq!(failure.code, expected, "{ask:?}"),
            other => panic!("{ask:?} was answered {other:?}"),
        }
    }
    stream.send(v1::Request { id: 99, body: None }).await.unwrap();
    assert!(matches!(stream.next().await.unwrap().body, Some(Tell::Failure(failure)) if failure.code == "bad_request"));
    assert_eq!(revision(&client).await, before, "nothing was changed");
    acquire(&client, claim("still/up", 9, "ann", 1_000)).await.unwrap();
    let largest = v1::RenewRequest { leases: vec![9; 4_096], ..Default::default() };
    client.renew(largest).await.expect("one below the limit is accepted");
}

/// Sends bytes as they are, to see what a broken client would be told.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn encode(&mut self, bytes: Vec<u8>, out: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        bytes::BufMut::put_slice(out, &bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, tonic::Status> {
        let mut out = vec![0; bytes::Buf::remaining(bytes)];
        bytes::Buf::copy_to_slice(bytes, &mut out);
        Ok(Some(out))
    }
}

async fn raw_call(server: &Server, bytes: Vec<u8>) -> tonic::Status {
    let channel = tonic::transport::Endpoint::from_shared(server.addr.clone()).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/tenure.v1.Tenure/Release");
    grpc.unary(tonic::Request::new(bytes), path, Raw).await.expect_err("this is no request")
}

#[tokio::test]
async fn unreadable_and_oversized_messages_are_refused() {
    let server = Server::start();
    // Field 1, two bytes that are not UTF-8.
    let not_text = raw_call(&server, vec![0x0a, 2, 0xff, 0xfe]).await;
    assert_eq!(not_text.code(), tonic::Code::InvalidArgument);
    assert!(String::from_utf8_lossy(not_text.details()).contains("bad_message"), "{not_text:?}");
    // A length that runs past the end.
    let cut = raw_call(&server, vec![0x0a, 200]).await;
    assert_eq!(cut.code(), tonic::Code::InvalidArgument);
    let too_large = raw_call(&server, vec![0; 2 * 1024 * 1024]).await;
    assert_eq!(too_large.code(), tonic::Code::OutOfRange, "{too_large:?}");
    acquire(&server.client().await, claim("still/up", 9, "ann", 1_000)).await.unwrap();
}

#[tokio::test]
async fn garbage_on_the_port_harms_nobody() {
    let server = Server::start();
    let address = server.addr.trim_start_matches("http://").to_owned();
    let noise: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let pieces: [&[u8]; 5] =
        [b"", b"\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff", &noise];
    let mut idle = Vec::new();
    for piece in pieces {
        let mut socket = TcpStream::connect(&address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        // The server may hang up in the middle.
        let _ = socket.write_all(piece);
        let _ = socket.read(&mut [0; 1_024]);
        idle.push(socket);
    }
    acquire(&server.client().await, claim("still/up", 9, "ann", 1_000)).await.unwrap();
}
