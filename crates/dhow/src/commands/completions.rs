//! `dhow completions SHELL`: the script that lets a shell complete this command line.

use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::Exit;
use crate::output;

/// Print a completion script for a shell
///
/// For bash: `dhow completions bash > /etc/bash_completion.d/dhow`
#[derive(clap::Args)]
pub struct Args {
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::offered(), "dhow", &mut script);
    output::raw_stdout(&script)?;
    Ok(Exit::Done)
}
