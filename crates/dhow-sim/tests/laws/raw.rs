//! Commands without sense: every field may name something that is not there.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::command::{
    AgentCommand, AgentEvent, ClusterCommand, Command, DeploymentCommand, Entry, InventoryItem, JobCommand,
    NodeCommand, Placement, PlanCommand, ReplicaMove, RequestId, RolloutAction, ScaleChange, StopReason,
};
use dhow_core::ids::{
    DeploymentName, DeploymentRevision, Generation, NodeId, ReplicaKey, Revision, RoleId, ServiceId,
    ServiceName, SettingsId, Slot, Term,
};
use dhow_core::replica::{Exit, Machine, ReplicaEvent, ReplicaState};
use dhow_core::rollout::{Figures, Judgement, Verdict};
use dhow_core::scaler::{Load, Resize};
use dhow_core::spec::{
    Cpu, DeploymentSpec, ImageSpec, NodeMode, RType, ScaleSpec, ScaleTargets, ServiceSpec, SpecVersion,
    Storage, TimeSpan,
};
use dhow_core::state::{Drain, NodeInfo, NodeRole, Request, State};
use dhow_core::time::ClusterTime;
use proptest::collection::vec;
use proptest::prelude::*;

fn node() -> impl Strategy<Value = NodeId> {
    prop_oneof![9 => (1..5u64).prop_map(NodeId), 1 => any::<u64>().prop_map(NodeId)]
}

fn small(max: u32) -> impl Strategy<Value = u32> {
    prop_oneof![12 => 0..max, 1 => any::<u32>()]
}

fn service() -> impl Strategy<Value = ServiceId> {
    small(5).prop_map(ServiceId)
}

fn slot() -> impl Strategy<Value = Slot> {
    (prop_oneof![9 => Just(0u16), 1 => any::<u16>()], small(5)).prop_map(|(role, index)| Slot {
        role: RoleId(role),
        index,
    })
}

fn generation() -> impl Strategy<Value = Generation> {
    prop_oneof![6 => Just(1), 3 => Just(2), 1 => any::<u32>()].prop_map(Generation)
}

fn key() -> impl Strategy<Value = ReplicaKey> {
    (service(), slot(), generation()).prop_map(|(service, slot, generation)| ReplicaKey {
        service,
        slot,
        generation,
    })
}

fn name() -> impl Strategy<Value = DeploymentName> {
    prop_oneof![Just("shop"), Just("blog")].prop_map(|name| DeploymentName::new(name).expect("a valid name"))
}

fn info() -> impl Strategy<Value = Arc<NodeInfo>> {
    (
        prop_oneof![Just(NodeRole::Peer), Just(NodeRole::Worker)],
        prop_oneof![5 => 0..4_000u64, 1 => any::<u64>()],
    )
        .prop_map(|(role, cpu_milli)| {
            Arc::new(NodeInfo {
                role,
                api_addr: None,
                os: "linux".into(),
                arch: "x86_64".into(),
                labels: Arc::new(BTreeMap::new()),
                capacity: Amount {
                    cpu_milli,
                    memory_bytes: 1 << 30,
                },
                runs_replicas: true,
                tries_settings: true,
                mounts_files: true,
                runs_steps: true,
                volumes: dhow_core::spec::VolumeSupport::Sized,
                mesh_addr: None,
            })
        })
}

fn spec() -> impl Strategy<Value = Arc<DeploymentSpec>> {
    let service = (
        0..3u8,
        small(4),
        0..3u8,
        any::<bool>(),
        prop_oneof![5 => 0..2_000u64, 1 => any::<u64>()],
    );
    (name(), vec(service, 1..3)).prop_map(|(deployment, services)| {
        let services = services.into_iter().map(|(image, replicas, mode, volume, cpu)| {
            let mut spec = ServiceSpec {
                image: Some(ImageSpec::named(["a", "b", "c"][usize::from(image)])),
                scale: match image == 0 && !volume {
                    true => adaptive(replicas),
                    false => ScaleSpec::Fixed { replicas },
                },
                node_mode: [NodeMode::Shared, NodeMode::Dedicated, NodeMode::Exclusive][usize::from(mode)],
                ..ServiceSpec::default()
            };
            spec.resources.cpu = Some(Cpu(cpu));
            if image == 2 {
                spec.rtype = RType::Cron;
            }
            if volume {
                spec.storage.push(Storage::Named {
                    name: "data".into(),
                    target: "/data".into(),
                    read_only: false,
                    nocopy: false,
                    size: None,
                });
            }
            let name = ServiceName::new(["web", "api", "db"][usize::from(image)]).expect("a valid name");
            (name, Arc::new(spec))
        });
        Arc::new(DeploymentSpec {
            version: SpecVersion::V1,
            deployment,
            services: services.collect(),
            scaled: Default::default(),
            configs: Default::default(),
        })
    })
}

