//! Whatever comes in at the HTTP door: refused with a stable code and nothing changed, or bounded; and the server up.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::time::Instant;
use tenure_testkit as support;
use tenure_testkit::http::{Line, ask, get, post};
use tenure_testkit::{PATIENCE, Server};

const JSON: &str = "content-type: application/json";

/// That nothing has changed and the server is up.
fn is_untouched(server: &Server) {
    assert_eq!(get(server, "/v1/status").yes()["revision"], 0);
}

fn acquire(server: &Server, headers: &[&str], body: &[u8]) -> (u16, String) {
    ask(server, "POST", "/v1/acquire", headers, body).no()
}

const GOOD: &[u8] = br#"{"resource":"a","holder":"ann","ttl_ms":60000}"#;

#[test]
fn json_that_is_not_what_was_expected_is_refused() {
    let server = Server::start();
    let deep = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
    let deep_inside = [br#"{"resource":"a","wants":"#.to_vec(), deep.clone(), b"}".to_vec()].concat();
    let bad: [&[u8]; 16] = [
        b"",
        b"null",
        b"[]",
        br#"["a"]"#,
        br#"{"resource":"a","holder":"ann","ttl_ms":60000,"mode":{"exclusive":null}}"#,
        br#"{"wants":[["a"]],"holder":"ann","ttl_ms":60000}"#,
        b"{",
        &deep,
        &deep_inside,
        br#"{"resource":"a","holder":"ann","ttl_ms":60000,"surprise":1}"#,
        br#"{"resource":"a","holder":"ann","ttl_ms":60000,"ttl_ms":60000}"#,
        br#"{"resource":"a","holder":"ann","ttl_ms":60000,"labels":{"a":"1","a":"2"}}"#,
        br#"{"resource":"a","holder":"ann","ttl_ms":6e4}"#,
        br#"{"resource":"a","holder":"ann","ttl_ms":60000,"lease":42}"#,
        br#"{"resource":"a","holder":"ann","ttl_ms":60000} {}"#,
        b"{\"resource\":\"a\xff\",\"holder\":\"ann\",\"ttl_ms\":60000}",
    ];
    for body in bad {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(acquire(&server, &[JSON], body), (400, "bad_json".into()), "{shown}");
    }
    is_untouched(&server);
}

#[test]
fn values_that_cannot_be_are_refused_as_over_grpc() {
    let server = Server::start();
    let bad = [
        (json!({}), "bad_holder"),
        (json!({"resource": "a//b", "holder": "ann", "ttl_ms": 60_000}), "bad_name"),
        (json!({"resource": "a", "holder": "ann"}), "bad_ttl"),
        (json!({"resource": "a", "holder": "ann", "ttl_ms": -1}), "bad_ttl"),
        (json!({"resource": "a", "holder": "ann", "ttl_ms": 60_000, "units": 1}), "bad_mode"),
        (json!({"resource": "a", "holder": "ann", "ttl_ms": 60_000, "wants": [{"resource": "b"}]}), "bad_wants"),
        (json!({"resource": "a", "holder": "ann", "ttl_ms": 60_000, "poll_ms": 5}), "bad_request"),
        (json!({"wants": [{"resource": "b"}], "mode": "shared", "holder": "ann", "ttl_ms": 60_000}), "bad_request"),
        (json!({"resource": "a", "lease": "2a", "ttl_ms": 60_000}), "bad_request"),
        (json!({"resource": "a", "lease": "ffffffffffffffff"}), "bad_lease"),
    ];
    for (body, code) in bad {
        assert_eq!(post(&server, "/v1/acquire", &body).no(), (400, code.into()), "{body}");
    }
    assert_eq!(support::http::write(&server, "PUT", "/v1/keys/k", &json!({"value": ["00ff"]})).no().1, "bad_json");
    let removal = ask(&server, "DELETE", "/v1/keys?prefix=%FF", &[], b"");
    assert_eq!(removal.no(), (400, "bad_query".into()), "bytes are not read as another text");
    for query in ["limit=-1", "limit=x", "surprise=1", "stale=maybe", "limit=1&limit=2"] {
        assert_eq!(get(&server, &format!("/v1/resources?{query}")).no(), (400, "bad_query".into()), "{query}");
    }
    for (path, code) in [
        ("/v1/leases/0", "bad_lease"),
        ("/v1/leases/xyz", "bad_lease"),
        ("/v1/resources/%FF", "bad_name"),
        ("/v1/resources/a%00b", "bad_name"),
        ("/v1/keys?from=0", "bad_request"),
        ("/v1/leases?from=g", "bad_request"),
        ("/v1/leases?label=x", "bad_query"),
        ("/v1/history?before=x", "bad_query"),
    ] {
        assert_eq!(get(&server, path).no(), (400, code.into()), "{path}");
    }
    is_untouched(&server);
}

#[test]
fn a_page_in_a_browser_cannot_use_the_server() {
    let server = Server::start();
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example:7420", "a b", ""] {
        let header = format!("host: {host}");
        let mut line = Line::open(&server);
        line.ask("POST", "/v1/acquire", &[&header, JSON], GOOD);
        // What is not even a host ends the connection with a 400 before any door.
        assert!([400, 421].contains(&line.head().status), "{host}");
    }
    let mut two = Line::open(&server);
    two.ask("POST", "/v1/acquire", &["host: localhost", "host: evil.example", JSON], GOOD);
    assert_eq!(two.answer().no(), (421, "bad_host".into()));
    for origin in ["http://evil.example", "null", "http://localhost.evil.example", "https://127.0.0.1.evil.example"] {
        let header = format!("origin: {origin}");
        assert_eq!(acquire(&server, &[&header, JSON], GOOD), (403, "bad_origin".into()), "{origin}");
    }
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp"]
    {
        let header = format!("content-type: {kind}");
        assert_eq!(acquire(&server, &[&header], GOOD), (415, "bad_content_type".into()), "{kind}");
    }
    assert_eq!(acquire(&server, &[], GOOD), (415, "bad_content_type".into()));
    // What a browser asks before it lets a page of another host write: the answer lets nobody.
    let ask_first = ["origin: http://localhost:1", "access-control-request-method: POST"];
    let preflight = ask(&server, "OPTIONS", "/v1/acquire", &ask_first, b"");
    assert_eq!(preflight.status, 405);
    assert!(preflight.headers.iter().all(|(name, _)| !name.starts_with("access-control")), "{preflight:?}");
    is_untouched(&server);
    let own = ask(&server, "POST", "/v1/acquire", &["origin: http://localhost:3000", JSON], GOOD);
    assert_eq!(own.status, 200, "a page of this machine may");
}

