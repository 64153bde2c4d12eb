//! What a spec's fields do, seen from inside.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use dhow_core::spec::{ByteSize, CommandSpec, Cpu, Storage, Ulimit};
use dhow_driver::container::{ContainerConfig, ContainerDriver};
use dhow_driver::driver::{Driver, ExecRequest, ExecSession, ExitKind, ReplicaStart, Terminal, WindowSize};
use dhow_driver::logs::Stream;

use crate::builder::{Compression, TestImage, packed, write_layout};
use crate::test_host::{Groups, TestHost, busybox_image, is_installed, name};

crate::tests! {
    exit_code_and_logs: Groups::Any,
    user_and_environment: Groups::Any,
    capabilities_and_privileges: Groups::Any,
    privileged: Groups::Any,
    read_only_root: Groups::Any,
    limits: Groups::Any,
    storage: Groups::Any,
    names_and_hosts: Groups::Any,
    command_and_workdir: Groups::Any,
    devices_and_calls: Groups::Any,
    secrets_reach_no_disk: Groups::Any,
    an_init_is_empty: Groups::Any,
    an_init_of_another_runtime_is_empty: Groups::Named("runc"),
    a_runtime_cannot_be_changed_from_inside: Groups::Any,
    a_command_has_a_terminal: Groups::Any,
    a_command_of_another_runtime_has_a_terminal: Groups::Named("runc"),
    files_that_name_hosts_are_the_replicas_own: Groups::Any,
    only_regular_files_of_an_image_are_opened: Groups::Any,
}

