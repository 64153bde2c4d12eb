//! Whatever is killed, replicas go on and exits are known, or it is said why not.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use dhow_driver::driver::{Driver, Exit, ExitKind, ReplicaStatus, StopRequest, StopSignal, UnknownExit};
use dhow_driver::process::{ProcessConfig, ProcessDriver};
use dhow_driver::shim::identity::ProcessId;
use dhow_driver::shim::record::{STATE_FILE, StateRecord, read_record, write_record};
use dhow_driver::shim::zygote;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkfifo};

use crate::daemon::Daemon;
use crate::test_host::{Groups, TestHost, name};

crate::tests! {
    daemon_killed: Groups::Use,
    daemon_killed_without_groups: Groups::Without,
    daemon_killed_while_starting: Groups::Use,
    daemon_killed_while_starting_without_groups: Groups::Without,
    zygote_killed: Groups::Use,
    shim_killed: Groups::Use,
    shim_killed_without_groups: Groups::Without,
    shim_survives_other_signals: Groups::Use,
    started_over_an_orphan: Groups::Without,
    zygote_of_another_build: Groups::Use,
    one_zygote_at_a_time: Groups::Use,
}

const TERM: StopRequest = StopRequest {
    signal: StopSignal::TERM,
    grace: Duration::from_secs(30),
};

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

pub fn state(host: &TestHost, index: u32) -> StateRecord {
    let dir = format!("run/shop.web.default.{index}.g1");
    read_record(&host.dir.join(dir).join(STATE_FILE))
        .unwrap()
        .unwrap()
}

/// Waits for the end of a process that is not a child of this one.
async fn gone(process: ProcessId) {
    while process.lives() {
        tokio::task::yield_now().await;
    }
}

/// What a daemon has started is found by the next one with the same pids; what ended meanwhile has its
/// code; what goes on can be stopped.
async fn kill_daemon(host: Arc<TestHost>) {
    let fifo = host.dir.join("fifo");
    mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let mut daemon = Daemon::launch(&host);
    let runs = daemon.start("echo ready; exec sleep 100000");
    let ends = daemon.start(&format!("echo ready; read line < {}; exit 17", fifo.display()));
    let traps = daemon.start("trap 'exit 4' TERM; echo ready; while :; do sleep 100000 & wait; done");
    assert_eq!(state(&host, 0).workload.pid, runs);
    for index in 0..3 {
        host.until_ready(index).await;
        let state = state(&host, index);
        // Its streams, and what the shell itself has open.
        assert_descriptors(state.workload.pid, 5);
        // Its streams, lock and folder, a signal descriptor, two pipes, the folder of the log and its file, and for a
        // moment the connection.
        assert_descriptors(state.shim.pid, 11);
    }
    daemon.kill();
    // Ends while there is no daemon.
    std::fs::OpenOptions::new()
        .write(true)
        .open(&fifo)
        .unwrap()
        .write_all(b"go\n")
        .unwrap();
    gone(state(&host, 1).shim).await;

    let driver = host.driver();
    let found: Vec<(u32, ReplicaStatus)> = driver
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|(name, status)| (name.index, status))
        .collect();
    let pid = |index: usize| match &found[index].1 {
        ReplicaStatus::Running(running) => running.pid,
        other => panic!("{index}: {other:?}"),
    };
    assert_eq!((pid(0), pid(2)), (runs, traps));
    assert!(
        matches!(&found[1].1, ReplicaStatus::Ended(exit) if exit.kind == ExitKind::Code(17)),
        "{found:?}"
    );
    assert_ne!(ends, runs);
    assert_eq!(driver.stop(&name(2), TERM).await.unwrap().kind, ExitKind::Code(4));
    assert_eq!(
        driver.stop(&name(0), TERM).await.unwrap().kind,
        ExitKind::Signal(15)
    );
    assert_eq!(driver.wait(&name(1)).await.unwrap().kind, ExitKind::Code(17));
}

/// No more descriptors than these, and none of the daemon's.
fn assert_descriptors(pid: u32, most: usize) {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let open: Vec<String> = entries
        .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()))
        .collect();
    assert!(open.len() <= most, "{pid} has {open:?}");
    assert!(
        !open.iter().any(|file| file.contains("passwd")),
        "{pid} has {open:?}"
    );
}

async fn daemon_killed(host: Arc<TestHost>) {
    kill_daemon(host).await;
}

async fn daemon_killed_without_groups(host: Arc<TestHost>) {
    kill_daemon(host).await;
}

/// A daemon killed at any moment of a start leaves a replica that runs and is known, or nothing that a
/// removal does not clear. The pauses only spread the moments.
async fn kill_daemon_while_starting(host: Arc<TestHost>) {
    let rounds = if std::env::var_os("DHOW_TEST_LONG").is_some() {
        300
    } else {
        8
    };
    for round in 0..rounds {
        let mut daemon = Daemon::launch(&host);
        daemon.ask("echo ready; exec sleep 100000");
        std::thread::sleep(Duration::from_micros(round % 25 * 2000));
        daemon.kill();
        let driver = host.driver();
        for (found, _) in driver.list().await.unwrap() {
            let settled = driver.stop(&found, TERM).await.unwrap();
            let expected = [
                ExitKind::Signal(15),
                ExitKind::Unknown(UnknownExit::StartInterrupted),
            ];
            assert!(expected.contains(&settled.kind), "{settled}");
            driver.remove(&found).await.unwrap();
        }
        // A request that was on its way is read, found cut, and given up.
        let quiet = async {
            while !host.leftovers().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), quiet).await;
        assert!(waited.is_ok(), "round {round}: {:?}", host.leftovers());
    }
}

