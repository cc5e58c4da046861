//! Certificates that are replaced while a server runs, and certificates that end.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::wrapped::until;
use crate::support::{Server, binary, text};
use rcgen::{CertificateParams, KeyPair, SanType, date_time_ymd};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure::{Client, v1};

/// A directory with two authorities, `old` and `new`, each with the pair of a node.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        for name in ["old", "new"] {
            let dir = place.file(name);
            let made = types(&["cluster", "pki", "init", "--dir", &dir, "1=127.0.0.1"], &[]);
            assert!(made.status.success(), "{}", text(&made.stderr));
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn put(&self, from: &str, to: &str) {
        std::fs::copy(self.path(from), self.path(to)).unwrap();
    }

    fn serve(&self) -> Server {
        let [data, cert, key] = ["data", "tls.crt", "tls.key"].map(|name| self.file(name));
        let flags = ["--listen", "127.0.0.1:0", "--data-dir", &data, "--tls-cert", &cert, "--tls-key", &key];
        Server::start_with(&flags)
    }

    /// Whether a client that trusts this authority alone can use the server.
    fn speaks(&self, server: &Server, authority: &str) -> bool {
        let authority = self.file(&format!("{authority}/ca.crt"));
        let pinged = types(&["ping"], &[("TENURE_ADDR", &server.addr), ("TENURE_CA_FILE", &authority)]);
        match pinged.status.code() {
            Some(0) => true,
            Some(69) => false,
            _ => panic!("{}", text(&pinged.stderr)),
        }
    }
}

fn types(args: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(binary()).args(args).envs(environment.iter().copied()).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn new_certificates_are_shown_without_a_restart() {
    let place = Place::new();
    place.put("old/node-1.crt", "tls.crt");
    place.put("old/node-1.key", "tls.key");
    let server = place.serve();
    assert_eq!(["old", "new"].map(|authority| place.speaks(&server, authority)), [true, false]);
    let authority = std::fs::read(place.path("old/ca.crt")).unwrap();
    let open = Client::builder().addrs(&server.addr).ca_certificate(authority).connect().await.unwrap();

    // What cannot be used changes nothing, and is named.
    std::fs::write(place.path("tls.crt"), "no certificate").unwrap();
    server.signal("HUP");
    until("the bad file is noticed", || server.words().contains("tls.crt: there is no certificate in it"));
    place.put("new/node-1.crt", "tls.crt");
    server.signal("HUP");
    until("the wrong key is noticed", || server.words().contains("tls.key: it is not the key of the certificate"));
    assert!(server.words().contains("the certificate for clients is as it was: "), "{}", server.words());
    assert_eq!(["old", "new"].map(|authority| place.speaks(&server, authority)), [true, false]);

    // A pair that fits is used for new connections at once, and open connections go on.
    let again = "the certificate was read again; new connections use it";
    place.put("new/node-1.key", "tls.key");
    server.signal("HUP");
    until("the files are read again", || server.words().contains(again));
    assert_eq!(["old", "new"].map(|authority| place.speaks(&server, authority)), [false, true]);
    open.status(v1::StatusRequest {}).await.expect("an open connection goes on");

    // Without a signal it takes a moment longer.
    place.put("old/node-1.crt", "tls.crt");
    place.put("old/node-1.key", "tls.key");
    until("the change is noticed", || server.words().matches(again).count() == 2);
    assert_eq!(["old", "new"].map(|authority| place.speaks(&server, authority)), [true, false]);
    std::fs::remove_file(place.path("tls.key")).unwrap();
    until("the missing file is noticed", || server.words().contains("tls.key: No such file"));
    assert!(place.speaks(&server, "old"));
}

#[test]
fn a_certificate_that_ends_is_announced_in_log_metrics_and_doctor() {
    let place = Place::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let day = 24 * 60 * 60;
    for (ends, verdict, log) in [
        (now + 10 * day + 60, "warn", "the certificate expires in 10 days, on "),
        (now - day, "bad", "the certificate has expired, on "),
        (now + 60 * day, "ok", ""),
    ] {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI("https://example.com/".try_into().unwrap()));
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(ends);
        let key = KeyPair::generate().unwrap();
        std::fs::write(place.path("tls.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(place.path("tls.key"), key.serialize_pem()).unwrap();
        let server = place.serve();
        match log {
            "" => assert!(!server.words().contains("the certificate expires"), "{}", server.words()),
            log => until("the log says so", || server.words().contains(log)),
        }
        let url = format!("{}/metrics", server.addr);
        let metrics = text(&Command::new("curl").args(["-sk", &url]).output().unwrap().stdout);
        let line = format!("tenure_certificate_expiry_timestamp_seconds{{which=\"clients\"}} {ends}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
        let (data, cert) = (place.file("data"), place.file("tls.crt"));
        let examined = types(&["doctor", "-o", "json", "--data-dir", &data], &[("TENURE_TLS_CERT", &cert)]);
        let found: serde_json::Value = serde_json::from_slice(&examined.stdout).unwrap();
        let items = found["items"].as_array().unwrap();
        let item = items.iter().find(|item| item["check"] == "certificate for clients").unwrap();
        assert_eq!(item["verdict"], verdict, "{item}");
        assert!(server.stop().success());
    }
}
