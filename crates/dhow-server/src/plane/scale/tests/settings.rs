//! Settings that replicas try reach a peer as they would reach a node with a session.

use std::collections::BTreeMap;

use dhow_core::amount::Amount;
use dhow_core::assignment::{RoleAssignment, assignment_since};
use dhow_core::command::{
    AgentCommand, AgentEvent, ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand,
};
use dhow_core::ids::{DeploymentName, NodeId, ServiceKey, ServiceName, Term};
use dhow_core::plan::{PlanCache, plan_next};
use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::{Check, DeploymentSpec, Endpoint, HealthSpec, Protocol, ScaleSpec};
use dhow_core::state::{NodeInfo, NodeRole, State};
use dhow_core::time::ClusterTime;

use super::*;
use crate::plane::scale::wanted::wanted;

const NODE: NodeId = NodeId(1);

/// A leader's state, moved by commands alone.
struct Leader(State);

impl Leader {
    fn new() -> Self {
        let mut leader = Self(State::default());
        leader.apply(Command::Cluster(ClusterCommand::Bootstrap {
            cluster_id: "test".into(),
            feature_level: State::FEATURE_LEVEL,
            nodes_limit: Some(State::NODES_LIMIT),
        }));
        leader.apply(Command::Cluster(ClusterCommand::TermBegan {
            leader: NODE,
            wall_unix_ms: None,
        }));
        let info = NodeInfo {
            role: NodeRole::Peer,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::default(),
            capacity: Amount {
                cpu_milli: 4_000,
                memory_bytes: 1 << 33,
            },
            runs_replicas: true,
            tries_settings: true,
            mounts_files: true,
            runs_steps: true,
            volumes: dhow_core::spec::VolumeSupport::Sized,
            mesh_addr: None,
        };
        leader.apply(Command::Node(NodeCommand::Register {
            node: NODE,
            info: Arc::new(info),
        }));
        leader
    }

    fn apply(&mut self, command: Command) {
        let entry = Entry {
            time: ClusterTime(1),
            term: Term(1),
            request: None,
            command,
        };
        dhow_core::step::step(&mut self.0, &entry, &mut ()).unwrap();
    }

    fn deploy(&mut self, spec: ServiceSpec) {
        let spec = DeploymentSpec {
            version: Default::default(),
            deployment: DeploymentName::new("shop").unwrap(),
            services: [(ServiceName::new("web").unwrap(), Arc::new(spec))].into(),
            scaled: Default::default(),
            configs: Default::default(),
        };
        self.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "test".into(),
            wall_unix_secs: 0,
            force: false,
        }));
        let mut cache = PlanCache::default();
        loop {
            let plan = plan_next(&self.0, &mut cache, ClusterTime(1));
            if plan.commands.is_empty() {
                return;
            }
            for command in plan.commands {
                self.apply(Command::Plan(command));
            }
        }
    }

    /// The node says that all it was given is healthy: only what runs can try other settings.
    fn run_all(&mut self) {
        let keys = self.0.replicas.keys();
        let events = keys.flat_map(|replica| {
            let events = [
                ReplicaEvent::PullBegan,
                ReplicaEvent::StartBegan,
                ReplicaEvent::Started { pid: 42 },
                ReplicaEvent::BecameHealthy,
            ];
            events.map(|event| AgentEvent {
                replica: *replica,
                event,
            })
        });
        let events = events.collect();
        self.apply(Command::Agent(AgentCommand::Report {
            node: NODE,
            incarnation: 0,
            first_seq: 1,
            events,
        }));
    }

    /// What a session tells a node.
    fn assigned(&self) -> BTreeMap<ServiceKey, Vec<RoleAssignment>> {
        assignment_since(&self.0, NODE, None).unwrap().services
    }
}

fn on(target_port: u16, checked: u16) -> ServiceSpec {
    ServiceSpec {
        endpoints: vec![Endpoint {
            target_port: Some(target_port),
            ..Endpoint::new("http", Protocol::Http, 80)
        }],
        health: Some(HealthSpec::of(Check::Tcp { port: checked })),
        scale: ScaleSpec::Fixed { replicas: 3 },
        ..spec("web:1")
    }
}

#[tokio::test]
async fn settings_to_come_and_their_target_ports_reach_a_static_peer() {
    let (bench, mut leader) = (Bench::new(), Leader::new());
    let mut desk = bench.desk();
    leader.deploy(on(8080, 8080));
    leader.run_all();
    // As it is, on trial, and taken back.
    for (asked, tries) in [
        (on(8080, 8080), None),
        (on(9090, 9091), Some(9090)),
        (on(8080, 8080), None),
    ] {
        leader.deploy(asked);
        let (_, request) = wanted(&leader.0, NODE, 4).pop_first().unwrap();
        // As it goes over the network.
        let request: InternalScaleRequest =
            serde_json::from_slice(&serde_json::to_vec(&request).unwrap()).unwrap();
        let digest = digest_of(&request);
        desk.take(request).await.unwrap();
        let told = desk.by_hand(|_| false);
        assert_eq!(told, leader.assigned());
        let replicas: Vec<_> = told
            .iter()
            .flat_map(|(key, roles)| replicas(key, roles))
            .collect();
        assert_eq!(replicas.len(), 3);
        let mut tried = None;
        for (_, alike) in replicas {
            assert_eq!(alike.spec.endpoints[0].target_port(), 8080);
            let next = alike.next.as_ref();
            tried = tried.or(next.map(|next| next.spec.endpoints[0].target_port()));
        }
        // One replica after the other tries them.
        assert_eq!(tried, tries);
        // What it was told outlives its daemon.
        desk = bench.desk();
        assert_eq!(desk.listing().services[0].digest, digest, "nothing is told twice");
    }
}
