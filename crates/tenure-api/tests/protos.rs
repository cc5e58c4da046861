//! The compiled .proto files are those of the sources beside them. `make proto` writes them again.

use prost::Message;
use std::path::PathBuf;

/// What is compiled: where to, from which files, in which folders.
const SETS: &[(&str, &[&str], &[&str])] = &[
    ("tenure-api/proto/tenure_v1.bin", &["tenure/v1/tenure.proto"], &["tenure-api/proto"]),
    (
        "tenure-api/proto/etcd.bin",
        &["etcd/rpc.proto", "etcd/v3lock.proto", "etcd/v3election.proto"],
        &["tenure-api/proto"],
    ),
    ("tenure-server/proto/peer.bin", &["tenure/peer/v1/peer.proto"], &["tenure-server/proto"]),
    ("tenure-server/proto/envoy.bin", &["envoy/eds.proto", "envoy/endpoint.proto"], &["tenure-server/proto"]),
];

#[test]
fn compiled_protos_are_those_of_the_sources() {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let write = std::env::var_os("TENURE_WRITE_PROTOS").is_some();
    for (target, files, folders) in SETS {
        let set = protox::compile(files.iter(), folders.iter().map(|folder| crates.join(folder))).unwrap();
        let (target, bytes) = (crates.join(target), set.encode_to_vec());
        if write {
            std::fs::write(&target, &bytes).unwrap();
        }
        assert!(std::fs::read(&target).unwrap() == bytes, "{} is old: run make proto", target.display());
    }
}
