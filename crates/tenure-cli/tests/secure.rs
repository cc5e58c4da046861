//! Beyond loopback: certificates that are believed and certificates that are not, API keys, and peers that have to prove to
//! be some. Everything is refused in one clear sentence, and no secret is ever repeated.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support;
use crate::support::{Server, acquire, binary, claim, have, text};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tenure::{Client, Code, Error};
use tonic::transport::Channel;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

/// A directory with certificates and API keys, and what is typed in it.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    /// With an authority, and a certificate for a node on this machine.
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        let dir = place.file("pki");
        assert!(
            types(&["cluster", "pki", "init", "--dir", &dir, "1=127.0.0.1", "2=127.0.0.1", "3=127.0.0.1"], &[])
                .status
                .success()
        );
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Draws keys, writes the server's file, and tells the secrets.
    fn keys(&self) -> (String, String) {
        let drawn = |args: &[&str]| {
            let words = text(&types(&[&["cluster", "keygen"], args].concat(), &[]).stdout);
            let (secret, line) = words.trim_end().split_once('\n').unwrap();
            (secret.to_owned(), line.to_owned())
        };
        let ((full, full_line), (read, read_line)) = (drawn(&["ann"]), drawn(&["bob", "--read-only"]));
        std::fs::write(self.path("keys"), format!("# keys\n{full_line}\n{read_line}\n")).unwrap();
        (full, read)
    }

    /// A server with this certificate and these further flags.
    fn serve(&self, certificate: &str, more: &[&str]) -> Server {
        let (data, cert, key) = (
            self.file(&format!("data-{}", self.count())),
            self.file(&format!("{certificate}.crt")),
            self.file(&format!("{certificate}.key")),
        );
        let flags = ["--listen", "127.0.0.1:0", "--data-dir", &data, "--tls-cert", &cert, "--tls-key", &key];
        Server::start_with(&[&flags, more].concat())
    }

    /// A server in the clear, with API keys.
    fn serve_plain(&self, more: &[&str]) -> Server {
        let data = self.file(&format!("data-{}", self.count()));
        Server::start_with(&[&["--listen", "127.0.0.1:0", "--data-dir", &data], more].concat())
    }

    fn count(&self) -> usize {
        std::fs::read_dir(self.directory.path()).unwrap().count()
    }

    /// A certificate by an authority of its own, which is written beside it.
    fn certificate(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let (authority, mut authority_params) = (KeyPair::generate().unwrap(), CertificateParams::default());
        authority_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority_params.distinguished_name.push(DnType::CommonName, format!("authority of {name}"));
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &Issuer::from_params(&authority_params, &authority)).unwrap();
        let root = authority_params.self_signed(&authority).unwrap();
        for (end, text) in [("ca", root.pem()), ("crt", made.pem()), ("key", key.serialize_pem())] {
            std::fs::write(self.path(&format!("{name}.{end}")), text).unwrap();
        }
    }
}

/// Types a command with this environment and nothing else of ours.
fn types(args: &[&str], environment: &[(&str, &str)]) -> Output {
    // Whoever would wait for ever fails instead.
    let mut command = Command::new("timeout");
    command.args(["60", binary()]);
    for name in ["TENURE_ADDR", "TENURE_CA_FILE", "TENURE_API_KEY", "TENURE_API_KEY_FILE"] {
        command.env_remove(name);
    }
    command.args(args).envs(environment.iter().copied()).output().unwrap()
}

