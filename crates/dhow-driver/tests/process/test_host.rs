//! A host for one test: its own folder, zygote and control groups, and the means to see what is left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dhow_core::ids::{DeploymentName, Generation, ReplicaName, RoleName, ServiceName};
use dhow_core::spec::{CommandSpec, ServiceSpec};
use dhow_driver::cgroup::CgroupHost;
use dhow_driver::driver::{Driver, ReplicaStart};
use dhow_driver::logs::{LogFilter, LogPosition};
use dhow_driver::process::{ProcessConfig, ProcessDriver};
use dhow_driver::shim::{ShimClient, ShimConfig};

/// Whether a test's host uses control groups, where the real host has any.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Groups {
    Use,
    Without,
}

pub struct TestHost {
    /// Long on purpose: a socket's address has 108 bytes.
    pub dir: PathBuf,
    _root: tempfile::TempDir,
    pub groups: Groups,
    pub parent: String,
    pub cgroups: Arc<CgroupHost>,
    pub shim: Arc<ShimClient>,
}

impl TestHost {
    pub fn new(groups: Groups) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let root = tempfile::tempdir().unwrap();
        let dir = root
            .path()
            .join("a-rather-long-name-for-a-data-directory".repeat(3));
        std::fs::create_dir(&dir).unwrap();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let parent = format!("dhow-test-{}-{count}", std::process::id());
        let cgroups = Arc::new(Self::detect(groups, &parent));
        let shim = Arc::new(Self::client(&dir, &cgroups));
        Self {
            dir,
            _root: root,
            groups,
            parent,
            cgroups,
            shim,
        }
    }

    pub fn detect(groups: Groups, parent: &str) -> CgroupHost {
        match groups {
            Groups::Use => CgroupHost::detect(parent),
            Groups::Without => CgroupHost::none(),
        }
    }

    pub fn client(dir: &Path, cgroups: &CgroupHost) -> ShimClient {
        ShimClient::new(ShimConfig::new(dir.join("shim"), cgroups)).unwrap()
    }

    /// The driver as another daemon would open it.
    pub fn driver(&self) -> ProcessDriver {
        let (shim, cgroups) = (self.shim.clone(), self.cgroups.clone());
        ProcessDriver::open(ProcessConfig {
            run_dir: self.dir.join("run"),
            shim,
            cgroups,
        })
        .unwrap()
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

    /// Processes that name this host's folder, groups and files that should be gone by now.
    pub fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(self.dir.join("run"))
            .into_iter()
            .flatten()
            .flatten()
        {
            found.push(format!("file {}", entry.path().display()));
        }
        let groups = self
            .cgroups
            .leaves()
            .into_iter()
            .filter(|leaf| leaf != ShimConfig::GROUP);
        found.extend(groups.map(|leaf| format!("group {leaf}")));
        let zygote = self.shim.zygote().unwrap();
        let others = self
            .processes()
            .into_iter()
            .filter(|pid| zygote.is_none_or(|zygote| zygote.pid != *pid));
        found.extend(others.map(|pid| format!("process {pid} {}", command_line(pid))));
        found
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
        if self.cgroups.is_usable() {
            let removed = self
                .cgroups
                .group(ShimConfig::GROUP)
                .remove()
                .and_then(|()| self.cgroups.remove_parents());
            left.extend(removed.err().map(|error| error.to_string()));
        }
        left
    }

    /// A replica that runs this shell text.
    pub fn shell(&self, index: u32, text: &str) -> ReplicaStart {
        shell_in(&self.dir, index, text)
    }

    pub fn spec(&self, words: &[&str]) -> ServiceSpec {
        spec_in(&self.dir, words)
    }
}

pub fn shell_in(dir: &Path, index: u32, text: &str) -> ReplicaStart {
    ReplicaStart::new(name(index), Arc::new(spec_in(dir, &["/bin/sh", "-c", text])))
}

/// The environment names the host's folder, so that all processes of the replica can be found.
fn spec_in(dir: &Path, words: &[&str]) -> ServiceSpec {
    let args = Some(words.iter().map(|word| (*word).to_owned()).collect());
    ServiceSpec {
        command: Some(CommandSpec {
            args,
            ..CommandSpec::default()
        }),
        env: BTreeMap::from([("TEST_HOST".to_owned(), dir.display().to_string())]),
        ..ServiceSpec::default()
    }
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
