//! The HTTP door as a client without gRPC meets it: every call, the long poll, the stream of events.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it is surprised")]

use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure_testkit::http::{Line, ask, get, post, write};
use tenure_testkit::http_claims::{claim, show, stand_in_line, waiting};
use tenure_testkit::{Server, until_so as until};

/// Every call of the treaty and where it is in HTTP. The stream is many calls in one, which HTTP has no need of.
const CALLS: &[(&str, &str, &str)] = &[
    ("Grant", "post", "/v1/leases"),
    ("Acquire", "post", "/v1/acquire"),
    ("Renew", "post", "/v1/leases/renew"),
    ("RenewHandle", "post", "/v1/renew"),
    ("Release", "post", "/v1/release"),
    ("ReleaseLease", "delete", "/v1/leases/{lease}"),
    ("Cancel", "post", "/v1/cancel"),
    ("Revoke", "post", "/v1/revoke"),
    ("BreakClaims", "post", "/v1/break"),
    ("Transfer", "post", "/v1/transfer"),
    ("DefineResource", "put", "/v1/resources/{name}"),
    ("SetClass", "put", "/v1/classes/{class}"),
    ("Put", "put", "/v1/keys/{key}"),
    ("Delete", "delete", "/v1/keys/{key}"),
    ("Verify", "get", "/v1/verify"),
    ("Show", "get", "/v1/resources/{name}"),
    ("ShowLease", "get", "/v1/leases/{lease}"),
    ("ListResources", "get", "/v1/resources"),
    ("ListLeases", "get", "/v1/leases"),
    ("ListClasses", "get", "/v1/classes"),
    ("GetKey", "get", "/v1/keys/{key}"),
    ("ListKeys", "get", "/v1/keys"),
    ("History", "get", "/v1/history"),
    ("Watch", "get", "/v1/watch"),
    ("Register", "put", "/v1/instances/{instance}"),
    ("UpdateInstance", "patch", "/v1/instances/{instance}"),
    ("Drain", "put", "/v1/drain/{instance}"),
    ("Deregister", "delete", "/v1/instances/{instance}"),
    ("SetHealth", "put", "/v1/health/{instance}"),
    ("Discover", "get", "/v1/instances"),
    ("ShowInstance", "get", "/v1/instances/{instance}"),
    ("ListServices", "get", "/v1/services"),
    ("WatchInstances", "get", "/v1/watch/instances"),
    ("Status", "get", "/v1/status"),
    ("Members", "get", "/v1/cluster/members"),
    ("AddMember", "post", "/v1/cluster/members"),
    ("RemoveMember", "delete", "/v1/cluster/members/{node}"),
    ("TransferLead", "post", "/v1/cluster/leader"),
    ("Backup", "post", "/v1/cluster/backup"),
];

