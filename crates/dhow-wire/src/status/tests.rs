//! The bytes of every document that other tools read.

use std::collections::BTreeMap;

use dhow_core::replica::ReplicaState;
use dhow_core::state::{Drain, Liveness, Phase};
use dhow_core::time::ClusterTime;
use proptest::prelude::*;

use super::*;
use crate::api::{PastGap, PastWindow};
use crate::problem::{Problem, ProblemCode};
use crate::stabilization::ServiceHealthSummary;
use crate::stabilization::{StabilizationOutcome, StabilizationResult};
use crate::testing::{check_golden, check_round_trip, config, text};

/// The words of a closed enum, as JSON has them.
fn words<T: serde::Serialize>(values: &[T]) -> String {
    serde_json::to_string(values).unwrap()
}

#[test]
fn deployments() {
    let mut status = DeploymentStatus {
        deployment: "shop".into(),
        revision: 1,
        state: DeploymentState::Stable,
        services: vec![ServiceHealthSummary {
            name: "web".into(),
            running: 3,
            desired: 3,
            healthy: true,
            endpoints: vec!["http://localhost:8080".into()],
            ..Default::default()
        }],
        message: None,
        notes: Vec::new(),
        served: Vec::new(),
        source: None,
    };
    let text = r#"{"deployment":"shop","revision":1,"state":"stable","services":[{"name":"web","running":3,"desired":3,"healthy":true,"endpoints":["http://localhost:8080"]}]}"#;
    check_golden(&status, text);
    status.message = Some("m".into());
    check_golden(&status, &text.replace("]}]}", r#"]}],"message":"m"}"#));
    status.message = None;
    status.served = vec![ServedEndpoint {
        service: "web".into(),
        address: "http://localhost:8080".into(),
        public: true,
        nodes: vec![ServingNode {
            node_id: 2,
            host: Some("10.0.0.2".into()),
        }],
        requests_per_second: None,
        errors_per_second: None,
    }];
    let served = r#"]}],"served":[{"service":"web","address":"http://localhost:8080","public":true,"nodes":[{"node_id":2,"host":"10.0.0.2"}]}]}"#;
    check_golden(&status, &text.replace("]}]}", served));
    status.served[0].requests_per_second = Some(12.5);
    status.served[0].errors_per_second = Some(0.0);
    let called = r#""}],"requests_per_second":12.5,"errors_per_second":0.0}]}"#;
    check_golden(
        &status,
        &text.replace("]}]}", &served.replace(r#""}]}]}"#, called)),
    );
    let all = [
        DeploymentState::Deploying,
        DeploymentState::Stable,
        DeploymentState::Degraded,
        DeploymentState::Reverting,
        DeploymentState::Reverted,
        DeploymentState::Failed,
        DeploymentState::Removing,
        DeploymentState::RevertFailed,
        DeploymentState::Stopped,
    ];
    assert_eq!(
        words(&all),
        r#"["deploying","stable","degraded","reverting","reverted","failed","removing","revert_failed","stopped"]"#
    );
}

#[test]
fn replicas() {
    let mut status = ReplicaStatus {
        deployment: "shop".into(),
        service: "web".into(),
        role: "default".into(),
        replica: 2,
        id: "web-default-2".into(),
        node_id: None,
        image: None,
        state: ReplicaStateName::Pending,
        healthy: false,
        restarts: 0,
        pid: None,
        exit_code: None,
        generation: None,
        revision: None,
        started_unix_secs: None,
        cpu_used_milli: None,
        memory_used_bytes: None,
        live: None,
        message: None,
    };
    check_golden(
        &status,
        r#"{"deployment":"shop","service":"web","role":"default","replica":2,"id":"web-default-2","node_id":null,"image":null,"state":"pending","healthy":false,"restarts":0,"pid":null,"exit_code":null}"#,
    );
    status.node_id = Some(3);
    status.image = Some("nginx".into());
    status.pid = Some(9);
    status.exit_code = Some(42);
    status.generation = Some(1);
    status.revision = Some(7);
    status.started_unix_secs = Some(5);
    status.cpu_used_milli = Some(250);
    status.memory_used_bytes = Some(64);
    status.live = Some("exited".into());
    status.message = Some("m".into());
    check_golden(
        &status,
        r#"{"deployment":"shop","service":"web","role":"default","replica":2,"id":"web-default-2","node_id":3,"image":"nginx","state":"pending","healthy":false,"restarts":0,"pid":9,"exit_code":42,"generation":1,"revision":7,"started_unix_secs":5,"cpu_used_milli":250,"memory_used_bytes":64,"live":"exited","message":"m"}"#,
    );
    assert_eq!(
        words(&ReplicaStateName::ALL),
        r#"["pending","pulling","starting","running","stopping","exited","failed","lost"]"#
    );
    for state in ReplicaStateName::ALL {
        assert_eq!(state.to_string().parse(), Ok(state));
        assert_eq!(words(&[state]), format!("[\"{state}\"]"));
    }
    assert_eq!("Running".parse::<ReplicaStateName>(), Err(UnknownReplicaState));
}

#[test]
fn nodes() {
    let mut status = NodeStatus {
        node_id: 1,
        role: NodeRole::Server,
        status: NodeState::Ready,
        leader: true,
        labels: BTreeMap::new(),
        replicas: 4,
        runs_replicas: true,
        os: None,
        arch: None,
        api_addr: None,
        mesh_addr: None,
        drain: None,
        resources: None,
        lease: None,
        failures: None,
    };
    check_golden(
        &status,
        r#"{"node_id":1,"role":"server","status":"ready","leader":true,"labels":{},"replicas":4}"#,
    );
    status.labels.insert("zone".into(), "a".into());
    status.os = Some("linux".into());
    status.arch = Some("aarch64".into());
    status.api_addr = Some("10.0.0.1:3669".into());
    status.resources = Some(NodeAmounts {
        capacity: ResourceAmount {
            cpu_milli: 4_000,
            memory_bytes: 8,
        },
        reserved: ResourceAmount::default(),
        used: None,
    });
    check_golden(
        &status,
        r#"{"node_id":1,"role":"server","status":"ready","leader":true,"labels":{"zone":"a"},"replicas":4,"os":"linux","arch":"aarch64","api_addr":"10.0.0.1:3669","resources":{"capacity":{"cpu_milli":4000,"memory_bytes":8},"reserved":{"cpu_milli":0,"memory_bytes":0}}}"#,
    );
    assert_eq!(
        words(&[NodeRole::Server, NodeRole::Worker, NodeRole::Peer]),
        r#"["server","worker","peer"]"#
    );
    let states = [
        NodeState::Ready,
        NodeState::Draining,
        NodeState::Drained,
        NodeState::Unreachable,
    ];
    assert_eq!(words(&states), r#"["ready","draining","drained","unreachable"]"#);
}

#[test]
fn clusters() {
    let mut status = ClusterStatus {
        mode: ClusterModeName::SingleNode,
        cluster_id: "c-1".into(),
        node_id: 1,
        leader_id: None,
        term: 0,
        revision: 7,
        nodes: 1,
        state_hash: None,
        members: Vec::new(),
        notices: Vec::new(),
        past: None,
    };
    check_golden(
        &status,
        r#"{"mode":"single-node","cluster_id":"c-1","node_id":1,"leader_id":null,"term":0,"revision":7,"nodes":1}"#,
    );
    status.leader_id = Some(1);
    check_golden(
        &status,
        r#"{"mode":"single-node","cluster_id":"c-1","node_id":1,"leader_id":1,"term":0,"revision":7,"nodes":1}"#,
    );
    let modes = [
        ClusterModeName::SingleNode,
        ClusterModeName::Raft,
        ClusterModeName::Static,
        ClusterModeName::WorkerTier,
    ];
    assert_eq!(words(&modes), r#"["single-node","raft","static","worker-tier"]"#);
}

/// What the core says of itself in words is what the documents say.
#[test]
fn the_names_are_those_of_the_core() {
    for state in ReplicaState::ALL {
        assert_eq!(ReplicaStateName::from(state).as_str(), state.word());
    }
    for phase in [
        Phase::Deploying,
        Phase::Stable,
        Phase::Reverting,
        Phase::Reverted,
        Phase::Failed,
        Phase::Removing,
        Phase::RevertFailed,
    ] {
        assert_eq!(
            words(&[DeploymentState::from(phase)]),
            format!("[\"{}\"]", phase.word())
        );
        assert_eq!(DeploymentState::from(phase).word(), phase.word());
    }
    let away = Liveness::Unreachable {
        since: ClusterTime(0),
    };
    let draining = Drain::Draining { shutdown: false };
    assert_eq!(NodeState::of(away, draining), NodeState::Unreachable);
    assert_eq!(NodeState::of(Liveness::Ready, draining), NodeState::Draining);
    assert_eq!(NodeState::of(Liveness::Ready, Drain::No), NodeState::Ready);
    let drained = Drain::Drained { shutdown: true };
    assert_eq!(NodeState::of(Liveness::Ready, drained), NodeState::Drained);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn documents_read_back(
        (deployment, service, role, message) in (text(), text(), text(), proptest::option::of(text())),
        (revision, node_id, replica, restarts) in any::<(u64, Option<u64>, u32, u32)>(),
        (pid, exit_code, generation, started) in any::<(Option<u32>, Option<i32>, Option<u32>, Option<i64>)>(),
        (state, healthy, labels) in (
            proptest::sample::select(&ReplicaStateName::ALL),
            any::<bool>(),
            proptest::collection::btree_map(text(), text(), 0..3),
        ),
        code in proptest::sample::select(ProblemCode::ALL),
    ) {
        let summary = ServiceHealthSummary {
            name: service.clone(), running: replica, desired: restarts, healthy, endpoints: vec![role.clone()],
            ..Default::default()
        };
        check_round_trip(&StabilizationResult {
            outcome: StabilizationOutcome::TimedOut { message: deployment.clone() },
            services: vec![summary.clone()],
        });
        check_round_trip(&DeploymentStatus {
            deployment: deployment.clone(), revision, state: DeploymentState::Degraded, services: vec![summary],
            message: message.clone(), notes: Vec::new(), served: Vec::new(), source: None,
        });
        check_round_trip(&NodeStatus {
            node_id: revision, role: NodeRole::Worker, status: NodeState::Drained, leader: healthy, labels,
            replicas: replica, runs_replicas: healthy, os: message.clone(), arch: None, api_addr: message.clone(), mesh_addr: message.clone(),
            drain: message.clone().map(|why| NodeDrainStatus {
                ends_in_secs: node_id, ignore_system: healthy, drained: healthy,
                waiting: vec![DrainWait { replica: role.clone(), why, cannot_move: healthy }],
            }),
            resources: Some(NodeAmounts::default()), lease: None,
            failures: Some(NodeFailures { services: vec![role.clone()], suspect: healthy }),
        });
        check_round_trip(&ClusterStatus {
            mode: ClusterModeName::WorkerTier, cluster_id: role.clone(), node_id: revision, leader_id: node_id,
            term: revision, revision, nodes: replica, notices: vec![role.clone()], state_hash: message.clone(),
            past: healthy.then(|| PastWindow {
                first_revision: node_id, first_unix_ms: started, last_revision: node_id, bytes: revision,
                bytes_max: revision, window_secs: revision, problem: message.clone(),
                gaps: vec![PastGap { from_revision: revision, to_revision: revision }],
            }),
            members: vec![ClusterMember {
                node_id: revision, api_addr: role.clone(), raft_addr: message.clone(), voter: healthy, reachable: healthy,
            }],
        });
        check_round_trip(&Problem::new(code, deployment.clone()).with_findings(vec![role.clone()]));
        check_round_trip(&ReplicaStatus {
            id: format!("{service}-{role}-{replica}"), deployment, service, role, replica, node_id,
            image: message.clone(), state, healthy, restarts, pid, exit_code, generation, revision: Some(revision),
            started_unix_secs: started, cpu_used_milli: node_id, memory_used_bytes: node_id, live: message.clone(),
            message,
        });
    }
}
