//! Makes the Rust types of the nodes' protocol from its description, without any program outside of Cargo.

use std::error::Error;

const PROTO: &str = "proto/dhow/v1/nodes.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile([PROTO], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
