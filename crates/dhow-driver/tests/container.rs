//! The container driver with real containers: busybox images built here, the runtimes that are installed,
//! a bridge and control groups of each test's own.
//!
//! One binary in three roles, as for the process driver. It needs root and a runtime and says loudly when it
//! has to skip.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends where it stands")]

#[path = "image/builder.rs"]
#[expect(dead_code, reason = "shared with the tests of images")]
mod builder;
#[path = "container/conformance.rs"]
mod conformance;
#[path = "container/features.rs"]
mod features;
#[path = "container/forged.rs"]
mod forged;
#[path = "container/killed.rs"]
mod killed;
#[path = "container/mistakes.rs"]
mod mistakes;
#[path = "container/network.rs"]
mod network;
#[path = "process/runner.rs"]
mod runner;
#[path = "container/services.rs"]
mod services;
#[path = "container/test_host.rs"]
#[expect(dead_code, reason = "shared with the measurement")]
mod test_host;

use std::process::ExitCode;

use dhow_driver::shim::zygote;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("shim-zygote") => std::process::exit(zygote::main(args)),
        Some("daemon") => killed::main(args),
        Some(_) | None => match test_host::why_skip() {
            Some(why) => {
                println!("SKIPPED: {why}");
                ExitCode::SUCCESS
            }
            None => runner::main(&[
                features::TESTS,
                network::TESTS,
                services::TESTS,
                forged::TESTS,
                mistakes::TESTS,
                killed::TESTS,
                conformance::TESTS,
            ]),
        },
    }
}
