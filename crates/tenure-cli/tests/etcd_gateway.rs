//! etcd's JSON gateway: the same requests to a real etcd and to the server under test are answered with the same status and
//! the same JSON, refusals included, and streams begin with the same frames. With `TENURE_SECOND_ETCD=path` the other server
//! is an etcd as well, which tests this test.
//!
//! What may differ, and is not compared:
//! - the ids of cluster and member, the term, sizes, hashes and names: each server has its own;
//! - what a parser says of a body that it cannot read: only that it is refused, and with which code;
//! - `error` beside the same words in `message`: etcd's own builds say both, Debian's says `message` alone.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::etcd::{Peer, reference};
use crate::support::http::Line;
use serde_json::{Map, Value};

/// How two answers must be alike.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Alike {
    /// In all that they say.
    Whole,
    /// In what they tell, but not in the numbers and names.
    Fields,
    /// In the status and the code.
    Code,
}
use Alike::{Code, Fields, Whole};

/// Requests in their order, with what came before as their past. Keys: `Zw==` is g, `aA==` is h, `AA==` is a zero byte.
const UNARY: &[(&str, &str, Alike)] = &[
    // Keys, with both spellings of names, and numbers as text and as numbers.
    ("/v3/kv/put", r#"{"key":"Zw==","value":"MQ=="}"#, Whole),
    ("/v3/kv/put", r#"{"key":"Zw==","value":"Mg==","prev_kv":true}"#, Whole),
    ("/v3/kv/put", r#"{"key":"Zw==","value":"Mw==","prevKv":true}"#, Whole),
    ("/v3/kv/put", r#"{"key":"aA==","value":"MQ=="}"#, Whole),
    ("/v3/kv/put", r#"{"key":"aA==","ignore_value":true,"value":"MQ=="}"#, Whole),
    ("/v3/kv/put", r#"{"key":"bm8=","ignore_value":true}"#, Whole),
    ("/v3/kv/put", r#"{"key":"aA==","lease":99}"#, Whole),
    ("/v3/kv/put", r#"{"value":"MQ=="}"#, Whole),
    ("/v3/kv/range", r#"{"key":"Zw=="}"#, Whole),
    ("/v3/kv/range", r#"{"key":"bm9uZQ=="}"#, Whole),
    ("/v3/kv/range", r#"{"key":"AA==","range_end":"AA=="}"#, Whole),
    (
        "/v3/kv/range",
        r#"{"key":"AA==","rangeEnd":"AA==","sort_order":"DESCEND","sort_target":"MOD","limit":"1"}"#,
        Whole,
    ),
    ("/v3/kv/range", r#"{"key":"AA==","rangeEnd":"AA==","sortOrder":2,"sortTarget":1,"limit":1}"#, Whole),
    ("/v3/kv/range", r#"{"key":"AA==","range_end":"AA==","count_only":true}"#, Whole),
    ("/v3/kv/range", r#"{"key":"AA==","range_end":"AA==","keys_only":true,"serializable":true}"#, Whole),
    ("/v3/kv/range", r#"{"key":"Zw==","revision":"2"}"#, Whole),
    ("/v3/kv/range", r#"{"key":"Zw==","revision":9999}"#, Whole),
    ("/v3/kv/range", r#"{"key":"Zw==","max_create_revision":"1"}"#, Whole),
    ("/v3/kv/range", "{}", Whole),
    ("/v3/kv/range", "", Whole),
    ("/v3/kv/range", r#"{"key":"Zw==","no such field":1}"#, Whole),
    ("/v3/kv/range", "{", Code),
    ("/v3/kv/range", "[]", Code),
    ("/v3/kv/range", r#"{"key":"!!"}"#, Code),
    ("/v3/kv/range", r#"{"key":5}"#, Code),
    ("/v3/kv/range", r#"{"key":"Zw==","revision":"x"}"#, Code),
    ("/v3/kv/range", r#"{"key":"Zw==","revision":99999999999999999999}"#, Code),
    // Transactions.
    (
        "/v3/kv/txn",
        r#"{"compare":[{"key":"Zw==","target":"VALUE","result":"EQUAL","value":"Mw=="}],
            "success":[{"request_put":{"key":"Zw==","value":"NA==","prev_kv":true}},{"requestRange":{"key":"Zw=="}},
                       {"request_delete_range":{"key":"aA==","prev_kv":true}}]}"#,
        Whole,
    ),
    (
        "/v3/kv/txn",
        r#"{"compare":[{"key":"Zw==","target":"CREATE","create_revision":"0"}],
            "failure":[{"request_txn":{"success":[{"request_put":{"key":"aA==","value":"NQ=="}}]}}]}"#,
        Whole,
    ),
    ("/v3/kv/txn", r#"{"success":[{"request_put":{"key":"Zw=="}},{"request_put":{"key":"Zw=="}}]}"#, Whole),
    ("/v3/kv/txn", r#"{"success":[{}]}"#, Whole),
    ("/v3/kv/txn", r#"{"compare":[{"target":"VALUE"}]}"#, Whole),
    ("/v3/kv/txn", "{}", Whole),
    ("/v3/kv/deleterange", r#"{"key":"Zw==","prev_kv":true}"#, Whole),
    ("/v3/kv/deleterange", r#"{"key":"Zw=="}"#, Whole),
    ("/v3/kv/deleterange", "{}", Whole),
    ("/v3/kv/compaction", r#"{"revision":"3"}"#, Whole),
    ("/v3/kv/compaction", r#"{"revision":3}"#, Whole),
    ("/v3/kv/compaction", r#"{"revision":"9999","physical":true}"#, Whole),
    ("/v3/kv/range", r#"{"key":"Zw==","revision":"2"}"#, Whole),
    // Leases.
    ("/v3/lease/grant", r#"{"TTL":100000,"ID":7}"#, Whole),
    ("/v3/lease/grant", r#"{"TTL":"100000","ID":"7"}"#, Whole),
    ("/v3/lease/grant", r#"{"TTL":"9000000001","ID":"8"}"#, Whole),
    ("/v3/kv/put", r#"{"key":"bGVhc2Vk","lease":"7"}"#, Whole),
    ("/v3/kv/range", r#"{"key":"bGVhc2Vk"}"#, Whole),
    ("/v3/lease/timetolive", r#"{"ID":7,"keys":true}"#, Whole),
    ("/v3/kv/lease/timetolive", r#"{"ID":"7"}"#, Whole),
    ("/v3/lease/timetolive", r#"{"ID":"9"}"#, Whole),
    ("/v3/lease/leases", "{}", Whole),
    ("/v3/kv/lease/leases", "{}", Whole),
    // Those that end first come first; no time at all is two seconds.
    ("/v3/lease/grant", r#"{"TTL":"50000","ID":"21"}"#, Whole),
    ("/v3/lease/leases", "{}", Whole),
    ("/v3/lease/revoke", r#"{"ID":21}"#, Whole),
    ("/v3/lease/grant", r#"{"TTL":"0","ID":"22"}"#, Whole),
    ("/v3/lease/revoke", r#"{"ID":22}"#, Whole),
    ("/v3/lease/grant", r#"{"TTL":"-5","ID":"23"}"#, Whole),
    ("/v3/lease/revoke", r#"{"ID":23}"#, Whole),
    // Locks and elections that the server waits for; the lease gives the key its name.
    ("/v3/lock/lock", r#"{"name":"bG9jaw==","lease":7}"#, Whole),
    ("/v3/lock/lock", r#"{"name":"bG9jaw==","lease":"7"}"#, Whole),
    ("/v3/lock/unlock", r#"{"key":"bG9jay83"}"#, Whole),
    ("/v3/lock/unlock", r#"{"key":"bm9uZQ=="}"#, Whole),
    ("/v3/lock/lock", r#"{"name":"bG9jaw==","lease":"99"}"#, Whole),
    ("/v3/election/leader", r#"{"name":"ZQ=="}"#, Whole),
    ("/v3/election/campaign", r#"{"name":"ZQ==","value":"YW5u","lease":"7"}"#, Whole),
    ("/v3/election/leader", r#"{"name":"ZQ=="}"#, Whole),
    ("/v3/election/campaign", r#"{"name":"ZQ==","value":"Ym9i","lease":"7"}"#, Whole),
    ("/v3/election/leader", r#"{"name":"ZQ=="}"#, Whole),
    ("/v3/election/proclaim", r#"{"leader":{"name":"ZQ==","key":"ZS83","rev":"1","lease":"7"},"value":"bm8="}"#, Whole),
    ("/v3/election/proclaim", r#"{"value":"bm8="}"#, Whole),
    ("/v3/election/resign", "{}", Whole),
    ("/v3/election/campaign", r#"{"name":"ZQ==","value":"YW5u","lease":"99"}"#, Whole),
    ("/v3/lease/revoke", r#"{"ID":7}"#, Whole),
    ("/v3/kv/lease/revoke", r#"{"ID":"7"}"#, Whole),
    ("/v3/lease/revoke", r#"{"ID":"99"}"#, Whole),
    ("/v3/election/leader", r#"{"name":"ZQ=="}"#, Whole),
    // The server.
    ("/v3/auth/authenticate", r#"{"name":"ann","password":"secret"}"#, Whole),
    ("/v3/auth/status", "{}", Whole),
    ("/v3/cluster/member/list", "{}", Fields),
    ("/v3/maintenance/status", "{}", Fields),
    ("/v3/maintenance/alarm", "{}", Whole),
    ("/v3/maintenance/hash", "{}", Fields),
    ("/v3/maintenance/hashkv", "{}", Fields),
    ("/v3/maintenance/defragment", "{}", Whole),
    ("/v3/no/such/path", "{}", Code),
];

/// Streams: what is asked, and how many frames are compared.
const STREAMS: &[(&str, &str, usize)] = &[
    ("/v3/lease/keepalive", r#"{"ID":"5"}"#, 1),
    ("/v3/lease/keepalive", r#"{"ID":6}{"ID":5}"#, 2),
    ("/v3/watch", r#"{"create_request":{"key":"Zw==","start_revision":"1"}}"#, 2),
    ("/v3/watch", r#"{"create_request":{"key":"Zw==","watch_id":"3","filters":["NOPUT"]}}"#, 1),
    (
        "/v3/watch",
        r#"{"create_request":{"key":"AA==","range_end":"AA==","start_revision":"4","filters":["NOPUT"]}}"#,
        2,
    ),
    (
        "/v3/watch",
        r#"{"create_request":{"key":"AA==","range_end":"AA==","start_revision":"4","filters":["NODELETE"]}}"#,
        2,
    ),
    ("/v3/watch", r#"{"createRequest":{"key":"AA==","rangeEnd":"AA==","startRevision":3,"prevKv":true}}"#, 2),
    ("/v3/watch", r#"{"create_request":{"key":"aA==","range_end":"Zw=="}}"#, 1),
    ("/v3/watch", r#"{"create_request":{"key":"Zw=="}}{"progress_request":{}}"#, 2),
    ("/v3/election/observe", r#"{"name":"ZQ=="}"#, 1),
];

/// What lies there before the streams are asked.
const PAST: &[(&str, &str)] = &[
    ("/v3/kv/put", r#"{"key":"Zw==","value":"MQ=="}"#),
    ("/v3/kv/put", r#"{"key":"Zw==","value":"Mg=="}"#),
    ("/v3/kv/deleterange", r#"{"key":"Zw=="}"#),
    ("/v3/kv/put", r#"{"key":"aA==","value":"MQ=="}"#),
    ("/v3/kv/compaction", r#"{"revision":"3"}"#),
    ("/v3/lease/grant", r#"{"TTL":"100000","ID":"5"}"#),
    ("/v3/election/campaign", r#"{"name":"ZQ==","value":"YW5u","lease":"5"}"#),
];

fn post(peer: &Peer, path: &str, body: &str) -> (u16, Value) {
    let mut line = Line::to(peer.address());
    line.ask("POST", path, &["content-type: application/json"], body.as_bytes());
    let answer = line.answer();
    let mut json = answer.json();
    plain(&mut json);
    (answer.status, json)
}

fn frames(peer: &Peer, path: &str, body: &str, count: usize) -> Vec<Value> {
    let mut line = Line::to(peer.address());
    line.ask("POST", path, &["content-type: application/json"], body.as_bytes());
    assert_eq!(line.head().status, 200);
    let lines = std::iter::from_fn(|| line.line()).filter(|line| line.starts_with('{'));
    let mut frames: Vec<Value> = lines.take(count).map(|line| serde_json::from_str(&line).unwrap()).collect();
    frames.iter_mut().for_each(plain);
    // etcd tells progress, which is for all watchers, before or behind that one was created, as it comes.
    frames.sort_by_key(|frame| frame["result"]["watch_id"] == "-1");
    frames
}

/// Leaves out what each server says in its own way.
fn plain(json: &mut Value) {
    match json {
        Value::Object(object) => {
            if object.get("error") == object.get("message") {
                object.remove("error");
            }
            if let Some(Value::Object(header)) = object.get_mut("header") {
                own(header);
            }
            whole_life(object);
            object.values_mut().for_each(plain);
        }
        Value::Array(array) => array.iter_mut().for_each(plain),
        _ => {}
    }
}

fn own(header: &mut Map<String, Value>) {
    for name in ["cluster_id", "member_id", "raft_term"] {
        header.entry(name).and_modify(|id| *id = "its own".into());
    }
}

/// What remains of a long lease is a little less than what was granted, by how fast the test is.
fn whole_life(object: &mut Map<String, Value>) {
    let seconds = |name| object.get(name).and_then(Value::as_str).and_then(|text| text.parse::<i64>().ok());
    if let (Some(left), Some(granted)) = (seconds("TTL"), seconds("grantedTTL"))
        && (granted - 3600..=granted).contains(&left)
    {
        object.insert("TTL".into(), granted.to_string().into());
    }
}

/// The fields alone, without what they say. A list is as its first.
fn fields(json: &Value) -> Value {
    match json {
        Value::Object(object) => object.iter().map(|(name, value)| (name.clone(), fields(value))).collect(),
        Value::Array(array) => array.iter().take(1).map(fields).collect(),
        Value::String(_) => "text".into(),
        Value::Number(_) => 0.into(),
        other => other.clone(),
    }
}

#[test]
fn calls_are_answered_as_etcd_answers_them() {
    let Some(etcd) = reference() else { return };
    let (first, second) = (Peer::etcd(&etcd), Peer::under_test());
    let mut differences = Vec::new();
    for (path, body, alike) in UNARY {
        let [left, right] = [&first, &second].map(|peer| {
            let (status, json) = post(peer, path, body);
            match alike {
                Whole => (status, json),
                Fields => (status, fields(&json)),
                Code => (status, json["code"].clone()),
            }
        });
        if left != right {
            differences.push(format!("{path} {body}\n  {}: {left:?}\n  {}: {right:?}", first.name, second.name));
        }
    }
    assert!(differences.is_empty(), "{} of {} differ:\n{}", differences.len(), UNARY.len(), differences.join("\n"));
}

#[test]
fn streams_begin_as_those_of_etcd() {
    let Some(etcd) = reference() else { return };
    let (first, second) = (Peer::etcd(&etcd), Peer::under_test());
    for (path, body) in PAST {
        assert_eq!(post(&first, path, body), post(&second, path, body), "{path} {body}");
    }
    for (path, body, count) in STREAMS {
        let [left, right] = [&first, &second].map(|peer| frames(peer, path, body, *count));
        assert_eq!(left.len(), *count, "{path} {body}: {left:?}");
        assert_eq!(left, right, "{path} {body}");
    }
}

#[test]
fn the_version_and_the_health_are_told() {
    let Some(etcd) = reference() else { return };
    let peers = [Peer::etcd(&etcd), Peer::under_test()];
    let [left, right] = peers.each_ref().map(|peer| {
        ["/version", "/health"].map(|path| {
            let mut line = Line::to(peer.address());
            line.ask("GET", path, &[], b"");
            let answer = line.answer();
            (answer.status, answer.json())
        })
    });
    assert_eq!(fields(&left[0].1), fields(&right[0].1));
    for version in ["etcdserver", "etcdcluster"] {
        assert!(right[0].1[version].as_str().unwrap().starts_with("3.5."), "{right:?}");
    }
    assert_eq!((right[1].0, &right[1].1["health"]), (200, &Value::from("true")), "{left:?} {right:?}");
}