#[test]
fn a_page_in_a_browser_cannot_use_grpc_either() {
    let server = Server::start();
    // A put of the key k, framed as gRPC has it, in a request that a browser sends without asking first.
    let frame = [&[0, 0, 0, 0, 6][..], b"\x0a\x01k\x12\x01v"].concat();
    for kind in ["text/plain", "application/grpc", "application/grpc+proto", "application/json"] {
        let headers = ["origin: http://localhost", &format!("content-type: {kind}")];
        let answer = ask(&server, "POST", "/tenure.v1.Tenure/Put", &headers, &frame);
        assert_eq!(answer.no(), (404, "no_such_path".into()), "{kind}");
    }
    let foreign = ask(&server, "POST", "/tenure.v1.Tenure/Put", &["origin: http://evil.example", JSON], &frame);
    assert_eq!(foreign.no(), (403, "bad_origin".into()));
    is_untouched(&server);
}

#[test]
fn large_bodies_are_refused_without_being_read() {
    let server = Server::start();
    let size = 64 * 1024 * 1024;
    let mut line = Line::open(&server);
    let head = format!("POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\n{JSON}\r\ncontent-length: {size}\r\n\r\n");
    line.send(head.as_bytes());
    assert_eq!(line.answer().no(), (413, "too_large".into()));
    // Without a length it is read only as far as the limit.
    let addr = server.addr.trim_start_matches("http://");
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let head = format!("POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\n{JSON}\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
    let sent = (0..1024).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(sent < 1024, "all 64 MiB were taken");
    is_untouched(&server);
}

#[test]
fn a_body_that_trickles_in_is_not_waited_for() {
    let server = Server::start();
    let mut line = Line::open(&server);
    line.send(
        format!("POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\n{JSON}\r\ncontent-length: 100\r\n\r\n{{").as_bytes(),
    );
    assert_eq!(line.answer().no(), (408, "too_slow".into()));
    is_untouched(&server);
}

#[test]
fn bodies_have_room_for_so_many_bytes_at_once() {
    let server = Server::start();
    let head = format!("POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\n{JSON}\r\ncontent-length: 1500000\r\n\r\n ");
    // So many of this size fit into 128 MiB, and not one more.
    let mut lines: Vec<Line> = (0..100).map(|_| Line::open(&server)).collect();
    lines.iter_mut().for_each(|line| line.send(head.as_bytes()));
    let codes: Vec<_> = lines.iter_mut().map(|line| line.answer().no().1).collect();
    let count = |code: &str| codes.iter().filter(|found| *found == code).count();
    assert_eq!((count("too_slow"), count("overloaded")), (89, 11), "{codes:?}");
    is_untouched(&server);
}

#[test]
fn headers_beyond_the_limit_are_refused() {
    let server = Server::start();
    let mut line = Line::open(&server);
    let long = format!("x-long: {}", "x".repeat(1024 * 1024));
    let head = format!("GET /v1/status HTTP/1.1\r\nhost: localhost\r\n{long}\r\n\r\n");
    // The server may hang up before all of it was sent.
    line.try_send(head.as_bytes());
    let refused = line.line().is_none_or(|first| first.contains(" 431 "));
    assert!(refused);
    is_untouched(&server);
}

#[test]
fn who_says_nothing_or_never_ends_its_headers_is_hung_up_on() {
    let server = Server::start();
    let mut silent = Line::open(&server);
    let mut half_a_word = Line::open(&server);
    half_a_word.send(b"PRI * HT");
    let mut slow = Line::open(&server);
    slow.send(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\n");
    let start = Instant::now();
    for (who, line) in [("silent", &mut silent), ("half a word", &mut half_a_word), ("slow", &mut slow)] {
        assert!(line.is_closed(), "{who} is still connected after {:?}", start.elapsed());
    }
    is_untouched(&server);
}
