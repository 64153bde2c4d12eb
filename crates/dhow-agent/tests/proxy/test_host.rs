//! A host for one test: its own folder and zygote, and the means to see what is left.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use dhow_agent::proxy::{Backend, Listener, Protocol, ProxyClient, ProxyConfig, Route, Table};
use dhow_driver::cgroup::CgroupHost;
use dhow_driver::shim::{ShimClient, ShimConfig};

pub struct TestHost {
    /// Long on purpose: a socket's address has 108 bytes.
    pub dir: PathBuf,
    _root: tempfile::TempDir,
    pub shim: Arc<ShimClient>,
}

impl TestHost {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root
            .path()
            .join("a-rather-long-name-for-a-data-directory".repeat(3));
        std::fs::create_dir(&dir).unwrap();
        let shim = Arc::new(shim(&dir));
        Self {
            dir,
            _root: root,
            shim,
        }
    }

    pub fn proxy_dir(&self) -> PathBuf {
        self.dir.join("proxy")
    }

    pub fn config(&self, build: &str) -> ProxyConfig {
        config(&self.dir, self.shim.clone(), build)
    }

    /// A client as a daemon of this build would open it.
    pub async fn open(&self, build: &str) -> ProxyClient {
        ProxyClient::open(self.config(build)).await.unwrap()
    }

    /// Everything but the zygote whose command line names this host's folder.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let dir = self.dir.display().to_string();
        let zygote = self.shim.zygote().unwrap().map(|zygote| zygote.pid);
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let others = pids.filter(|pid| *pid != std::process::id() && Some(*pid) != zygote);
        let named = others.map(|pid| (pid, command_line(pid)));
        named.filter(|(_, line)| line.contains(&dir)).collect()
    }

    /// Ends everything that the test has started; gives what should not have been there.
    pub async fn clear(&self) -> Vec<String> {
        // Whatever the test has done: the proxy ends, its folder is empty.
        let stopped = match ProxyClient::open(self.config("clear")).await {
            Ok(client) => client.stop(Duration::ZERO).await,
            Err(error) => Err(error),
        };
        self.shim.stop_zygote().await.unwrap();
        let mut left: Vec<String> = stopped
            .err()
            .map(|error| format!("{error:?}"))
            .into_iter()
            .collect();
        left.extend(
            self.processes()
                .into_iter()
                .map(|(pid, line)| format!("process {pid} {line}")),
        );
        let run = std::fs::read_dir(self.proxy_dir().join("run")).unwrap().flatten();
        left.extend(run.map(|entry| entry.path().display().to_string()));
        left
    }
}

pub fn shim(dir: &Path) -> ShimClient {
    ShimClient::new(ShimConfig::new(dir.join("shim"), &CgroupHost::none())).unwrap()
}

pub fn config(dir: &Path, shim: Arc<ShimClient>, build: &str) -> ProxyConfig {
    ProxyConfig {
        build: build.to_owned(),
        ..ProxyConfig::new(dir.join("proxy"), shim).unwrap()
    }
}

pub fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// A port below those that the kernel gives to whoever asks for any, so that nobody takes it before the
/// proxy binds it.
pub fn free_port() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let spread = u16::try_from(std::process::id() % 4000).unwrap();
    loop {
        let port = 20_000 + (spread * 3 + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(addr).is_ok() {
            return addr;
        }
    }
}

pub fn table(revision: u64, addr: SocketAddr, backends: &[(&str, SocketAddr)]) -> Table {
    let backends = backends.iter().map(|(id, addr)| Backend::here(*id, *addr));
    Table {
        revision,
        listeners: vec![Listener::new(
            addr,
            Protocol::Http,
            vec![Route {
                id: "all".into(),
                backends: backends.collect(),
                ..Route::default()
            }],
        )],
        ..Table::empty()
    }
}
