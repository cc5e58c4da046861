//! Agents over HTTP, as one without gRPC meets the registry: it comes, is well or not, is found, and goes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it is surprised")]

use serde_json::{Value, json};
use tenure_testkit::http::{Answer, Line, ask, get, write};
use tenure_testkit::http_registry::{found, show, told, watch};
use tenure_testkit::{Server, until};

fn put(server: &Server, path: &str, body: &Value) -> Answer {
    write(server, "PUT", path, body)
}

fn at(port: u16) -> Value {
    json!({"endpoints": [format!("http://10.0.0.7:{port}")], "ttl_ms": 60_000})
}

/// The same with these fields, too.
fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn revision(server: &Server) -> u64 {
    get(server, "/v1/status").yes()["revision"].as_u64().unwrap()
}

#[test]
fn an_instance_comes_is_found_changes_and_goes() {
    let server = Server::start();
    let more = json!({"capabilities": ["gpu", "cuda12"], "labels": {"team": "red"}, "zone": "eu", "version": "1.2"});
    let registered = put(&server, "/v1/instances/agents/planner/a7", &with(at(1), &more)).yes();
    assert_eq!((&registered["ttl_ms"], &registered["health"]), (&json!(60_000), &json!("passing")));
    put(&server, "/v1/instances/agents/planner/a8", &at(2)).yes();
    put(&server, "/v1/instances/agents/critic/a7", &at(3)).yes();
    let (a7, a8) = ("agents/planner/a7", "agents/planner/a8");
    assert_eq!(found(&server, "service=agents/planner"), [a7, a8]);
    assert_eq!(found(&server, "prefix=agents/&cap=gpu%20%26%20(rocm%20%7C%20cuda12)"), [a7]);
    assert_eq!(found(&server, "prefix=agents/&cap=!gpu"), ["agents/critic/a7", a8]);
    assert_eq!(found(&server, "service=agents/planner&label=team%3Dred&zone=eu"), [a7]);
    assert_eq!(found(&server, "service=agents/planner&zone=us"), <[&str; 0]>::default());
    assert_eq!(found(&server, "service=agents"), <[&str; 0]>::default(), "a service is not a prefix");
    let first = get(&server, "/v1/instances?prefix=agents/&limit=2").yes();
    assert_eq!(first["next"], a8);
    assert_eq!(found(&server, &format!("prefix=agents/&from={a8}")), [a8]);

    let living = &show(&server, a7)["living"];
    assert_eq!(living["endpoints"], json!(["http://10.0.0.7:1"]), "{living}");
    assert_eq!((&living["labels"]["team"], &living["holder"]), (&json!("red"), &json!(a7)));
    assert_eq!((&living["weight"], &living["lease"]), (&json!(1), &registered["lease"]));
    let heard = ask(&server, "PUT", &format!("/v1/heartbeat/{a7}"), &[], b"").yes();
    assert_eq!((&heard["remaining_ms"], &heard["ttl_ms"]), (&json!(60_000), &json!(60_000)));
    assert_eq!((&heard["draining"], &heard["health"]), (&json!(false), &json!("passing")));

    write(&server, "PATCH", &format!("/v1/instances/{a7}"), &json!({"weight": 5, "zone": ""})).yes();
    let living = &show(&server, a7)["living"];
    assert_eq!((&living["weight"], &living["zone"], &living["version"]), (&json!(5), &Value::Null, &json!("1.2")));
    ask(&server, "PUT", &format!("/v1/drain/{a7}?by=ann&reason=upgrade"), &[], b"").yes();
    assert_eq!(found(&server, "service=agents/planner"), [a8]);
    assert_eq!(found(&server, "service=agents/planner&all=true"), [a7, a8]);
    assert_eq!(show(&server, a7)["living"]["draining"]["reason"], "upgrade");
    let counts = &get(&server, "/v1/services?prefix=agents/p").yes()["items"][0];
    assert_eq!((&counts["instances"], &counts["routed"], &counts["draining"]), (&json!(2), &json!(1), &json!(1)));
    ask(&server, "DELETE", &format!("/v1/drain/{a7}?by=ann"), &[], b"").yes();
    let drain = |lease: &str| ask(&server, "PUT", &format!("/v1/drain/{a7}?lease={lease}"), &[], b"");
    assert_eq!(drain("1").no(), (409, "other_lease".into()));
    assert_eq!(drain("none").no(), (400, "bad_lease".into()));
    assert_eq!(found(&server, "service=agents/planner"), [a7, a8]);
    drain(registered["lease"].as_str().unwrap()).yes();
    assert_eq!(found(&server, "service=agents/planner"), [a8]);
    ask(&server, "DELETE", &format!("/v1/drain/{a7}"), &[], b"").yes();

    ask(&server, "DELETE", &format!("/v1/instances/{a7}"), &[], b"").yes();
    ask(&server, "DELETE", &format!("/v1/instances/{a7}"), &[], b"").yes();
    ask(&server, "DELETE", &format!("/v1/instances/{a8}?by=ann&reason=gone%20wild"), &[], b"").yes();
    assert_eq!(found(&server, "service=agents/planner&all=true"), <[&str; 0]>::default());
    assert_eq!(show(&server, a7)["past"][0]["end"]["how"], "released");
    let revoked = &show(&server, a8)["past"][0]["end"];
    assert_eq!(
        (&revoked["how"], &revoked["by"], &revoked["reason"]),
        (&json!("revoked"), &json!("ann"), &json!("gone wild"))
    );
    let lost = ask(&server, "PUT", &format!("/v1/heartbeat/{a8}"), &[], b"");
    assert_eq!(lost.json()["end"]["how"], "revoked");
    assert_eq!(lost.no(), (404, "no_instance".into()));
    put(&server, &format!("/v1/instances/{a8}"), &at(2)).yes();
    assert_eq!(found(&server, "service=agents/planner"), [a8]);
}

