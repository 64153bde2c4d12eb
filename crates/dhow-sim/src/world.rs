//! A world from a seed, in one thread: three servers that hold sessions, one of them the leader, over one log in memory; and
//! nodes with the real decisions of an agent's keeper, over a network that delays, loses, repeats and cuts. Its time is made
//! up, and the same seed gives the same world.
//!
//! What is real here is what decides: the keeper's core and its search for a server, the table of a holder's sessions, the
//! leader's leases, `step`, the planner, and the answers to reports. Consensus is not: the log takes what a leader with a
//! quorum writes. The world watches what must never happen ([`World::run`]).

mod chance;
mod fault;
mod leader;
mod log;
mod message;
mod network;
mod node;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::command::{ClusterCommand, Command, DeploymentCommand, NodeCommand, ScaleChange};
use dhow_core::ids::{DeploymentName, NodeId, RoleName, ServiceName};
use dhow_core::state::{NodeInfo, NodeRole, State};

use chance::Chance;
use fault::Fault;
use leader::Leader;
use log::SharedLog;
use message::{Connection, Message};
use network::Network;
use node::{Node, Turn};
use server::{Server, Sight};

const TICK_MS: u64 = 100;
const SERVERS: u64 = 3;
/// As many nodes as one of these.
const NODES: [u64; 4] = [4, 7, 12, 30];
/// How long the servers are without a leader before they elect another.
const ELECTION_MS: u64 = 1_500;
/// The dead are given up by then, counted from the last election where that was later; and a turn, and a lost beat.
const NOTICED_MS: u64 = 60_000;
const NOTICED_LATE_MS: u64 = 2_000;
/// How long a world without faults takes at the most until all is as it should be.
const REST_MS: u64 = 120_000;
const SCALED_EVERY_MS: u64 = 20_000;

