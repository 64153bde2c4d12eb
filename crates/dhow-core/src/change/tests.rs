//! What is said, in which order, and what a comparison finds without having been there.

use std::sync::Arc;

use super::*;
use crate::amount::Amount;
use crate::command::{
    AgentCommand, AgentEvent, ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, PlanCommand,
};
use crate::ids::Term;
use crate::plan::{PlanCache, plan_next};
use crate::replica::Exit;
use crate::spec::DeploymentSpec;
use crate::state::{NodeInfo, NodeRole, Request};
use crate::step::step;
use crate::time::ClusterTime;

/// Keeps what it is told, with the names that the state has at that moment.
#[derive(Default)]
struct Heard(Vec<String>);

impl ChangeSink for Heard {
    fn tell(&mut self, state: &State, change: Change<'_>) {
        let text = match change {
            Change::Cluster(change) => format!("{change:?}"),
            Change::Node(node, change) => format!("node {node} {change:?}"),
            Change::Deployment(name, change) => {
                let is_known = state.deployment(name).is_some();
                format!("{name} {change:?}, known: {is_known}")
            }
            Change::Service(id, change) => match state.service(id) {
                Some(service) => format!("{} {change:?}", service.key),
                None => format!("unknown {change:?}"),
            },
            Change::Replica(key, node, change) => match state.replica_name(&key) {
                Some(name) => format!("{name} on {node} {change:?}"),
                None => format!("unknown {change:?}"),
            },
            Change::Refused(refused) => format!("refused: {refused}"),
        };
        self.0.push(text);
    }
}

#[derive(Default)]
struct Cluster {
    state: State,
}

impl Cluster {
    fn apply(&mut self, command: Command) -> Vec<String> {
        let entry = Entry {
            time: ClusterTime(self.state.time.0 + 100),
            term: Term(0),
            request: None,
            command,
        };
        let mut heard = Heard::default();
        let _ = step(&mut self.state, &entry, &mut heard);
        heard.0
    }

    fn register(&mut self, node: u64) -> Vec<String> {
        let info = NodeInfo {
            role: NodeRole::Peer,
            api_addr: None,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Default::default(),
            capacity: Amount {
                cpu_milli: 4_000,
                memory_bytes: 1 << 33,
            },
            runs_replicas: true,
            tries_settings: false,
            mounts_files: false,
            runs_steps: false,
            volumes: crate::spec::VolumeSupport::Named,
            mesh_addr: None,
        };
        self.apply(Command::Node(NodeCommand::Register {
            node: NodeId(node),
            info: Arc::new(info),
        }))
    }

    fn deploy(&mut self) -> Vec<String> {
        let text = r#"{"version":"v1","deployment":"shop","services":{"web":{"image":"shop:1"}}}"#;
        let spec: DeploymentSpec = serde_json::from_str(text).unwrap();
        self.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "ann".into(),
            wall_unix_secs: 0,
            force: false,
        }))
    }

    fn plan(&mut self) -> Vec<String> {
        let plan = plan_next(&self.state, &mut PlanCache::default(), self.state.time);
        let commands = plan.commands.into_iter().map(Command::Plan);
        commands.flat_map(|command| self.apply(command)).collect()
    }

    fn report(&mut self, event: ReplicaEvent) -> Vec<String> {
        let replica = *self.state.replicas.keys().next().unwrap();
        let node = self.state.replicas[&replica].node;
        self.apply(Command::Agent(AgentCommand::Report {
            node,
            incarnation: 0,
            first_seq: self.state.node(node).unwrap().session.seq + 1,
            events: vec![AgentEvent { replica, event }],
        }))
    }
}

