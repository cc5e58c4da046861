//! Turns the compiled messages between nodes and those of Envoy into Rust. `make proto` compiles the .proto files.

use prost::Message;
use prost_types::FileDescriptorSet;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let builder = tonic_prost_build::configure().bytes(".tenure");
    let builder = ["authpb", "etcdserverpb", "mvccpb"].into_iter().fold(builder, |builder, package| {
        builder.extern_path(format!(".{package}"), format!("::tenure_api::etcd::{package}"))
    });
    builder.compile_fds(compiled("proto/peer.bin")?)?;
    // One file for all packages of Envoy: their types refer to each other by module path.
    let builder = tonic_prost_build::configure().btree_map(".").include_file("envoy.rs");
    builder.compile_fds(compiled("proto/envoy.bin")?)?;
    Ok(())
}

fn compiled(path: &str) -> Result<FileDescriptorSet, Box<dyn std::error::Error>> {
    Ok(FileDescriptorSet::decode(&*std::fs::read(path)?)?)
}
