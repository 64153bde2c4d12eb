//! A run folder that was wiped, emptied or moved under its replicas: what nobody can ask for any more is stopped, what
//! is somebody's is left alone, and nothing writes into a folder that is not its own.

use std::path::PathBuf;
use std::sync::Arc;

use dhow_driver::driver::{Cause, Driver, ExitKind, ReplicaStatus};
use dhow_driver::shim::strays;

use crate::killed::state;
use crate::test_host::{Groups, TestHost, name};

crate::tests! {
    wiped_is_stopped_and_runs_again: Groups::Use,
    wiped_is_found_among_the_shims: Groups::Use,
    emptied_is_stopped_by_the_next_start: Groups::Use,
    moved_is_left_alone_and_comes_back: Groups::Use,
    wiped_is_found_without_groups_too: Groups::Without,
}

const RUNS: &str = "echo ready; exec sleep 100000";

fn folder(host: &TestHost) -> PathBuf {
    host.dir.join("run/shop.web.default.0.g1")
}

/// Whether the host has the groups that all of this is found by.
fn has_groups(host: &TestHost) -> bool {
    if !host.cgroups.is_usable() {
        println!("    left out: no control groups here");
    }
    host.cgroups.is_usable()
}

/// It ends with its own code: nobody wrote another one into its folder.
async fn runs_to_its_own_end(host: &TestHost) {
    let driver = host.driver();
    driver.start(&host.shell(0, "exit 3")).await.unwrap();
    assert_eq!(driver.wait(&name(0)).await.unwrap().kind, ExitKind::Code(3));
    driver.remove(&name(0)).await.unwrap();
}

async fn wiped_is_stopped_and_runs_again(host: Arc<TestHost>) {
    if !has_groups(&host) {
        return;
    }
    host.driver().start(&host.shell(0, RUNS)).await.unwrap();
    host.until_ready(0).await;
    let before = state(&host, 0);
    std::fs::remove_dir_all(host.dir.join("run")).unwrap();
    drop(host.driver());
    assert!(!before.workload.lives() && !before.shim.lives());
    assert_eq!(host.leftovers(), Vec::<String>::new());
    runs_to_its_own_end(&host).await;
}

async fn wiped_is_found_among_the_shims(host: Arc<TestHost>) {
    if !has_groups(&host) {
        return;
    }
    let driver = host.driver();
    driver.start(&host.shell(0, RUNS)).await.unwrap();
    driver.start(&host.shell(1, RUNS)).await.unwrap();
    let (wiped, stays) = (state(&host, 0), state(&host, 1));
    std::fs::remove_dir_all(folder(&host)).unwrap();
    let foreign = strays::sweep(&host.cgroups, &[host.dir.join("run")]);
    assert_eq!(foreign, Vec::new());
    assert!(!wiped.workload.lives() && !wiped.shim.lives());
    assert!(stays.workload.lives() && stays.shim.lives(), "it has its folder");
    let foreign = strays::sweep(&host.cgroups, &[host.dir.join("another")]);
    let foreign: Vec<u32> = foreign.iter().map(|shim| shim.process.pid).collect();
    assert_eq!(foreign, [stays.shim.pid], "told, and left alone");
    assert!(stays.workload.lives());
    driver.remove(&name(1)).await.unwrap();
    runs_to_its_own_end(&host).await;
}

async fn emptied_is_stopped_by_the_next_start(host: Arc<TestHost>) {
    if !has_groups(&host) {
        return;
    }
    host.driver().start(&host.shell(0, RUNS)).await.unwrap();
    host.until_ready(0).await;
    let before = state(&host, 0);
    for entry in std::fs::read_dir(folder(&host)).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    runs_to_its_own_end(&host).await;
    assert!(!before.workload.lives() && !before.shim.lives());
}

async fn moved_is_left_alone_and_comes_back(host: Arc<TestHost>) {
    if !has_groups(&host) {
        return;
    }
    host.driver().start(&host.shell(0, RUNS)).await.unwrap();
    let before = state(&host, 0);
    let (run, moved) = (host.dir.join("run"), host.dir.join("moved"));
    std::fs::rename(&run, &moved).unwrap();
    let driver = host.driver();
    assert!(before.workload.lives() && before.shim.lives());
    let refused = driver.start(&host.shell(0, "exit 3")).await.unwrap_err();
    assert!(
        matches!(&*refused.cause, Cause::RunsElsewhere { pid, folder }
            if *pid == before.shim.pid && folder.starts_with(&moved)),
        "{refused:?}"
    );
    assert!(before.workload.lives());
    std::fs::remove_dir(&run).unwrap();
    std::fs::rename(&moved, &run).unwrap();
    let status = host.driver().inspect(&name(0)).await.unwrap();
    assert!(
        matches!(&status, ReplicaStatus::Running(running) if running.pid == before.workload.pid),
        "{status:?}"
    );
}

async fn wiped_is_found_without_groups_too(host: Arc<TestHost>) {
    let driver = host.driver();
    driver.start(&host.shell(0, RUNS)).await.unwrap();
    driver.start(&host.shell(1, RUNS)).await.unwrap();
    let (wiped, stays) = (state(&host, 0), state(&host, 1));
    std::fs::remove_dir_all(folder(&host)).unwrap();
    let foreign = strays::sweep(&host.cgroups, &[host.dir.join("another")]);
    assert_eq!(foreign, Vec::new());
    assert!(wiped.workload.lives(), "another daemon's");
    let foreign = strays::sweep(&host.cgroups, &[host.dir.join("run")]);
    assert_eq!(foreign, Vec::new());
    assert!(!wiped.workload.lives() && !wiped.shim.lives());
    assert!(stays.workload.lives() && stays.shim.lives(), "it has its folder");
    driver.remove(&name(1)).await.unwrap();
    runs_to_its_own_end(&host).await;
}
