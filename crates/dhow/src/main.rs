//! The `dhow` binary: one verb per file below `commands`. It parses the command line, calls the libraries and
//! turns their answers into output and an exit code. It decides nothing that another crate could.

mod cli;
mod client;
mod commands;
mod daemon;
mod exit;
mod host;
mod input;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|verb| verb == "shim-zygote") {
        // Before any thread: what it forks shares its memory.
        std::process::exit(dhow_driver::shim::zygote::main(args));
    }
    let cli = cli::Cli::parse();
    commands::run(cli).into()
}