/// Whether a command was refused with this exit code and these words, once.
fn is_refused(refused: &Output, code: i32, words: &str) {
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(code), "{said}");
    assert!(said.contains(words) && said.contains("nothing was changed"), "{said}");
    assert_eq!(said.matches("tenure: ").count(), 1, "one sentence, and what to do: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_believes_the_authority_and_has_a_key_is_served() {
    let place = Place::new();
    let (full, _) = place.keys();
    let server = place.serve("pki/node-1", &["--api-keys", &place.file("keys")]);
    assert!(server.addr.starts_with("https://"), "{}", server.addr);
    let authority = place.file("pki/ca.crt");
    std::fs::write(place.path("secret"), format!("{full}\n")).unwrap();
    let secret = place.file("secret");
    let environment =
        [("TENURE_ADDR", server.addr.as_str()), ("TENURE_CA_FILE", &authority), ("TENURE_API_KEY_FILE", &secret)];
    assert!(types(&["ping"], &environment).status.success());
    let ran = types(&["run", "jobs/x", "--", "echo", "done"], &environment);
    assert_eq!(text(&ran.stdout), "done\n", "{}", text(&ran.stderr));

    let pem = std::fs::read(&authority).unwrap();
    let builder = || Client::builder().addrs(&server.addr).ca_certificate(pem.clone());
    let client = builder().api_key(&full).connect().await.unwrap();
    assert_eq!(acquire(&client, claim("db", 7, "ann", 60_000)).await.unwrap(), 2);
    let hold = client.lease("db/b").acquire().await.unwrap();
    assert!(!format!("{:?} {client:?} {hold:?}", builder().api_key(&full)).contains(&full), "nothing shows the secret");
    hold.release().await.unwrap();

    if have("curl") {
        for version in ["--http1.1", "--http2"] {
            let bearer = format!("Authorization: Bearer {full}");
            let url = format!("{}/v1/resources/db", server.addr);
            let curl =
                Command::new("curl").args(["-sS", version, "--cacert", &authority, "-H", &bearer, &url]).output();
            let curl = curl.unwrap();
            assert!(text(&curl.stdout).contains("\"holder\":\"ann\""), "{version}: {curl:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_prove_itself_is_not_spoken_with() {
    let place = Place::new();
    let (right, other) = (place.file("pki/ca.crt"), Place::new());
    let other = other.file("pki/ca.crt");
    place.certificate("expired", |params| {
        (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1));
    });
    place.certificate("named", |params| *params = CertificateParams::new(["leases.example".to_owned()]).unwrap());
    let (good, expired, named) =
        (place.serve("pki/node-1", &[]), place.serve("expired", &[]), place.serve("named", &[]));
    let plain = place.serve_plain(&[]);
    let swapped = |server: &Server, from: &str, to: &str| server.addr.replacen(from, to, 1);
    let cases = [
        (good.addr.clone(), other, "an authority that is not believed here"),
        (expired.addr.clone(), place.file("expired.ca"), "its certificate has expired"),
        (named.addr.clone(), place.file("named.ca"), "its certificate is for another name"),
        (swapped(&good, "https", "http"), right.clone(), "it speaks TLS; write https://"),
        (swapped(&plain, "http", "https"), right.clone(), "it does not speak TLS; write http://"),
    ];
    for (addr, authority, words) in &cases {
        let environment = [("TENURE_ADDR", addr.as_str()), ("TENURE_CA_FILE", authority)];
        for args in [
            &["ping"][..],
            &["acquire", "db"],
            &["acquire", "db", "--wait", "1h"],
            &["run", "db", "--", "true"],
            &["watch"],
        ] {
            is_refused(&types(args, &environment), 69, words);
        }
        let connected = Client::builder().addrs(addr).ca_certificate(std::fs::read(authority).unwrap()).connect().await;
        let failed = match connected {
            Err(error) => error,
            Ok(client) => client.lease("db").wait_for_ever().acquire().await.unwrap_err(),
        };
        assert!(matches!(failed, Error::Handshake { .. }), "{words}: {failed:?}");
    }
    // The system's own authorities know nothing of ours.
    is_refused(&types(&["ping"], &[("TENURE_ADDR", &good.addr)]), 69, "an authority that is not believed here");
    is_refused(
        &types(&["ping"], &[("TENURE_ADDR", &good.addr), ("TENURE_CA_FILE", "/nowhere")]),
        2,
        "cannot read /nowhere",
    );
    assert!(
        types(&["ping"], &[("TENURE_ADDR", &good.addr), ("TENURE_CA_FILE", &right)]).status.success(),
        "the others were refused for a reason"
    );
}

#[test]
fn whoever_does_not_shake_hands_holds_up_nobody() {
    let place = Place::new();
    let server = place.serve("pki/node-1", &[]);
    let address = server.addr.trim_start_matches("https://");
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let authority = place.file("pki/ca.crt");
    for _ in 0..3 {
        let ping = types(&["ping"], &[("TENURE_ADDR", &server.addr), ("TENURE_CA_FILE", &authority)]);
        assert!(ping.status.success(), "{}", text(&ping.stderr));
    }
    drop(silent);
}

/// What is typed, and whether it changes nothing.
const COMMANDS: [(&[&str], bool); 11] = [
    (&["ping"], true),
    (&["ls"], true),
    (&["show", "db"], true),
    (&["key", "ls"], true),
    (&["history", "db"], true),
    (&["acquire", "db"], false),
    (&["acquire", "db", "--wait", "1h"], false),
    (&["run", "db", "--", "true"], false),
    (&["elect", "db", "--", "true"], false),
    (&["lease", "grant", "--ttl", "5s"], false),
    (&["key", "put", "a", "b"], false),
];

#[test]
fn every_command_needs_a_key_and_writing_needs_one_that_may() {
    let place = Place::new();
    let (full, read) = place.keys();
    let server = place.serve("pki/node-1", &["--api-keys", &place.file("keys")]);
    let authority = place.file("pki/ca.crt");
    let with = |args: &[&str], key: &str| {
        types(args, &[("TENURE_ADDR", &server.addr), ("TENURE_CA_FILE", &authority), ("TENURE_API_KEY", key)])
    };
    for (args, is_read) in COMMANDS {
        is_refused(&with(args, ""), 77, "an API key is needed, and none was shown");
        is_refused(&with(args, &full.replace("tnr_", "tnr-")), 77, "the API key is not known here");
        match is_read {
            true => assert!(with(args, &read).status.success(), "{args:?}"),
            false => is_refused(&with(args, &read), 77, "the API key bob may only read"),
        }
    }
    is_refused(&with(&["watch", "db"], ""), 77, "an API key is needed");
    is_refused(&with(&["acquire", "db"], "tnr_\u{1}"), 2, "the API key is no API key");
    let nothing: serde_json::Value = serde_json::from_slice(&with(&["ls", "-o", "json"], &read).stdout).unwrap();
    assert_eq!(nothing["items"].as_array().unwrap().len(), 0, "nothing that was refused was done");
    assert!(with(&["acquire", "db", "--ttl", "5s"], &full).status.success());
}

#[test]
fn over_http_it_is_the_same_and_probes_are_open() {
    use crate::support::http::ask;
    let place = Place::new();
    let (full, read) = place.keys();
    let server = place.serve_plain(&["--api-keys", &place.file("keys")]);
    let bearer = |key: &str| format!("authorization: Bearer {key}");
    let json = "content-type: application/json";
    let body = br#"{"resource":"db","ttl_ms":60000,"holder":"ann"}"#;
    for path in ["/v1/status", "/v1/resources", "/v1/watch", "/v1/nowhere", "/metrics", "/openapi.json"] {
        for headers in [
            vec![],
            vec![bearer("tnr_stranger")],
            vec![bearer(&full), bearer(&read)],
            vec![format!("authorization: {full}")],
        ] {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            let answer = ask(&server, "GET", path, &headers, b"");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{path}");
            assert_eq!(answer.no(), (401, "unauthenticated".into()), "{path}");
        }
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(ask(&server, "GET", path, &[], b"").status, 200, "{path}");
    }
    for path in ["/v1/status", "/v1/resources", "/metrics", "/openapi.json"] {
        assert_eq!(ask(&server, "GET", path, &[&bearer(&read)], b"").status, 200, "{path}");
    }
    assert_eq!(ask(&server, "POST", "/v1/acquire", &[json], body).no(), (401, "unauthenticated".into()));
    for (method, path) in
        [("POST", "/v1/acquire"), ("PUT", "/v1/keys/a"), ("DELETE", "/v1/keys/a"), ("POST", "/v1/revoke")]
    {
        let denied = ask(&server, method, path, &[json, &bearer(&read)], body);
        assert_eq!(denied.no(), (403, "denied".into()), "{method} {path}");
    }
    assert_eq!(ask(&server, "POST", "/v1/acquire", &[json, &bearer(&full)], body).yes()["fence"], 1);
    let metrics = text(&ask(&server, "GET", "/metrics", &[&bearer(&read)], b"").body);
    let counted = |code: &str| {
        metrics.lines().find(|line| {
            line.starts_with("tenure_requests_total{")
                && line.contains("door=\"http\"")
                && line.contains(&format!("\"{code}\""))
        })
    };
    assert!(counted("denied").is_some_and(|line| line.ends_with(" 4")), "{:?}", counted("denied"));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_grpc_health_is_open_and_reflection_is_not() {
    let place = Place::new();
    let (_, read) = place.keys();
    let server = place.serve_plain(&["--api-keys", &place.file("keys")]);
    let channel = Channel::from_shared(server.addr.clone()).unwrap().connect().await.unwrap();
    let request = tonic_health::pb::HealthCheckRequest { service: "tenure.v1.Tenure".into() };
    assert!(HealthClient::new(channel.clone()).check(request).await.is_ok());
    let asked = |key: Option<String>| {
        let mut client = ServerReflectionClient::new(channel.clone());
        let mut request = tonic::Request::new(tokio_stream::once(ServerReflectionRequest::default()));
        key.map(|key| request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap()));
        async move { client.server_reflection_info(request).await.map(drop).map_err(|status| status.code()) }
    };
    assert_eq!(asked(None).await, Err(tonic::Code::Unauthenticated));
    assert_eq!(asked(Some(read.clone())).await, Ok(()));
    let reader = Client::builder().addrs(&server.addr).api_key(read).connect().await.unwrap();
    assert_eq!(reader.converse().await.map(drop).unwrap_err().code(), Some(Code::Denied), "the stream carries orders");
    assert_eq!(reader.lease("db").wait_for_ever().acquire().await.unwrap_err().code(), Some(Code::Denied));
    let stranger = Client::connect(&server.addr).await.unwrap();
    assert_eq!(stranger.watch("").next().await.unwrap_err().code(), Some(Code::Unauthenticated));
}

#[test]
fn keys_are_read_again_at_a_hangup_and_a_bad_file_changes_nothing() {
    let place = Place::new();
    let (full, read) = place.keys();
    let file = place.path("keys");
    let server = place.serve_plain(&["--api-keys", &place.file("keys")]);
    let code = |key: &str| types(&["ping"], &[("TENURE_ADDR", &server.addr), ("TENURE_API_KEY", key)]).status.code();
    assert_eq!((code(&full), code(&read)), (Some(0), Some(0)));
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{lines}\n{read}\n")).unwrap();
    server.signal("HUP");
    support::wrapped::until("the bad file is noticed", || server.words().contains("the API keys are as they were"));
    assert_eq!((code(&full), code(&read)), (Some(0), Some(0)));
    std::fs::write(&file, lines.lines().filter(|line| !line.starts_with("bob")).collect::<Vec<_>>().join("\n"))
        .unwrap();
    server.signal("HUP");
    support::wrapped::until("the file is read again", || server.words().contains("the API keys were read again"));
    assert_eq!((code(&full), code(&read)), (Some(0), Some(77)));
    assert!(!server.words().contains("tnr_"), "a secret in the wrong file is not repeated: {}", server.words());
}

#[test]
fn no_secret_is_in_a_log_or_in_the_settings() {
    let place = Place::new();
    let (full, read) = place.keys();
    let keys = place.file("keys");
    let server = place.serve_plain(&["--api-keys", &keys, "--log", "trace,openraft=warn"]);
    let stranger = "tnr_stranger";
    for (args, _) in COMMANDS {
        for key in [&read, stranger] {
            let done = types(args, &[("TENURE_ADDR", &server.addr), ("TENURE_API_KEY", key)]);
            assert!(!text(&done.stderr).contains(key), "{args:?}");
        }
    }
    assert!(
        types(&["run", "db", "--", "true"], &[("TENURE_ADDR", &server.addr), ("TENURE_API_KEY", &full)])
            .status
            .success()
    );
    for key in [&full, &read, stranger] {
        support::http::ask(&server, "GET", "/v1/status", &[&format!("authorization: Bearer {key}")], b"");
    }
    let heard = server.words();
    assert!(heard.contains("a request was refused"), "the log tells of what was refused");
    assert!(!heard.contains("tnr_") && !heard.contains(&full[4..]) && !heard.contains(&read[4..]));
    let shown = types(&["config", "show", "--api-keys", &keys, "-o", "json"], &[("TENURE_API_KEY", &full)]);
    let shown = text(&shown.stdout);
    assert!(shown.contains(&keys) && !shown.contains("tnr_") && !shown.contains("sha256"), "{shown}");
}

#[test]
fn certificates_are_made_once_and_keys_are_for_their_owner() {
    let place = Place::new();
    let dir = place.file("pki");
    let mode = |name: &str| std::fs::metadata(place.path("pki").join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("ca.key"), mode("node-1.key"), mode("ca.crt"), mode("node-3.crt")), (0o600, 0o600, 0o644, 0o644));
    let before = std::fs::read(place.path("pki/ca.key")).unwrap();
    is_refused(&types(&["cluster", "pki", "init", "--dir", &dir, "1=127.0.0.1"], &[]), 1, "is there already");
    is_refused(&types(&["cluster", "pki", "add", "--dir", &dir, "4=a", "1=a"], &[]), 1, "node-1.crt is there already");
    assert_eq!(std::fs::read(place.path("pki/ca.key")).unwrap(), before);
    assert!(!place.path("pki/node-4.crt").exists(), "all of it or nothing");
    is_refused(&types(&["cluster", "pki", "add", "--dir", "/nowhere", "4=a"], &[]), 1, "/nowhere/ca.key");
    is_refused(&types(&["cluster", "pki", "init", "--dir", &dir, "4=a:7421"], &[]), 2, "is no node");

    // A node that comes later is believed by whoever believes the authority.
    assert!(types(&["cluster", "pki", "add", "--dir", &dir, "4=leases.example"], &[]).status.success());
    let server = place.serve("pki/node-4", &[]);
    let authority = place.file("pki/ca.crt");
    assert!(types(&["ping"], &[("TENURE_ADDR", &server.addr), ("TENURE_CA_FILE", &authority)]).status.success());
}

#[test]
fn a_server_that_would_be_open_to_all_does_not_start() {
    let place = Place::new();
    place.keys();
    let file = |name: &str| place.file(name);
    let (ca, cert, key, keys) = (file("pki/ca.crt"), file("pki/node-1.crt"), file("pki/node-1.key"), file("keys"));
    let (tls, api_keys) = (["--tls-cert", cert.as_str(), "--tls-key", key.as_str()], ["--api-keys", keys.as_str()]);
    let beyond = ["--listen", "0.0.0.0:0"];
    let among = ["--node-id", "1", "--peers", "1=127.0.0.1:7421"];
    let data = file("data");
    let refused: [(&[&[&str]], i32, &str); 12] = [
        (&[&beyond], 2, "TLS (--tls-cert, --tls-key) and API keys (--api-keys)"),
        (&[&beyond, &tls], 2, "beyond loopback, and that needs API keys (--api-keys)"),
        (&[&beyond, &api_keys], 2, "beyond loopback, and that needs TLS (--tls-cert, --tls-key)"),
        (&[&["--peer-listen", "0.0.0.0:0"]], 2, "peers there need TLS"),
        (&[&beyond, &tls, &api_keys, &["--peer-listen", "0.0.0.0:0"]], 2, "peers there need TLS"),
        (&[&among, &api_keys], 2, "API keys would be in vain"),
        (&[&["--tls-cert", &cert]], 2, "a certificate and its key go together"),
        (&[&["--peer-tls-ca", &ca, "--peer-tls-cert", &cert]], 2, "needs an authority, a certificate and its key"),
        (&[&["--tls-cert", &key, "--tls-key", &key]], 1, "node-1.key: there is no certificate in it"),
        (&[&["--tls-cert", &cert, "--tls-key", &cert]], 1, "node-1.crt: there is no private key in it"),
        (&[&["--tls-cert", &ca, "--tls-key", &key]], 1, "node-1.key: it is not the key of the certificate"),
        (&[&["--api-keys", &key]], 1, "node-1.key, line 1: "),
    ];
    for (flags, code, words) in refused {
        let args = [&["serve", "--log-format", "text", "--data-dir", &data][..], &flags.concat()].concat();
        is_refused(&types(&args, &[]), code, words);
    }
    assert!(!Path::new(&data).join("identity").exists(), "nothing was begun");
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn backup_is_private_and_follows_no_symlink() {
    let place = Place::new();
    let server = place.serve_plain(&[]);
    let victim = place.path("victim");
    std::fs::write(&victim, "kept").unwrap();
    std::os::unix::fs::symlink(&victim, place.path("one.part")).unwrap();
    std::fs::write(place.path("two.part"), "also kept").unwrap();
    for name in ["one.bak", "two.bak"] {
        let taken = server.tenure(&["cluster", "backup", &place.file(name)]);
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        assert_eq!(mode(&place.path(name)), 0o600, "{name}");
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    assert_eq!(std::fs::read_to_string(place.path("two.part")).unwrap(), "also kept");
    let lost = place.file("not/there.bak");
    assert!(!server.tenure(&["cluster", "backup", &lost]).status.success());
    let names = std::fs::read_dir(place.directory.path()).unwrap().map(|item| item.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.starts_with('.')), "no temporary file is left: {names:?}");
}

#[test]
fn data_of_a_server_is_private() {
    let place = Place::new();
    let data = place.path("above/data");
    let server = Server::start(&data);
    assert!(server.tenure(&["acquire", "db", "--ttl", "1h"]).status.success());
    assert_eq!(mode(&data), 0o700);
    for item in std::fs::read_dir(&data).unwrap() {
        let path = item.unwrap().path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
    assert!(!server.words().contains("can be read by other users"), "{}", server.words());
    server.stop();
    std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755)).unwrap();
    let server = Server::start(&data);
    server.until_said("can be read by other users");
    assert_eq!(mode(&data), 0o755, "a directory that exists keeps its mode");
}

#[test]
fn secrets_that_others_can_read_are_warned_of() {
    let place = Place::new();
    let (full, _) = place.keys();
    let files = [place.file("keys"), place.file("pki/node-1.key")];
    let set = |file: &String, mode| std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).unwrap();
    files.iter().for_each(|file| set(file, 0o600));
    let warning = "a file with secrets can be read by other users";
    let server = place.serve("pki/node-1", &["--api-keys", &files[0]]);
    let authority = place.file("pki/ca.crt");
    let env = [("TENURE_ADDR", server.addr.as_str()), ("TENURE_CA_FILE", &authority), ("TENURE_API_KEY", &full)];
    // It serves after it has said what is to be said.
    assert!(types(&["ls"], &env).status.success());
    assert!(!server.words().contains(warning), "{}", server.words());
    server.stop();
    for file in &files {
        set(file, 0o644);
        let server = place.serve("pki/node-1", &["--api-keys", &files[0]]);
        server.until_said(&format!("{warning}; close it with chmod go-rwx file={file}"));
        server.stop();
        set(file, 0o600);
    }
}

