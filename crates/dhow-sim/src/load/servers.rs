//! The servers: processes of the real binary on loopback, each with its own folder and ports. They end with this.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::api::{Api, Metrics};
use super::proc_usage::ProcUsage;

const COUNT: usize = 3;

/// Nothing of a server takes this long but what never comes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long servers have to end when they are asked to.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The groups that servers run as where a firewall has to tell them apart, from this one on: far from a host's own.
const GROUP_FIRST: u32 = 61_180;

/// How long a slow server runs, of how much time: less than it takes others to believe that it is gone.
const SLOW_RUNS: Duration = Duration::from_millis(10);
const SLOW_OF: Duration = Duration::from_millis(100);

struct Server {
    dir: PathBuf,
    config: PathBuf,
    /// Where the other servers call it.
    channel_ports: Vec<u16>,
    worker_addr: SocketAddr,
    child: Option<Child>,
    is_paused: bool,
}

impl Server {
    fn api(&self) -> Api {
        Api::new(&self.dir.join("dhow.sock"))
    }
}

/// The servers of a load run: it starts, kills and asks them. Servers are named by their place, from 0; their ids are
/// one more.
pub struct Servers {
    binary: PathBuf,
    servers: Vec<Server>,
    dir: TempDir,
    /// Whether each one runs as a group of its own.
    have_groups: bool,
}

impl Servers {
    /// Starts them, each as a group of its own where `have_groups`, and waits until one leads.
    pub async fn start(binary: &Path, have_groups: bool) -> anyhow::Result<Self> {
        let dir = TempDir::with_prefix("dhow-load-")?;
        let key = output(Command::new(binary).args(["cluster", "keygen"]))?;
        let mut ports = Ports::default();
        let channels: Vec<[SocketAddr; 2]> = (1..=COUNT)
            .map(|_| Ok([ports.next()?, ports.next()?]))
            .collect::<anyhow::Result<_>>()?;
        let named = (1..).zip(&channels);
        let peers: Vec<Value> = named
            .map(|(id, [raft, api])| json!({ "id": id, "raft_addr": raft, "api_addr": api }))
            .collect();
        let mut servers = Vec::new();
        for (id, channel) in (1..).zip(&channels) {
            let id: usize = id;
            let own = dir.path().join(id.to_string());
            std::fs::create_dir(&own)?;
            let key_file = own.join("cluster.key");
            write(&key_file, key.as_bytes())?;
            let worker_addr = ports.next()?;
            let config = own.join("dhow.yaml");
            let text = json!({
                "data_dir": own,
                "cluster_key_file": key_file,
                "log": { "level": "warn" },
                "cluster": {
                    "mode": "worker-tier",
                    "role": "server",
                    "node_id": id,
                    "peers": peers,
                    "worker_grpc_addr": worker_addr,
                },
            });
            write(&config, text.to_string().as_bytes())?;
            servers.push(Server {
                dir: own,
                config,
                channel_ports: channel.iter().map(SocketAddr::port).collect(),
                worker_addr,
                child: None,
                is_paused: false,
            });
        }
        drop(ports);
        let mut all = Self {
            binary: binary.to_owned(),
            servers,
            dir,
            have_groups,
        };
        all.start_all()?;
        all.until_leader().await?;
        Ok(all)
    }

    /// The program, which sees nothing of whoever called this one.
    fn dhow(&self) -> Command {
        let mut command = Command::new(&self.binary);
        for name in ["DHOW_DATA_DIR", "DHOW_HOST", "DHOW_TOKEN"] {
            command.env_remove(name);
        }
        command
    }

    pub fn start_all(&mut self) -> anyhow::Result<()> {
        (0..self.servers.len()).try_for_each(|place| self.start_one(place))
    }

    /// Starts one that does not run.
    pub fn start_one(&mut self, place: usize) -> anyhow::Result<()> {
        let mut command = self.dhow();
        if self.have_groups {
            command.gid(group_of(place));
        }
        let server = &mut self.servers[place];
        if server.child.is_some() {
            return Ok(());
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(server.dir.join("said"))?;
        let child = command
            .arg("daemon")
            .arg("--config")
            .arg(&server.config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        let child = child.with_context(|| format!("{} cannot be started", self.binary.display()))?;
        server.child = Some(child);
        Ok(())
    }

    /// Ends one at once, as a power cut does.
    pub fn kill(&mut self, place: usize) -> anyhow::Result<()> {
        if let Some(mut child) = self.servers[place].child.take() {
            child.kill()?;
            child.wait()?;
        }
        self.servers[place].is_paused = false;
        Ok(())
    }

    /// It stands still from now on; nothing of it is closed.
    pub fn pause(&mut self, place: usize) -> anyhow::Result<()> {
        self.signal(place, Signal::STOP)?;
        self.servers[place].is_paused = true;
        Ok(())
    }

    /// It goes on after a pause.
    pub fn go_on(&mut self, place: usize) -> anyhow::Result<()> {
        self.signal(place, Signal::CONT)?;
        self.servers[place].is_paused = false;
        Ok(())
    }

    /// It runs for a tenth of the time until what this gives is dropped.
    pub fn slow_down(&mut self, place: usize) -> anyhow::Result<Slowness> {
        let slowness = Slowness::begin(self.pid(place)?);
        // Whoever asks it waits tenfold.
        self.servers[place].is_paused = true;
        Ok(slowness)
    }

    /// The group that it runs as, where they have groups, and the ports at which the other servers call it.
    pub fn channel_of(&self, place: usize) -> (u32, Vec<u16>) {
        (group_of(place), self.servers[place].channel_ports.clone())
    }

    fn pid(&self, place: usize) -> anyhow::Result<Pid> {
        let child = self.servers[place].child.as_ref();
        let id = child.context("it does not run")?.id();
        Pid::from_raw(i32::try_from(id)?).context("it has no id")
    }

    fn signal(&self, place: usize, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(self.pid(place)?, signal)?)
    }

    pub fn kill_all(&mut self) -> anyhow::Result<()> {
        (0..self.servers.len()).try_for_each(|place| self.kill(place))
    }

    pub fn places(&self) -> Range<usize> {
        0..self.servers.len()
    }

    /// The places of those that answer.
    pub fn running(&self) -> Vec<usize> {
        let answers = |place: &usize| {
            let server = &self.servers[*place];
            server.child.is_some() && !server.is_paused
        };
        self.places().filter(answers).collect()
    }

    pub fn worker_addrs(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.worker_addr).collect()
    }

