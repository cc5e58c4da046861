//! Clients of etcd that others wrote work unchanged: etcdctl, and the packages that people use from Python, JavaScript and Rust.
//! Their scripts lie in `etcd/`; `make test` fetches the clients. With `TENURE_SECOND_ETCD=path` the scripts run against
//! a real etcd, which tests the scripts.
#![allow(clippy::unwrap_used, reason = "a test stops where it is surprised")]

use crate::support;
use crate::support::etcd::{Peer, fetched, tool};
use std::path::{Path, PathBuf};
use std::process::Command;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/etcd").join(name)
}

/// Runs a client's script to its last line. A script that hangs is killed, so that the test can show how far it came.
fn works(command: &mut Command, last: &str) {
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=5", "300"]).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.output().unwrap();
    let (said, complained) = (support::text(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim_end().ends_with(last), "{}\n{said}\n{complained}", output.status);
}

#[test]
fn etcdctl_works() {
    let Some(etcdctl) = tool("etcdctl") else { return };
    let peer = Peer::under_test();
    works(Command::new("bash").arg(script("etcdctl.sh")).arg(etcdctl).arg(&peer.endpoint), "etcdctl: done");
}

#[test]
fn the_python_package_etcd3_works() {
    let Some(python) = fetched("etcd-python/bin/python") else { return };
    let peer = Peer::under_test();
    let (host, port) = peer.address().rsplit_once(':').unwrap();
    works(Command::new(python).arg(script("client.py")).args([host, port]), "python etcd3: done");
}

#[test]
fn the_npm_package_etcd3_works() {
    let Some(modules) = fetched("etcd-node/node_modules") else { return };
    let peer = Peer::under_test();
    let mut node = Command::new("node");
    works(node.env("NODE_PATH", modules).arg(script("client.js")).arg(&peer.endpoint), "npm etcd3: done");
}

#[test]
fn the_crate_etcd_client_works() {
    let Some(program) = fetched("etcd-rust/bin/etcd-rust") else { return };
    let peer = Peer::under_test();
    works(Command::new(program).arg(&peer.endpoint), "rust etcd-client: done");
}
