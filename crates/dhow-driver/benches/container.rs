//! How much the driver adds to what a container costs anyway: replicas started and stopped through the driver,
//! against a bare loop that only mounts the overlay, makes the network devices and calls the same runtime with
//! the same configuration, with as many at a time.
//!
//! `cargo bench -p dhow-driver --bench container [-- COUNT AT_A_TIME]`, as root. Prints both times and their
//! ratio.

#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot go on ends where it stands"
)]

#[path = "container/bare.rs"]
mod bare;
#[path = "../tests/image/builder.rs"]
#[expect(dead_code, reason = "shared with the tests of images")]
mod builder;
#[path = "../src/container/network/mac.rs"]
mod mac;
#[path = "../src/container/network/namespace.rs"]
#[expect(
    dead_code,
    reason = "the driver's own code, of which the bare loop needs a part"
)]
mod namespace;
#[path = "../src/container/network/netlink.rs"]
#[expect(
    dead_code,
    reason = "the driver's own code, of which the bare loop needs a part"
)]
mod netlink;
#[path = "../tests/container/test_host.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod test_host;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dhow_driver::container::Subnet;
use dhow_driver::driver::{Driver, ReplicaStart, StopRequest, error_chain};
use dhow_driver::shim::zygote;
use futures_util::StreamExt;
use futures_util::stream;

use test_host::{Groups, TestHost, name};

/// Each is measured this often, in turns; the median counts.
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if args.first().is_some_and(|word| word == "shim-zygote") {
        std::process::exit(zygote::main(std::env::args_os().skip(2)));
    }
    if let Some(why) = test_host::why_skip() {
        println!("SKIPPED: {why}");
        return ExitCode::SUCCESS;
    }
    let number = |at: usize, usual: u32| args.get(at).map_or(usual, |text| text.parse().unwrap());
    let (count, at_a_time) = (number(0, 100), number(1, 100));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(count, at_a_time));
    ExitCode::SUCCESS
}

async fn measure(count: u32, at_a_time: u32) {
    let host = Arc::new(TestHost::new(Groups::Any));
    let bare = bare::Bare::learn(&host).await;
    println!(
        "{count} replicas, {at_a_time} at a time, by {}",
        bare.runtime().display()
    );
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let found = [
            through_driver(&host, count, at_a_time).await,
            bare.run(count, at_a_time),
        ]
        .concat();
        times.iter_mut().zip(found).for_each(|(all, one)| all.push(one));
    }
    let [start, stop, bare_start, bare_stop] = times.map(median);
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    println!("          driver     bare       ratio");
    for (what, ours, theirs) in [
        ("start", start, bare_start),
        ("stop", stop, bare_stop),
        ("both", start + stop, bare_start + bare_stop),
    ] {
        println!(
            "{what:6} {ours:>10.1?} {theirs:>10.1?} {:>9.2}",
            ratio(ours, theirs)
        );
    }
    println!("{:.0} starts a second", f64::from(count) / start.as_secs_f64());
    let left = host.clear().await;
    assert!(left.is_empty(), "{left:?}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

async fn through_driver(host: &Arc<TestHost>, count: u32, at_a_time: u32) -> Vec<Duration> {
    let driver = host.driver();
    let spec = Arc::new(host.spec(&["sleep", "100000"]));
    let at_a_time = usize::try_from(at_a_time).unwrap();
    // The first start finds the runtime and makes the bridge; a daemon does that once.
    assert!(driver.probe().await.available);
    let began = Instant::now();
    let starts = stream::iter(0..count).map(|index| {
        let (driver, spec) = (driver.clone(), spec.clone());
        tokio::spawn(async move {
            let start = ReplicaStart::new(name(index), spec);
            driver
                .start(&start)
                .await
                .map_err(|error| error_chain(&error))
                .unwrap();
        })
    });
    starts
        .buffer_unordered(at_a_time)
        .for_each(|done| async { done.unwrap() })
        .await;
    let started = began.elapsed();
    let began = Instant::now();
    let stops = stream::iter(0..count).map(|index| {
        let driver = driver.clone();
        tokio::spawn(async move {
            driver.stop(&name(index), StopRequest::kill()).await.unwrap();
            driver.remove(&name(index)).await.unwrap();
        })
    });
    stops
        .buffer_unordered(at_a_time)
        .for_each(|done| async { done.unwrap() })
        .await;
    vec![started, began.elapsed()]
}