#[test]
fn every_call_of_the_treaty_is_described() {
    let server = Server::start();
    let description = get(&server, "/openapi.json").yes();
    let treaty = prost_types::FileDescriptorSet::decode(tenure::v1::DESCRIPTORS).unwrap();
    let services = treaty.file.iter().flat_map(|file| &file.service);
    let calls = services.flat_map(|service| &service.method).map(|method| method.name().to_owned());
    let by_name: BTreeMap<_, _> = CALLS.iter().map(|(name, method, path)| (*name, (*method, *path))).collect();
    let mut count = 0;
    for call in calls.filter(|call| call != "Stream") {
        let (method, path) = by_name.get(call.as_str()).unwrap_or_else(|| panic!("{call} has no place in HTTP"));
        let described = &description["paths"][path][method];
        assert!(described["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{call}: {described}");
        count += 1;
    }
    assert_eq!(count, CALLS.len());
}

#[test]
fn a_claim_lives_and_ends_over_http() {
    let server = Server::start();
    let held = post(&server, "/v1/acquire", &claim("jobs/nightly", "ann")).yes();
    assert_eq!(held["state"], "held");
    assert_eq!(held["handle"], "jobs/nightly@1");
    let handle = json!({"handle": "jobs/nightly@1"});

    let refused = post(&server, "/v1/acquire", &claim("jobs/nightly", "bob"));
    assert_eq!(refused.status, 409);
    let problem = refused.json();
    assert_eq!(problem["code"], "taken");
    assert_eq!(problem["holder"], "ann");
    assert_eq!(problem["fence"], 1);
    assert!(problem["since_wall_ms"].as_u64().unwrap() > 1_700_000_000_000);
    assert!((1..=60_000).contains(&problem["remaining_ms"].as_u64().unwrap()));
    assert!(problem["detail"].as_str().unwrap().ends_with("nothing was changed"));

    let renewed = post(&server, "/v1/renew", &json!({"handle": "jobs/nightly@1", "ttl_ms": 90_000})).yes();
    assert_eq!((&renewed["ttl_ms"], &renewed["lease"]), (&json!(90_000), &held["lease"]));
    assert_eq!(get(&server, "/v1/verify?handle=jobs/nightly@1").yes()["holder"], "ann");
    post(&server, "/v1/release", &handle).yes();
    // A retry of what was done is done.
    post(&server, "/v1/release", &handle).yes();
    assert_eq!(get(&server, "/v1/verify?handle=jobs%2Fnightly%401").no(), (412, "stale".into()));
    let lease = format!("/v1/leases/{}", held["lease"].as_str().unwrap());
    assert_eq!(get(&server, &lease).yes()["ended"]["end"]["how"], "released");
}

#[test]
fn several_modes_and_a_retry_are_the_same_as_over_grpc() {
    let server = Server::start();
    let two = json!({
        "wants": [{"resource": "gpu/a", "mode": "units", "units": 2, "capacity": 8}, {"resource": "gpu/b", "mode": "shared"}],
        "holder": "train", "ttl_ms": 60_000, "lease": "2a", "request": 7, "labels": {"team": "vision"},
    });
    let held = post(&server, "/v1/acquire", &two).yes();
    assert_eq!(held["claims"].as_array().unwrap().len(), 2);
    assert_eq!(held["lease"], "000000000000002a");
    assert_eq!(post(&server, "/v1/acquire", &two).yes()["claims"], held["claims"]);
    let one = json!({"resource": "gpu/a", "mode": "units", "units": 6, "holder": "other", "ttl_ms": 60_000});
    assert_eq!(post(&server, "/v1/acquire", &one).yes()["fence"], 3);
    assert_eq!(show(&server, "gpu/a")["free_units"], 0);
    let more = json!({"resource": "gpu/c", "lease": "2a"});
    assert_eq!(post(&server, "/v1/acquire", &more).yes()["lease"], held["lease"]);
    let listed = get(&server, "/v1/leases?label=team%3Dvision").yes();
    assert_eq!(listed["items"][0]["holds"], json!(["gpu/a@1", "gpu/b@2", "gpu/c@4"]));
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[test]
fn leases_classes_and_keys_have_their_own_calls() {
    let server = Server::start();
    write(&server, "PUT", "/v1/classes/session", &json!({"ttl_ms": 30_000, "renew": "activity"})).yes();
    let classes = get(&server, "/v1/classes").yes();
    let of_name = |class: &&Value| class["name"] == "session";
    assert_eq!(classes["items"].as_array().unwrap().iter().find(of_name).unwrap()["renew"], "activity");
    let lease = post(&server, "/v1/leases", &json!({"holder": "ann", "class": "session"})).yes();
    let lease = lease["lease"].as_str().unwrap();
    let renewed = post(&server, "/v1/leases/renew", &json!({"leases": [lease, "1"], "kind": "touch"})).yes();
    assert_eq!(renewed["ttls_ms"], json!([30_000, 0]));
    assert_eq!(renewed["failures"][0]["failure"]["code"], "no_lease");

    write(&server, "PUT", "/v1/keys/a/b%FF", &json!({"value": {"hex": "00ff"}, "lease": lease})).yes();
    write(&server, "PUT", "/v1/keys/plain", &json!({"value": "text", "lease": lease})).yes();
    assert_eq!(get(&server, "/v1/keys/a%2Fb%FF").yes()["item"]["value"], json!({"hex": "00ff"}));
    let first = get(&server, "/v1/keys?limit=1").yes();
    assert_eq!(first["items"][0]["key"], json!({"hex": "612f62ff"}));
    let second = get(&server, &format!("/v1/keys?from={}", first["next"].as_str().unwrap())).yes();
    assert_eq!(second["items"][0]["value"], "text");
    assert_eq!(get(&server, "/v1/keys/none").no(), (404, "no_key".into()));
    assert_eq!(ask(&server, "DELETE", "/v1/keys/plain", &[], b"").yes()["count"], 1);
    assert_eq!(ask(&server, "DELETE", "/v1/keys?prefix=", &[], b"").no(), (400, "bad_query".into()));
    assert_eq!(ask(&server, "DELETE", "/v1/keys?prefix=a/", &[], b"").yes()["count"], 1);
    ask(&server, "DELETE", &format!("/v1/leases/{lease}"), &[], b"").yes();
    assert_eq!(get(&server, &format!("/v1/leases/{lease}")).yes()["ended"]["end"]["how"], "released");
}

#[test]
fn an_operator_has_the_forced_ends() {
    let server = Server::start();
    write(&server, "PUT", "/v1/resources/gpu", &json!({"capacity": 4})).yes();
    assert_eq!(show(&server, "gpu")["capacity"], 4);
    assert_eq!(ask(&server, "DELETE", "/v1/resources/gpu", &[], b"").yes()["capacity"], 1);
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let order = json!({"resource": "a", "by": "operator", "reason": "gone", "now": true});
    assert_eq!(post(&server, "/v1/break", &order).yes()["claims"], 1);
    assert_eq!(post(&server, "/v1/break", &order).no(), (404, "not_held".into()));
    post(&server, "/v1/acquire", &claim("b", "ann")).yes();
    let revoke = json!({"holder": "ann", "by": "operator", "reason": "gone"});
    assert_eq!(post(&server, "/v1/revoke", &revoke).yes()["count"], 1);
    let two = json!({"holder": "ann", "prefix": "b", "by": "operator", "reason": "gone"});
    assert_eq!(post(&server, "/v1/revoke", &two).no(), (400, "bad_request".into()));
    let held = post(&server, "/v1/acquire", &claim("c", "ann")).yes();
    let to = post(&server, "/v1/leases", &json!({"holder": "bob", "ttl_ms": 60_000})).yes();
    let transfer = json!({"handle": held["handle"], "to": to["lease"]});
    assert_eq!(post(&server, "/v1/transfer", &transfer).yes()["lease"], to["lease"]);
    assert_eq!(show(&server, "c")["holders"][0]["holder"], "bob");
}

#[test]
fn a_long_poll_is_answered_when_the_claim_is_seated() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let mut bob = stand_in_line(&server, &waiting("a", "bob"));
    post(&server, "/v1/release", &json!({"handle": "a@1"})).yes();
    let held = bob.answer().yes();
    assert_eq!((&held["handle"], &held["waited"]), (&json!("a@2"), &json!(true)));
}

#[test]
fn who_waits_over_http_is_kept_alive_beyond_its_ttl() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let body = json!({"resource": "a", "holder": "bob", "ttl_ms": 2_000, "wait": true});
    let mut bob = stand_in_line(&server, &body);
    // Another lease of the same length that nobody renews shows that the time has come and gone, three times.
    for lease in ["c1", "c2", "c3"] {
        post(&server, "/v1/leases", &json!({"holder": "clock", "ttl_ms": 2_000, "lease": lease})).yes();
        until("the lease runs out", || get(&server, &format!("/v1/leases/{lease}")).yes().get("ended").is_some());
    }
    post(&server, "/v1/release", &json!({"handle": "a@1"})).yes();
    assert_eq!(bob.answer().yes()["handle"], "a@2");
}

