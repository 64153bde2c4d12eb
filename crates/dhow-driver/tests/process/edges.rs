//! What a host program is given and what it is not: streams, users, limits, secrets, ports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::spec::{CommandSpec, ServiceSpec, Ulimit};
use dhow_driver::driver::{
    Cause, Driver, ExecRequest, ExecSession, ExitKind, PortBinding, ReplicaStart, ReplicaStatus, Terminal,
    WindowSize,
};
use dhow_driver::logs::{LogFilter, LogLimits, LogPosition, Stream};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::test_host::{Groups, TestHost, name};

crate::tests! {
    surroundings: Groups::Use,
    secrets_stay_off_the_disk: Groups::Use,
    users_and_limits: Groups::Use,
    a_flood_of_output: Groups::Use,
    a_line_without_end: Groups::Use,
    exec_reads_input: Groups::Use,
    a_dropped_exec_is_killed: Groups::Use,
    a_command_has_a_terminal: Groups::Use,
    a_command_hears_that_its_caller_hung_up: Groups::Use,
    ports: Groups::Use,
    errors_name_what_is_wrong: Groups::Use,
    leftovers_of_an_ended_workload: Groups::Without,
    real_time_signals: Groups::Use,
    a_full_disk: Groups::Without,
    nothing_gains_rights: Groups::Use,
}

async fn output(host: &TestHost, start: &ReplicaStart) -> Vec<String> {
    let driver = host.driver();
    driver.start(start).await.unwrap();
    driver.wait(&start.name).await.unwrap();
    let lines = driver.logs(&start.name).await.unwrap().tail(1000).await.unwrap();
    lines.into_iter().map(|line| line.text).collect()
}

async fn surroundings(host: Arc<TestHost>) {
    let text = "echo $PORT $PORT_ADMIN; pwd; umask; cat; env | grep -c CARGO; ps -o sid=,pgid= -p $$ | tr -s ' '; \
                echo $$; trap; cat /proc/self/status | grep SigIgn";
    let mut start = host.shell(0, text);
    let port = |endpoint: &str, host_port| PortBinding {
        endpoint: endpoint.into(),
        host_port,
        target_port: 80,
    };
    start.ports = vec![port("http", 8081), port("admin", 8082)];
    let mut spec = (*start.spec).clone();
    spec.command.as_mut().unwrap().workdir = Some(host.dir.display().to_string());
    start.spec = Arc::new(spec);
    let lines = output(&host, &start).await;
    let dir = host.dir.canonicalize().unwrap().display().to_string();
    assert_eq!(lines[..4], ["8081 8082", dir.as_str(), "0022", "0"], "{lines:?}");
    // It leads its session and its group, and ignores nothing but what the C library keeps for itself.
    assert_eq!(lines[4].trim(), format!("{0} {0}", lines[5]), "{lines:?}");
    let ignored = u64::from_str_radix(lines[6].trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored & !0x1_8000_0000, 0, "{}", lines[6]);
}

async fn secrets_stay_off_the_disk(host: Arc<TestHost>) {
    let mut start = host.shell(0, "echo \"$KEY\" | tr a-z A-Z; exec sleep 100000");
    start.secret_env = BTreeMap::from([("KEY".to_owned(), "very-secret-value".to_owned())]);
    let driver = host.driver();
    driver.start(&start).await.unwrap();
    let logs = driver.logs(&name(0)).await.unwrap();
    let page = logs
        .follow(LogPosition::default(), LogFilter::default())
        .next_page()
        .await
        .unwrap();
    assert_eq!(page.lines[0].text, "VERY-SECRET-VALUE");
    let mut folders = vec![host.dir.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                let bytes = std::fs::read(entry.path()).unwrap();
                assert!(
                    !String::from_utf8_lossy(&bytes).contains("very-secret"),
                    "{}",
                    entry.path().display()
                );
            }
        }
    }
}

