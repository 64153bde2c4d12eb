//! A control plane without a disk, its API on a Unix socket, and a node that does at once whatever it is told.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::command::{Command as CoreCommand, NodeCommand};
use dhow_core::ids::{NodeId, ReplicaName};
use dhow_core::replica::{Exit, ReplicaEvent, ReplicaState};
use dhow_core::state::{NodeInfo, NodeRole, State, Wanted};
use dhow_server::api::{Api, ApiTls, Listeners, bind, serve};
use dhow_server::clock::{Clock, SystemClock};
use dhow_server::net::keys::{ClusterKey, NodeTls};
use dhow_server::net::node_door::ScriptedDoor;
use dhow_server::plane::runtime::{InputSender, ReportBody, RuntimeView, spawn};
use dhow_server::plane::secrets::SecretBox;
use dhow_server::plane::services::{ClusterIdentity, ServiceManager};
use dhow_wire::ClusterModeName;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const NODE: NodeId = NodeId(1);
/// An image of this name never starts.
const BROKEN: &str = "broken";

pub struct Daemon {
    folder: PathBuf,
    /// Where it is reached with TLS.
    pub addr: SocketAddr,
    pub door: ScriptedDoor,
    cancel: CancellationToken,
    runtime: Option<Runtime>,
}

impl Daemon {
    pub fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("dhow-served-{}-{name}", std::process::id()));
        // What an aborted run has left would only confuse this one.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let runtime = Runtime::new().unwrap();
        let (door, cancel) = (ScriptedDoor::default(), CancellationToken::new());
        let addr = runtime.block_on(start(&folder, door.clone(), cancel.clone()));
        Self {
            folder,
            addr,
            door,
            cancel,
            runtime: Some(runtime),
        }
    }

    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().into()
    }

    pub fn run(&self, args: &[&str]) -> Answer {
        self.run_with_stdin(args, b"")
    }

    pub fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> Answer {
        let folder = self.folder.to_str().unwrap();
        self.run_in(&[("DHOW_DATA_DIR", folder)], args, stdin)
    }

    /// As from another machine: with an address and a token, and nothing else.
    pub fn run_from_afar(&self, token: &str, args: &[&str]) -> Answer {
        let host = format!("https://{}", self.addr);
        self.run_in(&[("DHOW_HOST", &host), ("DHOW_TOKEN", token)], args, b"")
    }

    pub fn run_in(&self, variables: &[(&str, &str)], args: &[&str], stdin: &[u8]) -> Answer {
        let mut child = Command::new(env!("CARGO_BIN_EXE_dhow"))
            .args(args)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        Answer::of(child.wait_with_output().unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.cancel.cancel();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub struct Answer {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Answer {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by a signal"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The same, where the exit code is this one.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(
            self.code, code,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }

    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ends_with(0).stdout).unwrap()
    }
}

fn node_info() -> NodeInfo {
    NodeInfo {
        role: NodeRole::Peer,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity: Amount {
            cpu_milli: 4_000,
            memory_bytes: 8 << 30,
        },
        runs_replicas: true,
        tries_settings: false,
        mounts_files: false,
        runs_steps: false,
        volumes: dhow_core::spec::VolumeSupport::Named,
        mesh_addr: None,
    }
}