#[test]
fn an_answer_may_be_kept_until_its_first_lease_ends() {
    let server = Server::start();
    let kept = |query: &str| {
        let answer = get(&server, &format!("/v1/instances?{query}"));
        let cache = answer.header("cache-control").unwrap().to_owned();
        (cache, answer.yes())
    };
    assert_eq!(kept("service=s").0, "no-store");
    put(&server, "/v1/instances/s/long", &with(at(1), &json!({"ttl_ms": 600_000}))).yes();
    put(&server, "/v1/instances/s/short", &with(at(2), &json!({"ttl_ms": 300_000}))).yes();
    let (cache, reply) = kept("service=s");
    let least = reply["items"].as_array().unwrap().iter().map(|item| item["valid_for_ms"].as_u64().unwrap()).min();
    let least = least.unwrap();
    assert!(least <= 300_000 && reply["valid_for_ms"] == least, "{reply}");
    assert_eq!(cache, format!("private, max-age={}", least / 1000));
    assert_eq!(get(&server, "/v1/services").header("cache-control"), Some("no-store"));
}

#[test]
fn who_comes_back_takes_its_own_place_and_nobody_elses() {
    let server = Server::start();
    let path = "/v1/instances/s/i";
    let epoch = |n: u64| with(at(1), &json!({"epoch": n}));
    let first = put(&server, path, &epoch(5)).yes();
    let again = put(&server, path, &with(epoch(5), &json!({"weight": 9}))).yes();
    assert_eq!(first["lease"], again["lease"], "it is the same instance");
    assert_eq!(show(&server, "s/i")["living"]["weight"], 9, "and says something else of itself");
    let before = revision(&server);
    put(&server, path, &with(epoch(5), &json!({"weight": 9}))).yes();
    assert_eq!(revision(&server), before, "what is said again is no change");

    let older = put(&server, path, &epoch(4));
    assert_eq!((older.json()["epoch"].clone(), older.no()), (json!(5), (409, "older_epoch".into())));
    let nameless = put(&server, path, &at(1));
    let problem = nameless.json();
    assert_eq!((&problem["holder"], &problem["instance"]), (&json!("s/i"), &json!("s/i")));
    assert!(problem["remaining_ms"].as_u64().unwrap() > 0);
    assert_eq!(nameless.no(), (409, "instance_exists".into()));
    let other = put(&server, path, &with(epoch(5), &json!({"holder": "somebody else"})));
    assert_eq!(other.no(), (409, "instance_exists".into()));
    assert_eq!(show(&server, "s/i")["living"]["lease"], first["lease"]);

    let newer = put(&server, path, &epoch(6)).yes();
    assert_ne!(newer["lease"], first["lease"]);
    assert_eq!(show(&server, "s/i")["past"][0]["end"]["how"], "superseded");
    let beat = |query: &str| ask(&server, "PUT", &format!("/v1/heartbeat/s/i?{query}"), &[], b"");
    assert_eq!(beat("epoch=5").no(), (409, "older_epoch".into()));
    assert_eq!(beat("epoch=7").no(), (404, "no_instance".into()));
    assert_eq!(beat(&format!("lease={}", first["lease"].as_str().unwrap())).no(), (409, "other_lease".into()));
    beat("epoch=6").yes();
    let leave = |epoch: u64| ask(&server, "DELETE", &format!("{path}?epoch={epoch}"), &[], b"");
    assert_eq!(leave(5).no(), (409, "older_epoch".into()));
    leave(6).yes();
    assert_eq!(put(&server, path, &epoch(5)).no(), (409, "older_epoch".into()), "it is remembered");
    put(&server, path, &epoch(6)).yes();
}

