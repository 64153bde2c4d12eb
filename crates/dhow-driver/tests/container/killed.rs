//! Whatever is killed, containers go on, and nothing half-made stays.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use dhow_driver::driver::{Driver, ExitKind, ReplicaStart, ReplicaStatus, StopRequest, UnknownExit};
use dhow_driver::shim::record::{STATE_FILE, StateRecord, read_record};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::test_host::{Groups, TestHost, name};

crate::tests! {
    daemon_killed: Groups::Any,
    daemon_killed_while_starting: Groups::Any,
    shim_killed: Groups::Any,
    host_restarted: Groups::Any,
    leftovers_of_nobody: Groups::Any,
    wiped_around_its_mount: Groups::Any,
}

/// How many a daemon starts at a time.
const AT_ONCE: u32 = 8;

/// The daemon's side: `daemon DIR PARENT COUNT` starts that many at once, saying `began` before and the index
/// of each that runs, and waits to be killed.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut text = || args.next().unwrap().into_string().unwrap();
    let (dir, parent, count) = (PathBuf::from(text()), text(), text().parse::<u32>().unwrap());
    let host = TestHost::reopen(dir, &parent);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let driver = host.driver();
        assert!(driver.probe().await.available);
        println!("began");
        std::io::stdout().flush().unwrap();
        let mut starts = tokio::task::JoinSet::new();
        for index in 0..count {
            let (driver, host) = (driver.clone(), host.clone());
            starts.spawn(async move {
                let spec = host.shell("echo ready; exec sleep 100000");
                driver
                    .start(&ReplicaStart::new(name(index), Arc::new(spec)))
                    .await
                    .unwrap();
                println!("{index}");
                std::io::stdout().flush().unwrap();
            });
        }
        starts.join_all().await;
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

