//! `dhow convert [FILE]`: a compose file as the deployment file that says the same.

use dhow_cli::source_files::FileArgs;
use dhow_compose::{Nodes, write_file};

use crate::exit::Exit;
use crate::{output, source_files};

/// Print the deployment file that says what a compose file says
///
/// No daemon is needed, nothing is changed. What differs from Docker is said on stderr; what cannot be carried out is refused
/// with its place and what to write instead, and exit code 2.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    from: FileArgs,

    /// As for a cluster of several nodes: files that are only read go along as configs
    #[arg(long)]
    cluster: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let nodes = if args.cluster {
        Nodes::Elsewhere
    } else {
        Nodes::Here
    };
    let read = match source_files::read(&args.from, nodes) {
        Ok(read) => read,
        Err(unread) => {
            unread.show();
            return Ok(Exit::BadInput);
        }
    };
    for name in read.secret_names() {
        output::note(&format!(
            "set the secret before you deploy the file: `dhow secret set {name} < FILE`"
        ));
    }
    output::data(&write_file(&read.spec)?)?;
    Ok(Exit::Done)
}