    /// The place of the one that leads.
    pub async fn until_leader(&mut self) -> anyhow::Result<usize> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(place) = self.leader().await {
                return Ok(place);
            }
            self.check()?;
            ensure!(Instant::now() < until, "no server leads:\n{}", self.said());
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn leader(&self) -> Option<usize> {
        for place in self.running() {
            let Ok(status) = self.api(place).get("/api/v1/cluster").await else {
                continue;
            };
            let own = status["node_id"].as_u64();
            if own.is_some() && status["leader_id"].as_u64() == own {
                return Some(place);
            }
        }
        None
    }

    /// The API of one that runs.
    pub fn api(&self, place: usize) -> Api {
        self.servers[place].api()
    }

    pub fn usage(&self, place: usize) -> anyhow::Result<ProcUsage> {
        let child = self.servers[place].child.as_ref();
        ProcUsage::of(child.context("it does not run")?.id())
    }

    /// A token for so many workers.
    pub fn worker_token(&self, uses: usize, any_label: bool) -> anyhow::Result<String> {
        let running = self.servers.iter().find(|server| server.child.is_some());
        let data_dir = &running.context("no server runs")?.dir;
        output(
            self.dhow()
                .env("DHOW_DATA_DIR", data_dir)
                .args(["token", "create-worker", "--ttl", "1h", "--uses"])
                .arg(uses.to_string())
                .args(any_label.then_some("--any-label")),
        )
    }

    /// Whether none has ended by itself.
    fn check(&mut self) -> anyhow::Result<()> {
        for (place, server) in self.servers.iter_mut().enumerate() {
            if let Some(child) = &mut server.child
                && let Some(status) = child.try_wait()?
            {
                bail!("server {} has ended with {status}:\n{}", place + 1, self.said());
            }
        }
        Ok(())
    }

    /// The last lines of each.
    pub fn said(&self) -> String {
        let mut said = format!("below {}\n", self.dir.path().display());
        for server in &self.servers {
            let text = std::fs::read_to_string(server.dir.join("said")).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(10)..] {
                said.push_str(line);
                said.push('\n');
            }
        }
        said
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // Asked first: a daemon takes what it started with it. One that cannot be ended has ended.
        for child in self.servers.iter().filter_map(|server| server.child.as_ref()) {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        let until = std::time::Instant::now() + END_PATIENCE;
        let has_ended = |server: &mut Server| {
            let child = server.child.as_mut();
            child.is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
        };
        while !self.servers.iter_mut().all(has_ended) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.kill_all();
    }
}

fn group_of(place: usize) -> u32 {
    GROUP_FIRST + u32::try_from(place).unwrap_or_default()
}

/// A process that is stopped for nine tenths of the time; it goes on with the end of this.
pub struct Slowness {
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Slowness {
    fn begin(pid: Pid) -> Self {
        let (end, ended) = sync_channel(1);
        // It has a thread to itself, because the runtime's threads are busy with what is measured.
        let thread = std::thread::spawn(move || {
            let waits = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            // A process that cannot be told to has ended, and the run says so.
            while kill_process(pid, Signal::STOP).is_ok() && waits(SLOW_OF - SLOW_RUNS) {
                let goes_on = kill_process(pid, Signal::CONT).is_ok();
                if !goes_on || !waits(SLOW_RUNS) {
                    break;
                }
            }
            let _ = kill_process(pid, Signal::CONT);
        });
        Self {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Slowness {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Nodes by their status, all from one answer: a node that changes its status meanwhile is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCounts {
    pub ready: u64,
    pub unreachable: u64,
    /// Those that are drained or about to be.
    draining: u64,
}

impl NodeCounts {
    pub fn of(metrics: &Metrics) -> Self {
        let count = |status: &str| metrics.figure(&format!("dhow_nodes{{status=\"{status}\"}}"));
        Self {
            ready: count("ready"),
            unreachable: count("unreachable"),
            draining: count("draining") + count("drained"),
        }
    }

    /// Nodes that the cluster knows, whatever has become of them.
    pub fn all(self) -> u64 {
        self.ready + self.unreachable + self.draining
    }
}

/// Ports that are free, and stay so until this is dropped.
#[derive(Default)]
struct Ports(Vec<TcpListener>);

impl Ports {
    fn next(&mut self) -> anyhow::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        self.0.push(listener);
        Ok(addr)
    }
}

fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let mut file: File = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    Ok(())
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