async fn exit_code_and_logs(host: Arc<TestHost>) {
    let driver = host.driver();
    let spec = host.shell("echo to stdout; echo to stderr >&2; exit 42");
    driver
        .start(&ReplicaStart::new(name(0), Arc::new(spec)))
        .await
        .unwrap();
    let exit = driver.wait(&name(0)).await.unwrap();
    assert_eq!(exit.kind, ExitKind::Code(42));
    let lines = driver.logs(&name(0)).await.unwrap().tail(10).await.unwrap();
    let of = |stream| {
        let lines = lines.iter().filter(move |line| line.stream == stream);
        lines.map(|line| line.text.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of(Stream::Stdout), ["to stdout"]);
    assert_eq!(of(Stream::Stderr), ["to stderr"]);
    // What it held is let go when its end is known, and its records stay.
    let left = host.leftovers();
    assert!(
        left.iter()
            .all(|what| what.starts_with("file ") && what.contains("/run/")),
        "{left:?}"
    );
}

async fn user_and_environment(host: Arc<TestHost>) {
    let mut spec = host.shell("id -u; id -g; id -G; echo $HOME $HOSTNAME $EXTRA");
    spec.user = Some("web".into());
    spec.hostname = Some("here".into());
    spec.env.insert("EXTRA".into(), "1".into());
    assert_eq!(
        host.output(spec.clone()).await,
        ["1000", "1000", "1000 77", "/home here 1"]
    );
    spec.user = Some("4242:77".into());
    assert_eq!(host.output(spec).await, ["4242", "77", "77", "/ here 1"]);
}

/// The sets of the first process, as the kernel writes them.
async fn capability_lines(host: &TestHost, spec: dhow_core::spec::ServiceSpec) -> Vec<String> {
    host.output(spec).await
}

async fn capabilities_and_privileges(host: Arc<TestHost>) {
    let show = "grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status";
    let mut spec = host.shell(show);
    let usual = capability_lines(&host, spec.clone()).await;
    assert_eq!(
        usual,
        [
            "CapEff:\t00000000a80425fb",
            "CapBnd:\t00000000a80425fb",
            "NoNewPrivs:\t1",
            "Seccomp:\t2"
        ]
    );
    spec.capabilities.drop = vec!["ALL".into()];
    spec.capabilities.add = vec!["NET_ADMIN".into(), "CAP_CHOWN".into()];
    let changed = capability_lines(&host, spec.clone()).await;
    assert_eq!(changed[0], "CapEff:\t0000000000001001");
    spec.capabilities = Default::default();
    spec.user = Some("web".into());
    assert_eq!(
        capability_lines(&host, spec).await[0],
        "CapEff:\t0000000000000000"
    );
}

async fn privileged(host: Arc<TestHost>) {
    let mut spec = host.shell(
        "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status; mkdir /m; mount -t tmpfs x /m && echo mounted; \
         ls /dev/tty /dev/full",
    );
    spec.privileged = true;
    let seen = host.output(spec).await;
    assert_eq!(
        seen,
        [
            "NoNewPrivs:\t0",
            "Seccomp:\t0",
            "mounted",
            "/dev/full",
            "/dev/tty"
        ]
    );
}

async fn read_only_root(host: Arc<TestHost>) {
    let mut spec =
        host.shell("for file in /x /etc/hosts /etc/hostname /etc/resolv.conf; do touch $file || echo refused; done; touch /tmp/x && echo scratch; ls -d /proc/1 /sys/fs");
    spec.read_only_root_fs = true;
    spec.storage = vec![Storage::Tmpfs {
        target: "/tmp".into(),
        size: Some(ByteSize(1 << 20)),
    }];
    assert_eq!(
        host.output(spec).await,
        [
            "refused", "refused", "refused", "refused", "scratch", "/proc/1", "/sys/fs"
        ]
    );
}

async fn limits(host: Arc<TestHost>) {
    let driver = host.driver();
    let mut spec = host.shell("ulimit -n; ulimit -Hn; echo ready; while :; do sleep 100000 & wait; done");
    spec.resources.memory = Some(ByteSize(64 << 20));
    spec.resources.cpu = Some(Cpu(500));
    spec.resources.pids = Some(50);
    spec.ulimits = BTreeMap::from([
        ("nofile".to_owned(), Ulimit { soft: 100, hard: 200 }),
        (
            "nproc".to_owned(),
            Ulimit {
                soft: 1000,
                hard: 1000,
            },
        ),
    ]);
    let running = driver
        .start(&ReplicaStart::new(name(0), Arc::new(spec)))
        .await
        .unwrap();
    host.until_ready(0).await;
    let lines = driver.logs(&name(0)).await.unwrap().tail(10).await.unwrap();
    assert_eq!((lines[0].text.as_str(), lines[1].text.as_str()), ("100", "200"));
    // The group that it is in has them, whichever version of control groups the host uses.
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", running.pid)).unwrap();
    assert!(groups.contains("/c.web-default-0-"), "{groups}");
    let seen = host
        .exec(
            0,
            &[
                "sh",
                "-c",
                "cat /sys/fs/cgroup/memory/memory.limit_in_bytes || cat /sys/fs/cgroup/memory.max",
            ],
        )
        .await;
    assert_eq!(
        String::from_utf8_lossy(&seen.stdout),
        "67108864\n",
        "{}",
        String::from_utf8_lossy(&seen.stderr)
    );
    let seen = host
        .exec(
            0,
            &[
                "sh",
                "-c",
                "cat /sys/fs/cgroup/pids/pids.max || cat /sys/fs/cgroup/pids.max",
            ],
        )
        .await;
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "50\n");
    let usage = driver.usage(&name(0)).await.unwrap();
    assert!(usage.processes >= 2 && usage.memory_bytes > 0, "{usage:?}");
}