async fn daemon_killed_while_starting(host: Arc<TestHost>) {
    kill_daemon_while_starting(host).await;
}

async fn daemon_killed_while_starting_without_groups(host: Arc<TestHost>) {
    kill_daemon_while_starting(host).await;
}

async fn zygote_killed(host: Arc<TestHost>) {
    let driver = host.driver();
    let first = driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    let zygote = host.shim.zygote().unwrap().unwrap();
    send(zygote.pid, Signal::SIGKILL);
    gone(zygote).await;
    // The replica goes on; the next start makes a new zygote.
    let second = driver.start(&host.shell(1, "exit 3")).await.unwrap();
    assert_ne!(first.pid, second.pid);
    let new = host.shim.zygote().unwrap().unwrap();
    assert_ne!(new, zygote);
    assert_eq!(driver.wait(&name(1)).await.unwrap().kind, ExitKind::Code(3));
    assert_eq!(
        driver.stop(&name(0), TERM).await.unwrap().kind,
        ExitKind::Signal(15)
    );
}

async fn kill_shim(host: Arc<TestHost>) {
    let driver = host.driver();
    driver
        .start(&host.shell(
            0,
            "sleep 100000 & trap '' TERM HUP PIPE; sleep 100000; sleep 100000",
        ))
        .await
        .unwrap();
    let state = state(&host, 0);
    let replica = name(0);
    let wait = driver.wait(&replica);
    send(state.shim.pid, Signal::SIGKILL);
    let unknown = Exit::unknown(UnknownExit::SupervisorKilled);
    assert_eq!(wait.await.unwrap(), unknown);
    assert_eq!(unknown.to_string(), "exit unknown: its supervisor was killed");
    assert!(
        state.workload.lives(),
        "the workload was to go on until it is removed"
    );
    driver.remove(&name(0)).await.unwrap();
    gone(state.workload).await;
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

async fn shim_killed(host: Arc<TestHost>) {
    kill_shim(host).await;
}

async fn shim_killed_without_groups(host: Arc<TestHost>) {
    kill_shim(host).await;
}

async fn shim_survives_other_signals(host: Arc<TestHost>) {
    let driver = host.driver();
    driver
        .start(&host.shell(0, "echo ready; exec sleep 100000"))
        .await
        .unwrap();
    let state = state(&host, 0);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        send(state.shim.pid, signal);
    }
    assert_eq!(
        driver.stop(&name(0), TERM).await.unwrap().kind,
        ExitKind::Signal(15)
    );
}

/// A workload whose supervisor was killed is ended before the same replica runs again.
async fn started_over_an_orphan(host: Arc<TestHost>) {
    let driver = host.driver();
    driver
        .start(&host.shell(0, "trap '' TERM HUP PIPE; sleep 100000; sleep 100000"))
        .await
        .unwrap();
    let before = state(&host, 0);
    send(before.shim.pid, Signal::SIGKILL);
    driver.wait(&name(0)).await.unwrap();
    assert!(before.workload.lives());
    driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    assert!(!before.workload.lives());
    assert_eq!(
        driver.stop(&name(0), TERM).await.unwrap().kind,
        ExitKind::Signal(15)
    );
}

/// A daemon of another build makes a zygote of its own; what the old one started goes on.
async fn zygote_of_another_build(host: Arc<TestHost>) {
    let driver = host.driver();
    driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    let old = host.shim.zygote().unwrap().unwrap();
    let path = host.dir.join("shim").join(zygote::RECORD_FILE);
    let mut record: zygote::ZygoteRecord = read_record(&path).unwrap().unwrap();
    record.build = "another".into();
    write_record(&path, &record).unwrap();

    let shim = Arc::new(TestHost::client(&host.dir, &host.cgroups));
    let (run_dir, cgroups) = (host.dir.join("run"), host.cgroups.clone());
    let upgraded = ProcessDriver::open(ProcessConfig {
        run_dir,
        shim: shim.clone(),
        cgroups,
    })
    .unwrap();
    upgraded.start(&host.shell(1, "exec sleep 100000")).await.unwrap();
    assert!(!old.lives());
    assert_ne!(shim.zygote().unwrap().unwrap(), old);
    for index in 0..2 {
        assert_eq!(
            upgraded.stop(&name(index), TERM).await.unwrap().kind,
            ExitKind::Signal(15)
        );
    }
}

/// Its forks do not take the zygote's lock along, neither by freeing it nor by keeping it.
async fn one_zygote_at_a_time(host: Arc<TestHost>) {
    let driver = host.driver();
    driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    let path = host.dir.join("shim").join(zygote::LOCK_FILE);
    let lock = std::fs::File::open(&path).unwrap();
    assert!(lock.try_lock().is_err(), "a zygote that serves has its lock");
    host.shim.stop_zygote().await.unwrap();
    assert!(lock.try_lock().is_ok(), "a shim has kept the zygote's lock");
}
