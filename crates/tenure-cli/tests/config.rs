//! Settings as operators meet them: a file that can be written, shown and checked, and who wins when two say something.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::{Server, binary, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Types a command in a home of its own, so that no file of this machine is found.
fn types(home: &Path, environment: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(args).env("HOME", home).env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    command.envs(environment.iter().copied()).output().unwrap()
}

/// The value of a setting and where it comes from.
fn shown(output: &Output, key: &str) -> (String, String) {
    let all: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let item = all["items"].as_array().unwrap().iter().find(|item| item["key"] == key).unwrap().clone();
    let word = |name: &str| item[name].as_str().unwrap().to_owned();
    (word("value"), word("from"))
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(".config/tenure/tenure.toml");
    let path = file.to_str().unwrap();
    let show = ["config", "show", "-o", "json"];
    let nothing = types(home.path(), &[], &show);
    assert_eq!(shown(&nothing, "listen"), ("127.0.0.1:7420".into(), "default".into()));
    let state = home.path().join(".local/state/tenure");
    assert_eq!(
        shown(&nothing, "otlp_endpoint"),
        (String::new(), "default".into()),
        "no traces unless somebody says so"
    );
    assert_eq!(shown(&nothing, "data_dir"), (state.to_str().unwrap().into(), "default".into()));

    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let said = "listen = \"127.0.0.1:1\"\nlog = \"error\"\nhosts = [\"a.local\", \"b.local\"]\ninsecure = true\n\
                otlp_endpoint = \"http://a.local:4317\"\notlp_ratio = 0.5\n";
    std::fs::write(&file, said).unwrap();
    let found = types(home.path(), &[], &show);
    assert_eq!(shown(&found, "listen"), ("127.0.0.1:1".into(), path.into()));
    assert_eq!(shown(&found, "hosts"), ("a.local,b.local".into(), path.into()));
    assert_eq!(shown(&found, "insecure"), ("true".into(), path.into()));
    assert_eq!(shown(&found, "otlp_endpoint"), ("http://a.local:4317".into(), path.into()));
    assert_eq!(shown(&found, "otlp_ratio"), ("0.5".into(), path.into()));

    let environment = [
        ("TENURE_LISTEN", "127.0.0.1:2"),
        ("TENURE_HOSTS", "c.local"),
        ("TENURE_INSECURE", "no"),
        ("TENURE_OTLP_ENDPOINT", "http://b.local:4317"),
        ("TENURE_OTLP_RATIO", "0.25"),
    ];
    let told = types(home.path(), &environment, &show);
    assert_eq!(shown(&told, "listen"), ("127.0.0.1:2".into(), "environment, TENURE_LISTEN".into()));
    assert_eq!(shown(&told, "hosts"), ("c.local".into(), "environment, TENURE_HOSTS".into()));
    assert_eq!(shown(&told, "insecure"), ("false".into(), "environment, TENURE_INSECURE".into()));
    let by_environment = ("http://b.local:4317".into(), "environment, TENURE_OTLP_ENDPOINT".into());
    assert_eq!(shown(&told, "otlp_endpoint"), by_environment);
    assert_eq!(shown(&told, "otlp_ratio"), ("0.25".into(), "environment, TENURE_OTLP_RATIO".into()));
    assert_eq!(shown(&told, "log"), ("error".into(), path.into()), "what it does not say stays");

    let flags = ["config", "show", "-o", "json", "--listen", "127.0.0.1:3", "--host", "d.local", "--host", "e.local"];
    let typed = types(home.path(), &environment, &flags);
    assert_eq!(shown(&typed, "listen"), ("127.0.0.1:3".into(), "flag".into()));
    assert_eq!(shown(&typed, "hosts"), ("d.local,e.local".into(), "flag".into()));
    let table = text(&types(home.path(), &environment, &["config", "show"]).stdout);
    assert!(table.lines().any(|line| line.starts_with("log_format") && line.ends_with("default")), "{table}");
}

#[test]
fn a_file_is_made_once_checked_and_never_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("new/tenure.toml");
    let path = file.to_str().unwrap();
    assert!(types(home.path(), &[], &["config", "init", "--write", path]).status.success());
    let printed = text(&types(home.path(), &[], &["config", "init"]).stdout);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), printed);
    assert!(types(home.path(), &[], &["config", "check", path]).status.success());
    std::fs::write(&file, "insecure = false").unwrap();
    let again = types(home.path(), &[], &["config", "init", "--write", path]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("Nothing was changed."), "{}", text(&again.stderr));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "insecure = false");
}

#[test]
fn what_cannot_be_used_is_refused_with_its_place_by_check_and_by_serve() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tenure.toml");
    let path = file.to_str().unwrap();
    let cases = [
        ("\nlogg = \"info\"\n", "line 2, column 1: unknown field `logg`", "Did you mean `log`?"),
        ("listen = \"0.0.0.0:7420\"", "0.0.0.0:7420 is beyond loopback", "--insecure"),
        ("log = \"tenure=loud\"", "tenure=loud is no filter", "--log"),
        ("hosts = [\"a b\"]", "\"a b\" is no host name", "leases.local"),
        ("probe_allow = [\"10.0.0.1\"]", "\"10.0.0.1\" is no network", "--probe-allow"),
        ("connections_per_address = 0", "expected a nonzero usize", "try again"),
        ("otlp_endpoint = \"collector\"", "\"collector\" is no address of an OTLP collector", "http://127.0.0.1:4317"),
        ("otlp_endpoint = \"https://a.local\"", "asks for TLS", "http://127.0.0.1:4317"),
        ("otlp_endpoint = \"http://a:b@c.local\"", "has a name or password in it", "http://127.0.0.1:4317"),
        ("otlp_ratio = 1.5", "1.5 is no share of the requests", "--otlp-ratio"),
        ("otlp_ratio = nan", "NaN is no share of the requests", "--otlp-ratio"),
    ];
    for (said, why, next) in cases {
        std::fs::write(&file, said).unwrap();
        // It is no directory, so a server that were not refused would end, too.
        let data = path;
        for args in [vec!["config", "check", path], vec!["serve", "--config", path, "--data-dir", data]] {
            let refused = types(home.path(), &[], &args);
            let words = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{args:?}: {words}");
            assert!(words.contains(why) && words.contains(next), "{args:?}: {words}");
        }
    }
    let missing = types(home.path(), &[], &["config", "check", "/nowhere/tenure.toml"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn a_server_runs_by_its_file() {
    let home = tempfile::tempdir().unwrap();
    let (file, data) = (home.path().join("tenure.toml"), home.path().join("data"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    std::fs::write(&file, format!("listen = \"{address}\"\ndata_dir = \"{}\"\n", data.display())).unwrap();
    let server = Server::start_with(&["--config", file.to_str().unwrap()]);
    assert_eq!(server.addr, format!("http://{address}"));
    assert!(server.tenure(&["ping"]).status.success());
    assert!(data.join("identity").exists(), "the data is where the file says");
}
