//! The conformance suite: what every driver must do, told once and run against each.
//!
//! Called by the tests of each driver: they implement [`Subject`] (how to open the driver, and how a replica
//! is made to do each [`Act`]) and assert that [`run`] reports no failure. A case waits for what it expects,
//! never for time to pass, so it is as fast as the driver and works on a paused clock. It must never leave
//! anything behind on a driver that passes.

mod bench;
mod ends;
mod lifecycle;
mod mistakes;
mod output;
mod report;
mod scale;
mod stops;
mod subject;

pub use report::Report;
pub use subject::{Act, ExecAct, Subject};

use bench::{Bench, Case};

/// How long one case may take: a hundred times what it should, for hosts under load. On a paused clock it
/// never passes before the case is done.
const CASE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// Runs every case whose name contains `only` (all with an empty text).
pub async fn run(subject: &dyn Subject, only: &str) -> Report {
    let groups: [&[(&'static str, Case)]; 6] = [
        ends::CASES,
        stops::CASES,
        output::CASES,
        lifecycle::CASES,
        mistakes::CASES,
        scale::CASES,
    ];
    let mut report = Report::default();
    for (name, case) in groups
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.contains(only))
    {
        let bench = Bench::new(subject, name);
        let mut result = match tokio::time::timeout(CASE_TIMEOUT, case(&bench)).await {
            Ok(result) => result,
            Err(_) => Err("it hangs".to_owned()),
        };
        let cleared = bench.clear().await;
        if result.is_ok() {
            result = cleared;
        }
        report.add(name, result);
    }
    let leftovers = subject.leftovers();
    let nothing_left = if leftovers.is_empty() {
        Ok(())
    } else {
        Err(leftovers.join(", "))
    };
    report.add("nothing-is-left", nothing_left);
    report
}
