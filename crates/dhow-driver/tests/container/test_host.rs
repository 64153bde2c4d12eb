//! A host for one test: its own folders, zygote, control groups and bridge, a busybox image, and the means to
//! see what is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceName};
use dhow_core::spec::{CommandSpec, ImageSpec, ServiceSpec};
use dhow_driver::cgroup::CgroupHost;
use dhow_driver::container::{BridgeConfig, ContainerConfig, ContainerDriver};
use dhow_driver::driver::{Driver, ExecOutput, ExecRequest, ReplicaStart, error_chain};
use dhow_driver::image::{Images, ImagesOptions};
use dhow_driver::logs::{LogFilter, LogPosition, Stream};
use dhow_driver::shim::{ShimClient, ShimConfig};

use crate::builder::{Compression, TestImage, TestLayer, packed, write_layout};

/// The kind of host that a test wants: which runtime it has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    /// The one that the driver chooses.
    Any,
    Named(&'static str),
}

pub struct TestHost {
    pub dir: PathBuf,
    root: Option<tempfile::TempDir>,
    pub parent: String,
    pub runtime: Option<String>,
    pub cgroups: Arc<CgroupHost>,
    pub shim: Arc<ShimClient>,
    pub images: Images,
}

/// Why nothing can be tested here.
pub fn why_skip() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("containers need root".into());
    }
    if !is_installed("crun") && !is_installed("runc") {
        return Some("neither crun nor runc is installed".into());
    }
    busybox()
        .is_none()
        .then(|| "there is no static busybox (package busybox-static)".into())
}

pub fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .any(|folder| Path::new(folder).join(program).is_file())
}

fn busybox() -> Option<Vec<u8>> {
    ["/bin/busybox", "/usr/bin/busybox"]
        .iter()
        .find_map(|path| std::fs::read(path).ok())
}

/// A small system: busybox under its names, a user, a folder of that user's. No mount points.
fn busybox_layer() -> &'static TestLayer {
    static LAYER: OnceLock<TestLayer> = OnceLock::new();
    LAYER.get_or_init(|| {
        let mut tar = tar::Builder::new(Vec::new());
        let header = |kind, mode, size, uid| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(mode);
            header.set_size(size);
            header.set_uid(uid);
            header.set_gid(uid);
            header.set_mtime(1_000_000_000);
            header
        };
        for (name, mode, uid) in [
            ("bin/", 0o755, 0),
            ("etc/", 0o755, 0),
            ("tmp/", 0o1777, 0),
            ("home/", 0o750, 1000),
        ] {
            let mut header = header(tar::EntryType::Directory, mode, 0, uid);
            tar.append_data(&mut header, name, &[][..]).unwrap();
        }
        let busybox = busybox().unwrap();
        let files: [(&str, &[u8], u32); 4] = [
            ("bin/busybox", &busybox, 0o755),
            (
                "etc/passwd",
                b"root:x:0:0::/root:/bin/sh\nweb:x:1000:1000::/home:/bin/sh\n",
                0o644,
            ),
            ("etc/group", b"root:x:0:\nweb:x:1000:\nlogs:x:77:web\n", 0o644),
            ("etc/plain", b"not a program", 0o644),
        ];
        for (name, bytes, mode) in files {
            let mut header = header(tar::EntryType::Regular, mode, bytes.len() as u64, 0);
            tar.append_data(&mut header, name, bytes).unwrap();
        }
        let applets = [
            "sh", "cat", "echo", "sleep", "true", "false", "id", "ls", "mkdir", "touch", "kill", "setsid",
            "tail", "httpd", "hostname", "grep", "head", "mount", "mknod", "dd", "stat", "wget", "env", "ip",
            "ps", "chown", "timeout", "chmod",
        ];
        for applet in applets {
            let mut header = header(tar::EntryType::Symlink, 0o777, 0, 0);
            tar.append_link(&mut header, format!("bin/{applet}"), "busybox")
                .unwrap();
        }
        packed(tar.into_inner().unwrap(), Compression::None)
    })
}

pub fn busybox_image() -> TestImage {
    TestImage::new(vec![busybox_layer().clone()])
}