async fn storage(host: Arc<TestHost>) {
    let (bound, volume) = (host.dir.join("bound"), host.dir.join("volume"));
    for dir in [&bound, &volume] {
        std::fs::create_dir(dir).unwrap();
    }
    std::fs::write(bound.join("file"), "of the host\n").unwrap();
    let mut spec = host.shell(
        "cat /bound/file; touch /bound/x || echo refused; echo kept > /home/data && echo written; \
         touch /scratch/x && echo scratch; stat -c %a /scratch",
    );
    spec.user = Some("web".into());
    spec.storage = vec![
        Storage::Bind {
            source: bound.display().to_string(),
            target: "/bound".into(),
            read_only: true,
        },
        Storage::Named {
            name: "data".into(),
            target: "/home".into(),
            read_only: false,
            nocopy: false,
            size: None,
        },
        Storage::Tmpfs {
            target: "/scratch".into(),
            size: None,
        },
    ];
    let mut start = ReplicaStart::new(name(0), Arc::new(spec));
    start.volumes = BTreeMap::from([("data".to_owned(), volume.clone())]);
    let seen = host.output_of(start.clone()).await;
    assert_eq!(seen, ["of the host", "refused", "written", "scratch", "1777"]);
    // An empty volume takes the owner of the folder that it covers, and outlives the replica.
    assert_eq!(std::fs::metadata(&volume).unwrap().uid(), 1000);
    assert_eq!(std::fs::read_to_string(volume.join("data")).unwrap(), "kept\n");
    let mut without = start.clone();
    without.volumes.clear();
    let error = host.driver().start(&without).await.unwrap_err().to_string();
    assert!(error.contains("no volume `data`"), "{error}");
    std::fs::remove_dir_all(&bound).unwrap();
    let error = host.driver().start(&start).await.unwrap_err();
    assert!(
        error.to_string().contains(&bound.display().to_string()),
        "{error}"
    );
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

async fn names_and_hosts(host: Arc<TestHost>) {
    let mut spec = host.shell(
        "hostname; cat /etc/resolv.conf; grep -E 'db|six' /etc/hosts; cat /proc/sys/net/core/somaxconn",
    );
    spec.hostname = Some("named".into());
    spec.dns = vec!["192.0.2.53".into()];
    spec.extra_hosts = vec!["db:192.0.2.9".into(), "six:2001:db8::1".into()];
    spec.sysctls = BTreeMap::from([("net/core/somaxconn".to_owned(), "77".to_owned())]);
    let seen = host.output(spec).await;
    assert_eq!(
        seen,
        [
            "named",
            "nameserver 192.0.2.53",
            "192.0.2.9\tdb",
            "2001:db8::1\tsix",
            "77"
        ]
    );
    assert_eq!(host.output(host.shell("hostname")).await, ["web-default-0"]);
}

async fn command_and_workdir(host: Arc<TestHost>) {
    let mut spec = host.shell("");
    spec.command = Some(CommandSpec {
        entrypoint: Some(vec!["/bin/sh".into(), "-c".into()]),
        args: Some(vec!["echo in $PWD".into()]),
        workdir: Some("/made/here".into()),
    });
    assert_eq!(host.output(spec.clone()).await, ["in /made/here"]);
    // Without words of the spec the image's own are run: a shell without input, which ends.
    spec.command = None;
    assert_eq!(host.output(spec).await, Vec::<String>::new());
}

async fn devices_and_calls(host: Arc<TestHost>) {
    // A node can be made and not opened; a mount is refused; what is granted is there.
    let text = "mknod /tmp/disk b 254 0 && (head -c 1 /tmp/disk > /tmp/read && echo open || echo refused); \
                mount -t tmpfs x /tmp || echo no mounts; ls /dev/given; head -c 4 /dev/given | stat -c %s /dev/null";
    let mut spec = host.shell(text);
    spec.devices = vec!["/dev/zero:/dev/given:r".into()];
    let seen = host.output(spec.clone()).await;
    assert_eq!(seen, ["refused", "no mounts", "/dev/given", "0"]);
    spec.devices = vec!["/dev/no-such-device".into()];
    let error = host
        .driver()
        .start(&ReplicaStart::new(name(0), Arc::new(spec)))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/dev/no-such-device"), "{error}");
}

async fn secrets_reach_no_disk(host: Arc<TestHost>) {
    let driver = host.driver();
    let spec = host.shell("echo ready; while :; do sleep 100000 & wait; done");
    let mut start = ReplicaStart::new(name(0), Arc::new(spec));
    start.secret_env = BTreeMap::from([("KEY".to_owned(), "hidden-from-disks".to_owned())]);
    driver.start(&start).await.unwrap();
    host.until_ready(0).await;
    let found = std::process::Command::new("grep")
        .args(["-rl", "hidden-from-disks", "--exclude-dir=rootfs"])
        .arg(&host.dir)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    let seen = host.exec(0, &["sh", "-c", "echo $KEY"]).await;
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "hidden-from-disks\n");
}