async fn users_and_limits(host: Arc<TestHost>) {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let mut start = host.shell(0, "id -u; id -g; ulimit -n; ulimit -Hn");
    let mut spec = (*start.spec).clone();
    spec.user = Some("12345:23456".into());
    spec.ulimits = BTreeMap::from([("nofile".to_owned(), Ulimit { soft: 77, hard: 88 })]);
    start.spec = Arc::new(spec);
    assert_eq!(output(&host, &start).await, ["12345", "23456", "77", "88"]);
    // A hard limit above the host's own is cut and said, where it cannot be raised.
    let mut spec = (*start.spec).clone();
    spec.ulimits = BTreeMap::from([(
        "nofile".to_owned(),
        Ulimit {
            soft: 77,
            hard: u64::MAX,
        },
    )]);
    let start = ReplicaStart::new(name(1), Arc::new(spec));
    match host.driver().start(&start).await {
        Ok(running) => assert!(
            running
                .notices
                .iter()
                .all(|notice| notice.contains("nofile is cut")),
            "{running:?}"
        ),
        Err(error) => assert!(
            matches!(*error.cause, Cause::Unsupported { field: "ulimits", .. }),
            "{error}"
        ),
    }
}

/// More than pipe, buffers and files hold: the workload ends, the newest lines are kept in order.
async fn a_flood_of_output(host: Arc<TestHost>) {
    let mut start = host.shell(0, "seq 1 200000");
    start.log = LogLimits {
        file_max_bytes: 100_000,
        files_max: 3,
    };
    let driver = host.driver();
    driver.start(&start).await.unwrap();
    assert_eq!(driver.wait(&name(0)).await.unwrap().kind, ExitKind::Code(0));
    let logs = driver.logs(&name(0)).await.unwrap();
    let (mut position, mut numbers) = (LogPosition::default(), Vec::new());
    loop {
        let page = logs.page(position, &LogFilter::default()).await.unwrap();
        numbers.extend(page.lines.iter().map(|line| line.text.parse::<u32>().unwrap()));
        position = page.next;
        if page.at_end {
            break;
        }
    }
    assert_eq!(*numbers.last().unwrap(), 200_000);
    assert!(numbers.len() > 5000, "{}", numbers.len());
    assert!(
        numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "a line is missing or out of order"
    );
}

async fn a_line_without_end(host: Arc<TestHost>) {
    let driver = host.driver();
    driver
        .start(&host.shell(0, "printf 'your name? '; exec sleep 100000"))
        .await
        .unwrap();
    let logs = driver.logs(&name(0)).await.unwrap();
    let mut follow = logs.follow(LogPosition::default(), LogFilter::default());
    let page = follow.next_page().await.unwrap();
    assert_eq!(
        (page.lines[0].text.as_str(), page.lines[0].partial),
        ("your name? ", true)
    );
}

async fn exec_reads_input(host: Arc<TestHost>) {
    let driver = host.driver();
    driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    let mut request = ExecRequest::new(["tr", "a-z", "A-Z"]);
    request.stdin = true;
    let mut session = driver.exec(&name(0), request).await.unwrap();
    let stdin = session.stdin.take().unwrap();
    stdin.send(b"hello ".to_vec()).await.unwrap();
    stdin.send(b"there\n".to_vec()).await.unwrap();
    drop(stdin);
    let done = session
        .finish(1000, Duration::from_secs(30))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(done.stdout, b"HELLO THERE\n");
    // More output than is wanted is cut and said.
    let session = driver
        .exec(&name(0), ExecRequest::new(["seq", "100000"]))
        .await
        .unwrap();
    let done = session
        .finish(1000, Duration::from_secs(30))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (done.stdout.len(), done.truncated, done.exit.kind),
        (1000, true, ExitKind::Code(0))
    );
}

async fn a_dropped_exec_is_killed(host: Arc<TestHost>) {
    let driver = host.driver();
    driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    let before = host.processes();
    let request = ExecRequest::new([
        "sh",
        "-c",
        "trap '' TERM; setsid sleep 100000 & echo on; sleep 100000",
    ]);
    let mut session = driver.exec(&name(0), request).await.unwrap();
    let chunk = session.output.recv().await.unwrap();
    assert_eq!(
        (chunk.stream, chunk.bytes.as_slice()),
        (Stream::Stdout, &b"on\n"[..])
    );
    assert!(host.processes().len() > before.len());
    drop(session);
    while host.processes() != before {
        tokio::task::yield_now().await;
    }
    assert!(matches!(
        driver.inspect(&name(0)).await.unwrap(),
        ReplicaStatus::Running(_)
    ));
}

