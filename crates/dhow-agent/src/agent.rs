//! The agent as the daemon sees it: opened on a directory with drivers and a session, then a task and a handle.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use dhow_core::ids::{NodeId, ReplicaName, ServiceKey};
use dhow_core::spec::Policy;
use dhow_core::usage::{EndpointFigures, RelayFigures};
use dhow_driver::carry::{Carry, Direction};
use dhow_driver::driver::{self, Cause, Connection, Driver, DriverError, DriverResult, ExecSession, Stage};
use dhow_wire::api::{CopyWay, NetCheck};
use dhow_wire::door::{ExecRequest, LogItem, LogQuery, NetCheckRequest, PresentReplica, ReplicaPull};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::balance::{Balancer, NodePlace};
use crate::certificates::CertificateFeed;
use crate::drivers::{Drivers, Found};
use crate::files::Files;
use crate::highest::HighestFile;
use crate::keeper::{Ask, Incoming, Keeper, KeeperStatus, Memory};
use crate::last_words::LastWords;
use crate::ledger::{Ledger, LedgerError};
use crate::limits::{ASKS_MAX, HAPPENINGS_MAX, WORK_PER_CORE};
use crate::logins;
use crate::logs;
use crate::net_check;
use crate::ports::Ports;
use crate::pulls::Pulls;
use crate::runner::Context;
use crate::session::{Orders, Session};
use crate::usage::Meter;

/// What a restart of the host means for what the node was running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returning {
    /// Nobody else can have taken anything over: all of it is started again.
    Alone,
    /// Others may run it by now: after a start of the host that has another id, what is not sure to be this node's
    /// waits until a server has confirmed it.
    Confirmed { boot_id: String },
}

/// What an agent is made with.
pub struct AgentOptions {
    pub node: NodeId,
    /// Where the proxies of other nodes reach this node's; none where they do not.
    pub mesh: Option<SocketAddr>,
    /// Where the ledger is kept.
    pub dir: PathBuf,
    pub volumes_dir: PathBuf,
    /// Where configs that containers see are written.
    pub files_dir: PathBuf,
    pub drivers: Drivers,
    pub balancer: Arc<dyn Balancer>,
    /// The way to the control plane.
    pub session: Arc<dyn Session>,
    /// Where assignments come from: the session as well, except in a static cluster.
    pub orders: Arc<dyn Orders>,
    /// What must not be started here, whoever asks for it.
    pub policy: Policy,
    pub returning: Returning,
}

/// Why an agent could not be opened, or ended. The daemon ends with it; what runs goes on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("the node's ledger failed; what runs goes on. Start the daemon again once the disk is sound")]
    Ledger(#[source] LedgerError),
    #[error("what runs on this host cannot be listed")]
    Host(#[source] DriverError),
    #[error("the agent failed; this is a bug in Dhow, please report it with the log above")]
    LedgerLost,
}

/// An agent that is ready to run.
pub struct Agent {
    context: Arc<Context>,
    orders: Arc<dyn Orders>,
    keeper: Keeper,
    meter: Meter,
    certificates: CertificateFeed,
    found: Vec<Found>,
    incoming: Incoming,
    handle: AgentHandle,
}

/// The way to a running agent; cheap to clone.
#[derive(Clone)]
pub struct AgentHandle {
    node: NodeId,
    drivers: Drivers,
    balancer: Arc<dyn Balancer>,
    pulls: Pulls,
    last_words: LastWords,
    names: watch::Receiver<Arc<BTreeSet<ReplicaName>>>,
    settled: watch::Receiver<bool>,
    asks: mpsc::Sender<Ask>,
}

/// What earlier lives of this agent have left on disk.
async fn remembered(dir: PathBuf) -> Result<Memory, AgentError> {
    let incarnation = rand::random::<u64>();
    let memory = tokio::task::spawn_blocking(move || {
        let (ledger, account) = Ledger::open(&dir, incarnation)?;
        let highest = HighestFile::open(&dir)?;
        Ok(Memory {
            ledger,
            account,
            highest,
        })
    });
    let memory = memory.await.map_err(|_| AgentError::LedgerLost)?;
    memory.map_err(AgentError::Ledger)
}

/// The files of replicas, without those of replicas that are gone.
async fn swept(dir: PathBuf, found: &[Found]) -> Result<Files, AgentError> {
    let here: Vec<ReplicaName> = found.iter().map(|found| found.name.clone()).collect();
    let files = tokio::task::spawn_blocking(move || {
        let files = Files::new(&dir);
        files.sweep(&here);
        files
    });
    files.await.map_err(|_| AgentError::LedgerLost)
}

/// Pulls ask the control plane for the credentials of registries from now on.
fn ask_for_logins(options: &AgentOptions) {
    let source = logins::source(Arc::clone(&options.session));
    options.drivers.logins.set(source);
}

impl Agent {
    /// Reads the ledger and looks at the host; starts nothing.
    pub async fn open(options: AgentOptions) -> Result<Self, AgentError> {
        let memory = remembered(options.dir.clone()).await?;
        let found = options.drivers.list().await.map_err(AgentError::Host)?;
        let files = swept(options.files_dir.clone(), &found).await?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (sender, happenings) = mpsc::channel(HAPPENINGS_MAX);
        let (asks, asks_receiver) = mpsc::channel(ASKS_MAX);
        let (names, names_receiver) = watch::channel(Arc::default());
        let (settled, settled_receiver) = watch::channel(false);
        ask_for_logins(&options);
        let context = Arc::new(Context {
            place: NodePlace {
                node: options.node,
                mesh: options.mesh,
            },
            directory: options.orders.directory(),
            drivers: options.drivers,
            balancer: options.balancer,
            session: options.session,
            ports: Ports::default(),
            pulls: Pulls::default(),
            last_words: LastWords::default(),
            happenings: sender,
            work: Semaphore::new(cores.saturating_mul(WORK_PER_CORE)),
            volumes_dir: options.volumes_dir,
            files,
            policy: Arc::new(options.policy),
        });
        let handle = AgentHandle {
            node: context.place.node,
            drivers: context.drivers.clone(),
            balancer: Arc::clone(&context.balancer),
            pulls: context.pulls.clone(),
            last_words: context.last_words.clone(),
            names: names_receiver,
            settled: settled_receiver,
            asks,
        };
        let meter = Meter {
            drivers: context.drivers.clone(),
            balancer: Arc::clone(&context.balancer),
            names: handle.names.clone(),
            session: Arc::clone(&context.session),
        };
        let certificates = CertificateFeed {
            directory: context.directory.clone(),
            session: Arc::clone(&context.session),
            balancer: Arc::clone(&context.balancer),
        };
        Ok(Self {
            orders: Arc::clone(&options.orders),
            meter,
            certificates,
            context: Arc::clone(&context),
            keeper: Keeper::new(
                context,
                options.orders,
                memory,
                options.returning,
                KeeperStatus { names, settled },
            ),
            found,
            incoming: Incoming {
                happenings,
                asks: asks_receiver,
            },
            handle,
        })
    }

    pub fn handle(&self) -> AgentHandle {
        self.handle.clone()
    }

    /// Runs until it is cancelled or fails. What runs on the host goes on either way.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), AgentError> {
        tokio::select! {
            biased;
            ended = self.keeper.run(self.found, self.incoming, cancel) => ended,
            // Measures for as long as the keeper runs.
            () = self.meter.run() => Ok(()),
            () = self.context.follow_directory() => Ok(()),
            () = self.certificates.run() => Ok(()),
            () = follow_wants(self.context.balancer.wants(), self.orders) => Ok(()),
        }
    }
}