async fn start(folder: &std::path::Path, door: ScriptedDoor, cancel: CancellationToken) -> SocketAddr {
    let clock = Arc::new(SystemClock::new());
    let now_unix_secs = clock.wall_unix_ms() / 1_000;
    let handle = spawn(cancel.clone(), State::default(), clock.clone());
    let (input, view) = (handle.input(), handle.view());
    let mut leads = view.leaderships();
    leads.wait_for(|leadership| leadership.is_here).await.unwrap();
    let register = CoreCommand::Node(NodeCommand::Register {
        node: NODE,
        info: Arc::new(node_info()),
    });
    input.write(register, None).await.unwrap();
    tokio::spawn(run_node(input.clone(), view.clone()));
    let identity = ClusterIdentity {
        mode: ClusterModeName::SingleNode,
        node_id: NODE,
    };
    let api = Api {
        manager: ServiceManager::new(view, clock.clone(), Arc::new(door), identity),
        input,
        event_log: handle.event_log(),
        secrets: Arc::new(SecretBox::open(folder).unwrap()),
        cluster: Arc::new(dhow_server::plane::cluster::SingleNode {
            node: NodeId(1),
            api_addr: Some(([127, 0, 0, 1], 3669).into()),
        }),
        peers: dhow_server::net::peer_http::PeerHttp::new(Arc::new(dhow_server::net::peer_http::NoPeers)),
        worker_tokens: None,
        renew_expired_secs: 0,
        orders_certificates: false,
        data_dir: None,
        refused: dhow_server::net::refused_log::RefusedLog::new(None, clock.clone()),
        policy: std::sync::Arc::new(dhow_core::spec::policy::FilePolicy {
            policy: Default::default(),
            host: dhow_core::spec::policy::WordsOnly { runs_as_root: false },
        }),
        notify: Default::default(),
    };
    let key = ClusterKey::generate().unwrap();
    let node = NodeTls::new(&key, NODE, now_unix_secs).unwrap();
    let tls = ApiTls::new(&node, &[]).unwrap();
    let listeners = Listeners {
        socket: Some(folder.join("dhow.sock")),
        socket_group: None,
        tcp: vec!["127.0.0.1:0".parse().unwrap()],
        tls: Some(tls),
    };
    let bound = bind(&listeners).await.unwrap();
    let addr = bound.tcp_addrs()[0];
    tokio::spawn(async move {
        serve(api, bound, cancel).await;
        drop(handle);
    });
    addr
}

/// Reports that whatever is wanted has happened, until the control plane ends.
async fn run_node(input: InputSender, view: RuntimeView) {
    let mut states = view.states();
    // A new life begins with what there is: nothing.
    let nothing = ReportBody::Inventory {
        seq: 0,
        replicas: Vec::new(),
    };
    input.report(NODE, None, 1, nothing).await.unwrap();
    let mut first_seq = 1;
    loop {
        let events = events(&states.borrow_and_update().clone());
        if events.is_empty() {
            if states.changed().await.is_err() {
                return;
            }
            continue;
        }
        let count = events.len() as u64;
        let body = ReportBody::Events { first_seq, events };
        if input.report(NODE, None, 1, body).await.is_err() {
            return;
        }
        first_seq += count;
    }
}

fn events(state: &State) -> Vec<(ReplicaName, ReplicaEvent)> {
    let mut events = Vec::new();
    for (key, replica) in &state.replicas {
        let Some(name) = state.replica_name(key) else {
            continue;
        };
        let image = state
            .service(key.service)
            .and_then(|service| service.info(key.generation))
            .and_then(|info| info.spec.image.clone());
        let is_broken = image.is_some_and(|image| image.name.contains(BROKEN));
        let happened = match (replica.wanted, replica.machine.state) {
            (Wanted::Run, ReplicaState::Pending) if is_broken => vec![
                ReplicaEvent::PullBegan,
                ReplicaEvent::CouldNotStart {
                    message: "the registry has no such image".into(),
                },
            ],
            (Wanted::Run, ReplicaState::Pending) => vec![
                ReplicaEvent::PullBegan,
                ReplicaEvent::StartBegan,
                ReplicaEvent::Started { pid: 42 },
                ReplicaEvent::BecameHealthy,
            ],
            (Wanted::Stop, ReplicaState::Running) => vec![
                ReplicaEvent::StopBegan,
                ReplicaEvent::Ended {
                    exit: Exit::Code(0),
                    oom: false,
                },
            ],
            (Wanted::Stop, state) if !state.is_ended() => vec![ReplicaEvent::Ended {
                exit: Exit::Unknown,
                oom: false,
            }],
            (Wanted::Run | Wanted::Stop, _) => continue,
        };
        events.extend(happened.into_iter().map(|event| (name.clone(), event)));
    }
    events
}
