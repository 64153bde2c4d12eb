//! The verbs of the command line, one file each.

pub mod daemon;
pub mod plan;
pub mod validate;

use crate::cli::{Cli, Command};
use crate::exit::Exit;
use crate::output;

/// Runs one command. What it could not do is said on stderr, with its causes.
pub fn run(cli: Cli) -> Exit {
    let result = match cli.command {
        Command::Validate(args) => validate::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Daemon(args) => daemon::run(&args),
    };
    result.unwrap_or_else(|error| {
        output::error(&error);
        Exit::Failed
    })
}
