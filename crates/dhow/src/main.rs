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
mod source_files;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A daemon starts its helpers, and `up --detach` its daemon, by a link whose name says nothing of Dhow.
    let _ = std::fs::write("/proc/self/comm", "dhow");
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        // Before any thread: what it forks shares its memory.
        Some(verb) if verb == "shim-zygote" => std::process::exit(dhow_driver::shim::zygote::main(args)),
        Some(verb) if verb == "proxy" => std::process::exit(dhow_agent::proxy::main(args)),
        Some(verb) if verb == "net-probe" => std::process::exit(dhow_agent::net_probe(args)),
        // Before any thread too: it enters the mounts of a container.
        Some(verb) if verb == dhow_driver::carry::VERB => std::process::exit(dhow_driver::carry::main(args)),
        Some(verb) if verb == commands::complete::WORD => std::process::exit(commands::complete::main(args)),
        Some(_) | None => {}
    }
    let cli = cli::Cli::read();
    commands::run(cli).into()
}
