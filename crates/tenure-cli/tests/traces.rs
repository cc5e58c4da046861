//! Traces as a collector gets them: one tree a request, without a word of a client's. And a server that does not mind what
//! becomes of them.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::http::Line;
use crate::support::{PATIENCE, Server, acquire, claim, soon};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tenure::v1::request::Body as Ask;
use tenure::v1::tenure_client::TenureClient;
use tenure::{Client, v1};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, async_trait};

const MINUTE_MS: i64 = 60_000;
const PARENT_TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_SPAN: &str = "00f067aa0ba902b7";

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
struct Collector {
    sent: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

#[async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.sent.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> (Self, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Self::default();
        collector.serve(listener);
        (collector, format!("http://{address}"))
    }

    fn serve(&self, listener: tokio::net::TcpListener) {
        let service = TraceServiceServer::new(self.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    }

    fn spans(&self) -> Vec<Span> {
        let sent = self.sent.lock().unwrap();
        let scopes = sent.iter().flat_map(|request| &request.resource_spans).flat_map(|of| &of.scope_spans);
        scopes.flat_map(|scope| scope.spans.iter().cloned()).collect()
    }

    /// Each request with the places it was at, in the order of their beginnings.
    fn trees(&self) -> Vec<String> {
        let mut spans = self.spans();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        let is_request = |span: &&Span| word(span, "door").is_some();
        let trees = spans.iter().filter(is_request).map(|request| {
            let places: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == request.span_id).collect();
            let mut ended = request.start_time_unix_nano;
            for place in &places {
                assert_eq!(place.trace_id, request.trace_id);
                assert!(ended <= place.start_time_unix_nano, "one place after the other: {places:?}");
                ended = place.end_time_unix_nano;
            }
            assert!(ended <= request.end_time_unix_nano, "all of it within the request: {request:?}, {places:?}");
            let [door, call, code] = ["door", "call", "code"].map(|key| word(request, key).unwrap());
            assert_eq!(call, request.name);
            let places: Vec<&str> = places.iter().map(|span| span.name.as_str()).collect();
            format!("{door} {call} {code}: {}", places.join(" "))
        });
        let trees: Vec<String> = trees.collect();
        let places: usize = trees.iter().map(|tree| tree.split(": ").nth(1).unwrap().split_whitespace().count()).sum();
        assert_eq!(trees.len() + places, spans.len(), "no span is outside of a request: {spans:?}");
        trees
    }
}

/// An attribute of a span.
fn word(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|of| of.key == key)?.value.clone()?.value?;
    match value {
        Value::StringValue(text) => Some(text),
        other => panic!("{key} is {other:?}"),
    }
}

fn traced(directory: &Path, endpoint: &str, more: &[&str]) -> Server {
    let flags = ["--listen", "127.0.0.1:0", "--data-dir", directory.to_str().unwrap(), "--otlp-endpoint", endpoint];
    Server::start_with(&[&flags, more].concat())
}

/// Stops a server, which sends what is left, and gives everything that it ever said.
fn stopped(mut server: Server) -> String {
    server.signal("TERM");
    assert!(server.ends().success());
    heard(&server, "stopped; everything acknowledged is on disk");
    server.words()
}

/// Waits until the server has said this.
fn heard(server: &Server, words: &str) {
    let start = Instant::now();
    while !server.words().contains(words) {
        assert!(start.elapsed() < PATIENCE, "{words} was never said: {}", server.words());
        std::thread::yield_now();
    }
}

fn traceparent(flags: &str) -> String {
    format!("00-{PARENT_TRACE}-{PARENT_SPAN}-{flags}")
}

fn http(server: &Server, method: &str, path: &str, headers: &[&str], body: &str) -> u16 {
    let mut line = Line::open(server);
    let headers = [&["content-type: application/json"], headers].concat();
    line.ask(method, path, &headers, body.as_bytes());
    line.answer().status
}

async fn put(client: &Client, count: usize) {
    for _ in 0..count {
        let put = v1::PutRequest { key: b"k".to_vec(), value: Some(b"v".to_vec()), ..Default::default() };
        client.put(put).await.unwrap();
    }
}

