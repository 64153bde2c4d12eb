//! Makes the Rust types of the nodes' and the holders' protocols from their descriptions, without any program outside of Cargo.

use std::error::Error;

const PROTOS: [&str; 2] = ["proto/dhow/v1/nodes.proto", "proto/dhow/v1/holders.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(PROTOS, ["proto"])?;
    // Specs are the same for many nodes: their bytes are shared, not copied.
    tonic_prost_build::configure()
        .bytes(".dhow.v1.RoleAssignment.spec_json")
        .bytes(".dhow.v1.NextSettings.spec_json")
        .codec_path("crate::grpc::sparing_codec::SparingCodec")
        .compile_fds(files)?;
    Ok(())
}
