//! Who may do what by the etcd dialect: the name of an API key is the user, the key is the password and the token. A real etcd
//! with users of the same kind, where there is one, refuses with the same codes and words.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support::etcd::{Peer, reference, tool};
use crate::support::http::Line;
use crate::support::{Server, binary, soon, text};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tenure_api::etcd::etcdserverpb as pb;
use tenure_api::etcd::etcdserverpb::auth_client::AuthClient;
use tenure_api::etcd::etcdserverpb::kv_client::KvClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

const FAILED: &str = "etcdserver: authentication failed, invalid user ID or password";
const BAD_TOKEN: &str = "etcdserver: invalid auth token";
const NOBODY: &str = "etcdserver: user name is empty";
const DENIED: &str = "etcdserver: permission denied";

/// A server that asks who comes: ann may do everything, bob may look.
struct Guarded {
    name: &'static str,
    /// `host:port`.
    address: String,
    ann: String,
    bob: String,
    _running: Running,
}

enum Running {
    Etcd(#[expect(dead_code, reason = "kept for its end")] Peer),
    Tenure(Server, TempDir),
}

impl Guarded {
    fn tenure(flags: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (ann, ann_line) = drawn(&["ann"]);
        let (bob, bob_line) = drawn(&["bob", "--read-only"]);
        let (keys, data) = (home.path().join("keys"), home.path().join("data"));
        std::fs::write(&keys, format!("{ann_line}\n{bob_line}\n")).unwrap();
        let own = ["--listen", "127.0.0.1:0", "--data-dir", path(&data), "--api-keys", path(&keys)];
        let server = Server::start_with(&[&own, flags].concat());
        let address = server.addr.trim_start_matches("http://").to_owned();
        Self { name: "tenure", address, ann, bob, _running: Running::Tenure(server, home) }
    }

    fn etcd(program: &Path) -> Self {
        let peer = Peer::etcd(program);
        let address = peer.address().to_owned();
        let everything = json!({ "permType": "READ", "key": "AA==", "range_end": "AA==" });
        for (path, body) in [
            ("user/add", json!({ "name": "ann", "password": "full" })),
            ("user/add", json!({ "name": "root", "password": "root" })),
            ("user/add", json!({ "name": "bob", "password": "look" })),
            ("role/add", json!({ "name": "root" })),
            ("role/add", json!({ "name": "look" })),
            ("role/grant", json!({ "name": "look", "perm": everything })),
            ("user/grant", json!({ "user": "root", "role": "root" })),
            ("user/grant", json!({ "user": "ann", "role": "root" })),
            ("user/grant", json!({ "user": "bob", "role": "look" })),
            ("enable", json!({})),
        ] {
            assert_eq!(post(&address, &format!("/v3/auth/{path}"), &body, None).0, 200, "{path} {body}");
        }
        Self { name: "etcd", address, ann: "full".into(), bob: "look".into(), _running: Running::Etcd(peer) }
    }

    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    /// The token of a user, which both ways give alike.
    async fn token(&self, name: &str, password: &str) -> String {
        let asked = pb::AuthenticateRequest { name: name.into(), password: password.into() };
        let told = AuthClient::new(self.channel().await).authenticate(asked).await.unwrap().into_inner().token;
        let asked = json!({ "name": name, "password": password });
        let (status, said) = post(&self.address, "/v3/auth/authenticate", &asked, None);
        assert_eq!(status, 200, "{said}");
        assert!(!told.is_empty() && !said["token"].as_str().unwrap().is_empty());
        told
    }

    /// That a user's name and password do not do.
    async fn is_nobody(&self, name: &str, password: &str) {
        let asked = pb::AuthenticateRequest { name: name.into(), password: password.into() };
        let no = AuthClient::new(self.channel().await).authenticate(asked).await.unwrap_err();
        assert_eq!((no.code(), no.message()), (Code::InvalidArgument, FAILED), "{}: {name}", self.name);
        let asked = json!({ "name": name, "password": password });
        let (status, said) = post(&self.address, "/v3/auth/authenticate", &asked, None);
        assert_eq!((status, &said["code"], &said["message"]), (400, &3.into(), &FAILED.into()), "{}", self.name);
    }