fn adaptive(replicas: u32) -> ScaleSpec {
    ScaleSpec::Adaptive {
        min: replicas.min(2),
        max: replicas.max(3),
        cooldown: TimeSpan::from_millis(5),
        targets: ScaleTargets {
            cpu: Some(50.0),
            in_flight: Some(3.0),
            ..ScaleTargets::default()
        },
        cold_start: None,
    }
}

fn cluster() -> impl Strategy<Value = ClusterCommand> {
    let nonce = || prop_oneof![Just(Arc::<str>::from("n1")), Just(Arc::<str>::from("n2"))];
    prop_oneof![
        prop_oneof![Just(1), Just(State::FEATURE_LEVEL), any::<u32>()].prop_map(|feature_level| {
            ClusterCommand::Bootstrap {
                cluster_id: "c".into(),
                feature_level,
                nodes_limit: Some(State::NODES_LIMIT),
            }
        }),
        node().prop_map(|leader| ClusterCommand::TermBegan {
            leader,
            wall_unix_ms: None
        }),
        (nonce(), small(3), any::<i64>()).prop_map(|(nonce, uses_allowed, expires_unix_secs)| {
            ClusterCommand::IssueToken {
                nonce,
                uses_allowed,
                expires_unix_secs,
            }
        }),
        nonce().prop_map(|nonce| ClusterCommand::RevokeToken { nonce }),
        (
            nonce(),
            0..3u8,
            any::<i64>(),
            prop::option::of(node()),
            (info(), any::<bool>())
        )
            .prop_map(|(nonce, key, now_unix_secs, wish, (info, is_plain))| {
                ClusterCommand::UseToken {
                    nonce,
                    key_hash: format!("key{key}").into(),
                    now_unix_secs,
                    wish,
                    info,
                    is_plain,
                }
            }),
        prop::collection::vec(node(), 0..4).prop_map(|nodes| ClusterCommand::KeepServerIds { nodes }),
        (0..1_000u64, 0..100_000u64).prop_map(|(revision, time)| ClusterCommand::EpochBegan {
            revision: Revision(revision),
            time: ClusterTime(time),
        }),
    ]
}

fn nodes() -> impl Strategy<Value = NodeCommand> {
    prop_oneof![
        4 => (node(), info()).prop_map(|(node, info)| NodeCommand::Register { node, info }),
        1 => node().prop_map(|node| NodeCommand::Lost { node }),
        1 => node().prop_map(|node| NodeCommand::Back { node }),
        1 => (node(), any::<bool>()).prop_map(|(node, shutdown)| NodeCommand::SetDrain { node, drain: Drain::Draining { shutdown } }),
        1 => node().prop_map(|node| NodeCommand::SetDrain { node, drain: Drain::No }),
        1 => (node(), prop::option::of(0..10_000u64), any::<bool>()).prop_map(|(node, deadline_ms, ignore_system)| {
            NodeCommand::Drain { node, shutdown: false, deadline_ms, ignore_system }
        }),
        1 => node().prop_map(|node| NodeCommand::Remove { node }),
        1 => node().prop_map(|node| NodeCommand::TellsGenerations { node }),
        1 => (node(), 0..4_u32, 0..100_i64).prop_map(|(node, number, earlier_until_unix_secs)| {
            NodeCommand::InternalTokenShown { node, number, earlier_until_unix_secs }
        }),
    ]
}

