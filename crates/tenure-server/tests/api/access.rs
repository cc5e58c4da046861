//! What the role and the prefixes of an API key allow, over each protocol.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use serde_json::{Value, json};
use tenure::v1::request::Body as Ask;
use tenure::v1::response::Body as Tell;
use tenure::{Client, v1};
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::watch_client::WatchClient;
use tenure_api::etcd::etcdserverpb::watch_request::RequestUnion;
use tenure_server::{Access, ApiKeys, KeyRights, Role, Settings, draw_api_key};
use tenure_testkit::http::{Answer, Line, ask};
use tenure_testkit::http_claims::claim;
use tenure_testkit::{Server, soon};

/// A server with keys, and their secrets: ann and bob hold, ops may do everything, dan everything under jobs/.
struct Keyed {
    server: Server,
    secrets: Vec<(&'static str, String)>,
}

impl Keyed {
    fn start() -> Self {
        let under = |prefix: &str| KeyRights { prefixes: vec![prefix.into()], ..KeyRights::default() };
        Self::with(&[
            ("ann", Role::Hold.into()),
            ("bob", Role::Hold.into()),
            ("ops", Role::Full.into()),
            ("dan", under("jobs/")),
            ("eve", KeyRights { role: Role::Read, ..under("jobs/") }),
        ])
    }