/// Has servers know which services this node wants to be told of.
async fn follow_wants(wants: Option<watch::Receiver<BTreeSet<ServiceKey>>>, orders: Arc<dyn Orders>) {
    let Some(mut wants) = wants else {
        return std::future::pending().await;
    };
    loop {
        let wanted = wants.borrow_and_update().clone();
        orders.want(&wanted);
        if wants.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

impl AgentHandle {
    /// The replicas that are here now.
    pub fn names(&self) -> Arc<BTreeSet<ReplicaName>> {
        self.names.borrow().clone()
    }

    /// Follows whether nothing is left to do: it knows its assignment, no replica is here, and the control plane has
    /// for good all that happened.
    pub fn settled(&self) -> watch::Receiver<bool> {
        self.settled.clone()
    }

    /// What is here now; nothing where the agent has ended.
    pub async fn present(&self) -> Vec<PresentReplica> {
        let (ask, answer) = oneshot::channel();
        if self.asks.send(ask).await.is_err() {
            return Vec::new();
        }
        answer.await.unwrap_or_default()
    }

    /// What has passed each endpoint that was called on this node.
    pub async fn figures(&self) -> Vec<EndpointFigures> {
        self.balancer.figures().await.unwrap_or_default()
    }

    /// What this node has passed on for others that nobody can dial.
    pub async fn relayed(&self) -> RelayFigures {
        self.balancer.relayed().await
    }

    /// Whose images are on their way.
    pub fn pulls(&self) -> Vec<ReplicaPull> {
        self.pulls.list()
    }

    /// Output of replicas, as it comes where that is asked for; dropping the receiver ends it.
    pub fn logs(&self, query: LogQuery) -> mpsc::Receiver<LogItem> {
        logs::read(self.node, self.drivers.clone(), self.last_words.clone(), query)
    }

    /// Runs a command in a replica.
    pub async fn exec(&self, request: ExecRequest) -> DriverResult<ExecSession> {
        let name = &request.replica;
        let command = driver::ExecRequest {
            command: request.command,
            stdin: request.stdin,
            terminal: request.terminal.map(|terminal| driver::Terminal {
                term: terminal.term,
                size: driver::WindowSize {
                    rows: terminal.size.rows,
                    cols: terminal.size.cols,
                },
            }),
            carry: request.copy.map(|copy| Carry {
                direction: match copy.way {
                    CopyWay::Out => Direction::Out,
                    CopyWay::In => Direction::In,
                },
                path: copy.path,
            }),
            hangs_up: true,
        };
        self.driver(name, Stage::Exec).await?.exec(name, command).await
    }

    /// Connects to a port of a replica.
    pub async fn connect(&self, name: &ReplicaName, port: u16) -> DriverResult<Connection> {
        self.driver(name, Stage::Connect).await?.reach(name, port).await
    }

    /// Tries a call from inside a replica.
    pub async fn net_check(&self, request: &NetCheckRequest) -> DriverResult<NetCheck> {
        net_check::check(self.node, &self.drivers, self.balancer.as_ref(), request).await
    }

    async fn driver(&self, name: &ReplicaName, stage: Stage) -> DriverResult<Arc<dyn Driver>> {
        let having = self.drivers.having(name).await;
        having.ok_or_else(|| Cause::NoSuchReplica.at(stage, name))
    }
}