/// All that comes until a text has come.
async fn read_until(session: &mut ExecSession, text: &str) -> String {
    let mut said = String::new();
    while !said.contains(text) {
        let chunk = session.output.recv().await;
        let chunk = chunk.unwrap_or_else(|| panic!("no `{text}` in {said:?}"));
        said.push_str(&String::from_utf8_lossy(&chunk.bytes));
    }
    said
}

fn at_terminal(script: &str, size: WindowSize) -> ExecRequest {
    let mut request = ExecRequest::new(["sh", "-c", script]);
    request.stdin = true;
    request.hangs_up = true;
    request.terminal = Some(Terminal {
        term: "xterm-test".into(),
        size,
    });
    request
}

async fn a_command_has_a_terminal(host: Arc<TestHost>) {
    let driver = host.driver();
    driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    let script = "trap 'stty size' WINCH; trap 'exit 9' INT; echo $TERM; stty size; \
                  test -t 0 && test -t 1 && test -t 2 && echo up; while :; do sleep 0.05; done";
    let size = WindowSize { rows: 30, cols: 100 };
    let mut session = driver.exec(&name(0), at_terminal(script, size)).await.unwrap();
    let said = read_until(&mut session, "up\r\n").await;
    assert_eq!(said, "xterm-test\r\n30 100\r\nup\r\n");
    let resize = session.resize.as_ref().unwrap();
    resize.send_replace(WindowSize { rows: 50, cols: 120 });
    read_until(&mut session, "50 120\r\n").await;
    // The key, not the signal: the terminal makes one of it.
    session
        .stdin
        .as_ref()
        .unwrap()
        .send(b"\x03".to_vec())
        .await
        .unwrap();
    while session.output.recv().await.is_some() {}
    assert_eq!(session.exit.await.unwrap().unwrap().kind, ExitKind::Code(9));
}

async fn a_command_hears_that_its_caller_hung_up(host: Arc<TestHost>) {
    let driver = host.driver();
    driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    let before = host.processes();
    let heard = host.dir.join("heard");
    for has_terminal in [true, false] {
        // One hears it, another one does not want to, and has a child beside it that it does not wait for.
        let script = format!(
            "(trap '' HUP; sh -c 'sleep 100000 & sleep 100000') & trap 'echo hup > {}; exit' HUP; echo up; \
             while :; do sleep 0.05; done",
            heard.display()
        );
        let mut request = at_terminal(&script, WindowSize { rows: 24, cols: 80 });
        request.terminal = request.terminal.filter(|_| has_terminal);
        let mut session = driver.exec(&name(0), request).await.unwrap();
        read_until(&mut session, "up").await;
        drop(session);
        while host.processes() != before {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            std::fs::read_to_string(&heard).unwrap(),
            "hup\n",
            "{has_terminal}"
        );
        std::fs::remove_file(&heard).unwrap();
    }
}

async fn ports(host: Arc<TestHost>) {
    let driver = host.driver();
    driver.start(&host.shell(0, "exec sleep 100000")).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let replica = name(0);
    let (connected, _) = tokio::join!(driver.connect(&replica, port), listener.accept());
    drop(connected.unwrap());
    drop(listener);
    let error = driver.connect(&name(0), port).await.unwrap_err();
    assert!(
        matches!(*error.cause, Cause::Port { port: found, .. } if found == port),
        "{error}"
    );
}

