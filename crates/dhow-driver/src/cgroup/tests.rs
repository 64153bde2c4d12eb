//! Detection, limits and figures on made-up hierarchies in a temporary folder.

use std::fs;
use std::path::Path;

use dhow_core::spec::{ByteSize, Cpu, Resources};

use super::*;

const HYBRID: &str = "\
30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /cg/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /cg/sys\\040temd rw,relatime - cgroup cgroup rw,name=systemd
34 30 0:30 /inner /cg/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
35 30 0:28 / /elsewhere rw,relatime - cgroup cgroup rw,memory
";

#[test]
fn mounts_are_read_with_their_controllers_and_our_place() {
    let own = "3:memory:/a/b\n2:cpu,cpuacct:/\n1:name=systemd:/x\n0::/inner/me\n";
    let mounts = Mounts::parse(HYBRID, own);
    let unified = mounts.unified.as_ref().unwrap();
    assert_eq!(
        (unified.mount.as_path(), unified.own.as_path()),
        (Path::new("/cg/unified"), Path::new("me"))
    );
    let memory = &mounts.v1[&Controller::Memory];
    assert_eq!(
        (memory.mount.as_path(), memory.own.as_path()),
        (Path::new("/cg/memory"), Path::new("a/b"))
    );
    assert_eq!(mounts.v1[&Controller::Cpu].mount, Path::new("/cg/cpu"));
    assert_eq!(mounts.v1[&Controller::CpuAccount].mount, Path::new("/cg/cpu"));
    assert_eq!(mounts.v1.len(), 3);
    assert_eq!(Mounts::parse("nonsense\n1 2 - x", ""), Mounts::default());
}

fn mount(path: &Path, kind: &str, options: &str) -> String {
    fs::create_dir_all(path).unwrap();
    format!("1 1 0:1 / {} rw - {kind} {kind} rw,{options}\n", path.display())
}

fn limits() -> Limits {
    Limits::from(&Resources {
        cpu: Some(Cpu(1500)),
        memory: Some(ByteSize(64 << 20)),
        pids: Some(20),
    })
}

#[test]
fn a_version_2_host_gets_its_limits_in_one_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mounts = Mounts::parse(&mount(dir.path(), "cgroup2", ""), "0::/\n");
    // The kernel would answer the switch with the names that are on.
    fs::create_dir(dir.path().join("dhow")).unwrap();
    let host = CgroupHost::from_mounts(&mounts, "dhow");
    assert_eq!(host.layout(), Layout::V2);
    // A plain file keeps what was written last: `+pids`, which is not a name that is on.
    assert!(!host.limits(Controller::Pids));
    assert_eq!(host.missing().len(), 3, "{:?}", host.missing());
    assert_eq!(
        fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap(),
        "+pids"
    );

    let group = Group {
        unified: Some(dir.path().join("dhow/leaf")),
        unified_controllers: vec![Controller::Memory, Controller::Cpu, Controller::Pids],
        v1: Default::default(),
        ..Group::default()
    };
    group.make().unwrap();
    let leaf = dir.path().join("dhow/leaf");
    for file in ["memory.max", "memory.swap.max", "cpu.max", "pids.max"] {
        fs::write(leaf.join(file), "").unwrap();
    }
    limits().apply(&group).unwrap();
    let read = |file: &str| fs::read_to_string(leaf.join(file)).unwrap();
    assert_eq!(read("memory.max"), "67108864");
    assert_eq!(read("memory.swap.max"), "0");
    assert_eq!(read("cpu.max"), "150000 100000");
    assert_eq!(read("pids.max"), "20");

    fs::write(leaf.join("memory.current"), "5000\n").unwrap();
    fs::write(leaf.join("memory.stat"), "anon 1\ninactive_file 2000\n").unwrap();
    fs::write(leaf.join("cpu.stat"), "usage_usec 77\nuser_usec 1\n").unwrap();
    fs::write(leaf.join("cgroup.procs"), "10\n11\n").unwrap();
    fs::write(leaf.join("memory.events"), "oom 3\noom_kill 2\n").unwrap();
    assert_eq!(
        group.usage(),
        Some(Usage {
            cpu_us: 77,
            memory_bytes: 3000,
            processes: 2
        })
    );
    assert_eq!(group.oom_kills(), 2);
}