#[test]
fn api_key_is_not_sent_in_the_clear() {
    // 0.0.0.0 reaches this listener, but is not a loopback address.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let key = "tnr_secret";
    for addr in [format!("http://0.0.0.0:{port}"), format!("0.0.0.0:{port}")] {
        for args in [&["ping"][..], &["ls"], &["run", "db", "--", "true"]] {
            let refused = types(args, &[("TENURE_ADDR", &addr), ("TENURE_API_KEY", key)]);
            is_refused(&refused, 2, "the API key is not sent to");
            let said = text(&refused.stderr);
            assert!(said.contains("https://") && said.contains("127.0.0.1") && !said.contains(key), "{said}");
        }
    }
    let doctor = types(&["doctor"], &[("TENURE_ADDR", &format!("http://0.0.0.0:{port}")), ("TENURE_API_KEY", key)]);
    assert!(text(&doctor.stdout).contains("the API key is not sent to"), "{}", text(&doctor.stdout));
    assert!(listener.accept().is_err(), "no connection was made");
    let server = Server::start(&Place::new().path("data"));
    let local = server.addr.replace("127.0.0.1", "localhost");
    let pong = types(&["ping"], &[("TENURE_ADDR", &local), ("TENURE_API_KEY", key)]);
    assert!(pong.status.success(), "loopback needs no TLS: {}", text(&pong.stderr));
}