fn deployments() -> impl Strategy<Value = DeploymentCommand> {
    prop_oneof![
        4 => spec().prop_map(|spec| DeploymentCommand::Deploy { spec, author: "x".into(), wall_unix_secs: 0, force: false, }),
        1 => name().prop_map(|deployment| DeploymentCommand::Remove { deployment }),
        1 => (name(), small(6)).prop_map(|(deployment, replicas)| DeploymentCommand::Scale {
            deployment,
            changes: vec![ScaleChange { service: ServiceName::new("web").expect("a valid name"), role: None, replicas }],
        }),
        1 => name().prop_map(|deployment| DeploymentCommand::Restart { deployment, service: None }),
        1 => (name(), prop::option::of(0..4u64)).prop_map(|(deployment, to)| DeploymentCommand::Rollback {
            deployment,
            to: to.map(DeploymentRevision),
            author: "x".into(),
            wall_unix_secs: 0,
        }),
        2 => (name(), any::<bool>()).prop_map(|(deployment, stops)| stopping(deployment, stops)),
        1 => (name(), node(), any::<bool>()).prop_map(|(deployment, node, kept)| DeploymentCommand::BindVolume {
            deployment,
            volume: "data".into(),
            node,
            kept,
        }),
        2 => (name(), steering()).prop_map(|(deployment, action)| DeploymentCommand::Steer {
            deployment,
            service: None,
            action,
            author: "x".into(),
        }),
        1 => vec((key(), node(), node()), 0..3).prop_map(|moves| DeploymentCommand::Rebalance {
            moves: moves.into_iter().map(|(replica, from, to)| ReplicaMove { replica, from, to }).collect(),
            author: "x".into(),
        }),
        1 => (name(), 0..6u32, any::<bool>()).prop_map(|(deployment, replicas, begins)| {
            let service = ServiceName::new("web").expect("a valid name");
            let author = "x".into();
            match begins {
                true => DeploymentCommand::Hold {
                    deployment,
                    changes: vec![ScaleChange { service, role: None, replicas }],
                    span: TimeSpan::from_secs(60),
                    author,
                },
                false => DeploymentCommand::EndHold { deployment, services: vec![service], author },
            }
        }),
    ]
}

fn stopping(deployment: DeploymentName, stops: bool) -> DeploymentCommand {
    let (service, author, wall_unix_secs) = (None, "x".into(), 0);
    match stops {
        true => DeploymentCommand::Stop {
            deployment,
            service,
            author,
            wall_unix_secs,
        },
        false => DeploymentCommand::Start {
            deployment,
            service,
            author,
            wall_unix_secs,
        },
    }
}

fn load() -> impl Strategy<Value = Load> {
    (0..4_000u64, 0..20_000u64, 0..40u64, any::<bool>()).prop_map(
        |(cpu_milli, requests_milli, in_flight, is_whole)| Load {
            cpu_milli,
            requests_milli,
            in_flight,
            is_whole,
            ..Load::default()
        },
    )
}

fn steering() -> impl Strategy<Value = RolloutAction> {
    prop_oneof![
        Just(RolloutAction::Promote),
        Just(RolloutAction::Pause),
        Just(RolloutAction::Resume),
        Just(RolloutAction::Abort),
    ]
}

fn judgement() -> impl Strategy<Value = Judgement> {
    let verdict = prop_oneof![
        Just(Verdict::Worse),
        Just(Verdict::NotWorse),
        Just(Verdict::HealthAlone),
    ];
    verdict.prop_map(|verdict| Judgement {
        figures: Figures::default(),
        verdict,
    })
}

fn placement() -> impl Strategy<Value = Placement> {
    (slot(), node(), 0..20u64).prop_map(|(slot, node, seen)| Placement {
        slot,
        node,
        eligibility: Revision(seen),
    })
}

fn plans() -> impl Strategy<Value = PlanCommand> {
    prop_oneof![
        6 => (service(), generation(), vec(placement(), 0..4))
            .prop_map(|(service, generation, placements)| PlanCommand::Place { service, generation, placements }),
        2 => (service(), generation(), vec(key(), 0..4), any::<bool>()).prop_map(|(service, generation, replicas, fails)| {
            let why = if fails { StopReason::FailsThere } else { StopReason::ScaledDown };
            PlanCommand::Stop { service, generation, replicas, why }
        }),
        1 => vec(key(), 0..4).prop_map(|replicas| PlanCommand::Forget { replicas }),
        1 => service().prop_map(|service| PlanCommand::ForgetService { service }),
        1 => (service(), generation()).prop_map(|(service, generation)| PlanCommand::OpenGeneration { service, generation }),
        1 => (name(), 0..4u64).prop_map(|(deployment, revision)| PlanCommand::MarkStable {
            deployment,
            revision: DeploymentRevision(revision),
        }),
        1 => (name(), 0..4u64, service()).prop_map(|(deployment, revision, service)| PlanCommand::Fail {
            deployment,
            revision: DeploymentRevision(revision),
            service,
            cause: "x".into(),
            of_version: true,
        }),
        1 => (service(), generation(), judgement()).prop_map(|(service, generation, judgement)| {
            PlanCommand::JudgeCanary { service, generation, judgement }
        }),
        1 => (service(), generation(), (0..6u32, 0..6u32, 0..6u32), load()).prop_map(
            |(service, generation, (from, to, most), load)| {
                let resize = Resize { from, to, load, most };
                PlanCommand::Resize { service, generation, resize }
            }
        ),
        1 => node().prop_map(|node| PlanCommand::DrainFinished { node }),
        1 => service().prop_map(|service| PlanCommand::CronFired { service, scheduled_unix_secs: 0 }),
        2 => (service(), any::<i64>(), prop::option::of(any::<i64>()), any::<bool>()).prop_map(
            |(service, due_unix_secs, follows_unix_secs, is_missed)| {
                PlanCommand::Job(JobCommand::Due { service, due_unix_secs, follows_unix_secs, is_missed })
            }
        ),
        1 => (service(), generation(), prop::option::of(small(4))).prop_map(|(service, generation, run)| {
            PlanCommand::Job(JobCommand::Late { service, generation, run })
        }),
        1 => (service(), generation(), settings(), vec(key(), 0..4)).prop_map(|(service, generation, settings, replicas)| {
            PlanCommand::TrySettings { service, generation, settings, replicas }
        }),
        1 => (service(), generation(), settings()).prop_map(|(service, generation, settings)| {
            PlanCommand::AdoptSettings { service, generation, settings }
        }),
    ]
}