async fn errors_name_what_is_wrong(host: Arc<TestHost>) {
    let driver = host.driver();
    let script = host.dir.join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let plain = host.dir.join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let fails = async |command: &[&str], change: &(dyn Fn(&mut ServiceSpec) + Sync)| {
        let mut spec = host.spec(command);
        change(&mut spec);
        driver
            .start(&ReplicaStart::new(name(0), Arc::new(spec)))
            .await
            .unwrap_err()
    };
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = fails(&[script.to_str().unwrap()], &|_| {}).await;
    assert!(
        matches!(*error.cause, Cause::InterpreterMissing { .. }),
        "{error}"
    );
    let error = fails(&[plain.to_str().unwrap()], &|_| {}).await;
    assert!(matches!(*error.cause, Cause::ProgramRefused { .. }), "{error}");
    let error = fails(&["/no/such/file"], &|_| {}).await;
    assert_eq!(
        error.to_string(),
        "starting shop/web-default-0: the program `/no/such/file` does not exist"
    );
    let error = fails(&[], &|spec| spec.command = Some(CommandSpec::default())).await;
    assert!(matches!(*error.cause, Cause::NoCommand), "{error}");
    let error = fails(&["true"], &|spec| spec.user = Some("no-such-user".into())).await;
    assert!(error.to_string().contains("no-such-user"), "{error}");
    let error = fails(&["true"], &|spec| spec.privileged = true).await;
    assert!(error.to_string().contains("`privileged`"), "{error}");
    let error = fails(&["true", "a\0b"], &|_| {}).await;
    assert!(matches!(*error.cause, Cause::Shim(_)), "{error}");
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

/// Without a group, what an ended workload leaves is found because the shim inherits it.
async fn leftovers_of_an_ended_workload(host: Arc<TestHost>) {
    let driver = host.driver();
    let text = "sleep 100000 & (setsid sh -c 'trap \"\" HUP; sleep 100000; sleep 100000' > /dev/null 2>&1 &); exit 6";
    driver.start(&host.shell(0, text)).await.unwrap();
    assert_eq!(driver.wait(&name(0)).await.unwrap().kind, ExitKind::Code(6));
    let processes: Vec<String> = host
        .leftovers()
        .into_iter()
        .filter(|text| text.starts_with("process"))
        .collect();
    // The shim itself may take a moment more to end.
    let processes: Vec<&String> = processes.iter().filter(|text| text.contains("sleep")).collect();
    assert!(processes.is_empty(), "{processes:?}");
}

async fn real_time_signals(host: Arc<TestHost>) {
    let driver = host.driver();
    let running = driver
        .start(&host.shell(0, "echo ready; kill -40 $$; sleep 100000"))
        .await
        .unwrap();
    assert_eq!(driver.wait(&name(0)).await.unwrap().kind, ExitKind::Signal(40));
    assert!(kill(Pid::from_raw(i32::try_from(running.pid).unwrap()), None::<Signal>).is_err());
}

/// The workload ends although its log cannot take what it writes, its exit is known, and the loss is told.
async fn a_full_disk(host: Arc<TestHost>) {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let run = host.dir.join("run");
    let driver = host.driver();
    mount(
        Some("tmpfs"),
        &run,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("size=256k"),
    )
    .unwrap();
    let mut start = host.shell(0, "seq 1 100000; sleep 0; echo end");
    // Larger than the disk: rotation never makes room.
    start.log = LogLimits {
        file_max_bytes: 10 << 20,
        files_max: 2,
    };
    let result = async {
        driver.start(&start).await?;
        let exit = driver.wait(&name(0)).await?;
        let tail = driver.logs(&name(0)).await?.tail(1000).await.unwrap();
        driver.remove(&name(0)).await?;
        Ok::<_, dhow_driver::driver::DriverError>((exit, tail))
    }
    .await;
    umount2(&run, MntFlags::MNT_DETACH).unwrap();
    let (exit, tail) = result.unwrap();
    assert_eq!(exit.kind, ExitKind::Code(0));
    assert!(
        !tail.is_empty() && tail.iter().all(|line| line.text != "100000"),
        "the disk was not full"
    );
}

/// A spec from before there was the field keeps what it had.
async fn nothing_gains_rights(host: Arc<TestHost>) {
    let start = |setting| {
        let text = "grep NoNewPrivs /proc/self/status; echo ping: Operation not permitted; exit 3";
        let mut start = host.shell(0, text);
        let mut spec = (*start.spec).clone();
        spec.no_new_privileges = setting;
        start.spec = Arc::new(spec);
        start
    };
    for (setting, flag) in [(Some(true), "1"), (Some(false), "0"), (None, "0")] {
        let lines = output(&host, &start(setting)).await;
        assert_eq!(lines[0], format!("NoNewPrivs:\t{flag}"), "{setting:?}");
        let hinted = lines
            .iter()
            .any(|line| line.contains("`no_new_privileges: false`"));
        assert_eq!(hinted, setting == Some(true), "{lines:?}");
        host.driver().remove(&name(0)).await.unwrap();
    }
}
