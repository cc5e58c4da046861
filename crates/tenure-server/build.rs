//! Turns the messages between nodes into Rust with cargo alone: no protoc is needed on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=../tenure-api/proto/etcd");
    let descriptors = protox::compile(["tenure/peer/v1/peer.proto"], ["proto", "../tenure-api/proto"])?;
    let builder = tonic_prost_build::configure().bytes(".tenure");
    let builder = ["authpb", "etcdserverpb", "mvccpb"].into_iter().fold(builder, |builder, package| {
        builder.extern_path(format!(".{package}"), format!("::tenure_api::etcd::{package}"))
    });
    builder.compile_fds(descriptors)?;
    Ok(())
}
