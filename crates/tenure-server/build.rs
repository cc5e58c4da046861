//! Turns the compiled messages between nodes and those of Envoy into Rust. `make proto` compiles the .proto files.

use prost::Message;
use prost_types::FileDescriptorSet;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    tonic_prost_build::configure().bytes(".tenure").compile_fds(compiled("proto/peer.bin")?)?;
    // One file for all packages of Envoy: their types refer to each other by module path.
    let builder = tonic_prost_build::configure().btree_map(".").include_file("envoy.rs");
    builder.compile_fds(compiled("proto/envoy.bin")?)?;
    Ok(())
}

fn compiled(path: &str) -> Result<FileDescriptorSet, Box<dyn std::error::Error>> {
    Ok(FileDescriptorSet::decode(&*std::fs::read(path)?)?)
}
