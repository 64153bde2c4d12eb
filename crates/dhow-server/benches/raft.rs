//! Writes a second through the raft log of three nodes, each with a store of its own, in one process.
//!
//! A client proposes one command of 200 bytes, waits until it is committed and comes back, and proposes the next;
//! many clients are many such loops at once. The nodes talk over memory, so that what is measured is the log and the
//! disk and not a network. A bare loop of one write and one fdatasync runs in the same turns: read the ratios, for
//! absolute numbers are those of the disk and of the moment. All three logs share the disk and the cores.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dhow_server::net::peers::{Lane, PeerError, PeerHandler, PeerTransport};
use dhow_server::plane::log::raft::{OpenedRaftLog, RaftLog, RaftOptions, RaftPeerAddrs};
use dhow_server::plane::log::{Log, LogEvent, ProposalId};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

const COMMAND_BYTES: usize = 200;
const CLIENTS: [u64; 3] = [1, 16, 256];
const TURNS: usize = 3;
const WRITES_A_CLIENT: u64 = 60;
const MIN_WRITES: u64 = 1_500;
/// Times that a leader is killed, and handed over.
const OUTAGES: u64 = 10;
const BARE_WRITES: u64 = 1_500;
const BARE_WRITE_BYTES: usize = 512;
const BARE_FILE_BYTES: u64 = 16 * 1024 * 1024;

type Handlers = Arc<Mutex<BTreeMap<u64, Arc<dyn PeerHandler>>>>;

/// Hands a question to the log that it is for.
struct Memory {
    from: u64,
    handlers: Handlers,
}

impl PeerTransport for Memory {
    fn ask(
        &self,
        node: u64,
        addr: SocketAddr,
        _lane: Lane,
        question: Bytes,
        _timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, PeerError>> {
        let handler = self
            .handlers
            .lock()
            .expect("nobody panics with it")
            .get(&node)
            .cloned();
        Box::pin(async move {
            match handler {
                Some(handler) => Ok(handler.answer(self.from, question).await),
                None => Err(PeerError::Unreachable {
                    node,
                    addr,
                    why: "it is not open yet".to_owned(),
                }),
            }
        })
    }
}

type Waiting = Arc<Mutex<BTreeMap<u64, oneshot::Sender<bool>>>>;

/// Takes what a log tells, and answers those who wait.
async fn drain(mut events: mpsc::Receiver<LogEvent>, waiting: Waiting) {
    let tell = |proposal: ProposalId, is_done: bool| {
        let waiter = waiting.lock().expect("nobody panics with it").remove(&proposal.0);
        if let Some(waiter) = waiter {
            let _ = waiter.send(is_done);
        }
    };
    while let Some(event) = events.recv().await {
        match event {
            LogEvent::Committed { parts, .. } => {
                parts
                    .into_iter()
                    .filter_map(|part| part.proposal)
                    .for_each(|id| tell(id, true));
            }
            LogEvent::Refused { proposal, .. } => tell(proposal, false),
            LogEvent::Leadership(_) | LogEvent::SnapshotInstalled { .. } | LogEvent::Failed(_) => {}
        }
    }
}

struct Node {
    log: RaftLog,
    waiting: Waiting,
}

struct Cluster {
    dir: PathBuf,
    peers: BTreeMap<u64, RaftPeerAddrs>,
    handlers: Handlers,
    nodes: BTreeMap<u64, Node>,
}

impl Cluster {
    async fn open(dir: &Path) -> Self {
        let addr = |id: u64| SocketAddr::from(([127, 0, 0, 1], id as u16));
        let addrs = |id| RaftPeerAddrs {
            raft_addr: addr(id),
            api_addr: addr(id),
        };
        let mut cluster = Cluster {
            dir: dir.to_owned(),
            peers: (1..=3).map(|id| (id, addrs(id))).collect(),
            handlers: Handlers::default(),
            nodes: BTreeMap::new(),
        };
        for id in 1..=3 {
            cluster.open_node(id).await;
        }
        cluster
    }

    async fn open_node(&mut self, id: u64) {
        let transport = Memory {
            from: id,
            handlers: Arc::clone(&self.handlers),
        };
        let dir = self.dir.join(format!("{id}"));
        let options = RaftOptions::new(id, self.peers.clone(), dir, Arc::new(transport));
        let OpenedRaftLog { log, events, .. } = RaftLog::open(options).await.expect("nobody else has it");
        let mut handlers = self.handlers.lock().expect("nobody panics with it");
        handlers.insert(id, log.handler());
        drop(handlers);
        let waiting = Waiting::default();
        tokio::spawn(drain(events, Arc::clone(&waiting)));
        self.nodes.insert(id, Node { log, waiting });
    }

    /// What the others see of a kill: nobody answers any more.
    async fn stop_node(&mut self, id: u64) {
        self.handlers.lock().expect("nobody panics with it").remove(&id);
        if let Some(node) = self.nodes.remove(&id) {
            node.log.shutdown().await;
        }
    }