/// Nothing of the host can be reached through it, even by who may look into other processes.
async fn an_init_is_empty(host: Arc<TestHost>) {
    let mut spec = host.shell(
        "cat /proc/1/comm; grep -E 'CapEff|CapPrm|Uid|Seccomp:|NoNewPrivs' /proc/1/status; ls -A /proc/1/root/; \
         ls /proc/1/fd; for kind in pid net ipc uts cgroup mnt; do \
         [ $(stat -L -c %i /proc/1/ns/$kind) = $(stat -L -c %i /proc/self/ns/$kind) ] && echo same || echo other; \
         done; cat /proc/1/net/dev | grep -c eth0; hostname; echo $$; \
         stat -L -c '%a %s' /proc/1/exe; chmod 4755 /proc/1/exe; echo more >> /proc/1/exe; stat -L -c '%a' /proc/1/exe",
    );
    spec.init = true;
    let own = std::env::current_exe().unwrap();
    let before = std::fs::metadata(&own).unwrap().mode();
    spec.capabilities.add = vec!["SYS_PTRACE".into()];
    let seen = host.output(spec).await;
    let expected = [
        "init",
        "Uid:\t65534\t65534\t65534\t65534",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        // Its root has the program that it is.
        "init",
        "same",
        "same",
        "same",
        "same",
        "same",
        // It has no mounts but that folder.
        "other",
        "1",
        "web-default-0",
    ];
    assert_eq!(seen[..15], expected);
    assert_eq!(seen.len(), 18, "{seen:?}");
    assert_ne!(seen[15], "1");
    // The program is a small one of its own, which nobody can change: the host's stays as it was.
    assert!(
        seen[16].starts_with("111 ") && seen[16].len() <= "111 999".len(),
        "{seen:?}"
    );
    assert_eq!(seen[17], "111");
    assert_eq!(std::fs::metadata(&own).unwrap().mode(), before);
}

async fn an_init_of_another_runtime_is_empty(host: Arc<TestHost>) {
    an_init_is_empty(host).await;
}

/// For each command it goes inside, where who may look into other processes finds it. A copy, in case it can.
async fn a_runtime_cannot_be_changed_from_inside(host: Arc<TestHost>) {
    for runtime in ["crun", "runc"] {
        if !is_installed(runtime) {
            continue;
        }
        let copy = host.dir.join(runtime);
        let found = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(|dir| format!("{dir}/{runtime}"));
        let found = found.iter().find(|path| std::fs::exists(path).unwrap());
        std::fs::copy(found.unwrap(), &copy).unwrap();
        let before = std::fs::metadata(&copy).unwrap();
        let driver = ContainerDriver::open(ContainerConfig {
            runtime: Some(copy.display().to_string()),
            ..host.config()
        })
        .unwrap();
        let text = "echo ready; while :; do for each in /proc/[0-9]*; do \
                    chmod 4777 $each/exe; echo more >> $each/exe; done; done 2>/dev/null";
        let mut spec = host.shell(text);
        spec.capabilities.add = vec!["SYS_PTRACE".into()];
        driver
            .start(&ReplicaStart::new(name(0), Arc::new(spec)))
            .await
            .unwrap();
        host.until_ready(0).await;
        for _ in 0..20 {
            let session = driver.exec(&name(0), ExecRequest::new(["true"])).await.unwrap();
            let limit = std::time::Duration::from_secs(30);
            session.finish(1 << 16, limit).await.unwrap().unwrap();
        }
        driver.remove(&name(0)).await.unwrap();
        let after = std::fs::metadata(&copy).unwrap();
        assert_eq!(
            (after.mode(), after.len()),
            (before.mode(), before.len()),
            "{runtime}"
        );
    }
}

