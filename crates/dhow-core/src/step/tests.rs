//! What the log keeps for people: times that a restart does not move, and why a replica had to go.

mod files;
mod late;
mod source_laws;
mod sources;
mod volumes;
mod who;

use std::sync::Arc;

use super::step;
use crate::amount::Amount;
use crate::assignment::assignment_since;
use crate::command::{
    AgentCommand, AgentEvent, ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, PlanCommand,
    Refused, StopReason,
};
use crate::ids::{DeploymentName, DeploymentRevision, NodeId, ReplicaKey, ServiceName, Term};
use crate::plan::{PlanCache, plan_next};
use crate::replica::{Exit, ReplicaEvent};
use crate::spec::DeploymentSpec;
use crate::state::{NodeInfo, NodeRole, Phase, Replica, State, Wanted};
use crate::time::ClusterTime;

const NODE: NodeId = NodeId(1);
const WALL: i64 = 1_800_000_000_000;

struct Cluster {
    state: State,
    time: u64,
    seq: u64,
}

impl Cluster {
    /// One node; the wall clock and the cluster's time begin together.
    fn new(feature_level: u32) -> Self {
        let mut cluster = Self {
            state: State::default(),
            time: 0,
            seq: 0,
        };
        cluster.apply(Command::Cluster(ClusterCommand::Bootstrap {
            cluster_id: "c".into(),
            feature_level,
            nodes_limit: Some(State::NODES_LIMIT),
        }));
        cluster.begin_term(1, WALL);
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
            tries_settings: false,
            mounts_files: false,
            runs_steps: false,
            volumes: crate::spec::VolumeSupport::Named,
            mesh_addr: None,
        };
        cluster.apply(Command::Node(NodeCommand::Register {
            node: NODE,
            info: Arc::new(info),
        }));
        cluster
    }

    fn begin_term(&mut self, term: u64, wall_unix_ms: i64) {
        self.state.term = Term(term);
        self.apply(Command::Cluster(ClusterCommand::TermBegan {
            leader: NODE,
            wall_unix_ms: Some(wall_unix_ms),
        }));
    }

    fn apply(&mut self, command: Command) {
        self.try_apply(command).unwrap();
    }

    fn try_apply(&mut self, command: Command) -> Result<(), Refused> {
        let entry = Entry {
            time: ClusterTime(self.time),
            term: self.state.term,
            request: None,
            command,
        };
        step(&mut self.state, &entry, &mut ()).map(|_| ())
    }

    fn deploy(&mut self, image: &str, wall_unix_secs: i64) {
        self.deploy_with(&format!(r#""image":"{image}","priority":50"#), wall_unix_secs);
    }

    fn deploy_with(&mut self, fields: &str, wall_unix_secs: i64) {
        let text = format!(r#"{{"version":"v1","deployment":"shop","services":{{"web":{{{fields}}}}}}}"#);
        let spec: DeploymentSpec = serde_json::from_str(&text).unwrap();
        self.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(spec),
            author: "ann".into(),
            wall_unix_secs,
            force: false,
        }));
    }

    fn plan(&mut self) {
        let plan = plan_next(&self.state, &mut PlanCache::default(), ClusterTime(self.time));
        for command in plan.commands {
            self.apply(Command::Plan(command));
        }
    }

    fn happens(&mut self, events: &[ReplicaEvent]) {
        let (replica, _) = self.replica();
        let events: Vec<AgentEvent> = events
            .iter()
            .map(|event| AgentEvent {
                replica,
                event: event.clone(),
            })
            .collect();
        let first_seq = self.seq + 1;
        self.seq += events.len() as u64;
        self.apply(Command::Agent(AgentCommand::Report {
            node: NODE,
            incarnation: 0,
            first_seq,
            events,
        }));
    }

    fn replica(&self) -> (ReplicaKey, Arc<Replica>) {
        let (key, replica) = self.state.replicas.iter().next().unwrap();
        (*key, Arc::clone(replica))
    }

    fn written(&self, revision: u64) -> i64 {
        let deployment = self
            .state
            .deployment(&DeploymentName::new("shop").unwrap())
            .unwrap();
        deployment.history[&DeploymentRevision(revision)].wall_unix_secs
    }

    fn service(&self) -> crate::ids::ServiceId {
        let (deployment, web) = (
            DeploymentName::new("shop").unwrap(),
            ServiceName::new("web").unwrap(),
        );
        self.state.service_named(&deployment, &web).unwrap().id
    }
}