    fn with(keys: &[(&'static str, KeyRights)]) -> Self {
        let drawn: Vec<_> =
            keys.iter().map(|(name, rights)| (*name, draw_api_key(name, rights.clone()).unwrap())).collect();
        let lines: String = drawn.iter().map(|(_, (_, line))| format!("{line}\n")).collect();
        let access = Access::by(ApiKeys::parse(&lines).unwrap());
        let server = Server::start_with(Settings { access, ..Settings::default() });
        Self { server, secrets: drawn.into_iter().map(|(name, (secret, _))| (name, secret)).collect() }
    }

    fn secret(&self, key: &str) -> &str {
        &self.secrets.iter().find(|(name, _)| *name == key).unwrap().1
    }

    fn ask(&self, key: &str, method: &str, path: &str, body: &Value) -> Answer {
        let authorization = format!("authorization: Bearer {}", self.secret(key));
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [authorization.as_str(), "content-type: application/json"];
        ask(&self.server, method, path, &headers[..if body.is_null() { 1 } else { 2 }], text.as_bytes())
    }

    fn yes(&self, key: &str, method: &str, path: &str, body: &Value) -> Value {
        self.ask(key, method, path, body).yes()
    }

    /// Each of these is refused because the key may not do it.
    fn denied(&self, key: &str, calls: &[(&str, &str, Value)]) {
        for (method, path, body) in calls {
            let answer = self.ask(key, method, path, body);
            assert_eq!(answer.status, 403, "{key} {method} {path}: {:?}", String::from_utf8_lossy(&answer.body));
            assert_eq!(answer.no(), (403, "denied".into()), "{key} {method} {path}");
        }
    }

    async fn client(&self, key: &str) -> Client {
        Client::builder().addrs(&self.server.addr).api_key(self.secret(key)).connect().await.unwrap()
    }

    fn bearer<T>(&self, key: &str, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.secret(key)).parse().unwrap());
        request
    }
}

fn none() -> Value {
    Value::Null
}

/// What ann has: a claim with a key and an instance on its lease. Returns the lease.
fn ann_has(keyed: &Keyed) -> String {
    let held = keyed.yes("ann", "POST", "/v1/acquire", &claim("db/leader", "ann"));
    let lease = held["lease"].as_str().unwrap().to_owned();
    keyed.yes("ann", "PUT", "/v1/keys/db/addr", &json!({"value": "10.0.0.1", "lease": lease}));
    let agent = json!({"endpoints": ["http://10.0.0.1:80"], "ttl_ms": 60_000, "epoch": 1});
    keyed.yes("ann", "PUT", "/v1/instances/agents/a1", &agent);
    lease
}

#[test]
fn hold_key_neither_ends_nor_changes_what_is_of_others() {
    let keyed = Keyed::start();
    let lease = ann_has(&keyed);
    keyed.denied(
        "bob",
        &[
            ("POST", "/v1/release", json!({"handle": "db/leader@1"})),
            ("POST", "/v1/renew", json!({"handle": "db/leader@1"})),
            ("POST", "/v1/break", json!({"resource": "db/leader", "by": "bob", "reason": "mine now", "now": true})),
            ("POST", "/v1/revoke", json!({"lease": lease, "by": "bob", "reason": "mine now", "now": true})),
            ("POST", "/v1/revoke", json!({"holder": "ann", "by": "bob", "reason": "mine now"})),
            ("POST", "/v1/cancel", json!({"lease": lease, "resources": ["db/leader"]})),
            ("DELETE", &format!("/v1/leases/{lease}"), none()),
            ("POST", "/v1/acquire", json!({"resource": "db/other", "lease": lease})),
            ("PUT", "/v1/keys/db/addr", json!({"value": "10.6.6.6"})),
            ("PUT", "/v1/keys/db/new", json!({"value": "10.6.6.6"})),
            ("DELETE", "/v1/keys/db/addr", none()),
            ("DELETE", "/v1/keys?prefix=db/", none()),
            ("PUT", "/v1/drain/agents/a1", json!({"by": "bob", "reason": "mine now"})),
            ("DELETE", "/v1/instances/agents/a1", none()),
            ("PATCH", "/v1/instances/agents/a1", json!({"version": "2"})),
            ("PUT", "/v1/resources/db/leader", json!({"capacity": 2})),
            ("PUT", "/v1/classes/mine", json!({"ttl_ms": 1000})),
            ("POST", "/v1/cluster/backup", json!({})),
            ("POST", "/v1/cluster/members", json!({"node": 2, "peer_addr": "127.0.0.1:1"})),
        ],
    );
    let renewed = keyed.yes("bob", "POST", "/v1/leases/renew", &json!({"leases": [lease]}));
    assert_eq!(renewed["failures"][0]["failure"]["code"], "denied", "{renewed}");
    // All that is as it was, and a key that holds goes on with what is its own.
    let shown = keyed.yes("bob", "GET", &format!("/v1/leases/{lease}"), &none());
    assert_eq!(shown["living"]["api_key"], "ann", "{shown}");
    assert_eq!(keyed.yes("bob", "GET", "/v1/keys/db/addr", &none())["item"]["value"], "10.0.0.1");
    keyed.yes("bob", "POST", "/v1/acquire", &claim("db/other", "bob"));
    keyed.yes("bob", "POST", "/v1/release", &json!({"handle": "db/other@2"}));
    keyed.yes("ann", "POST", "/v1/renew", &json!({"handle": "db/leader@1"}));
}

#[test]
fn who_ended_a_claim_is_its_key_whatever_the_request_says() {
    let keyed = Keyed::start();
    ann_has(&keyed);
    keyed.yes(
        "ops",
        "POST",
        "/v1/break",
        &json!({"resource": "db/leader", "by": "ann", "reason": "stuck", "now": true}),
    );
    let past = keyed.yes("ops", "GET", "/v1/resources/db/leader", &none());
    assert_eq!(past["past"][0]["end"]["by"], "ops (ann)", "{past}");
    let history = keyed.yes("ops", "GET", "/v1/history?resource=db/leader", &none());
    assert_eq!(history["events"][0]["api_key"], "ops", "{history}");
    assert_eq!(history["events"][1]["api_key"], "ann", "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_key_is_bound_on_a_stream_and_by_grpc() {
    let keyed = Keyed::start();
    let lease = u64::from_str_radix(&ann_has(&keyed), 16).unwrap();
    let bob = keyed.client("bob").await;
    let code = |failure: &v1::Failure| failure.code.clone();
    let refused = tenure_testkit::renew(&bob, lease).await.unwrap();
    assert_eq!(refused.failures[0].failure.as_ref().map(code).as_deref(), Some("denied"), "{refused:?}");
    let mut stream = bob.converse().await.unwrap();
    let release = v1::ReleaseLeaseRequest { lease, ..v1::ReleaseLeaseRequest::default() };
    let own = tenure_testkit::claim("db/other", 77, "bob", 60_000);
    for (id, body) in [(1, Ask::ReleaseLease(release)), (2, Ask::Acquire(own))] {
        stream.send(v1::Request { id, body: Some(body) }).await.unwrap();
    }
    for _ in 0..2 {
        let answer = soon("an answer", stream.next()).await.unwrap();
        match (answer.id, answer.body.unwrap()) {
            (1, Tell::Failure(failure)) => assert_eq!(code(&failure), "denied"),
            (2, Tell::Acquire(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Bytes, as etcd's JSON has them.
fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

#[test]
fn hold_key_is_bound_in_the_dialect_of_etcd() {
    let keyed = Keyed::start();
    let lease = i64::from_str_radix(&ann_has(&keyed), 16).unwrap();
    let (key, value) = (base64("db/addr"), base64("10.6.6.6"));
    let denied = |path: &str, body: Value| {
        let answer = keyed.ask("bob", "POST", path, &body);
        assert_eq!(answer.json()["message"], "etcdserver: permission denied", "{path} {body}");
    };
    denied("/v3/kv/put", json!({"key": key, "value": value}));
    denied("/v3/kv/put", json!({"key": base64("free"), "value": value}));
    denied("/v3/kv/deleterange", json!({"key": key}));
    denied("/v3/lease/revoke", json!({"ID": lease}));
    denied("/v3/kv/txn", json!({"success": [{"request_delete_range": {"key": key}}]}));
    denied("/v3/kv/compaction", json!({"revision": 1}));
    denied("/v3/maintenance/snapshot", json!({}));
    // Its own lock works, and ann may not take it away.
    let lock = keyed.yes("bob", "POST", "/v3/lock/lock", &json!({"name": base64("mutex")}));
    let unlock = json!({"key": lock["key"]});
    let answer = keyed.ask("ann", "POST", "/v3/lock/unlock", &unlock);
    assert_eq!(answer.json()["message"], "etcdserver: permission denied");
    keyed.yes("bob", "POST", "/v3/lock/unlock", &unlock);
}

#[test]
fn key_with_prefixes_uses_names_inside_them_only() {
    let keyed = Keyed::start();
    ann_has(&keyed);
    keyed.yes("ops", "PUT", "/v1/keys/jobs/config", &json!({"value": "1"}));
    let held = keyed.yes("ops", "POST", "/v1/acquire", &claim("jobs/nightly", "ops"));
    let lease = held["lease"].as_str().unwrap();
    let outside: &[(&str, &str, Value)] = &[
        ("GET", "/v1/resources/db/leader", none()),
        ("GET", "/v1/resources", none()),
        ("GET", "/v1/resources?prefix=job", none()),
        ("GET", "/v1/keys/db/addr", none()),
        ("GET", "/v1/keys", none()),
        ("GET", "/v1/leases", none()),
        ("GET", &format!("/v1/leases/{lease}"), none()),
        ("GET", "/v1/history", none()),
        ("GET", "/v1/history?resource=db/leader", none()),
        ("GET", "/v1/watch", none()),
        ("GET", "/v1/watch?prefix=jobs/&prefix=db/", none()),
        ("GET", "/v1/instances?service=agents", none()),
        ("GET", "/v1/instances/agents/a1", none()),
        ("GET", "/v1/services", none()),
        ("GET", "/v1/watch/instances?service=agents", none()),
        ("GET", "/v1/prometheus/targets", none()),
        ("GET", "/v1/verify?handle=db/leader@1", none()),
        ("GET", "/v1/cluster/members", none()),
    ];
    keyed.denied("eve", outside);
    keyed.denied("dan", outside);
    keyed.denied(
        "dan",
        &[
            ("POST", "/v1/acquire", claim("db/other", "dan")),
            ("POST", "/v1/acquire", claim("jobs", "dan")),
            ("POST", "/v1/release", json!({"handle": "db/leader@1"})),
            ("POST", "/v1/break", json!({"resource": "db/leader", "by": "bob", "reason": "mine now", "now": true})),
            ("POST", "/v1/revoke", json!({"lease": lease, "by": "bob", "reason": "mine now", "now": true})),
            ("POST", "/v1/revoke", json!({"prefix": "jobs/", "by": "dan", "reason": "stuck"})),
            ("PUT", "/v1/keys/db/addr", json!({"value": "10.6.6.6"})),
            ("DELETE", "/v1/keys?prefix=j", none()),
            ("PUT", "/v1/instances/agents/a2", json!({"endpoints": ["http://10.0.0.1:80"]})),
            ("PUT", "/v1/heartbeat/agents/a1", json!({})),
            ("DELETE", "/v1/instances/agents/a1", none()),
            ("PUT", "/v1/resources/db/leader", json!({"capacity": 2})),
            ("POST", "/v1/cluster/backup", json!({})),
        ],
    );
    for (path, what) in [("/v1/resources?prefix=jobs/", "items"), ("/v1/keys?prefix=jobs/", "items")] {
        assert_eq!(keyed.yes("eve", "GET", path, &none())[what].as_array().unwrap().len(), 1, "{path}");
    }
    keyed.yes("eve", "GET", "/v1/history?prefix=jobs/n", &none());
    // Who waits there waits elsewhere, too, which is shown to others.
    let wants = json!([{"resource": "jobs/nightly"}, {"resource": "db/leader"}]);
    let waits = json!({"wants": wants, "holder": "ops", "ttl_ms": 60_000, "wait": true, "poll_ms": 1});
    assert_eq!(keyed.ask("ops", "POST", "/v1/acquire", &waits).status, 202);
    let shown_to = |key: &str| keyed.yes(key, "GET", "/v1/resources/jobs/nightly", &none());
    assert_eq!(shown_to("ops")["line"][0]["resources"], json!(["jobs/nightly", "db/leader"]));
    assert_eq!(shown_to("eve")["line"][0]["resources"], json!(["jobs/nightly"]));
    let blockers = |key: &str| shown_to(key)["blockers"].as_array().unwrap().len();
    assert_eq!((blockers("ops"), blockers("eve")), (2, 1));
    assert_eq!(shown_to("eve")["holders"][0]["api_key"], "ops");
    keyed.yes("dan", "PUT", "/v1/keys/jobs/config", &json!({"value": "2"}));
    keyed.yes(
        "dan",
        "POST",
        "/v1/break",
        &json!({"resource": "jobs/nightly", "by": "dan", "reason": "stuck", "now": true}),
    );
    let refused = keyed.ask("dan", "GET", "/v1/resources/db/leader", &none()).json();
    assert!(refused["detail"].as_str().unwrap().contains("names under jobs/ only"), "{refused}");
}

/// Who is in the circle may wait for names outside the prefixes: a key with prefixes receives the refusal without the holders.
#[tokio::test(flavor = "multi_thread")]
async fn key_with_prefixes_is_not_shown_a_circle() {
    let keyed = Keyed::start();
    let lease_of = |key: &str, name: &str| {
        let held = keyed.yes(key, "POST", "/v1/acquire", &claim(name, &format!("holder-of-{key}")));
        held["lease"].as_str().unwrap().to_owned()
    };
    let (ops, dan) = (lease_of("ops", "jobs/a"), lease_of("dan", "jobs/b"));
    let waits = |name: &str, lease: &str| json!({"resource": name, "lease": lease, "wait": true, "poll_ms": 1});
    assert_eq!(keyed.ask("ops", "POST", "/v1/acquire", &waits("jobs/b", &ops)).status, 202);
    let refused = |key: &str| keyed.ask(key, "POST", "/v1/acquire", &waits("jobs/a", &dan)).json();
    let (of_ops, of_dan) = (refused("ops"), refused("dan"));
    assert_eq!(of_ops["circle"], json!(["holder-of-dan", "holder-of-ops"]), "{of_ops}");
    assert_eq!((&of_dan["code"], &of_dan["resource"]), (&json!("would_deadlock"), &json!("jobs/a")), "{of_dan}");
    assert!(!of_dan.to_string().contains("holder-of"), "{of_dan}");
    let mut stream = keyed.client("dan").await.converse().await.unwrap();
    let lease = u64::from_str_radix(&dan, 16).unwrap();
    let wait = v1::AcquireRequest { resource: "jobs/a".into(), lease, wait: true, ..v1::AcquireRequest::default() };
    stream.send(v1::Request { id: 1, body: Some(Ask::Acquire(wait)) }).await.unwrap();
    match soon("an answer", stream.next()).await.unwrap().body.unwrap() {
        Tell::Failure(failure) => {
            assert_eq!(failure.code, "would_deadlock", "{failure:?}");
            assert!(!format!("{failure:?}").contains("holder-of"), "{failure:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_with_prefixes_watches_etcd_keys_inside_them_only() {
    let keyed = Keyed::start();
    let of = |key: &str, end: &str| json!({"key": base64(key), "range_end": base64(end)});
    for (key, end, is_allowed) in [("jobs/", "jobs0", true), ("jobs/", "jobs1", false), ("job", "", false)] {
        let answer = keyed.ask("eve", "POST", "/v3/kv/range", &of(key, end));
        assert_eq!(answer.status == 200, is_allowed, "{key} {end}");
    }
    let compares = json!({"compare": [{"key": base64("db/x"), "target": "VERSION", "version": 0}]});
    assert_eq!(keyed.ask("dan", "POST", "/v3/kv/txn", &compares).status, 403, "a comparison tells, too");
    let put = json!({"failure": [{"request_put": {"key": base64("db/x"), "value": ""}}]});
    assert_eq!(keyed.ask("dan", "POST", "/v3/kv/txn", &put).status, 403);
    assert_eq!(keyed.ask("eve", "POST", "/v3/election/leader", &json!({"name": base64("db")})).status, 403);
    assert_eq!(keyed.ask("eve", "POST", "/v3/maintenance/hashkv", &json!({})).status, 403);
    assert_eq!(keyed.ask("eve", "POST", "/v3/lease/leases", &json!({})).status, 403);

    let mut watches = WatchClient::connect(keyed.server.addr.clone()).await.unwrap();
    let create = |key: &str, end: &str| pb::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(pb::WatchCreateRequest {
            key: key.into(),
            range_end: end.into(),
            ..pb::WatchCreateRequest::default()
        })),
    };
    let asked = futures::stream::iter([create("jobs/", "jobs0"), create("", "\0"), create("db/addr", "")]);
    let asked = keyed.bearer("eve", asked.chain(futures::stream::pending()));
    let mut told = soon("a watch", watches.watch(asked)).await.unwrap().into_inner();
    let mut cancelled = Vec::new();
    for _ in 0..3 {
        cancelled.push(soon("an answer", told.message()).await.unwrap().unwrap().canceled);
    }
    assert_eq!(cancelled, [false, true, true]);
}

#[test]
fn requests_of_a_key_are_limited_and_renewals_are_not() {
    let few = KeyRights { requests: Some(1), ..Role::Hold.into() };
    let keyed = Keyed::with(&[("few", few), ("ops", Role::Full.into())]);
    let held = tenure_testkit::until("a claim", || {
        Some(keyed.ask("few", "POST", "/v1/acquire", &claim("jobs/a", "few"))).filter(|answer| answer.status == 200)
    });
    let lease = held.json()["lease"].as_str().unwrap().to_owned();
    let refused = tenure_testkit::until("a refusal", || {
        Some(keyed.ask("few", "GET", "/v1/resources/jobs/a", &none())).filter(|answer| answer.status != 200)
    });
    let why = refused.json();
    assert_eq!((why["code"].as_str(), refused.status), (Some("overloaded"), 429), "{why}");
    assert!(why["detail"].as_str().unwrap().contains("few may make 1 requests a second"), "{why}");
    assert!(why["retry_after_ms"].as_u64().unwrap() > 0, "{why}");
    let agent = json!({
        "endpoints": ["http://10.0.0.1:80"], "ttl_ms": 60_000, "epoch": 1,
        "checks": [{"name": "up", "ttl_ms": 60_000}],
    });
    // What keeps or gives back is never refused for it: so often, a limit of one a second would be met.
    for _ in 0..20 {
        keyed.yes("few", "POST", "/v1/renew", &json!({"handle": "jobs/a@1"}));
        keyed.yes("few", "POST", "/v1/leases/renew", &json!({"leases": [lease]}));
        keyed.yes("few", "PUT", "/v1/instances/web/a", &agent);
        keyed.yes("few", "PUT", "/v1/health/web/a", &json!({"check": "up", "health": "passing"}));
        keyed.yes("ops", "GET", "/v1/resources/jobs/a", &none());
    }
    keyed.yes("few", "DELETE", &format!("/v1/leases/{lease}"), &none());
}

#[test]
fn watches_of_a_key_are_limited_until_one_is_closed() {
    let one = KeyRights { watchers: Some(1), ..Role::Read.into() };
    let keyed = Keyed::with(&[("one", one), ("ops", Role::Full.into())]);
    let open = |key: &str| {
        let mut watch = Line::open(&keyed.server);
        watch.ask("GET", "/v1/watch", &[&format!("authorization: Bearer {}", keyed.secret(key))], b"");
        let status = watch.head().status;
        (watch, status)
    };
    let (first, status) = open("one");
    assert_eq!(status, 200);
    assert_eq!(open("one").1, 400);
    assert_eq!(open("ops").1, 200, "others have their own");
    let waits = "/v1/instances?service=web&after=1&wait_ms=1000";
    assert_eq!(
        keyed.ask("one", "GET", waits, &none()).no(),
        (400, "too_many".into()),
        "who waits for a change watches"
    );
    drop(first);
    tenure_testkit::until_so("room for a watch", || open("one").1 == 200);
}

/// An instance that is registered again is a heartbeat: it needs no room for another lease.
#[test]
fn limit_of_leases_ends_no_lease_that_lives() {
    let one = KeyRights { leases: Some(1), ..Role::Hold.into() };
    let keyed = Keyed::with(&[("one", one)]);
    let agent = json!({"endpoints": ["http://10.0.0.1:80"], "ttl_ms": 60_000, "epoch": 1});
    let first = keyed.yes("one", "PUT", "/v1/instances/web/a", &agent);
    let again = keyed.yes("one", "PUT", "/v1/instances/web/a", &agent);
    assert_eq!(first["lease"], again["lease"]);
    assert_eq!(keyed.ask("one", "PUT", "/v1/instances/web/b", &agent).no(), (400, "too_many".into()));
}

/// `jobs/web-` begins like an instance of `jobs`, and has the services below it inside, not that one.
#[test]
fn events_of_services_outside_the_prefixes_are_not_shown() {
    let inside = |text: &str| KeyRights { prefixes: vec![text.into()], ..Role::Read.into() };
    let keyed = Keyed::with(&[("web", inside("jobs/web-")), ("jobs", inside("jobs/")), ("ops", Role::Full.into())]);
    let agent = json!({"endpoints": ["http://10.0.0.1:80"], "ttl_ms": 60_000});
    keyed.yes("ops", "PUT", "/v1/instances/jobs/web-1", &agent);
    keyed.yes("ops", "PUT", "/v1/instances/jobs/web-2/a", &agent);
    let seen = |key: &str, path: &str| keyed.yes(key, "GET", path, &none())["events"].as_array().unwrap().len();
    assert_eq!((seen("ops", "/v1/history?prefix=jobs/web-"), seen("jobs", "/v1/history?prefix=jobs/web-")), (2, 2));
    assert_eq!(seen("web", "/v1/history?prefix=jobs/web-"), 1);
    assert_eq!(
        (seen("ops", "/v1/history?resource=jobs/web-1"), seen("web", "/v1/history?resource=jobs/web-1")),
        (1, 0)
    );
}
