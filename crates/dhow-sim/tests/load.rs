//! A small fleet of workers against three real servers, through everything that the load generator measures. Only what
//! must hold however slow the machine is counts here.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends where it stands")]

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use dhow_sim::load::{Bar, Options, run};

const WORKERS: usize = 200;

/// The daemon of this very tree, in the form that this test was built in: made where it is not there yet or old.
fn daemon() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let dir = own.parent().and_then(|deps| deps.parent()).unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--package", "dhow", "--bin", "dhow"]);
    cargo.args(["--target-dir".as_ref(), dir.parent().unwrap().as_os_str()]);
    if dir.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "the daemon cannot be built");
    dir.join("dhow")
}

fn small(bars: Vec<Bar>) -> Options {
    Options {
        binary: daemon(),
        generator: env!("CARGO_BIN_EXE_load").into(),
        processes: 3,
        workers: WORKERS,
        bars,
        at_once: WORKERS,
        services: 4,
        steady: Duration::from_secs(3),
        kills: 1,
        // Long enough for it to end its sessions when it goes on.
        pause: Duration::from_secs(8),
        dead: 10,
        one_address: false,
        firewall: false,
    }
}

#[test]
fn a_small_fleet_goes_through_everything() {
    let options = small(Bar::ALL.to_vec());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime.block_on(run(options)).unwrap();
    let untrue = report.untrue();
    assert!(untrue.is_empty(), "{untrue:#?}");
    assert!(report.lines.len() > Bar::ALL.len(), "every bar says something");
}

#[test]
fn nodes_hear_of_the_services_that_they_use_and_of_no_others() {
    let options = small(vec![Bar::Join, Bar::Interest]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime.block_on(run(options)).unwrap();
    let untrue = report.untrue();
    assert!(untrue.is_empty(), "{untrue:#?}");
}
