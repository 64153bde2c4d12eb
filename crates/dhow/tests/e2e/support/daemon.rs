//! A daemon of a test's own.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use super::{Answer, LOOK_EVERY, PATIENCE, Reply, Scratch, Service, api, deployment, free_port, host, until};

/// Lines of the daemon's log that a failed test shows.
const SAID_LINES: usize = 40;

/// One replica of `dhow ps --json`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    pub id: String,
    pub deployment: String,
    pub service: String,
    pub node_id: Option<u64>,
    pub generation: u64,
    pub state: String,
    pub healthy: bool,
    pub restarts: u64,
    pub pid: Option<u32>,
    pub exit_code: Option<i64>,
}

impl Replica {
    pub fn of(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Self {
            id: text("id"),
            deployment: text("deployment"),
            node_id: value["node_id"].as_u64(),
            service: text("service"),
            generation: value["generation"].as_u64().unwrap_or_default(),
            state: text("state"),
            healthy: value["healthy"].as_bool().unwrap_or_default(),
            restarts: value["restarts"].as_u64().unwrap_or_default(),
            pid: value["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()),
            exit_code: value["exit_code"].as_i64(),
        }
    }

    pub fn runs(&self) -> bool {
        self.state == "running"
    }
}

/// All replicas, by the API on this socket.
pub fn replicas_at(socket: &Path) -> Vec<Replica> {
    let reply = api::ask(socket, "GET", "/api/v1/replicas", "application/json", b"").unwrap();
    assert_eq!(reply.status, 200);
    let listed = reply.json();
    listed.as_array().unwrap().iter().map(Replica::of).collect()
}

/// Ends with everything that runs on account of it.
pub struct Daemon {
    child: Option<Child>,
    pub api_port: u16,
    /// The configuration file's content; flags alone where there is none.
    pub config: Option<String>,
    /// What its replicas carry in their environment, and which node they are on where several share that.
    pub mark: PathBuf,
    pub node_id: Option<u64>,
    /// The network namespace that it runs in, where it has one of its own.
    pub namespace: Option<String>,
    /// Set for the daemon, beside what it always has.
    pub env: Vec<(&'static str, String)>,
    /// What it answers with 200 once it serves.
    pub ready_path: &'static str,
    /// The program that it is, another copy of which is another build.
    pub binary: PathBuf,
    /// Whom it runs as, where that is not who runs the test.
    user: Option<u32>,
    pub scratch: Scratch,
}

impl Daemon {
    /// It serves when this returns.
    pub fn start(name: &str) -> Self {
        let mut daemon = Self::at(Scratch::new(name));
        daemon.restart();
        daemon
    }

    /// Not started yet.
    pub fn at(scratch: Scratch) -> Self {
        Self {
            child: None,
            api_port: free_port(),
            config: None,
            namespace: None,
            ready_path: "/api/v1/cluster",
            user: None,
            binary: env!("CARGO_BIN_EXE_dhow").into(),
            mark: scratch.path.clone(),
            node_id: None,
            env: Vec::new(),
            scratch,
        }
    }

    /// It is to run as this user, to whom its folder belongs from now on.
    pub fn run_as(&mut self, user: u32) {
        std::os::unix::fs::chown(&self.scratch.path, Some(user), Some(user)).unwrap();
        self.user = Some(user);
    }

    /// Stands in for one that is used elsewhere.
    pub fn placeholder() -> Self {
        Self::at(Scratch::new("placeholder"))
    }

    pub fn data_dir(&self) -> PathBuf {
        self.scratch.path.join("data")
    }

    pub fn socket(&self) -> PathBuf {
        self.data_dir().join("dhow.sock")
    }

    fn log_path(&self) -> PathBuf {
        self.scratch.path.join("daemon.log")
    }

    /// What the daemon has said so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The command that starts it.
    pub fn command(&self) -> Command {
        let mut command = self.dhow_command();
        command.envs(self.env.iter().cloned());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command.arg("daemon").arg("--data-dir").arg(self.data_dir());
        match &self.config {
            Some(config) => {
                let path = self.file("dhow.yaml", config);
                command.env_remove("DHOW_API_ADDR").arg("--config").arg(path);
            }
            None => {
                let addr = format!("127.0.0.1:{}", self.api_port);
                command.arg("--api-addr").arg(addr);
            }
        }
        command
    }

    /// Starts it, again after an end.
    pub fn restart(&mut self) {
        let mut child = self.spawn();
        until("the daemon answers", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the daemon ended with {status}:\n{}", self.said());
            }
            self.get(self.ready_path).ok().filter(|reply| reply.status == 200)
        });
        self.child = Some(child);
    }

    /// Starts it and waits for nothing.
    pub fn begin(&mut self) {
        self.child = Some(self.spawn());
    }