#[test]
fn an_instance_hangs_on_a_lease_with_other_things() {
    let server = Server::start();
    let lease = json!({"holder": "ann", "ttl_ms": 60_000});
    let lease = write(&server, "POST", "/v1/leases", &lease).yes()["lease"].as_str().unwrap().to_owned();
    let given = json!({"endpoints": ["http://h:1"], "lease": lease});
    put(&server, "/v1/instances/s/i", &given).yes();
    put(&server, "/v1/instances/s/i", &given).yes();
    put(&server, "/v1/keys/k", &json!({"value": "v", "lease": lease})).yes();
    assert_eq!(get(&server, &format!("/v1/leases/{lease}")).yes()["living"]["instances"], json!(["s/i"]));
    let both = with(given, &json!({"ttl_ms": 5}));
    assert_eq!(put(&server, "/v1/instances/s/j", &both).no(), (400, "bad_request".into()));
    ask(&server, "DELETE", &format!("/v1/leases/{lease}"), &[], b"").yes();
    assert_eq!(found(&server, "all=true"), <[&str; 0]>::default());
    assert_eq!(get(&server, "/v1/keys/k").no(), (404, "no_key".into()));
}

#[test]
fn health_that_is_told_changes_who_gets_work() {
    let server = Server::start();
    let checked = with(at(1), &json!({"checks": [{"name": "ready"}, {"name": "disk", "kind": "pushed"}], "epoch": 1}));
    assert_eq!(put(&server, "/v1/instances/s/i", &checked).yes()["health"], "unknown");
    let tell = |body: &Value| put(&server, "/v1/health/s/i", body);
    assert_eq!(found(&server, "service=s"), <[&str; 0]>::default());
    tell(&json!({"check": "disk", "health": "passing"})).yes();
    assert_eq!(found(&server, "service=s"), <[&str; 0]>::default(), "one of them has not been told");
    let told = tell(&json!({"check": "ready", "health": "degraded", "note": "warming up"})).yes();
    assert_eq!(told["health"], "degraded");
    assert_eq!(found(&server, "service=s"), ["s/i"]);
    let before = revision(&server);
    tell(&json!({"check": "ready", "health": "degraded", "note": "still"})).yes();
    assert_eq!(revision(&server), before, "the same again is no change");
    let finding = &show(&server, "s/i")["living"]["findings"][0];
    assert_eq!(
        (&finding["check"], &finding["health"], &finding["note"]),
        (&json!("ready"), &json!("degraded"), &json!("still"))
    );
    tell(&json!({"check": "disk", "health": "critical", "epoch": 1})).yes();
    assert_eq!(found(&server, "service=s"), <[&str; 0]>::default());
    assert_eq!(get(&server, "/v1/services").yes()["items"][0]["critical"], 1);

    assert_eq!(tell(&json!({"check": "other", "health": "passing"})).no(), (404, "no_check".into()));
    assert_eq!(tell(&json!({"check": "disk"})).no(), (400, "bad_health".into()));
    assert_eq!(tell(&json!({"check": "disk", "health": "well"})).no(), (400, "bad_json".into()));
    assert_eq!(tell(&json!({"check": "disk", "health": "passing", "epoch": 2})).no(), (404, "no_instance".into()));
    assert_eq!(tell(&json!({"check": "disk", "health": "passing", "lease": "7"})).no(), (409, "other_lease".into()));
    assert_eq!(found(&server, "service=s"), <[&str; 0]>::default());
}