impl TestHost {
    pub fn new(kind: Groups) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("data");
        std::fs::create_dir(&dir).unwrap();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let parent = format!("dhow-ctest-{}-{count}", std::process::id());
        write_layout(&dir.join("layout"), &[("latest", &busybox_image())]);
        let runtime = match kind {
            Groups::Any => None,
            Groups::Named(name) => Some(name.to_owned()),
        };
        Self {
            root: Some(root),
            runtime,
            ..Self::on(dir, &parent)
        }
    }

    /// The same host, as another process sees it.
    pub fn reopen(dir: PathBuf, parent: &str) -> Arc<Self> {
        Arc::new(Self::on(dir, parent))
    }

    fn on(dir: PathBuf, parent: &str) -> Self {
        let cgroups = Arc::new(CgroupHost::detect(parent));
        let shim = ShimClient::new(ShimConfig::new(dir.join("shim"), &cgroups)).unwrap();
        let images = Images::open(ImagesOptions::new(dir.join("images"))).unwrap();
        Self {
            dir,
            root: None,
            parent: parent.to_owned(),
            runtime: None,
            cgroups,
            shim: Arc::new(shim),
            images,
        }
    }

    /// The driver as another daemon would open it.
    pub fn driver(&self) -> ContainerDriver {
        ContainerDriver::open(self.config()).unwrap()
    }

    pub fn config(&self) -> ContainerConfig {
        ContainerConfig {
            run_dir: self.dir.join("run"),
            data_dir: self.dir.clone(),
            volatile_dir: None,
            shim: self.shim.clone(),
            cgroups: self.cgroups.clone(),
            images: self.images.clone(),
            network: BridgeConfig::default(),
            runtime: self.runtime.clone(),
        }
    }

    pub fn image(&self) -> ImageSpec {
        ImageSpec::named(&format!("oci:{}:latest", self.dir.join("layout").display()))
    }

    /// A service that runs these words.
    pub fn spec(&self, words: &[&str]) -> ServiceSpec {
        ServiceSpec {
            image: Some(self.image()),
            command: Some(CommandSpec {
                args: Some(words.iter().map(|word| (*word).to_owned()).collect()),
                ..CommandSpec::default()
            }),
            env: BTreeMap::from([("TEST_HOST".to_owned(), self.dir.display().to_string())]),
            ..ServiceSpec::default()
        }
    }

    pub fn shell(&self, text: &str) -> ServiceSpec {
        self.spec(&["/bin/sh", "-c", text])
    }

    /// What a replica of this spec wrote to stdout until its end, a line each.
    pub async fn output(&self, spec: ServiceSpec) -> Vec<String> {
        self.output_of(ReplicaStart::new(name(0), Arc::new(spec))).await
    }

    pub async fn output_of(&self, start: ReplicaStart) -> Vec<String> {
        let driver = self.driver();
        driver
            .start(&start)
            .await
            .map_err(|error| error_chain(&error))
            .unwrap();
        driver.wait(&start.name).await.unwrap();
        let lines = driver.logs(&start.name).await.unwrap().tail(1000).await.unwrap();
        driver.remove(&start.name).await.unwrap();
        let stderr = lines.iter().filter(|line| line.stream != Stream::Stdout);
        stderr.for_each(|line| println!("    {}", line.text));
        let stdout = lines.into_iter().filter(|line| line.stream == Stream::Stdout);
        stdout.map(|line| line.text).collect()
    }

    /// Waits until a replica has written `ready`.
    pub async fn until_ready(&self, index: u32) {
        let logs = self.driver().logs(&name(index)).await.unwrap();
        let mut follow = logs.follow(LogPosition::default(), LogFilter::default());
        while !follow
            .next_page()
            .await
            .unwrap()
            .lines
            .iter()
            .any(|line| line.text == "ready")
        {}
    }

    pub async fn exec(&self, index: u32, words: &[&str]) -> ExecOutput {
        let session = self
            .driver()
            .exec(&name(index), ExecRequest::new(words.iter().copied()))
            .await
            .unwrap();
        session
            .finish(1 << 16, Duration::from_secs(30))
            .await
            .unwrap()
            .unwrap()
    }

    /// What should be gone by now: folders, mounts, groups, devices, processes.
    pub fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        for dir in [self.dir.join("run")].into_iter().chain(self.volatile_dirs()) {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                found.push(format!("file {}", entry.path().display()));
            }
        }
        let groups = self
            .cgroups
            .leaves()
            .into_iter()
            .filter(|leaf| leaf != ShimConfig::GROUP);
        found.extend(groups.map(|leaf| format!("group {leaf}")));
        let own = self.dir.display().to_string();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let volatile = self.volatile().map(|dir| dir.display().to_string());
        let is_own =
            |line: &&str| line.contains(&own) || volatile.as_ref().is_some_and(|dir| line.contains(dir));
        found.extend(mounts.lines().filter(is_own).map(|line| format!("mount {line}")));
        if let Some(prefix) = self.device_prefix() {
            let devices = std::fs::read_dir("/sys/class/net").unwrap().flatten();
            let names = devices.filter_map(|entry| entry.file_name().into_string().ok());
            found.extend(
                names
                    .filter(|name| name.starts_with(&prefix))
                    .map(|name| format!("device {name}")),
            );
        }
        let zygote = self.shim.zygote().unwrap();
        let others = self
            .processes()
            .into_iter()
            .filter(|pid| zygote.is_none_or(|zygote| zygote.pid != *pid));
        found.extend(others.map(|pid| format!("process {pid} {}", command_line(pid))));
        found
    }

    /// Where the driver keeps what is in memory; found by what it says about itself.
    fn volatile(&self) -> Option<PathBuf> {
        let text = self.dir.join("run").display().to_string();
        let hash = fnv(&text);
        let dirs = ["/run", "/dev/shm"]
            .iter()
            .map(|base| Path::new(base).join("dhow").join(format!("{hash:016x}")));
        dirs.into_iter().find(|dir| dir.exists())
    }

    /// Where the runtime's configurations are.
    pub fn bundles(&self) -> Option<PathBuf> {
        self.volatile().map(|dir| dir.join("bundles"))
    }

    fn volatile_dirs(&self) -> Vec<PathBuf> {
        let Some(dir) = self.volatile() else {
            return Vec::new();
        };
        ["bundles", "runtime", "netns", "addresses"]
            .iter()
            .map(|name| dir.join(name))
            .collect()
    }

    /// The name of the bridge, once there is one.
    pub fn bridge(&self) -> Option<String> {
        let bytes = std::fs::read(self.dir.join("network.json")).ok()?;
        let record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        Some(record["name"].as_str().unwrap().to_owned())
    }

    /// How the names of its ports begin.
    pub fn device_prefix(&self) -> Option<String> {
        Some(format!("dh{:06x}.", fnv(&self.bridge()?) & 0xff_ffff))
    }

    /// Everything whose environment or command line names this host's folder.
    pub fn processes(&self) -> Vec<u32> {
        let dir = self.dir.display().to_string();
        let names_it = |pid: u32, file: &str| {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(&dir)
        };
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| *pid != std::process::id())
            .filter(|pid| names_it(*pid, "environ") || names_it(*pid, "cmdline"))
            .collect()
    }

    /// Ends everything that the test has started; gives what should not have been there.
    pub async fn clear(&self) -> Vec<String> {
        let driver = self.driver();
        for (name, _) in driver.list().await.unwrap() {
            driver.remove(&name).await.unwrap();
        }
        self.shim.stop_zygote().await.unwrap();
        let mut left = self.leftovers();
        left.extend(
            driver
                .remove_host_state()
                .await
                .err()
                .map(|error| error_chain(&error)),
        );
        let group = self.cgroups.group(ShimConfig::GROUP);
        let removed = group.remove().and_then(|()| self.cgroups.remove_parents());
        left.extend(removed.err().map(|error| error.to_string()));
        assert!(self.root.is_some(), "only the test that made the host clears it");
        left
    }
}

/// As the driver names its folders and devices.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

pub fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .unwrap_or_default()
        .replace('\0', " ")
}

pub fn name(index: u32) -> ReplicaName {
    ReplicaName {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index,
        generation: Generation(1),
    }
}