#[test]
fn a_life_is_told_from_its_beginning_to_its_end() {
    let mut cluster = Cluster::default();
    assert_eq!(cluster.register(1), ["node 1 Joined"]);
    assert!(cluster.register(1).is_empty(), "the same again is no news");
    assert_eq!(
        cluster.deploy(),
        [
            r#"shop Deployed { revision: DeploymentRevision(1), author: "ann", brings_back: None }, known: true"#
        ]
    );
    assert!(cluster.deploy().is_empty(), "nor is this");
    assert_eq!(
        cluster.plan(),
        ["shop/web-default-0 on 1 Placed", "node 1 AssignmentChanged"]
    );
    assert_eq!(
        cluster.report(ReplicaEvent::StartBegan),
        ["shop/web-default-0 on 1 Reported(StartBegan)"]
    );
    assert_eq!(
        cluster.report(ReplicaEvent::BecameHealthy),
        ["shop/web-default-0 on 1 Diverged(BecameHealthy)"]
    );
    cluster.report(ReplicaEvent::Started { pid: 7 });
    let remove = DeploymentCommand::Remove {
        deployment: DeploymentName::new("shop").unwrap(),
    };
    assert_eq!(
        cluster.apply(Command::Deployment(remove)),
        ["shop RemovalAsked, known: true"]
    );
    assert_eq!(
        cluster.plan(),
        [
            "shop/web-default-0 on 1 StopAsked(Planned(Removed))",
            "node 1 AssignmentChanged"
        ]
    );
    cluster.report(ReplicaEvent::StopBegan);
    let ended = ReplicaEvent::Ended {
        exit: Exit::Code(0),
        oom: false,
    };
    assert_eq!(
        cluster.report(ended),
        [
            "shop/web-default-0 on 1 Reported(Ended { exit: Code(0), oom: false })",
            "shop/web-default-0 on 1 Removed",
        ],
        "its node knows already that it has nothing more to do with it"
    );
    assert_eq!(
        cluster.plan(),
        ["shop/web Removed", "shop Removed, known: true"],
        "with the names that are about to be forgotten"
    );
}

