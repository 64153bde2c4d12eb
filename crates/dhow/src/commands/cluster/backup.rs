//! `dhow cluster backup`: the whole state in one file.

use std::path::PathBuf;

use anyhow::Context;
use dhow_wire::backup::read_backup;

use crate::client::{Client, Request};
use crate::exit::Exit;
use crate::output;

/// Write the whole state of the cluster into a file
///
/// Secrets are sealed in it: to restore, the cluster's key is needed as well.
#[derive(clap::Args)]
pub struct Args {
    /// The file; it must not exist yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub async fn run(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let bytes = client.fetch_bytes(Request::get(&["cluster", "backup"])).await?;
    let state = read_backup(&bytes).context("what the daemon sent is no backup")?;
    let path = args.file.display();
    let written = dhow_disk::create(&args.file, &bytes);
    written.with_context(|| format!("{path} cannot be written"))?;
    output::note(&format!(
        "{path}: {} bytes, revision {}; deployments: {}, nodes: {}",
        bytes.len(),
        state.revision,
        state.deployments.len(),
        state.nodes.len()
    ));
    Ok(Exit::Done)
}