#[test]
fn who_hangs_up_leaves_the_line_unless_the_lease_is_its_own() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let bob = stand_in_line(&server, &waiting("a", "bob"));
    let own = json!({"resource": "a", "holder": "eve", "ttl_ms": 60_000, "wait": true, "lease": "e1"});
    let eve = stand_in_line(&server, &own);
    drop((bob, eve));
    until("bob has left", || show(&server, "a")["waiting"] == 1);
    assert_eq!(show(&server, "a")["line"][0]["holder"], "eve");
    // Coming back with the same request finds the place.
    let mut eve = Line::open(&server);
    eve.ask("POST", "/v1/acquire", &["content-type: application/json"], own.to_string().as_bytes());
    post(&server, "/v1/release", &json!({"handle": "a@1"})).yes();
    assert_eq!(eve.answer().yes()["lease"], "00000000000000e1");
}

#[test]
fn who_hangs_up_before_the_answer_leaves_nothing_in_line() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    for _ in 0..100 {
        let mut line = Line::open(&server);
        line.ask(
            "POST",
            "/v1/acquire",
            &["content-type: application/json"],
            waiting("a", "bob").to_string().as_bytes(),
        );
    }
    // All of them were heard before this one, and the line is empty but for it.
    let own = json!({"resource": "a", "holder": "eve", "ttl_ms": 60_000, "wait": true, "poll_ms": 1});
    assert_eq!(post(&server, "/v1/acquire", &own).status, 202);
    until("all others have left", || show(&server, "a")["waiting"] == 1);
    assert_eq!(show(&server, "a")["line"][0]["holder"], "eve");
}