/// Asks by every door, for each kind of way that a request can go.
async fn ask_by_every_door(server: &Server) {
    let client = server.client().await;
    let fence = acquire(&client, claim("payroll/db", 1, "ann-smith", MINUTE_MS)).await.unwrap();
    acquire(&client, claim("payroll/db", 2, "bob-jones", MINUTE_MS)).await.unwrap_err();
    let mut stream = client.converse().await.unwrap();
    let ask = Ask::Acquire(claim("payroll/log", 3, "cat-brown", MINUTE_MS));
    stream.send(v1::Request { id: 7, body: Some(ask) }).await.unwrap();
    soon("an answer", stream.next()).await.unwrap();
    assert_eq!(http(server, "PUT", "/v1/keys/wages", &[], r#"{"value":"horse-battery"}"#), 200);
    assert_eq!(http(server, "GET", "/v1/keys/wages", &[], ""), 200);
    assert_eq!(http(server, "POST", "/v1/acquire", &[], r#"{"resource":"payroll//db"}"#), 400);
    let mut line = Line::open(server);
    let body = r#"{"resource":"payroll/db","holder":"dan-white","ttl_ms":60000,"wait":true}"#;
    line.ask("POST", "/v1/acquire", &["content-type: application/json"], body.as_bytes());
    let show = || client.show(v1::ShowRequest { resource: "payroll/db".into(), ..Default::default() });
    let start = Instant::now();
    while show().await.unwrap().waiting == 0 {
        assert!(start.elapsed() < PATIENCE, "dan never waits");
    }
    client.release(v1::ReleaseRequest { handle: format!("payroll/db@{fence}"), release_secret: 0 }).await.unwrap();
    assert_eq!(line.answer().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_one_tree_from_its_door_round_the_ring_without_a_word_of_its_client() {
    let directory = tempfile::tempdir().unwrap();
    let (collector, endpoint) = Collector::start().await;
    let server = traced(directory.path(), &endpoint, &["--log", "trace"]);
    ask_by_every_door(&server).await;
    let said = stopped(server);
    assert!(!said.contains("cannot be sent"), "the collector was there");
    assert!(said.contains(" TRACE ") && !said.contains("otel."), "the log says much, but not the spans of requests");
    let asked_once = |tree: &String| !tree.starts_with("grpc show") && !tree.starts_with("grpc status");
    let trees: Vec<String> = collector.trees().into_iter().filter(asked_once).collect();
    let expected = [
        "grpc acquire ok: queued log",
        "grpc acquire taken: queued log",
        "stream acquire ok: queued log",
        "http put ok: queued log",
        "http get_key ok: read_index",
        "http acquire bad_holder: ",
        "http acquire ok: queued log waiting read_index",
        "grpc release ok: queued log",
    ];
    assert_eq!(trees, expected);
    assert!(collector.spans().iter().all(|span| span.trace_state.is_empty()));
    let traces: std::collections::BTreeSet<Vec<u8>> = collector.spans().into_iter().map(|span| span.trace_id).collect();
    assert_eq!(traces.len(), collector.trees().len(), "each has a trace of its own");
    let bytes: Vec<u8> = collector.sent.lock().unwrap().iter().flat_map(Message::encode_to_vec).collect();
    let all = String::from_utf8_lossy(&bytes);
    assert!(all.contains("service.name") && all.contains("acquire"), "{all}");
    for word in ["payroll", "ann-smith", "bob-jones", "cat-brown", "dan-white", "wages", "horse"] {
        assert!(!all.contains(word), "{word} is a client's: {all}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_decides_for_its_own_requests_and_the_ratio_for_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let (collector, endpoint) = Collector::start().await;
    let server = traced(directory.path(), &endpoint, &["--otlp-ratio", "0"]);
    put(&server.client().await, 1).await;
    let (yes, no) = (traceparent("01"), traceparent("00"));
    let value = r#"{"value":"v"}"#;
    let state = "tracestate: vendor=gossip";
    assert_eq!(http(&server, "PUT", "/v1/keys/a", &[&format!("traceparent: {yes}"), state], value), 200);
    assert_eq!(http(&server, "PUT", "/v1/keys/b", &[&format!("traceparent: {no}")], value), 200);
    assert_eq!(http(&server, "PUT", "/v1/keys/b", &["traceparent: 00-nonsense-01"], value), 200);
    let mut plain = TenureClient::connect(server.addr.clone()).await.unwrap();
    for parent in [&yes, &no] {
        let mut request = Request::new(v1::GetKeyRequest { key: b"a".to_vec(), ..Default::default() });
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        plain.get_key(request).await.unwrap();
    }
    stopped(server);
    assert_eq!(collector.trees(), ["http put ok: queued log", "grpc get_key ok: read_index"]);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let spans = collector.spans();
    assert!(spans.iter().all(|span| hex(&span.trace_id) == PARENT_TRACE && span.trace_state.is_empty()), "{spans:?}");
    assert_eq!(spans.iter().filter(|span| hex(&span.parent_span_id) == PARENT_SPAN).count(), 2, "{spans:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_is_told_of_once_and_one_that_is_back_too() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = nobody.local_addr().unwrap();
    drop(nobody);
    let directory = tempfile::tempdir().unwrap();
    let server = traced(directory.path(), &format!("http://{address}"), &[]);
    let client = server.client().await;
    let told = "traces cannot be sent and are dropped";
    // More spans than one batch has, so that nobody waits for the timer.
    put(&client, 300).await;
    heard(&server, told);
    put(&client, 1).await;
    let said = stopped(server);
    assert_eq!(said.matches(told).count(), 1, "the last spans failed too: {said}");

    let server = traced(directory.path(), &format!("http://{address}"), &[]);
    let client = server.client().await;
    put(&client, 300).await;
    heard(&server, told);
    let collector = Collector::default();
    collector.serve(tokio::net::TcpListener::bind(address).await.unwrap());
    put(&client, 300).await;
    heard(&server, "traces are sent again");
    stopped(server);
    assert!(!collector.spans().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_says_nothing_holds_up_neither_requests_nor_the_stop() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let server = traced(directory.path(), &format!("http://{}", mute.local_addr().unwrap()), &[]);
    put(&server.client().await, 200).await;
    let said = stopped(server);
    assert!(said.contains("the collector did not take the last traces in time"), "{said}");
}