/// Three servers, their nodes and what is between them.
pub struct World {
    seed: u64,
    now_ms: u64,
    chance: Chance,
    log: SharedLog,
    network: Network,
    servers: BTreeMap<NodeId, Server>,
    nodes: BTreeMap<NodeId, Node>,
    connections: Connection,
    leaderless_since_ms: Option<u64>,
    fault: Option<Fault>,
    /// The order that each node has acted on last.
    highest: BTreeMap<NodeId, (u64, u64)>,
    /// What befell it, for whoever looks into a failure.
    story: Vec<String>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let count = chance.pick(&NODES).unwrap_or(NODES[0]);
        let server_ids: Vec<NodeId> = (1..=SERVERS).map(NodeId).collect();
        let servers = server_ids
            .iter()
            .map(|id| (*id, Server::new(*id, id.0, Leader::new(*id))));
        let nodes = (0..count).map(|id| NodeId(100 + id));
        let mut world = Self {
            seed,
            now_ms: 1_000,
            chance,
            log: SharedLog::new(),
            network: Network::default(),
            servers: servers.collect(),
            nodes: nodes.map(|id| (id, Node::new(id, &server_ids, 1_000))).collect(),
            connections: 0,
            leaderless_since_ms: None,
            fault: None,
            highest: BTreeMap::new(),
            story: Vec::new(),
        };
        world.found();
        world
    }

    /// The first leader writes what a cluster begins with.
    fn found(&mut self) {
        let now_ms = self.now_ms;
        let boot = ClusterCommand::Bootstrap {
            cluster_id: "world".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        };
        let _ = self.log.write(Command::Cluster(boot), now_ms);
        self.elect(NodeId(1));
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in nodes {
            let info = Arc::new(info());
            let register = NodeCommand::Register { node, info };
            let _ = self.log.write(Command::Node(register), now_ms);
        }
        let replicas = self.nodes.len() * 2;
        let text = format!(
            "version: v1\ndeployment: shop\nservices:\n  web: {{ image: 'web:1', scale: {{ mode: fixed, replicas: {replicas} }} }}\n"
        );
        let spec = dhow_wire::parse_deployment(&text, "shop.yaml", &|_| None);
        let deploy = DeploymentCommand::Deploy {
            spec: Arc::new(spec.expect("a deployment without findings")),
            author: "world".into(),
            wall_unix_secs: 0,
            force: false,
        };
        let (_, deployed) = self.log.write(Command::Deployment(deploy), now_ms);
        deployed.expect("the deployment is taken");
        // The nodes of a new leader live.
        let state = Arc::clone(self.log.state());
        if let Some(server) = self.servers.get_mut(&NodeId(1)) {
            server.leader.begin_term(self.log.term, &state, now_ms);
        }
    }

    /// Lets time pass with faults, one every two minutes, and then without, until all is as it should be.
    ///
    /// # Panics
    /// Where a node acts on a lower order than before, a report is acknowledged that is not in the log, one who lives is given
    /// up, one who died is not within a minute, a replica runs twice, or the world does not come to rest. The seed and what
    /// happened stand in the message.
    pub fn run(&mut self, faults: u64) {
        self.pass(40_000, true);
        for _ in 0..faults {
            self.begin_fault();
            self.pass(Fault::EVERY_MS, true);
        }
        self.pass(REST_MS, false);
        self.check_rest();
    }

    fn pass(&mut self, span_ms: u64, is_scaled: bool) {
        let end_ms = self.now_ms + span_ms;
        while self.now_ms < end_ms {
            self.now_ms += TICK_MS;
            self.end_fault();
            self.watch_leader();
            self.tick();
            self.check();
            if self.now_ms.is_multiple_of(SCALED_EVERY_MS) {
                self.forget_connections();
                if is_scaled {
                    self.scale();
                }
            }
        }
    }

    fn forget_connections(&mut self) {
        let (servers, nodes) = (&self.servers, &self.nodes);
        self.network.retain(|connection| {
            servers.values().any(|server| server.uses(connection))
                || nodes.values().any(|node| node.connection() == Some(connection))
        });
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        let (servers, nodes, now_ms) = (&self.servers, &self.nodes, self.now_ms);
        let hears = |id: NodeId| match servers.get(&id) {
            Some(server) => server.runs(now_ms),
            None => nodes.get(&id).is_some_and(Node::is_alive),
        };
        for message in self.network.arrived(now_ms, hears) {
            self.deliver(message, &mut out);
        }
        let servers: Vec<NodeId> = self.servers.keys().copied().collect();
        for id in servers {
            self.with_server(id, &mut out, |server, sight| server.tick(sight));
        }
        for node in self.nodes.values_mut().filter(|node| node.is_alive()) {
            node.tick(&mut Turn {
                now_ms,
                chance: &mut self.chance,
                out: &mut out,
                connections: &mut self.connections,
            });
        }
        for message in out {
            self.network.send(message, now_ms, &mut self.chance);
        }
    }

    fn with_server(
        &mut self,
        id: NodeId,
        out: &mut Vec<Message>,
        act: impl FnOnce(&mut Server, &mut Sight<'_>),
    ) {
        let leads = self.log.leader == Some(id) && self.has_quorum(id);
        let reaches = match self.log.leader {
            Some(leader) if leader == id => self.log.leader.filter(|_| leads),
            other => other.filter(|leader| !self.network.is_cut(id, *leader)),
        };
        let now_ms = self.now_ms;
        let Some(server) = self.servers.get_mut(&id).filter(|server| server.runs(now_ms)) else {
            return;
        };
        let mut sight = Sight {
            now_ms,
            log: &mut self.log,
            reaches,
            leads,
            out,
        };
        act(server, &mut sight);
    }

    fn deliver(&mut self, message: Message, out: &mut Vec<Message>) {
        match message {
            Message::ToServer {
                from,
                to,
                connection,
                word,
            } => self.with_server(to, out, |server, sight| {
                server.hear_node(from, connection, word, sight);
            }),
            Message::Between { from, to, word } => {
                self.with_server(to, out, |server, sight| server.hear_peer(from, word, sight));
            }
            Message::ToNode {
                from,
                to,
                connection,
                word,
            } => {
                let mut turn = Turn {
                    now_ms: self.now_ms,
                    chance: &mut self.chance,
                    out,
                    connections: &mut self.connections,
                };
                if let Some(node) = self.nodes.get_mut(&to).filter(|node| node.is_alive()) {
                    node.hear(from, connection, word, &mut turn);
                }
            }
        }
    }

    fn has_quorum(&self, id: NodeId) -> bool {
        let runs = |server: &&Server| server.runs(self.now_ms);
        let running = self.servers.values().filter(runs);
        let reached = running.filter(|other| other.id == id || !self.network.is_cut(id, other.id));
        let is_up = self.servers.get(&id).is_some_and(|server| runs(&server));
        is_up && reached.count() as u64 > SERVERS / 2
    }

    /// Servers that have been without a leader for too long elect one that has a quorum.
    fn watch_leader(&mut self) {
        if self.log.leader.is_some_and(|leader| self.has_quorum(leader)) {
            self.leaderless_since_ms = None;
            return;
        }
        let since_ms = *self.leaderless_since_ms.get_or_insert(self.now_ms);
        if self.now_ms - since_ms < ELECTION_MS {
            return;
        }
        let able: Vec<NodeId> = self
            .servers
            .keys()
            .copied()
            .filter(|id| self.has_quorum(*id))
            .collect();
        if let Some(next) = self.chance.pick(&able) {
            self.leaderless_since_ms = None;
            self.elect(next);
        }
    }

    fn elect(&mut self, leader: NodeId) {
        self.log.term = self.log.term.next();
        self.log.leader = Some(leader);
        self.log.elected_ms = self.now_ms;
        self.tell(format!("server {leader} is elected in term {}", self.log.term));
        let began = ClusterCommand::TermBegan {
            leader,
            wall_unix_ms: None,
        };
        let (index, _) = self.log.write(Command::Cluster(began), self.now_ms);
        let state = Arc::clone(self.log.state());
        if let Some(server) = self.servers.get_mut(&leader) {
            server.applied = index;
            server.leader.begin_term(self.log.term, &state, self.now_ms);
        }
        for server in self.servers.values_mut() {
            server.lag_ms = 5 + self.chance.below(300);
        }
    }

    /// Somebody wants more replicas, or fewer.
    fn scale(&mut self) {
        if !self.log.leader.is_some_and(|leader| self.has_quorum(leader)) {
            return;
        }
        let most = self.nodes.len() as u64 * 3;
        let replicas = u32::try_from(1 + self.chance.below(most)).unwrap_or(1);
        let (Ok(deployment), Ok(service)) = (DeploymentName::new("shop"), ServiceName::new("web")) else {
            return;
        };
        let changes = vec![ScaleChange {
            service,
            role: None,
            replicas,
        }];
        let scale = DeploymentCommand::Scale { deployment, changes };
        let _ = self.log.write(Command::Deployment(scale), self.now_ms);
    }

    fn tell(&mut self, what: String) {
        self.story.push(format!("{:>8} {what}", self.now_ms));
    }

    fn fail(&self, what: &str) -> ! {
        panic!(
            "seed {}, {} nodes, at {}: {what}\n{}",
            self.seed,
            self.nodes.len(),
            self.now_ms,
            self.story.join("\n")
        );
    }

    fn check(&mut self) {
        let given_up = self.servers.values_mut();
        let given_up: Vec<NodeId> = given_up
            .flat_map(|server| std::mem::take(&mut server.leader.given_up))
            .collect();
        for node in given_up {
            self.tell(format!("node {node} is given up"));
            if self.nodes.get(&node).is_some_and(Node::is_alive) {
                self.fail(&format!("node {node} lives and is given up"));
            }
        }
        let state = Arc::clone(self.log.state());
        let mut wrong = None;
        for (id, node) in &mut self.nodes {
            let known = state.node(*id).map(|known| known.session);
            let told = std::mem::take(&mut node.acknowledged).into_iter().max();
            if told.is_some_and(|seq| known.is_none_or(|known| known.seq < seq)) {
                wrong = Some(format!(
                    "node {id} has {told:?} acknowledged and the log has {known:?}"
                ));
            }
            let before = self.highest.insert(*id, node.highest()).unwrap_or_default();
            if node.highest() < before {
                wrong = Some(format!(
                    "node {id} goes back from {before:?} to {:?}",
                    node.highest()
                ));
            }
            let since_ms = node.died_ms.map(|died_ms| died_ms.max(self.log.elected_ms));
            let is_late =
                since_ms.is_some_and(|since_ms| self.now_ms > since_ms + NOTICED_MS + NOTICED_LATE_MS);
            if is_late && state.node(*id).is_some_and(|node| node.is_ready()) {
                wrong = Some(format!("node {id} is dead and missed by nobody"));
            }
        }
        if let Some(wrong) = wrong {
            self.fail(&wrong);
        }
        self.check_once();
    }

    /// No replica runs in two places at once, among nodes that live.
    fn check_once(&self) {
        let mut places: BTreeMap<(&RoleName, u32), NodeId> = BTreeMap::new();
        for node in self.nodes.values().filter(|node| node.is_alive()) {
            for name in node.running() {
                let before = places.insert((&name.role, name.index), node.id);
                if let Some(other) = before.filter(|other| *other != node.id) {
                    self.fail(&format!("{name} runs on node {other} and on node {}", node.id));
                }
            }
        }
    }

    /// In a world at rest everybody who lives is ready, and runs what the state says.
    fn check_rest(&self) {
        let state = self.log.state();
        for node in self.nodes.values().filter(|node| node.is_alive()) {
            if !state.node(node.id).is_some_and(|known| known.is_ready()) {
                self.fail(&format!("node {} lives and is not back", node.id));
            }
            if node.server().is_none() {
                self.fail(&format!("node {} has no session", node.id));
            }
            let keys = state
                .node(node.id)
                .into_iter()
                .flat_map(|node| node.replica_keys());
            let wanted = keys.filter_map(|key| state.replica_name(&key)).count();
            if node.running().len() != wanted {
                let running = node.running().len();
                self.fail(&format!("node {} runs {running} of {wanted}", node.id));
            }
        }
    }
}

fn info() -> NodeInfo {
    NodeInfo {
        role: NodeRole::Worker,
        api_addr: None,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity: Amount {
            cpu_milli: 64_000,
            memory_bytes: 1 << 38,
        },
        runs_replicas: true,
        tries_settings: true,
        mounts_files: true,
        runs_steps: true,
        volumes: dhow_core::spec::VolumeSupport::Sized,
        mesh_addr: None,
    }
}