#[test]
fn who_hangs_up_behind_unread_bytes_leaves_the_line() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let body = json!({"resource": "a", "holder": "bob", "ttl_ms": 20_000, "wait": true});
    let mut bob = stand_in_line(&server, &body);
    bob.send(b"\r\nGET /v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n");
    drop(bob);
    until("bob has left", || show(&server, "a")["waiting"] == 0);
    let history = get(&server, "/v1/history?resource=a&limit=1").yes();
    assert_eq!(history["events"][0]["why"], "cancelled", "and was not only left to run out");
}

#[test]
fn a_poll_that_is_over_tells_the_place_and_keeps_it() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let short = json!({"resource": "a", "holder": "bob", "ttl_ms": 60_000, "wait": true, "poll_ms": 1});
    let answer = post(&server, "/v1/acquire", &short);
    assert_eq!(answer.status, 202);
    let waits = answer.json();
    assert_eq!((&waits["state"], &waits["place"]), (&json!("waiting"), &json!(1)));
    post(&server, "/v1/release", &json!({"handle": "a@1"})).yes();
    let again = json!({"resource": "a", "lease": waits["lease"], "wait": true, "poll_ms": 60_000});
    assert_eq!(post(&server, "/v1/acquire", &again).yes()["handle"], "a@2");
}

#[test]
fn who_waits_too_long_is_told_so() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let body = json!({"resource": "a", "holder": "bob", "ttl_ms": 60_000, "wait": true, "wait_limit_ms": 50});
    let answer = post(&server, "/v1/acquire", &body);
    assert_eq!(answer.json()["end"]["how"], "waited_out");
    assert_eq!(answer.no(), (410, "lapsed".into()));
}

#[test]
fn events_are_told_in_order_and_resumed_without_a_gap() {
    let server = Server::start();
    let mut all = Line::open(&server);
    all.ask("GET", "/v1/watch?after=0", &[], b"");
    assert_eq!(all.head().header("content-type"), Some("text/event-stream"));
    for name in ["a/1", "b/1", "c/1"] {
        post(&server, "/v1/acquire", &claim(name, "ann")).yes();
        post(
            &server,
            "/v1/renew",
            &json!({"handle": format!("{name}@{}", show(&server, name)["holders"][0]["fence"])}),
        )
        .yes();
    }
    let kinds: Vec<_> = (0..6).map(|_| all.event()).collect();
    let words: Vec<_> = kinds.iter().map(|(_, event)| event["kind"].as_str().unwrap()).collect();
    assert_eq!(words, ["granted", "seated", "granted", "seated", "granted", "seated"], "and no renewal");
    // From the third event on, by the id alone, as a browser does it.
    let mut again = Line::open(&server);
    again.ask("GET", "/v1/watch?after=0", &[&format!("last-event-id: {}", kinds[2].0)], b"");
    again.head();
    assert_eq!(again.event(), kinds[3]);
    // Two prefixes in one stream.
    let mut some = Line::open(&server);
    some.ask("GET", "/v1/watch?after=0&prefix=a/&prefix=c/", &[], b"");
    some.head();
    assert_eq!(some.event().1["resource"], "a/1");
    assert_eq!(some.event().1["resource"], "c/1");
}