    async fn leader(&self) -> &Node {
        loop {
            let leads = |node: &&Node| node.log.status().leadership.is_here;
            if let Some(leader) = self.nodes.values().find(leads) {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Writes once, through whoever leads; returns when it is committed.
    async fn write(&self, id: u64) {
        loop {
            let Node { log, waiting } = self.leader().await;
            let (sender, outcome) = oneshot::channel();
            waiting.lock().expect("nobody panics with it").insert(id, sender);
            let command = Bytes::from(vec![7; COMMAND_BYTES]);
            let is_taken = log.propose(ProposalId(id), vec![command]).is_ok();
            if is_taken && outcome.await.unwrap_or(false) {
                return;
            }
        }
    }

    /// Writes with so many clients at once; returns how long it took and how long each write took.
    async fn writes(&self, clients: u64, count: u64) -> (Duration, Vec<Duration>) {
        let each = count / clients;
        let leader = self.leader().await;
        let start = Instant::now();
        let loops: Vec<_> = (0..clients)
            .map(|client| {
                let (log, waiting) = (leader.log.clone(), Arc::clone(&leader.waiting));
                tokio::spawn(async move {
                    let command = Bytes::from(vec![7; COMMAND_BYTES]);
                    let mut took = Vec::with_capacity(each as usize);
                    for number in 0..each {
                        let id = (client << 32) | number;
                        let (sender, outcome) = oneshot::channel();
                        waiting.lock().expect("nobody panics with it").insert(id, sender);
                        let start = Instant::now();
                        log.propose(ProposalId(id), vec![command.clone()])
                            .expect("it leads");
                        assert!(outcome.await.expect("it is told"), "a write was refused");
                        took.push(start.elapsed());
                    }
                    took
                })
            })
            .collect();
        let mut took = Vec::new();
        for client in loops {
            took.extend(client.await.expect("no client panics"));
        }
        (start.elapsed(), took)
    }
}

fn bare(file: &File) -> f64 {
    let bytes = [7; BARE_WRITE_BYTES];
    let start = Instant::now();
    for number in 0..BARE_WRITES {
        let at = (number * BARE_WRITE_BYTES as u64) % BARE_FILE_BYTES;
        file.write_all_at(&bytes, at).expect("the disk works");
        file.sync_data().expect("the disk works");
    }
    BARE_WRITES as f64 / start.elapsed().as_secs_f64()
}

fn quantile(took: &mut [Duration], share: f64) -> Duration {
    took.sort();
    let at = ((took.len() - 1) as f64 * share) as usize;
    took[at]
}

async fn table(cluster: &Cluster, file: &File, is_measured: bool) {
    let turns = if is_measured { TURNS } else { 1 };
    println!("commands of {COMMAND_BYTES} bytes, three nodes, the best of {turns} turns");
    println!("clients  writes/s  ratio to bare  p50 ms  p99 ms");
    let bare = if is_measured { bare(file) } else { 1.0 };
    for clients in CLIENTS {
        let count = match is_measured {
            true => (clients * WRITES_A_CLIENT).max(MIN_WRITES),
            false => clients,
        };
        let mut best: Option<(f64, Duration, Duration)> = None;
        for _ in 0..turns {
            let (total, mut took) = cluster.writes(clients, count).await;
            let rate = took.len() as f64 / total.as_secs_f64();
            let (p50, p99) = (quantile(&mut took, 0.5), quantile(&mut took, 0.99));
            if best.is_none_or(|(known, ..)| rate > known) {
                best = Some((rate, p50, p99));
            }
        }
        let (rate, p50, p99) = best.expect("there is at least one turn");
        let ms = |took: Duration| took.as_secs_f64() * 1_000.0;
        println!(
            "{clients:>7} {rate:>9.0} {:>14.2} {:>7.2} {:>7.2}",
            rate / bare,
            ms(p50),
            ms(p99)
        );
    }
    println!("bare write and fdatasync: {bare:.0}/s");
}

/// How long nobody could write when the leader was gone, and when it handed over.
async fn outages(cluster: &mut Cluster) {
    let (mut killed, mut handed) = (Vec::new(), Vec::new());
    for round in 0..OUTAGES {
        cluster.write(u64::MAX - round).await;
        let old = cluster.leader().await.log.node_id();
        let start = Instant::now();
        cluster.stop_node(old).await;
        cluster.write(u64::MAX - round).await;
        killed.push(start.elapsed());
        cluster.open_node(old).await;
        cluster.write(u64::MAX - round).await;
        let start = Instant::now();
        let log = cluster.leader().await.log.clone();
        log.transfer(None).await.expect("the others are there");
        cluster.write(u64::MAX - round).await;
        handed.push(start.elapsed());
    }
    for (what, took) in [("killed", &mut killed), ("handed over", &mut handed)] {
        let (p50, max) = (quantile(took, 0.5), quantile(took, 1.0));
        println!(
            "leader {what} {OUTAGES} times: a write is committed after {p50:.0?} (p50), {max:.0?} (max)"
        );
    }
}

fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target directory can be written");
    let file = File::create_new(dir.path().join("bare")).expect("the directory is new");
    file.write_all_at(&vec![0; BARE_FILE_BYTES as usize], 0)
        .expect("the disk has room");
    file.sync_all().expect("the disk works");
    // `cargo test --benches` only asks whether it runs.
    let is_measured = std::env::args().any(|arg| arg == "--bench");
    let runtime = tokio::runtime::Runtime::new().expect("threads can be had");
    runtime.block_on(async {
        let mut cluster = Cluster::open(dir.path()).await;
        table(&cluster, &file, is_measured).await;
        if is_measured {
            outages(&mut cluster).await;
        }
        for id in 1..=3 {
            cluster.stop_node(id).await;
        }
    });
}