#[test]
fn a_watch_begins_with_all_there_is_and_is_resumed_without_a_gap() {
    let server = Server::start();
    put(&server, "/v1/instances/s/a", &at(1)).yes();
    put(&server, "/v1/instances/other/a", &at(1)).yes();
    let mut line = watch(&server, "service=s");
    let (id, snapshot) = told(&mut line);
    assert_eq!((&snapshot["snapshot"], &snapshot["last"]), (&json!(true), &json!(true)));
    assert_eq!((snapshot["put"][0]["id"].as_str(), snapshot["put"].as_array().unwrap().len()), (Some("a"), 1));
    assert_eq!(id.unwrap(), snapshot["revision"].to_string());
    put(&server, "/v1/instances/s/b", &at(2)).yes();
    let (id, changes) = told(&mut line);
    assert_eq!((changes["put"][0]["id"].as_str(), changes["snapshot"].as_bool()), (Some("b"), Some(false)));
    let place = id.unwrap();
    drop(line);

    ask(&server, "DELETE", "/v1/instances/s/a", &[], b"").yes();
    ask(&server, "PUT", "/v1/drain/s/b?by=ann", &[], b"").yes();
    let mut line = Line::open(&server);
    line.ask("GET", "/v1/watch/instances?service=s", &[&format!("last-event-id: {place}")], b"");
    assert_eq!(line.head().status, 200);
    let (id, changes) = told(&mut line);
    let removed = &changes["removed"];
    assert_eq!((&removed[0]["id"], &removed[0]["end"]["how"]), (&json!("a"), &json!("released")));
    assert_eq!((&removed[1]["id"], &removed[1]["end"]), (&json!("b"), &Value::Null), "it lives");
    assert_eq!((&changes["became_empty"], &changes["snapshot"]), (&json!(true), &json!(false)));
    ask(&server, "DELETE", "/v1/drain/s/b?by=ann", &[], b"").yes();
    let (_, changes) = told(&mut line);
    assert_eq!((&changes["put"][0]["id"], &changes["became_empty"]), (&json!("b"), &json!(false)));
    ask(&server, "DELETE", "/v1/instances/s/b", &[], b"").yes();
    assert_eq!(told(&mut line).1["became_empty"], true);

    let place = id.unwrap();
    let mut all = watch(&server, &format!("prefix=&all=true&after={place}&for_ms=60000"));
    let (_, changes) = told(&mut all);
    assert_eq!(changes["removed"][0]["id"], "b", "what has happened since, and what it came to");
    assert_eq!(changes["became_empty"], false, "the other service is there");
    let refused = |query: &str| get(&server, &format!("/v1/watch/instances?{query}")).no();
    assert_eq!(refused("after=1000000"), (409, "ahead".into()));
    assert_eq!(refused("after=x"), (400, "bad_query".into()));
    assert_eq!(refused("service=s&prefix=s"), (400, "bad_request".into()));
    assert_eq!(refused("cap=a%20b"), (400, "bad_expression".into()));
}

#[test]
fn an_idle_watch_hears_how_long_its_instances_are_valid_and_moves_on() {
    let server = Server::start();
    put(&server, "/v1/instances/s/i", &with(at(1), &json!({"ttl_ms": 20_000, "epoch": 1}))).yes();
    let mut line = watch(&server, "service=s");
    let (_, snapshot) = told(&mut line);
    let began = snapshot["revision"].as_u64().unwrap();
    // Something that is none of its business.
    put(&server, "/v1/keys/k", &json!({"value": "v"})).yes();
    ask(&server, "PUT", "/v1/heartbeat/s/i?epoch=1", &[], b"").yes();
    until("its place moves on", || {
        let (id, data) = line.message().expect("the stream goes on");
        let data = data.unwrap();
        assert_eq!((&data["put"], &data["removed"]), (&json!([]), &json!([])), "a heartbeat is no change");
        let fresh = &data["fresh"][0];
        let valid = fresh["valid_for_ms"].as_u64().unwrap();
        assert!(fresh["service"] == "s" && (10_000..=20_000).contains(&valid), "{data}");
        assert_eq!(fresh["items"], json!([]), "nobody is late");
        (id.unwrap().parse::<u64>().unwrap() > began).then_some(())
    });
}