#[test]
fn a_revert_has_its_own_time() {
    for (level, expected) in [(2, WALL / 1_000 + 599), (1, 5)] {
        let mut cluster = Cluster::new(level);
        cluster.deploy("a:1", 5);
        cluster.apply(Command::Plan(PlanCommand::MarkStable {
            deployment: DeploymentName::new("shop").unwrap(),
            revision: DeploymentRevision(1),
        }));
        cluster.deploy("a:2", 6);
        cluster.time = 600_000;
        cluster.apply(Command::Plan(PlanCommand::Fail {
            deployment: DeploymentName::new("shop").unwrap(),
            revision: DeploymentRevision(2),
            service: cluster.service(),
            cause: "it exited with 1".into(),
            of_version: true,
        }));
        assert_eq!((cluster.written(1), cluster.written(2)), (5, 6));
        assert_eq!(cluster.written(3), expected, "at level {level}");
    }
}

#[test]
fn a_start_is_known_after_the_node_was_lost_and_the_leader_restarted() {
    let mut cluster = Cluster::new(2);
    cluster.deploy("a:1", WALL / 1_000);
    cluster.plan();
    cluster.time = 60_000;
    cluster.happens(&[ReplicaEvent::StartBegan, ReplicaEvent::Started { pid: 7 }]);
    let started = |cluster: &Cluster| {
        let then = cluster.replica().1.started.unwrap();
        cluster.state.clock_marks.wall_unix_ms(then)
    };
    assert_eq!(started(&cluster), Some(WALL + 59_999));
    // An hour in which nobody leads: the cluster's time stands still.
    cluster.begin_term(2, WALL + 3_600_000);
    cluster.time = 70_000;
    cluster.apply(Command::Node(NodeCommand::Lost { node: NODE }));
    cluster.time = 80_000;
    cluster.happens(&[ReplicaEvent::Adopted { pid: 7 }]);
    assert_eq!(started(&cluster), Some(WALL + 59_999));
    let ended = ReplicaEvent::Ended {
        exit: Exit::Code(1),
        oom: false,
    };
    cluster.happens(&[ended, ReplicaEvent::StartBegan, ReplicaEvent::Started { pid: 8 }]);
    assert_eq!(started(&cluster), Some(WALL + 3_600_000 + 19_999));
}

#[test]
fn a_system_replica_that_is_heard_before_its_node_is_back_stays() {
    let mut cluster = Cluster::new(2);
    let text = r#"{"version":"v1","deployment":"shop","services":{"web":{"image":"a:1","rtype":"system"}}}"#;
    cluster.apply(Command::Deployment(DeploymentCommand::Deploy {
        spec: Arc::new(serde_json::from_str(text).unwrap()),
        author: "ann".into(),
        wall_unix_secs: 5,
        force: false,
    }));
    cluster.plan();
    let runs = [
        ReplicaEvent::StartBegan,
        ReplicaEvent::Started { pid: 7 },
        ReplicaEvent::BecameHealthy,
    ];
    cluster.happens(&runs);
    cluster.plan();
    cluster.apply(Command::Node(NodeCommand::Lost { node: NODE }));
    cluster.plan();
    cluster.happens(&[ReplicaEvent::Adopted { pid: 7 }]);
    cluster.plan();
    assert_eq!(cluster.replica().1.wanted, Wanted::Run);
    cluster.apply(Command::Node(NodeCommand::Back { node: NODE }));
    cluster.plan();
    let (_, replica) = cluster.replica();
    assert_eq!((replica.wanted, replica.machine.pid), (Wanted::Run, Some(7)));
}

