//! What a hundred replicas cost. Figures are printed; only the memory of a shim has a limit.

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dhow_driver::driver::{Driver, StopRequest, StopSignal};
use tokio::task::JoinSet;

use crate::killed::state;
use crate::test_host::{Groups, TestHost, name};

crate::tests! {
    a_hundred_shims: Groups::Use,
    a_hundred_shims_without_groups: Groups::Without,
}

const COUNT: u32 = 100;
/// Proportional: pages that all shims share count once in total.
const SHIM_MAX_KIB: u64 = 512;

async fn measure(host: Arc<TestHost>) {
    let driver = Arc::new(host.driver());
    // The zygote is made by the first start; that is not what is measured.
    driver.start(&host.shell(COUNT, "exit 0")).await.unwrap();
    let plain = plain_starts();
    let zygote = host.shim.zygote().unwrap().unwrap().pid;
    let (own_before, zygote_before) = (cpu_us(std::process::id()), cpu_us(zygote));
    let begun = Instant::now();
    let mut starts = JoinSet::new();
    for index in 0..COUNT {
        let (driver, start) = (driver.clone(), host.shell(index, "exec sleep 100000"));
        starts.spawn(async move { driver.start(&start).await.map(drop) });
    }
    starts.join_all().await.into_iter().for_each(Result::unwrap);
    let started = begun.elapsed();
    let shims: u64 = (0..COUNT).map(|index| cpu_us(state(&host, index).shim.pid)).sum();
    let (own, zygote) = (
        cpu_us(std::process::id()) - own_before,
        cpu_us(zygote) - zygote_before,
    );
    println!(
        "CPU of a start: daemon {} µs, zygote {} µs, shim {} µs",
        own / u64::from(COUNT),
        zygote / u64::from(COUNT),
        shims / u64::from(COUNT)
    );
    let pss: Vec<u64> = (0..COUNT)
        .map(|index| pss_kib(state(&host, index).shim.pid))
        .collect();
    let (mean, most) = (
        pss.iter().sum::<u64>() / u64::from(COUNT),
        pss.iter().max().copied().unwrap(),
    );
    let begun = Instant::now();
    let mut stops = JoinSet::new();
    for index in 0..COUNT {
        let driver = driver.clone();
        let how = StopRequest {
            signal: StopSignal::TERM,
            grace: Duration::from_secs(30),
        };
        stops.spawn(async move {
            driver.stop(&name(index), how).await.unwrap();
            driver.remove(&name(index)).await.unwrap();
        });
    }
    stops.join_all().await;
    let stopped = begun.elapsed();
    let per_second = |took: Duration| f64::from(COUNT) / took.as_secs_f64();
    println!(
        "{COUNT} replicas: {:.0} starts/s (plain fork and exec {:.0}/s), {:.0} stops and removals/s, \
         PSS of a shim {mean} KiB (most {most} KiB)",
        per_second(started),
        per_second(plain),
        per_second(stopped)
    );
    assert!(most <= SHIM_MAX_KIB, "a shim takes {most} KiB");
}

/// The same number of the same programs without any supervision: what the host can do at this moment.
fn plain_starts() -> Duration {
    let begun = Instant::now();
    let sleeps = (0..COUNT).map(|_| {
        Command::new("/bin/sh")
            .args(["-c", "exec sleep 100000"])
            .spawn()
            .unwrap()
    });
    let sleeps: Vec<Child> = sleeps.collect();
    let took = begun.elapsed();
    for mut sleep in sleeps {
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
    took
}

/// Time on a CPU so far, of all threads.
fn cpu_us(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let texts = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    texts
        .map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap() / 1000)
        .sum()
}

fn pss_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

async fn a_hundred_shims(host: Arc<TestHost>) {
    measure(host).await;
}

async fn a_hundred_shims_without_groups(host: Arc<TestHost>) {
    measure(host).await;
}