#[test]
fn changes_are_in_the_audit_log_and_reads_are_not() {
    let place = Place::new();
    let (full, read) = place.keys();
    let (log, rotated) = (place.path("audit"), place.path("audit.1"));
    let server = place.serve_plain(&["--api-keys", &place.file("keys"), "--audit-log", &place.file("audit")]);
    let code =
        |args: &[&str], key: &str| types(args, &[("TENURE_ADDR", &server.addr), ("TENURE_API_KEY", key)]).status.code();
    let lines = |path: &Path| -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(code(&["acquire", "db", "--ttl", "60s"], &full), Some(0));
    assert_eq!((code(&["show", "db"], &full), code(&["ls"], &read)), (Some(0), Some(0)));
    assert_eq!(code(&["acquire", "other"], &read), Some(77));
    assert_eq!(code(&["key", "put", "a", "a-value"], &full), Some(0));
    tenure_testkit::until_so("three lines", || lines(&log).len() == 3);
    let told = lines(&log);
    let facts = |line: &serde_json::Value| (line["key"].clone(), line["code"].clone(), line["peer"].clone());
    assert_eq!(facts(&told[0]), ("ann".into(), "ok".into(), "127.0.0.1".into()), "{told:?}");
    assert_eq!((&told[0]["call"], &told[0]["names"][0]), (&"acquire".into(), &"db".into()), "{told:?}");
    assert!(told[0]["lease"].is_string() && told[0]["wall_ms"].is_u64(), "{told:?}");
    assert_eq!(facts(&told[1]), ("bob".into(), "denied".into(), "127.0.0.1".into()), "{told:?}");
    assert_eq!((&told[2]["call"], &told[2]["names"][0]), (&"put".into(), &"a".into()), "{told:?}");
    // A backup changes nothing and has everything in it, so the log names who took one, and who was refused one.
    assert_eq!(code(&["cluster", "backup", &place.file("taken")], &full), Some(0));
    assert_eq!(code(&["cluster", "backup", &place.file("refused")], &read), Some(77));
    tenure_testkit::until_so("a line for each of the backups", || lines(&log).len() == 5);
    let told = lines(&log);
    assert_eq!(facts(&told[3]), ("ann".into(), "ok".into(), "127.0.0.1".into()), "{told:?}");
    assert_eq!(told[3]["call"], "backup", "{told:?}");
    assert_eq!(facts(&told[4]), ("bob".into(), "denied".into(), "127.0.0.1".into()), "{told:?}");
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);

    std::fs::rename(&log, &rotated).unwrap();
    server.signal("HUP");
    // The file is opened again beside the requests.
    tenure_testkit::until_so("a new file", || {
        assert_eq!(code(&["key", "put", "b", "a-value"], &full), Some(0));
        !lines(&log).is_empty()
    });
    let text = std::fs::read_to_string(&log).unwrap() + &std::fs::read_to_string(&rotated).unwrap();
    assert!(!text.contains("a-value") && !text.contains(&full), "neither values nor secrets: {text}");
}
