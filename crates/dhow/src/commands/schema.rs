//! `dhow schema`: the JSON Schema of a deployment file.

use crate::exit::Exit;
use crate::output;

/// Print the JSON Schema of a deployment file, by which editors complete and check
///
/// With the YAML language server: `dhow schema > dhow.schema.json`, and `# yaml-language-server: $schema=dhow.schema.json` as
/// the first line of the file.
#[derive(clap::Args)]
pub struct Args {}

pub fn run() -> anyhow::Result<Exit> {
    output::json(&dhow_wire::deployment::schema())?;
    Ok(Exit::Done)
}
