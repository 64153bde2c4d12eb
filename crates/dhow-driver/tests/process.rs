//! The process driver and its shims with real processes.
//!
//! One binary in three roles: `shim-zygote` (what the product's binary does under that name), `daemon` (a
//! daemon that starts replicas and is then killed), and the tests themselves. Where the host allows, they
//! run with control groups, and always once without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends where it stands")]

#[path = "process/conformance.rs"]
mod conformance;
#[path = "process/daemon.rs"]
mod daemon;
#[path = "process/edges.rs"]
mod edges;
#[path = "process/killed.rs"]
mod killed;
#[path = "process/runner.rs"]
mod runner;
#[path = "process/sizes.rs"]
mod sizes;
#[path = "process/starter.rs"]
mod starter;
#[path = "process/test_host.rs"]
mod test_host;
#[path = "process/wiped.rs"]
mod wiped;

use std::process::ExitCode;

use dhow_driver::shim::zygote;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("shim-zygote") => std::process::exit(zygote::main(args)),
        Some("daemon") => daemon::main(args),
        Some(_) | None => runner::main(&[
            conformance::TESTS,
            killed::TESTS,
            edges::TESTS,
            starter::TESTS,
            wiped::TESTS,
            sizes::TESTS,
        ]),
    }
}