fn event() -> impl Strategy<Value = ReplicaEvent> {
    prop_oneof![
        Just(ReplicaEvent::PullBegan),
        Just(ReplicaEvent::StartBegan),
        any::<u32>().prop_map(|pid| ReplicaEvent::Started { pid }),
        Just(ReplicaEvent::BecameHealthy),
        Just(ReplicaEvent::BecameUnhealthy { message: "x".into() }),
        Just(ReplicaEvent::RanSteadily),
        any::<i32>().prop_map(|code| ReplicaEvent::Ended {
            exit: Exit::Code(code),
            oom: false
        }),
        Just(ReplicaEvent::CouldNotStart { message: "x".into() }),
        Just(ReplicaEvent::StopBegan),
        any::<u32>().prop_map(|pid| ReplicaEvent::Adopted { pid }),
        Just(ReplicaEvent::NodeLost),
        settings().prop_map(|settings| ReplicaEvent::SettingsPassed { settings }),
        settings().prop_map(|settings| ReplicaEvent::SettingsFailed {
            settings,
            message: "x".into()
        }),
    ]
}

fn settings() -> impl Strategy<Value = SettingsId> {
    (0..3u32).prop_map(SettingsId)
}

fn machine() -> impl Strategy<Value = Machine> {
    (prop::sample::select(ReplicaState::ALL.to_vec()), any::<bool>()).prop_map(|(state, healthy)| Machine {
        state,
        healthy,
        ..Machine::default()
    })
}

fn agents() -> impl Strategy<Value = AgentCommand> {
    let events = vec(
        (key(), event()).prop_map(|(replica, event)| AgentEvent { replica, event }),
        0..6,
    );
    let items = vec(
        (key(), machine()).prop_map(|(replica, machine)| InventoryItem { replica, machine }),
        0..4,
    );
    let seq = || prop_oneof![9 => 0..6u64, 1 => any::<u64>()];
    prop_oneof![
        (node(), 0..2u64, seq(), events).prop_map(|(node, incarnation, first_seq, events)| {
            AgentCommand::Report {
                node,
                incarnation,
                first_seq,
                events,
            }
        }),
        (node(), 0..2u64, seq(), items).prop_map(|(node, incarnation, seq, replicas)| {
            AgentCommand::Inventory {
                node,
                incarnation,
                seq,
                replicas,
            }
        }),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    let command = prop_oneof![
        1 => cluster().prop_map(Command::Cluster),
        3 => nodes().prop_map(Command::Node),
        3 => deployments().prop_map(Command::Deployment),
        6 => plans().prop_map(Command::Plan),
        4 => agents().prop_map(Command::Agent),
    ];
    let request = prop::option::weighted(0.2, 0..3u8).prop_map(|key| {
        key.map(|key| RequestId {
            request: Request {
                principal: "p".into(),
                key: format!("k{key}").into(),
            },
            body_hash: [key; 32],
        })
    });
    (
        any::<u64>(),
        prop_oneof![9 => Just(0u64), 1 => any::<u64>()],
        request,
        command,
    )
        .prop_map(|(time, term, request, command)| Entry {
            time: ClusterTime(time),
            term: Term(term),
            request,
            command,
        })
}

pub fn commands() -> impl Strategy<Value = Vec<Entry>> {
    vec(entry(), 1..60)
}
