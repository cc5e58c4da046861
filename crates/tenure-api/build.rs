//! Turns the .proto files into Rust with cargo alone: no protoc is needed on the machine.

use prost::Message;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["tenure/v1/tenure.proto"], ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("tenure_v1.bin"), descriptors.encode_to_vec())?;
    let builder = tonic_prost_build::configure().codec_path("crate::codec::TreatyCodec").btree_map(".");
    builder.compile_fds(descriptors)?;
    Ok(())
}