#[test]
fn a_version_1_host_has_a_folder_per_hierarchy() {
    let dir = tempfile::tempdir().unwrap();
    let text = mount(&dir.path().join("cpu"), "cgroup", "cpu,cpuacct")
        + &mount(&dir.path().join("memory"), "cgroup", "memory")
        + &mount(&dir.path().join("freezer"), "cgroup", "freezer");
    let host = CgroupHost::from_mounts(&Mounts::parse(&text, ""), "dhow");
    assert_eq!(host.layout(), Layout::V1);
    assert!(
        host.limits(Controller::Memory) && host.limits(Controller::Cpu) && !host.limits(Controller::Pids)
    );
    let group = host.group("leaf");
    // Two controllers in one hierarchy are one folder.
    assert_eq!(group.folders().len(), 3);
    group.make().unwrap();
    fs::write(dir.path().join("cpu/dhow/leaf/cpu.cfs_quota_us"), "-1").unwrap();
    fs::write(dir.path().join("memory/dhow/leaf/memory.limit_in_bytes"), "").unwrap();
    limits().apply(&group).unwrap();
    assert_eq!(
        fs::read_to_string(dir.path().join("cpu/dhow/leaf/cpu.cfs_quota_us")).unwrap(),
        "150000"
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("memory/dhow/leaf/memory.limit_in_bytes")).unwrap(),
        "67108864"
    );
    fs::write(
        dir.path().join("memory/dhow/leaf/memory.oom_control"),
        "oom_kill_disable 0\noom_kill 4\n",
    )
    .unwrap();
    fs::write(dir.path().join("cpu/dhow/leaf/cpuacct.usage"), "5000000\n").unwrap();
    fs::write(dir.path().join("memory/dhow/leaf/memory.usage_in_bytes"), "10\n").unwrap();
    assert_eq!(group.oom_kills(), 4);
    assert_eq!(group.usage().unwrap().cpu_us, 5000);
    assert_eq!(host.leaves(), ["leaf"]);
}

#[test]
fn a_limit_that_is_refused_names_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let text = mount(&dir.path().join("memory"), "cgroup", "memory");
    let host = CgroupHost::from_mounts(&Mounts::parse(&text, ""), "dhow");
    // No such file in a plain folder: the kernel would have made it.
    let error = host.create("leaf", &limits()).unwrap_err();
    assert!(error.to_string().contains("memory.limit_in_bytes"), "{error}");
    assert!(!host.group("leaf").exists());
    host.remove_parents().unwrap();
    assert_eq!(fs::read_dir(dir.path().join("memory")).unwrap().count(), 0);
}

#[test]
fn a_host_that_allows_nothing_says_why() {
    let host = CgroupHost::from_mounts(&Mounts::default(), "dhow");
    assert!(!host.is_usable());
    assert_eq!(host.missing(), ["no control groups are mounted"]);
    let gone = "1 1 0:1 / /no/such/mount rw - cgroup2 cgroup2 rw\n";
    let host = CgroupHost::from_mounts(&Mounts::parse(gone, "0::/user\n"), "dhow");
    assert!(!host.is_usable());
    assert!(
        host.missing()[0].contains("/no/such/mount/user/dhow"),
        "{:?}",
        host.missing()
    );
}

#[test]
fn a_parent_is_named_after_its_data_directory_for_ever() {
    assert_eq!(
        CgroupHost::parent_name(Path::new("/var/lib/dhow")),
        "dhow-e65796fcd1ac8eee"
    );
    assert_ne!(
        CgroupHost::parent_name(Path::new("/a")),
        CgroupHost::parent_name(Path::new("/b"))
    );
}
