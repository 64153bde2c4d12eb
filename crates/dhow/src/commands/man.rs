//! `dhow man DIR`: a manual page for the program and for each verb, made from what `--help` says.

use std::path::PathBuf;

use anyhow::Context;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::output;

/// Write manual pages into a folder
///
/// One page for the program and one for each verb: `dhow.1`, `dhow-deploy.1`, …
#[derive(clap::Args)]
#[command(after_help = "Example:\n  dhow man /usr/local/share/man/man1")]
pub struct Args {
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let dir = args.dir.as_path();
    std::fs::create_dir_all(dir).with_context(|| format!("the folder {} cannot be made", dir.display()))?;
    clap_mangen::generate_to(Cli::offered(), dir)
        .with_context(|| format!("the manual pages cannot be written into {}", dir.display()))?;
    output::note(&format!("wrote the manual pages into {}", dir.display()));
    Ok(Exit::Done)
}