#[test]
fn a_question_waits_until_something_has_happened() {
    let server = Server::start();
    put(&server, "/v1/instances/s/a", &at(1)).yes();
    let known = get(&server, "/v1/instances?service=s").yes()["revision"].as_u64().unwrap();
    let wait = |after: u64, ms: u64| format!("/v1/instances?service=s&after={after}&wait_ms={ms}");
    assert_eq!(get(&server, &wait(known - 1, 600_000)).yes()["items"].as_array().unwrap().len(), 1, "it has already");
    assert_eq!(get(&server, &wait(known, 1)).yes()["revision"], known, "it is over");
    let mut line = Line::open(&server);
    line.ask("GET", &wait(known, 600_000), &[], b"");
    put(&server, "/v1/instances/other/a", &at(1)).yes();
    put(&server, "/v1/instances/s/b", &at(2)).yes();
    assert_eq!(line.answer().yes()["items"].as_array().unwrap().len(), 2);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let server = Server::start();
    let before = revision(&server);
    let labels: serde_json::Map<String, Value> = (0..10_000).map(|n| (format!("k{n}"), json!("v"))).collect();
    let check = |check: &Value| json!({"checks": [check]});
    let bad = [
        (json!({"endpoints": []}), "bad_instance"),
        (json!({"endpoints": ["10.0.0.7:80"]}), "bad_endpoint"),
        (json!({"endpoints": ["http://h:0"]}), "bad_endpoint"),
        (json!({"endpoints": ["http://h:80/path"]}), "bad_endpoint"),
        (json!({"endpoints": ["http://user@h:80"]}), "bad_endpoint"),
        (json!({"labels": labels}), "bad_label"),
        (json!({"capabilities": ["two words"]}), "bad_word"),
        (json!({"weight": 65_536}), "bad_instance"),
        (json!({"weight": -1}), "bad_json"),
        (json!({"ttl_ms": -1}), "bad_ttl"),
        (json!({"ttl_ms": 1}), "bad_ttl"),
        (json!({"on_critical": "panic"}), "bad_json"),
        (json!({"nothing": 1}), "bad_json"),
        (check(&json!({"name": "c", "kind": "tcp", "interval_ms": 0})), "bad_check"),
        (check(&json!({"name": "c", "kind": "tcp", "interval_ms": 31_536_000_000_u64})), "bad_check"),
        (check(&json!({"name": "c", "kind": "tcp", "endpoint": 1})), "bad_check"),
        (check(&json!({"name": "c", "kind": "http", "path": "x"})), "bad_check"),
        (check(&json!({"name": "c", "kind": "exec"})), "bad_json"),
        (check(&json!({"name": "a/b"})), "bad_word"),
    ];
    for (more, code) in bad {
        let refused = put(&server, "/v1/instances/s/i", &with(at(1), &more)).no();
        assert_eq!(refused, (400, code.into()), "{more}");
    }
    for (path, code) in
        [("/v1/instances/s", "bad_name"), ("/v1/instances/s/a%20b", "bad_word"), ("/v1/instances/s/", "bad_word")]
    {
        let (status, refused) = put(&server, path, &at(1)).no();
        assert!(refused == code || status == 404, "{path}: {refused}");
    }
    assert_eq!(get(&server, "/v1/instances?nothing=1").no(), (400, "bad_query".into()));
    assert_eq!(get(&server, "/v1/instances?from=x").no(), (400, "bad_request".into()));
    assert_eq!(get(&server, "/v1/instances/s/i").no(), (404, "no_instance".into()));
    assert_eq!(ask(&server, "DELETE", "/v1/instances/s/i", &[], b"").no(), (404, "no_instance".into()));
    assert_eq!(revision(&server), before);
}

#[test]
fn prometheus_finds_what_can_be_scraped() {
    let server = Server::start();
    let more = json!({"endpoints": ["http://10.0.0.7:80", "grpc://10.0.0.7:81"], "capabilities": ["gpu"]});
    put(&server, "/v1/instances/agents/a", &with(at(1), &more)).yes();
    put(&server, "/v1/instances/agents/b", &with(at(2), &json!({"checks": [{"name": "c"}]}))).yes();
    let targets = |query: &str| {
        let groups = get(&server, &format!("/v1/prometheus/targets?{query}")).yes();
        let target = |group: &Value| group["targets"][0].as_str().unwrap().to_owned();
        groups.as_array().unwrap().iter().map(target).collect::<Vec<_>>()
    };
    assert_eq!(targets("service=agents"), ["10.0.0.7:80"], "nobody has told how the other is");
    assert_eq!(targets("service=agents&all=true"), ["10.0.0.7:80", "10.0.0.7:2"]);
    assert_eq!(targets("prefix=ag&scheme=grpc&cap=gpu"), ["10.0.0.7:81"]);
    let labels = &get(&server, "/v1/prometheus/targets").yes()[0]["labels"];
    assert_eq!(
        (&labels["__meta_tenure_service"], &labels["__meta_tenure_health"]),
        (&json!("agents"), &json!("passing"))
    );
    assert_eq!(get(&server, "/v1/prometheus/targets?limit=1").no(), (400, "bad_query".into()));
}