/// What was done is not done again by the way; before that was so, a log that has it is applied as it was.
#[test]
fn a_restart_runs_a_job_again_only_by_its_name() {
    let restart = |service: Option<&str>| {
        Command::Deployment(DeploymentCommand::Restart {
            deployment: DeploymentName::new("shop").unwrap(),
            service: service.map(|name| ServiceName::new(name).unwrap()),
        })
    };
    let deploy = |cluster: &mut Cluster, services: &str| {
        let text = format!(r#"{{"version":"v1","deployment":"shop","services":{{{services}}}}}"#);
        cluster.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_str(&text).unwrap()),
            author: "ann".into(),
            wall_unix_secs: 5,
            force: false,
        }));
    };
    let job = r#""once":{"image":"b:1","rtype":"job"}"#;
    let target = |cluster: &Cluster, name: &str| {
        let mut services = cluster.state.services.values();
        let found = services.find(|service| service.key.service.as_str() == name);
        found.unwrap().target
    };
    for level in [2, 3] {
        let mut cluster = Cluster::new(level);
        deploy(&mut cluster, &format!(r#""web":{{"image":"a:1"}},{job}"#));
        let (web, once) = (target(&cluster, "web"), target(&cluster, "once"));
        cluster.apply(restart(None));
        assert!(target(&cluster, "web") > web);
        assert_eq!(target(&cluster, "once") > once, level < 3, "at level {level}");
        let once = target(&cluster, "once");
        cluster.apply(restart(Some("once")));
        assert!(target(&cluster, "once") > once);
    }
    let mut cluster = Cluster::new(3);
    deploy(&mut cluster, job);
    let refused = cluster.try_apply(restart(None)).unwrap_err();
    assert!(refused.to_string().contains("dhow restart shop/JOB"), "{refused}");
}

/// A port that somebody has, or a check that nothing passes, in the first file: the next one mends it.
#[test]
fn settings_that_nothing_bears_are_mended_by_the_next_file() {
    for level in [1, 2] {
        let mut cluster = Cluster::new(level);
        cluster.deploy("a:1", 5);
        cluster.plan();
        let could_not = ReplicaEvent::CouldNotStart {
            message: "port 80 is taken".into(),
        };
        for _ in 0..5 {
            cluster.happens(&[ReplicaEvent::StartBegan, could_not.clone()]);
        }
        cluster.plan();
        let shop = DeploymentName::new("shop").unwrap();
        let phase = |cluster: &Cluster| cluster.state.deployment(&shop).unwrap().phase;
        assert_eq!(phase(&cluster), Phase::Failed);
        let text = r#"{"version":"v1","deployment":"shop","services":{"web":{"image":"a:1","priority":50,
            "health":{"check":{"type":"tcp","port":81}}}}}"#;
        cluster.apply(Command::Deployment(DeploymentCommand::Deploy {
            spec: Arc::new(serde_json::from_str(text).unwrap()),
            author: "ann".into(),
            wall_unix_secs: 6,
            force: false,
        }));
        let service = cluster.state.service(cluster.service()).unwrap();
        let info = service.target_info().unwrap();
        assert!(
            info.next.is_none() && info.spec.health.is_some(),
            "at level {level}"
        );
        let given_way = cluster
            .state
            .replicas
            .values()
            .all(|replica| replica.wanted == Wanted::Stop);
        assert_eq!(given_way, level >= 2);
        cluster.plan();
        let expected = if level >= 2 {
            Phase::Deploying
        } else {
            Phase::Failed
        };
        assert_eq!(phase(&cluster), expected, "at level {level}");
    }
}

#[test]
fn a_node_hears_of_what_it_acts_on_and_of_nothing_else() {
    let mut cluster = Cluster::new(State::FEATURE_LEVEL);
    cluster.deploy_with(r#""image":"web:1""#, 0);
    cluster.plan();
    let mut seen = cluster.state.node(NODE).unwrap().assignments.revision;
    let changes = [
        (r#""priority":60"#, false),
        (r#""priority":60,"offline":"run""#, true),
        (r#""priority":60,"offline":"run","stop":{"grace":"3s"}"#, true),
    ];
    for (fields, is_news) in changes {
        cluster.deploy_with(&format!(r#""image":"web:1",{fields}"#), 0);
        let told = assignment_since(&cluster.state, NODE, Some(seen));
        assert_eq!(told.is_some(), is_news, "{fields}");
        seen = told.map_or(seen, |told| told.revision);
    }
    assert_eq!(cluster.state.replicas.len(), 1, "nothing is replaced for it");
}

#[test]
fn who_displaced_a_replica_is_remembered_and_so_is_want_of_memory() {
    let mut cluster = Cluster::new(2);
    cluster.deploy("a:1", 5);
    cluster.plan();
    cluster.happens(&[ReplicaEvent::StartBegan, ReplicaEvent::Started { pid: 7 }]);
    let (key, service) = (cluster.replica().0, cluster.service());
    cluster.apply(Command::Plan(PlanCommand::Stop {
        service,
        generation: key.generation,
        replicas: vec![key],
        why: StopReason::Displaced { by: service },
    }));
    let message = "it made room for `shop/web`, which has priority 50";
    assert_eq!(cluster.replica().1.machine.message.as_deref(), Some(message));
    let ended = ReplicaEvent::Ended {
        exit: Exit::Signal(9),
        oom: true,
    };
    cluster.happens(&[ReplicaEvent::StopBegan, ended]);
    let service = cluster.state.service(service).unwrap();
    let told = service.ended.last().unwrap().message.as_deref().unwrap();
    assert_eq!(
        told,
        format!("it ran out of memory and was ended by signal 9: {message}")
    );
}

/// Servers look up what names mean; a worker is told of the registries that its replicas come from, and of no others.
#[test]
fn a_worker_has_the_credentials_of_its_images_registries_alone() {
    use crate::registries::may_have;
    let mut cluster = Cluster::new(State::FEATURE_LEVEL);
    cluster.deploy("ghcr.io/shop/web:1", 5);
    assert!(may_have(&cluster.state, NODE, "quay.io"), "a server has all");
    let worker = Arc::make_mut(cluster.state.nodes.get_mut(&NODE).unwrap());
    Arc::make_mut(&mut worker.info).role = NodeRole::Worker;
    assert!(
        !may_have(&cluster.state, NODE, "ghcr.io"),
        "nothing runs there yet"
    );
    cluster.plan();
    assert!(may_have(&cluster.state, NODE, "ghcr.io"));
    assert!(!may_have(&cluster.state, NODE, "docker.io") && !may_have(&cluster.state, NodeId(9), "ghcr.io"));
}
