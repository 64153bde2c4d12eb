//! The bare loop: overlay, network, runtime, and nothing else. It keeps no records, reads no output, watches
//! nobody, and takes its configuration from a replica that the driver made.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dhow_driver::driver::{Driver, ReplicaStart};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::Value;

use crate::mac::Mac;
use crate::namespace::{self, Plan, Ways};
use crate::netlink::Netlink;
use crate::test_host::{TestHost, name};

pub struct Bare {
    dir: PathBuf,
    runtime: PathBuf,
    hide_unified: bool,
    config: Value,
    lower: String,
    bridge: u32,
    cgroup_parent: String,
}

impl Bare {
    /// Starts one replica through the driver and takes its configuration as the model.
    pub async fn learn(host: &Arc<TestHost>) -> Self {
        let driver = host.driver();
        let spec = Arc::new(host.spec(&["sleep", "100000"]));
        driver.start(&ReplicaStart::new(name(0), spec)).await.unwrap();
        let bundle = host.bundles().unwrap();
        let bundle = std::fs::read_dir(bundle).unwrap().next().unwrap().unwrap().path();
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(bundle.join("config.json")).unwrap()).unwrap();
        let dir = host.dir.join("bare");
        std::fs::create_dir(&dir).unwrap();
        // The files that name hosts go with the replica.
        for mount in config["mounts"].as_array_mut().unwrap() {
            let source = mount["source"].as_str().unwrap().to_owned();
            if let Ok(file) = Path::new(&source).strip_prefix(&bundle) {
                std::fs::copy(&source, dir.join(file)).unwrap();
                mount["source"] = dir.join(file).display().to_string().into();
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let overlay = mounts
            .lines()
            .find(|line| line.contains(&host.dir.join("run").display().to_string()))
            .unwrap();
        let lower = overlay
            .split(['=', ','])
            .skip_while(|word| !word.starts_with("lowerdir"))
            .nth(1);
        let record: Value =
            serde_json::from_slice(&std::fs::read(host.dir.join("network.json")).unwrap()).unwrap();
        let bridge = Netlink::open()
            .unwrap()
            .find_link(record["name"].as_str().unwrap())
            .unwrap()
            .unwrap();
        let found = Command::new("sh")
            .args(["-c", "command -v crun || command -v runc"])
            .output()
            .unwrap();
        let runtime = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
        driver.remove(&name(0)).await.unwrap();
        Self {
            dir,
            hide_unified: Path::new("/sys/fs/cgroup/unified").exists() && runtime.ends_with("crun"),
            runtime,
            config,
            lower: lower.unwrap().to_owned(),
            bridge,
            cgroup_parent: format!("/{}", host.parent),
        }
    }

    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// The times of starting and of stopping.
    pub fn run(&self, count: u32, at_a_time: u32) -> Vec<Duration> {
        let start = each(count, at_a_time, |index| self.start(index));
        let stop = each(count, at_a_time, |index| self.stop(index));
        vec![start, stop]
    }

    fn start(&self, index: u32) {
        let dir = self.dir.join(index.to_string());
        let folder = |part: &str| {
            let path = dir.join(part);
            std::fs::create_dir_all(&path).unwrap();
            path.display().to_string()
        };
        let (rootfs, upper, work) = (folder("rootfs"), folder("upper"), folder("work"));
        let options = format!("lowerdir={},upperdir={upper},workdir={work}", self.lower);
        mount(
            Some("bare"),
            rootfs.as_str(),
            Some("overlay"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .unwrap();
        let pin = dir.join("netns");
        let octet = |part: u32| u8::try_from(part).unwrap();
        let plan = Plan {
            veth: format!("bare{index}"),
            bridge: self.bridge,
            mac: Mac([2, 0, 0, 0, octet(index / 250), octet(index % 250)]),
            address: [10, 200, octet(index / 250), octet(index % 250 + 2)].into(),
            prefix_length: 16,
            mtu: None,
            ways: Ways::Replica {
                gateway: [10, 200, 0, 1].into(),
                services: None,
            },
        };
        namespace::make(&pin, &plan).unwrap();
        let mut config = self.config.clone();
        config["root"]["path"] = rootfs.into();
        config["linux"]["cgroupsPath"] = format!("{}/bare{index}", self.cgroup_parent).into();
        for namespace in config["linux"]["namespaces"].as_array_mut().unwrap() {
            if namespace["type"] == "network" {
                namespace["path"] = pin.display().to_string().into();
            }
        }
        std::fs::write(dir.join("config.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        let pid_file = dir.join("pid").display().to_string();
        let bundle = dir.display().to_string();
        self.call(&[
            "run",
            "--detach",
            "--bundle",
            &bundle,
            "--pid-file",
            &pid_file,
            &format!("bare{index}"),
        ]);
    }

    fn stop(&self, index: u32) {
        let dir = self.dir.join(index.to_string());
        self.call(&["delete", "--force", &format!("bare{index}")]);
        umount2(&dir.join("rootfs"), MntFlags::MNT_DETACH).unwrap();
        Netlink::open()
            .unwrap()
            .delete_link(&format!("bare{index}"))
            .unwrap();
        namespace::remove(&dir.join("netns")).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }

    fn call(&self, words: &[&str]) {
        let mut command = Command::new(&self.runtime);
        command.arg("--root").arg(self.dir.join("state")).args(words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        if self.hide_unified {
            let hide = || {
                unshare(CloneFlags::CLONE_NEWNS)?;
                let flags = MsFlags::MS_REC | MsFlags::MS_SLAVE;
                mount(None::<&Path>, "/", None::<&Path>, flags, None::<&Path>)?;
                Ok(umount2("/sys/fs/cgroup/unified", MntFlags::MNT_DETACH)?)
            };
            // SAFETY: only system calls, with arguments that need no memory of their own.
            unsafe { command.pre_exec(hide) };
        }
        assert!(command.status().unwrap().success(), "{words:?}");
    }
}

/// Runs work for every number, so many at a time.
fn each(count: u32, at_a_time: u32, work: impl Fn(u32) + Sync) -> Duration {
    let next = AtomicU32::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    work(index);
                }
            });
        }
    });
    began.elapsed()
}
