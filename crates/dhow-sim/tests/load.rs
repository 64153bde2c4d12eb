//! A small fleet of workers against three real servers, through everything that the load generator measures. Only what
//! must hold however slow the machine is counts here.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends where it stands")]

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use dhow_sim::load::{Bar, Options, run};

const WORKERS: usize = 200;

/// The daemon of this very tree, in the form that this test was built in. `./test` builds it together with the tests
/// and names it; anybody else's run makes it where it is not there yet or old.
fn daemon() -> PathBuf {
    if let Some(built) = std::env::var_os("DHOW_TEST_DAEMON") {
        return built.into();
    }
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

/// Runs these exercises one after the other against a cluster of their own, and holds what must be true of each.
fn exercise(bars: &[Bar]) {
    let options = Options {
        binary: daemon(),
        generator: env!("CARGO_BIN_EXE_load").into(),
        processes: 3,
        workers: WORKERS,
        bars: bars.to_vec(),
        at_once: WORKERS,
        services: 4,
        steady: Duration::from_secs(3),
        kills: 1,
        // Long enough for it to end its sessions when it goes on.
        pause: Duration::from_secs(8),
        dead: 10,
        one_address: false,
        firewall: false,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime.block_on(run(options)).unwrap();
    let untrue = report.untrue();
    assert!(untrue.is_empty(), "{untrue:#?}");
    assert!(report.lines.len() > bars.len(), "every bar says something");
}

/// Whether the fleet is without some of its servers or workers for good in this exercise, or all of it begins again.
/// Those wait for graces to pass, so that they run beside the others.
fn is_loss(bar: &Bar) -> bool {
    matches!(
        bar,
        Bar::DeadFollower | Bar::Deaths | Bar::Reconnect | Bar::OneUse
    )
}

#[test]
fn a_small_fleet_goes_through_everything_that_heals() {
    let bars: Vec<Bar> = Bar::ALL.into_iter().filter(|bar| !is_loss(bar)).collect();
    exercise(&bars);
}

#[test]
fn a_small_fleet_goes_through_losses() {
    let before = [Bar::Join, Bar::Deploy];
    let losses = Bar::ALL.into_iter().filter(is_loss);
    exercise(&before.into_iter().chain(losses).collect::<Vec<_>>());
}

#[test]
fn nodes_hear_of_the_services_that_they_use_and_of_no_others() {
    exercise(&[Bar::Join, Bar::Interest]);
}