#[test]
fn a_stream_says_where_it_stands_before_anything_happens() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let mut line = Line::open(&server);
    line.ask("GET", "/v1/watch", &[], b"");
    line.head();
    let (id, data) = line.message().unwrap();
    assert_eq!((id.as_deref(), data), (Some("1"), None));
    post(&server, "/v1/release", &json!({"handle": "a@1"})).yes();
    assert_eq!(line.event().1["kind"], "vacated");
}

#[test]
fn a_place_that_is_not_there_is_refused_before_the_stream_begins() {
    let server = Server::start();
    assert_eq!(get(&server, "/v1/watch?after=99").no(), (409, "ahead".into()));
    // A browser that has heard nothing yet says so.
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    let mut line = Line::open(&server);
    line.ask("GET", "/v1/watch?after=0", &["last-event-id: "], b"");
    assert_eq!(line.head().status, 200);
    assert_eq!(line.event().1["kind"], "granted", "and hears what was before");
    for bad in ["after=x", "for_ms=-1", "unknown=1", "after=1.2.3"] {
        assert_eq!(get(&server, &format!("/v1/watch?{bad}")).no(), (400, "bad_query".into()), "{bad}");
    }
    let many = vec!["prefix=a"; 101].join("&");
    assert_eq!(get(&server, &format!("/v1/watch?{many}")).no(), (400, "too_many".into()));
}

#[test]
fn history_goes_back_page_by_page() {
    let server = Server::start();
    for holder in ["ann", "bob"] {
        let held = post(&server, "/v1/acquire", &claim("a", holder)).yes();
        post(&server, "/v1/release", &json!({"handle": held["handle"]})).yes();
    }
    let newest = get(&server, "/v1/history?resource=a&limit=1").yes();
    assert_eq!(newest["events"][0]["kind"], "vacated");
    let next = newest["next"].as_str().unwrap();
    let older = get(&server, &format!("/v1/history?resource=a&before={next}")).yes();
    let kinds: Vec<_> = older["events"].as_array().unwrap().iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(kinds, ["seated", "vacated", "seated"]);
    assert!(older.get("next").is_none());
}

#[test]
fn what_was_asked_over_http_is_counted() {
    let server = Server::start();
    post(&server, "/v1/acquire", &claim("a", "ann")).yes();
    post(&server, "/v1/acquire", &claim("a", "bob")).no();
    post(&server, "/v1/acquire", &json!({"surprise": 1})).no();
    get(&server, "/v1/resources/some/name").yes();
    get(&server, "/nothing/here").no();
    let answer = get(&server, "/metrics");
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = String::from_utf8(answer.body).unwrap();
    for (call, code) in
        [("acquire", "ok"), ("acquire", "taken"), ("acquire", "bad_json"), ("show", "ok"), ("other", "no_such_path")]
    {
        let line = format!("tenure_requests_total{{door=\"http\",call=\"{call}\",code=\"{code}\"}} 1\n");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    assert!(text.contains("tenure_leases 1\n"));
}

#[test]
fn probes_say_that_it_lives_and_grants() {
    let server = Server::start();
    for (path, body) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let answer = ask(&server, "GET", path, &["host: 10.0.0.7"], b"");
        assert_eq!((answer.status, answer.body.as_slice()), (200, body.as_bytes()), "{path}");
    }
}