    /// How a put and a look end with a token, both ways alike: with nothing, or with a code and words.
    async fn with(&self, token: Option<&str>) -> [Option<(Code, String)>; 2] {
        let mut kv = KvClient::new(self.channel().await);
        let put = pb::PutRequest { key: b"k".to_vec(), ..pb::PutRequest::default() };
        let look = pb::RangeRequest { key: b"k".to_vec(), ..pb::RangeRequest::default() };
        let ends =
            [kv.put(shown(put, token)).await.map(drop).err(), kv.range(shown(look, token)).await.map(drop).err()];
        let ends = ends.map(|end| end.map(|status| (status.code(), status.message().to_owned())));
        for (path, end) in ["/v3/kv/put", "/v3/kv/range"].iter().zip(&ends) {
            let (status, said) = post(&self.address, path, &json!({ "key": "aw==" }), token);
            let found = (status != 200).then(|| (said["code"].as_i64().unwrap(), said["message"].clone()));
            let same = end.as_ref().map(|(code, text)| (*code as i64, Value::from(text.as_str())));
            assert_eq!(found, same, "{}: {path} as JSON is refused as over gRPC", self.name);
        }
        ends
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A new key: its secret, and its line for the server.
fn drawn(args: &[&str]) -> (String, String) {
    let words = Command::new(binary()).args(["cluster", "keygen"]).args(args).output().unwrap();
    let words = text(&words.stdout);
    let (secret, line) = words.trim_end().split_once('\n').unwrap();
    (secret.to_owned(), line.to_owned())
}

fn shown<T>(asked: T, token: Option<&str>) -> Request<T> {
    let mut request = Request::new(asked);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token.parse().unwrap());
    }
    request
}

fn post(address: &str, path: &str, body: &Value, token: Option<&str>) -> (u16, Value) {
    let mut line = Line::to(address);
    let token = token.map(|token| format!("authorization: {token}"));
    let headers: Vec<&str> = ["content-type: application/json"].into_iter().chain(token.as_deref()).collect();
    line.ask("POST", path, &headers, body.to_string().as_bytes());
    let answer = line.answer();
    (answer.status, answer.json())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_a_user_and_may_do_what_it_may() {
    let etcd = reference().map(|program| Guarded::etcd(&program));
    let no = |code: Code, text: &str| Some((code, text.to_owned()));
    for guarded in etcd.into_iter().chain([Guarded::tenure(&[])]) {
        let (ann, bob) = (guarded.token("ann", &guarded.ann).await, guarded.token("bob", &guarded.bob).await);
        assert_eq!(guarded.with(Some(&ann)).await, [None, None], "{}", guarded.name);
        assert_eq!(guarded.with(Some(&bob)).await, [no(Code::PermissionDenied, DENIED), None], "{}", guarded.name);
        let bad = no(Code::Unauthenticated, BAD_TOKEN);
        assert_eq!(guarded.with(Some("tnr_stranger")).await, [bad.clone(), bad], "{}", guarded.name);
        let nobody = no(Code::InvalidArgument, NOBODY);
        assert_eq!(guarded.with(None).await, [nobody.clone(), nobody], "{}", guarded.name);
        guarded.is_nobody("ann", "wrong").await;
        guarded.is_nobody("ann", &guarded.bob).await;
        guarded.is_nobody("carol", &guarded.ann).await;
        guarded.is_nobody("", "").await;
    }
}

/// What differs from etcd, and is said in docs/etcd.md.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_look_may_neither_transact_nor_grant() {
    let guarded = Guarded::tenure(&[]);
    for (path, body) in [
        ("/v3/kv/txn", json!({ "success": [{ "request_range": { "key": "aw==" } }] })),
        ("/v3/lease/grant", json!({ "TTL": 10 })),
        ("/v3/lock/lock", json!({ "name": "bA==" })),
        ("/v3/maintenance/snapshot", json!({})),
        ("/v3/maintenance/defragment", json!({})),
    ] {
        let (status, said) = post(&guarded.address, path, &body, Some(&guarded.bob));
        assert_eq!((status, &said["message"]), (403, &DENIED.into()), "{path}");
    }
    for (path, body) in [
        ("/v3/lease/leases", json!({})),
        ("/v3/lease/timetolive", json!({ "ID": 1 })),
        ("/v3/cluster/member/list", json!({})),
        ("/v3/maintenance/status", json!({})),
        ("/v3/auth/status", json!({})),
    ] {
        assert_eq!(post(&guarded.address, path, &body, Some(&guarded.bob)).0, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_taken_out_of_the_file_is_a_token_no_longer() {
    let guarded = Guarded::tenure(&[]);
    assert_eq!(guarded.with(Some(&guarded.ann)).await, [None, None]);
    let Running::Tenure(server, home) = &guarded._running else { panic!("it is ours") };
    let (_, other) = drawn(&["other"]);
    std::fs::write(home.path().join("keys"), other).unwrap();
    server.signal("HUP");
    let refused = async {
        // One question at a time: it may be heard of between two.
        while post(&guarded.address, "/v3/kv/range", &json!({ "key": "aw==" }), Some(&guarded.ann)).0 == 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("a refusal", refused).await;
    assert_eq!(guarded.with(Some(&guarded.ann)).await[1], Some((Code::Unauthenticated, BAD_TOKEN.into())));
}

#[test]
fn etcdctl_shows_its_key_as_user_and_password() {
    let Some(etcdctl) = tool("etcdctl") else { return };
    let guarded = Guarded::tenure(&[]);
    let types = |user: Option<String>, args: &[&str]| {
        let mut command = Command::new(&etcdctl);
        command.args(["--endpoints", &guarded.address, "--dial-timeout", "60s", "--command-timeout", "60s"]).args(args);
        if let Some(user) = user {
            command.args(["--user", &user]);
        }
        let output = command.output().unwrap();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let (ann, bob) = (format!("ann:{}", guarded.ann), format!("bob:{}", guarded.bob));
    assert_eq!(types(Some(ann.clone()), &["put", "k", "v"]), (true, "OK\n".into()));
    assert_eq!(types(Some(bob.clone()), &["get", "k"]), (true, "k\nv\n".into()));
    for (user, words) in [
        (Some(bob), DENIED),
        (Some(format!("bob:{}", guarded.ann)), FAILED),
        (Some("ann:wrong".into()), FAILED),
        (None, NOBODY),
    ] {
        let (done, said) = types(user, &["put", "k", "no"]);
        assert!(!done && said.contains(words), "{said}");
        assert!(!said.contains(&guarded.ann), "no secret is repeated: {said}");
    }
    assert_eq!(types(Some(ann), &["get", "k", "--print-value-only"]), (true, "v\n".into()), "nothing was changed");
}

/// Whose leases they are, and how nodes say to speak to each other.
#[test]
fn a_lease_says_who_asked_for_it() {
    let guarded = Guarded::tenure(&[]);
    let granted = post(&guarded.address, "/v3/lease/grant", &json!({ "TTL": 600, "ID": 7 }), Some(&guarded.ann));
    assert_eq!(granted.0, 200);
    assert_eq!(post(&guarded.address, "/v3/lock/lock", &json!({ "name": "bA==" }), Some(&guarded.ann)).0, 200);
    let leases = Line::to(&guarded.address);
    assert_eq!(holders(leases, &format!("authorization: Bearer {}", guarded.ann)), ["etcd:ann", "etcd:ann"]);
    let open = Peer::under_test();
    assert_eq!(post(open.address(), "/v3/lease/grant", &json!({ "TTL": 600 }), None).0, 200);
    assert_eq!(holders(Line::to(open.address()), "x-nothing: more"), ["etcd:127.0.0.1"]);
}

fn holders(mut line: Line, header: &str) -> Vec<String> {
    line.ask("GET", "/v1/leases", &[header], b"");
    let leases = line.answer().yes();
    leases["items"].as_array().unwrap().iter().map(|lease| lease["holder"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn members_say_how_nodes_speak_to_each_other() {
    let home = tempfile::tempdir().unwrap();
    let pki = home.path().join("pki");
    let made = Command::new(binary()).args(["cluster", "pki", "init", "--dir", path(&pki), "1=127.0.0.1"]).output();
    assert!(made.unwrap().status.success());
    let [authority, certificate, key] = ["ca.crt", "node-1.crt", "node-1.key"].map(|file| pki.join(file));
    let tls = ["--peer-tls-ca", path(&authority), "--peer-tls-cert", path(&certificate), "--peer-tls-key", path(&key)];
    for (flags, scheme) in [(&tls[..], "https://"), (&[], "http://")] {
        let data = home.path().join(scheme.trim_end_matches("://"));
        let own = ["--listen", "127.0.0.1:0", "--peer-listen", "127.0.0.1:0", "--data-dir", path(&data)];
        let server = Server::start_with(&[&own, flags].concat());
        let address = server.addr.trim_start_matches("http://");
        let (_, members) = post(address, "/v3/cluster/member/list", &json!({}), None);
        let url = members["members"][0]["peerURLs"][0].as_str().unwrap();
        assert!(url.starts_with(&format!("{scheme}127.0.0.1:")), "{members}");
    }
}