async fn a_command_has_a_terminal(host: Arc<TestHost>) {
    let driver = host.driver();
    let spec = host.shell("echo ready; exec sleep 100000");
    let start = ReplicaStart::new(name(0), Arc::new(spec));
    driver.start(&start).await.unwrap();
    host.until_ready(0).await;
    let begin = async |script: &str| {
        let mut request = ExecRequest::new(["sh", "-c", script]);
        request.stdin = true;
        request.hangs_up = true;
        request.terminal = Some(Terminal {
            term: "xterm-test".into(),
            size: WindowSize { rows: 30, cols: 100 },
        });
        driver.exec(&name(0), request).await.unwrap()
    };
    let read_until = async |session: &mut ExecSession, text: &str| {
        let mut said = String::new();
        while !said.contains(text) {
            let chunk = session.output.recv().await;
            let chunk = chunk.unwrap_or_else(|| panic!("no `{text}` in {said:?}"));
            said.push_str(&String::from_utf8_lossy(&chunk.bytes));
        }
        said
    };
    let mut session = begin(
        "trap 'stty size' WINCH; trap 'exit 9' INT; echo $TERM; tty; stty size; echo up; while :; do sleep 0.05; done",
    )
    .await;
    // It is one of the container's own.
    let said = read_until(&mut session, "up\r\n").await;
    assert_eq!(said, "xterm-test\r\n/dev/pts/0\r\n30 100\r\nup\r\n");
    let resize = session.resize.as_ref().unwrap();
    resize.send_replace(WindowSize { rows: 50, cols: 120 });
    read_until(&mut session, "50 120\r\n").await;
    session
        .stdin
        .as_ref()
        .unwrap()
        .send(b"\x03".to_vec())
        .await
        .unwrap();
    while session.output.recv().await.is_some() {}
    assert_eq!(session.exit.await.unwrap().unwrap().kind, ExitKind::Code(9));

    let mut session =
        begin("(trap '' HUP; sleep 31337) & trap 'echo hup > /heard; exit' HUP; echo up; while :; do sleep 0.05; done")
            .await;
    read_until(&mut session, "up").await;
    drop(session);
    // What is left of it is a name without words: the container's program waits for nobody.
    let listed = async || String::from_utf8_lossy(&host.exec(0, &["ps"]).await.stdout).into_owned();
    while listed().await.contains("31337") {}
    assert_eq!(host.exec(0, &["cat", "/heard"]).await.stdout, b"hup\n");
    driver.remove(&name(0)).await.unwrap();
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

async fn a_command_of_another_runtime_has_a_terminal(host: Arc<TestHost>) {
    if is_installed("runc") {
        a_command_has_a_terminal(host).await;
    }
}

/// They lie with the rest of what a replica writes, and not in the memory that all share.
async fn files_that_name_hosts_are_the_replicas_own(host: Arc<TestHost>) {
    let driver = host.driver();
    let spec =
        host.shell("dd if=/dev/zero of=/etc/resolv.conf bs=1024 count=2048; echo ready; exec sleep 100000");
    driver
        .start(&ReplicaStart::new(name(0), Arc::new(spec)))
        .await
        .unwrap();
    host.until_ready(0).await;
    let replica = std::fs::read_dir(host.dir.join("run"))
        .unwrap()
        .flatten()
        .next()
        .unwrap();
    let written = std::fs::metadata(replica.path().join("names/resolv.conf")).unwrap();
    assert_eq!(written.len(), 2 << 20);
    driver.remove(&name(0)).await.unwrap();
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

/// Opening a device may do something by itself.
async fn only_regular_files_of_an_image_are_opened(host: Arc<TestHost>) {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Char);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_device_major(1).unwrap();
    header.set_device_minor(5).unwrap();
    tar.append_data(&mut header, "etc/passwd", &[][..]).unwrap();
    let layer = packed(tar.into_inner().unwrap(), Compression::None);
    let mut image = busybox_image();
    image.layers.push(layer);
    let image = TestImage::new(image.layers);
    write_layout(&host.dir.join("hostile"), &[("latest", &image)]);
    let mut spec = host.shell("true");
    let name_of_it = format!("oci:{}:latest", host.dir.join("hostile").display());
    spec.image = Some(dhow_core::spec::ImageSpec::named(&name_of_it));
    let start = ReplicaStart::new(name(0), Arc::new(spec));
    let error = host.driver().start(&start).await.unwrap_err();
    let text = dhow_driver::driver::error_chain(&error);
    assert!(
        text.contains("/etc/passwd") && text.contains("it is a device, not a regular file"),
        "{text}"
    );
    assert_eq!(host.leftovers(), Vec::<String>::new());
}