/// The test's side. Killed when it is dropped.
struct Daemon {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Daemon {
    fn launch(host: &TestHost, count: u32) -> Self {
        let mut child = Command::new("/proc/self/exe")
            .arg("daemon")
            .arg(&host.dir)
            .args([host.parent.clone(), count.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn state(host: &TestHost, index: u32) -> StateRecord {
    let dir = host.dir.join(format!("run/shop.web.default.{index}.g1"));
    read_record(&dir.join(STATE_FILE)).unwrap().unwrap()
}

async fn daemon_killed(host: Arc<TestHost>) {
    let mut daemon = Daemon::launch(&host, 2);
    while !matches!(daemon.line().as_str(), "began") {}
    let mut started = [daemon.line(), daemon.line()];
    started.sort_unstable();
    assert_eq!(started, ["0", "1"]);
    let before: Vec<u32> = (0..2).map(|index| state(&host, index).workload.pid).collect();
    drop(daemon);
    let driver = host.driver();
    let listed = driver.list().await.unwrap();
    let pids: Vec<u32> = listed
        .iter()
        .map(|(_, status)| match status {
            ReplicaStatus::Running(running) => running.pid,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pids, before);
    assert!(driver.address(&name(1)).await.unwrap().is_some());
    assert_eq!(host.exec(0, &["echo", "still"]).await.stdout, b"still\n");
    let exit = driver.stop(&name(0), StopRequest::kill()).await.unwrap();
    assert_eq!(exit.kind, ExitKind::Signal(9));
}

/// At three moments: before anything runs, when the first does, when half do.
async fn daemon_killed_while_starting(host: Arc<TestHost>) {
    for started in [0, 1, AT_ONCE / 2] {
        let mut daemon = Daemon::launch(&host, AT_ONCE);
        assert_eq!(daemon.line(), "began");
        (0..started).for_each(|_| drop(daemon.line()));
        drop(daemon);
        let driver = host.driver();
        // Shims that were asked go on by themselves.
        while driver
            .list()
            .await
            .unwrap()
            .iter()
            .any(|(_, status)| *status == ReplicaStatus::Starting)
        {
            tokio::task::yield_now().await;
        }
        driver.sweep().await.unwrap();
        let listed = driver.list().await.unwrap();
        assert!(listed.len() >= usize::try_from(started).unwrap());
        for (name, status) in listed {
            assert!(matches!(status, ReplicaStatus::Running(_)), "{name}: {status:?}");
            assert!(driver.address(&name).await.unwrap().is_some());
            driver.remove(&name).await.unwrap();
        }
        assert_eq!(host.leftovers(), Vec::<String>::new());
    }
}

async fn shim_killed(host: Arc<TestHost>) {
    let driver = host.driver();
    let start = ReplicaStart::new(name(0), Arc::new(host.shell("echo ready; exec sleep 100000")));
    driver.start(&start).await.unwrap();
    host.until_ready(0).await;
    let shim = state(&host, 0).shim;
    kill(Pid::from_raw(i32::try_from(shim.pid).unwrap()), Signal::SIGKILL).unwrap();
    let exit = driver.wait(&name(0)).await.unwrap();
    assert_eq!(exit.kind, ExitKind::Unknown(UnknownExit::SupervisorKilled));
    // It is started over what was left, and removed with all of it.
    driver.start(&start).await.unwrap();
    let shim = state(&host, 0).shim;
    kill(Pid::from_raw(i32::try_from(shim.pid).unwrap()), Signal::SIGKILL).unwrap();
    driver.wait(&name(0)).await.unwrap();
    driver.remove(&name(0)).await.unwrap();
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

/// What a folder looks like after a restart of the host: records without mounts, memory or processes.
async fn host_restarted(host: Arc<TestHost>) {
    let driver = host.driver();
    let start = ReplicaStart::new(name(0), Arc::new(host.spec(&["sleep", "100000"])));
    driver.start(&start).await.unwrap();
    let mut record = state(&host, 0);
    driver.stop(&name(0), StopRequest::kill()).await.unwrap();
    let dir = host.dir.join("run/shop.web.default.0.g1");
    record.boot_id = "another".into();
    std::fs::remove_file(dir.join("exit.json")).unwrap();
    dhow_driver::shim::record::write_record(&dir.join(STATE_FILE), &record).unwrap();
    let later = host.driver();
    let ReplicaStatus::Ended(exit) = later.inspect(&name(0)).await.unwrap() else {
        panic!("it does not run");
    };
    assert_eq!(exit.kind, ExitKind::Unknown(UnknownExit::HostRestarted));
    later.start(&start).await.unwrap();
    later.remove(&name(0)).await.unwrap();
}

/// A folder that somebody removed by hand: its container is nobody's, and is cleared.
async fn leftovers_of_nobody(host: Arc<TestHost>) {
    let driver = host.driver();
    let start = |index| ReplicaStart::new(name(index), Arc::new(host.spec(&["sleep", "100000"])));
    driver.start(&start(0)).await.unwrap();
    driver.start(&start(1)).await.unwrap();
    let record = state(&host, 0);
    let dir = host.dir.join("run/shop.web.default.0.g1");
    nix::mount::umount2(&dir.join("rootfs"), nix::mount::MntFlags::MNT_DETACH).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    driver.sweep().await.unwrap();
    while record.shim.lives() {
        tokio::task::yield_now().await;
    }
    let listed = driver.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(matches!(listed[0].1, ReplicaStatus::Running(_)));
    driver.remove(&name(1)).await.unwrap();
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

/// `rm -rf` of the whole folder removes everything but the mount points of what runs.
async fn wiped_around_its_mount(host: Arc<TestHost>) {
    let driver = host.driver();
    let start = |index| ReplicaStart::new(name(index), Arc::new(host.spec(&["sleep", "100000"])));
    driver.start(&start(0)).await.unwrap();
    driver.start(&start(1)).await.unwrap();
    let before = [state(&host, 0), state(&host, 1)];
    let run = host.dir.join("run");
    let removed = Command::new("rm")
        .arg("-rf")
        .arg(&run)
        .stderr(Stdio::null())
        .status();
    assert!(!removed.unwrap().success(), "mounts are busy");
    assert!(run.join("shop.web.default.0.g1/rootfs").exists());
    let later = host.driver();
    assert!(before.iter().all(|record| !record.workload.lives()));
    assert_eq!(later.list().await.unwrap(), Vec::new());
    // The same runs again, on a root of its own.
    later.start(&start(0)).await.unwrap();
    later.remove(&name(0)).await.unwrap();
    assert_eq!(host.leftovers(), Vec::<String>::new());
}
