//! The proxy as a process under a shim: it outlives its daemon, comes back when it is killed, and hands over.
//!
//! One binary in several roles: `shim-zygote` and `proxy` (what the product's binary does under these names),
//! `backend` (a small server to be killed), `daemon` (a daemon to be killed), and the tests themselves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends where it stands")]

#[path = "proxy/backend.rs"]
mod backend;
#[path = "proxy/daemon.rs"]
mod daemon;
#[path = "proxy/held.rs"]
mod held;
#[path = "proxy/lifecycle.rs"]
mod lifecycle;
#[path = "proxy/load.rs"]
mod load;
#[path = "proxy/names.rs"]
mod names;
#[path = "proxy/rights.rs"]
mod rights;
#[path = "proxy/runner.rs"]
mod runner;
#[path = "proxy/test_host.rs"]
mod test_host;
#[path = "proxy/under_load.rs"]
mod under_load;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("shim-zygote") => std::process::exit(dhow_driver::shim::zygote::main(args)),
        Some("proxy") => std::process::exit(dhow_agent::proxy::main(args)),
        Some("backend") => backend::main(args),
        Some("daemon") => daemon::main(args),
        Some(_) | None => runner::main(&[
            lifecycle::TESTS,
            held::TESTS,
            under_load::TESTS,
            rights::TESTS,
            names::TESTS,
        ]),
    }
}
