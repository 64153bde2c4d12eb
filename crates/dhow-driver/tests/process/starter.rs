//! A workload that another command brings to life, as a container runtime does.

use std::sync::Arc;

use dhow_driver::driver::{Exit, ExitKind, ReplicaStart, StartRecord};
use dhow_driver::logs::{LogLimits, LogSource, Stream};
use dhow_driver::shim::protocol::{Program, SetUp, ShimSpec, Shown, Step, Workload};
use dhow_driver::shim::{ReplicaDirs, ShimError, StartLock};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::test_host::{Groups, TestHost, name};

crate::tests! {
    starter_leaves_a_workload: Groups::Use,
    nothing_starts_whose_mounts_show_something_else: Groups::Use,
    starter_that_fails_is_quoted: Groups::Use,
    a_mount_is_hidden_from_one_workload: Groups::Without,
}

fn shell(host: &TestHost, text: &str) -> Program {
    Program {
        argv: vec!["/bin/sh".into(), "-c".into(), text.into()],
        env: vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("TEST_HOST".into(), host.dir.display().to_string()),
        ],
        ..Program::default()
    }
}

fn locked(host: &TestHost) -> (ReplicaDirs, StartLock, ReplicaStart) {
    let dirs = ReplicaDirs::open(&host.dir.join("run")).unwrap();
    let start = host.shell(0, "unused");
    let lock = dirs.lock_for_start(&start.name).unwrap();
    dirs.write_spec(&lock, &StartRecord::from(&start)).unwrap();
    (dirs, lock, start)
}

fn spec(lock: &StartLock, workload: Workload, after: Vec<Program>) -> ShimSpec {
    ShimSpec {
        dir: lock.dir.clone(),
        log: LogLimits::default(),
        workload,
        group: None,
        after,
    }
}

async fn starter_leaves_a_workload(host: Arc<TestHost>) {
    let (dirs, lock, _) = locked(&host);
    let pid_file = lock.dir.join("pid");
    let go = lock.dir.join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let gone = host.dir.join("deleted");
    // `create` leaves an orphan that waits for `start`, and says which it is.
    let create = format!(
        "(read line < {go}; echo \"it got $line\"; exit 9) & echo $! > {pid}; echo created",
        go = go.display(),
        pid = pid_file.display()
    );
    let start = shell(&host, &format!("echo started > {}", go.display()));
    let delete = shell(&host, &format!("echo deleted > {}", gone.display()));
    let workload = Workload::Starter {
        create: shell(&host, &create),
        pid_file: pid_file.clone(),
        start: Some(Box::new(start)),
        init: None,
        shown: Vec::new(),
    };
    let process = host
        .shim
        .supervise(spec(&lock, workload, vec![delete]), &lock)
        .await
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(&pid_file).unwrap().trim(),
        process.pid.to_string()
    );
    let exit: Exit = dirs.wait(&name(0)).await.unwrap();
    assert_eq!(exit.kind, ExitKind::Code(9));
    assert_eq!(std::fs::read_to_string(gone).unwrap(), "deleted\n");
    let lines = LogSource::Files(dirs.log_dir(&name(0))).tail(10).await.unwrap();
    let mut texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["created", "it got started"]);
}

/// Whoever makes a source lead elsewhere before it is mounted wins nothing.
async fn nothing_starts_whose_mounts_show_something_else(host: Arc<TestHost>) {
    use std::os::unix::fs::MetadataExt;
    let (folder, other) = (host.dir.join("mounted"), host.dir.join("other"));
    for made in [&folder, &other] {
        std::fs::create_dir(made).unwrap();
    }
    let ran = host.dir.join("ran");
    let attempt = async |expected: &std::path::Path| {
        let (_, lock, _) = locked(&host);
        let pid_file = lock.dir.join("pid");
        let create = format!("sleep 100000 & echo $! > {}", pid_file.display());
        let found = std::fs::metadata(expected).unwrap();
        let workload = Workload::Starter {
            create: shell(&host, &create),
            pid_file,
            start: Some(Box::new(shell(&host, &format!("touch {}", ran.display())))),
            init: None,
            shown: vec![Shown {
                target: folder.display().to_string(),
                source: "/srv/link".into(),
                device: found.dev(),
                inode: found.ino(),
            }],
        };
        let spec = spec(&lock, workload, Vec::new());
        host.shim.supervise(spec, &lock).await
    };
    let error = attempt(&other).await.unwrap_err();
    let ShimError::Refused(failure) = error else {
        panic!("{error:?}")
    };
    assert_eq!(failure.step, Step::SetUp);
    assert!(failure.detail.contains("/srv/link led elsewhere"), "{failure:?}");
    assert!(!ran.exists(), "nothing of it has run");
    let process = attempt(&folder).await.unwrap();
    assert!(ran.exists());
    kill(
        Pid::from_raw(i32::try_from(process.pid).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    let dirs = ReplicaDirs::open(&host.dir.join("run")).unwrap();
    let exit: Exit = dirs.wait(&name(0)).await.unwrap();
    assert_eq!(exit.kind, ExitKind::Signal(9));
}

async fn starter_that_fails_is_quoted(host: Arc<TestHost>) {
    let (dirs, lock, _) = locked(&host);
    // It fails with an orphan left behind, which must not stay.
    let create = shell(&host, "sleep 100000 & echo 'no such image' >&2; exit 1");
    let workload = Workload::Starter {
        create,
        pid_file: lock.dir.join("pid"),
        start: None,
        init: None,
        shown: Vec::new(),
    };
    let error = host
        .shim
        .supervise(spec(&lock, workload, Vec::new()), &lock)
        .await
        .unwrap_err();
    let ShimError::Refused(failure) = error else {
        panic!("{error:?}")
    };
    assert_eq!(failure.step, Step::Starter);
    assert!(failure.detail.contains("no such image"), "{failure:?}");
    drop(lock);
    let lines = LogSource::Files(dirs.log_dir(&name(0))).tail(10).await.unwrap();
    assert!(
        lines
            .iter()
            .any(|line| line.stream == Stream::Stderr && line.text == "no such image")
    );
    dirs.remove(&name(0), None).await.unwrap();
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

/// What a workload does to its mounts before its start is seen by nobody else.
async fn a_mount_is_hidden_from_one_workload(host: Arc<TestHost>) {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (dirs, lock, _) = locked(&host);
    let point = host.dir.join("mounted");
    std::fs::create_dir(&point).unwrap();
    mount(
        Some("tmpfs"),
        &point,
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    std::fs::write(point.join("inside"), "").unwrap();
    let mut list = shell(&host, &format!("ls {} | wc -l", point.display()));
    list.set_up = vec![SetUp::PrivateMounts, SetUp::Unmount { path: point.clone() }];
    let spec = spec(&lock, Workload::Program(list), Vec::new());
    let started = host.shim.supervise(spec, &lock).await;
    let exit = dirs.wait(&name(0)).await;
    let still_here = point.join("inside").exists();
    umount2(&point, MntFlags::MNT_DETACH).unwrap();
    started.unwrap();
    assert_eq!(exit.unwrap().kind, ExitKind::Code(0));
    let lines = LogSource::Files(dirs.log_dir(&name(0))).tail(10).await.unwrap();
    assert_eq!(lines[0].text, "0");
    assert!(still_here);
}