#[test]
fn a_refusal_is_all_that_is_said_of_an_entry_and_a_repeated_request_says_nothing() {
    let mut cluster = Cluster::default();
    let lost = Command::Node(NodeCommand::Lost { node: NodeId(3) });
    assert_eq!(cluster.apply(lost), ["refused: there is no node 3"]);
    cluster.register(1);
    cluster.deploy();
    let plan = plan_next(&cluster.state, &mut PlanCache::default(), cluster.state.time);
    cluster.apply(Command::Node(NodeCommand::SetDrain {
        node: NodeId(1),
        drain: Drain::Draining { shutdown: false },
    }));
    let [place @ PlanCommand::Place { .. }] = plan.commands.as_slice() else {
        panic!("{:?}", plan.commands);
    };
    assert_eq!(
        cluster.apply(Command::Plan(place.clone())),
        ["refused: the plan is out of date: the node has changed since it was chosen"]
    );
    let entry = Entry {
        time: ClusterTime(0),
        term: Term(0),
        request: Some(crate::command::RequestId {
            request: Request {
                principal: "ann".into(),
                key: "k".into(),
            },
            body_hash: [0; 32],
        }),
        command: Command::Cluster(ClusterCommand::SetSecret {
            name: "s".into(),
            sealed: Arc::from([1].as_slice()),
        }),
    };
    let mut heard = Heard::default();
    step(&mut cluster.state, &entry, &mut heard).unwrap();
    step(&mut cluster.state, &entry, &mut heard).unwrap();
    assert_eq!(heard.0, [r#"SecretSet { name: "s" }"#]);
}

#[test]
fn a_node_hears_of_what_it_is_to_do_and_of_nothing_else() {
    let mut cluster = Cluster::default();
    for node in 1..=100 {
        cluster.register(node);
    }
    let label = NodeCommand::Label {
        node: NodeId(7),
        set: [("disk".to_owned(), "ssd".to_owned())].into(),
        unset: Vec::new(),
    };
    assert_eq!(cluster.apply(Command::Node(label)), ["node 7 Labelled"]);
    let drain = NodeCommand::SetDrain {
        node: NodeId(42),
        drain: Drain::Draining { shutdown: true },
    };
    assert_eq!(
        cluster.apply(Command::Node(drain)),
        ["node 42 Drain(Drained { shutdown: true })"],
        "it has nothing that could leave"
    );
    let remove = NodeCommand::Remove { node: NodeId(9) };
    assert_eq!(cluster.apply(Command::Node(remove)), ["node 9 Removed"]);
    let lost = NodeCommand::Lost { node: NodeId(5) };
    assert_eq!(cluster.apply(Command::Node(lost.clone())), ["node 5 Lost"]);
    assert!(cluster.apply(Command::Node(lost)).is_empty());
    let back = NodeCommand::Back { node: NodeId(5) };
    assert_eq!(cluster.apply(Command::Node(back.clone())), ["node 5 Back"]);
    assert!(cluster.apply(Command::Node(back)).is_empty());
}

#[test]
fn a_comparison_finds_what_a_whole_life_has_left() {
    let mut cluster = Cluster::default();
    cluster.register(1);
    let before = cluster.state.clone();
    cluster.register(2);
    cluster.apply(Command::Node(NodeCommand::Lost { node: NodeId(1) }));
    cluster.deploy();
    cluster.plan();
    for event in [
        ReplicaEvent::StartBegan,
        ReplicaEvent::Started { pid: 7 },
        ReplicaEvent::BecameHealthy,
    ] {
        cluster.report(event);
    }
    let mut heard = Heard::default();
    compare(&before, &cluster.state, &mut heard);
    let machine = r#"Machine { state: Running, healthy: true, pid: Some(7), restarts: 0, failures: 0, exit: None, oom: false, message: None }"#;
    assert_eq!(
        heard.0,
        [
            "node 1 Lost".to_owned(),
            "node 2 Joined".to_owned(),
            "node 2 AssignmentChanged".to_owned(),
            r#"shop Deployed { revision: DeploymentRevision(1), author: "ann", brings_back: None }, known: true"#
                .to_owned(),
            "shop/web-default-0 on 2 Placed".to_owned(),
            format!("shop/web-default-0 on 2 Observed({machine})"),
        ]
    );
    let mut back = Heard::default();
    compare(&cluster.state, &before, &mut back);
    assert_eq!(
        back.0,
        [
            "node 1 Back",
            "node 2 Removed",
            "shop Removed, known: true",
            "shop/web Removed",
            "shop/web-default-0 on 2 Removed",
        ],
        "what is gone is named by the state that had it"
    );
    let mut same = Heard::default();
    compare(&before, &before, &mut same);
    assert!(same.0.is_empty());
}

#[test]
fn a_worker_that_joins_in_the_plain_form_is_told_once() {
    let mut cluster = Cluster::default();
    cluster.apply(Command::Cluster(ClusterCommand::Bootstrap {
        cluster_id: "c".into(),
        feature_level: 2,
        nodes_limit: None,
    }));
    cluster.apply(Command::Cluster(ClusterCommand::IssueToken {
        nonce: "n".into(),
        uses_allowed: 1,
        expires_unix_secs: 0,
    }));
    let before = cluster.state.clone();
    cluster.register(9);
    let info = Arc::clone(&cluster.state.node(NodeId(9)).unwrap().info);
    cluster.state = before.clone();
    let said = cluster.apply(Command::Cluster(ClusterCommand::UseToken {
        nonce: "n".into(),
        key_hash: "key".into(),
        now_unix_secs: 0,
        wish: None,
        info,
        is_plain: true,
    }));
    let mut found = Heard::default();
    compare(&before, &cluster.state, &mut found);
    assert_eq!(found.0, ["node 1 Joined"]);
    assert!(said.contains(&found.0[0]), "{said:?}");
}