    /// Waits until it has ended by itself.
    pub fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        until("the daemon ends by itself", || child.try_wait().unwrap())
    }

    fn spawn(&self) -> Child {
        assert!(self.child.is_none(), "it runs");
        let log = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = log.unwrap();
        let started = self
            .command()
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn();
        started.unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// It does nothing any more until it is resumed; its peers and callers cannot tell it from one that is very slow.
    pub fn pause(&self) {
        host::signal(self.pid(), Signal::STOP);
    }

    pub fn resume(&self) {
        host::signal(self.pid(), Signal::CONT);
    }

    /// Asks it to read its configuration again.
    pub fn hang_up(&self) {
        host::signal(self.pid(), Signal::HUP);
    }

    /// Asks it to end and waits until it has.
    pub fn term(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        host::signal(child.id(), Signal::TERM);
        until("the daemon ends", || child.try_wait().unwrap())
    }

    pub fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut().expect("it was started");
        child.try_wait().unwrap().is_some()
    }

    /// Waits for it to end where it does so by itself.
    pub fn until_ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        until("the daemon ends", || child.try_wait().unwrap())
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// The binary where this daemon is, with nothing but its own environment.
    pub fn dhow_command(&self) -> Command {
        let mut command = match &self.namespace {
            Some(name) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{name}"));
                command.arg(&self.binary);
                command
            }
            None => Command::new(&self.binary),
        };
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("DHOW_DATA_DIR", self.data_dir())
            .env("DHOW_API_ADDR", format!("127.0.0.1:{}", self.api_port))
            .current_dir(&self.scratch.path);
        command
    }

    pub fn dhow(&self, args: &[&str]) -> Answer {
        self.dhow_with_stdin(args, b"")
    }

    pub fn dhow_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Answer {
        let mut child = self.dhow_child(args);
        // Who does not read is not to be waited for.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        Answer::of(child.wait_with_output().unwrap())
    }

    /// With all three streams at hand.
    pub fn dhow_child(&self, args: &[&str]) -> Child {
        let mut command = self.dhow_command();
        hears_hang_up(&mut command);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.scratch.path.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().into()
    }

    /// A deployment file in the test's folder.
    pub fn deployment(&self, name: &str, services: &[(&str, Service)]) -> String {
        let content = deployment(&self.mark, name, services);
        self.file(&format!("{name}.dhow.json"), &content)
    }

    pub fn deploy(&self, name: &str, services: &[(&str, Service)]) -> Answer {
        let file = self.deployment(name, services);
        self.dhow(&["deploy", &file])
    }

    pub fn get(&self, path: &str) -> std::io::Result<Reply> {
        self.ask("GET", path, "application/json", b"")
    }

    pub fn ask(&self, method: &str, path: &str, media_type: &str, body: &[u8]) -> std::io::Result<Reply> {
        api::ask(&self.socket(), method, path, media_type, body)
    }

    /// As `dhow ps --json` shows them.
    pub fn ps(&self) -> Vec<Replica> {
        let listed = self.dhow(&["ps", "--json"]).json();
        listed.as_array().unwrap().iter().map(Replica::of).collect()
    }

    /// The same by the API, which is quicker.
    pub fn replicas(&self) -> Vec<Replica> {
        replicas_at(&self.socket())
    }

    pub fn replicas_of(&self, service: &str) -> Vec<Replica> {
        let mut replicas = self.replicas();
        replicas.retain(|replica| replica.service == service);
        replicas.sort();
        replicas
    }

    /// The last applied revision of the log.
    pub fn revision(&self) -> u64 {
        let cluster = self.get("/api/v1/cluster").unwrap().json();
        cluster["revision"].as_u64().unwrap()
    }

    /// Processes of replicas, by the mark in their environment.
    pub fn workloads(&self) -> Vec<u32> {
        let mark = format!("E2E_MARK={} ", self.mark.display());
        let node = self.node_id.map(|id| format!("DHOW_NODE_ID={id} "));
        let found = host::marked(&self.mark);
        let own = found.into_iter().filter(|process| {
            let is_here = node
                .as_ref()
                .is_none_or(|node| process.environment.contains(node));
            process.environment.contains(&mark) && is_here && host::is_alive(process.pid)
        });
        own.map(|process| process.pid).collect()
    }

    /// Removes what is deployed, ends the daemon and sees that nothing is left of either.
    pub fn finish(mut self) {
        let listed = self.dhow(&["status", "--json"]).json();
        for deployment in listed.as_array().unwrap() {
            let name = deployment["deployment"].as_str().unwrap();
            self.dhow(&["rm", name, "--wait"]).ends_with(0);
        }
        let ended = self.term();
        assert_eq!(ended.code(), Some(0), "{}", self.said());
        self.nothing_is_left();
    }

    pub fn nothing_is_left(&self) {
        // The helpers end on their own time, right after the daemon.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = host::marked(&self.scratch.path);
            if left.is_empty() {
                break;
            }
            let told: Vec<_> = left.iter().map(|process| host::told(process.pid)).collect();
            assert!(Instant::now() < deadline, "processes are left: {told:#?}");
            std::thread::sleep(LOOK_EVERY);
        }
        assert_eq!(self.scratch.groups(), Vec::<PathBuf>::new(), "groups are left");
        assert_eq!(self.scratch.network(), Vec::<PathBuf>::new(), "a network is left");
        let said = self.said();
        assert!(!said.contains("panicked at"), "{said}");
        assert!(!said.contains("this is a bug"), "{said}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let said = self.said();
            let lines: Vec<&str> = said.lines().collect();
            let from = lines.len().saturating_sub(SAID_LINES);
            eprintln!("the daemon's last lines:\n{}", lines[from..].join("\n"));
        }
    }
}

/// How many replicas run on each node.
pub fn by_node(replicas: &[Replica]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for replica in replicas.iter().filter(|replica| replica.runs()) {
        *counts.entry(replica.node_id.unwrap()).or_default() += 1;
    }
    counts
}

/// Whoever runs the tests with `nohup` means the tests: a command of theirs hears its terminal close.
fn hears_hang_up(command: &mut Command) {
    use nix::sys::signal::{SigHandler, Signal, signal};
    let reset = || {
        // SAFETY: the default action is no handler of ours that could run.
        unsafe { signal(Signal::SIGHUP, SigHandler::SigDfl) }?;
        Ok(())
    };
    // SAFETY: between fork and exec only signal(2) is called, which may be.
    unsafe { command.pre_exec(reset) };
}
