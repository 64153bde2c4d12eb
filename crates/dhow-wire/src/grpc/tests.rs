//! What is sent is what arrives, and what arrives may be anything.

use std::sync::Arc;

use dhow_core::amount::Amount;
use dhow_core::assignment::{AssignedSettings, Assignment, RoleAssignment};
use dhow_core::ids::{
    DeploymentName, Generation, NodeId, ReplicaName, Revision, RoleName, ServiceKey, ServiceName, SettingsId,
    Term,
};
use dhow_core::mirror::ReportBody;
use dhow_core::replica::{Machine, ReplicaEvent};
use dhow_core::spec::ServiceSpec;
use dhow_core::state::{NodeInfo, NodeRole};
use proptest::prelude::*;

use super::proto::status_report::Body;
use super::*;

fn key(service: &str) -> ServiceKey {
    ServiceKey {
        deployment: DeploymentName::new("shop").unwrap(),
        service: ServiceName::new(service).unwrap(),
    }
}

fn replica(service: &str) -> ReplicaName {
    let ServiceKey { deployment, service } = key(service);
    ReplicaName {
        deployment,
        service,
        role: RoleName::new("default").unwrap(),
        index: 0,
        generation: Generation(1),
    }
}

fn alike(role: &str, indices: &[u32], generation: u32, spec: &Arc<ServiceSpec>) -> RoleAssignment {
    RoleAssignment {
        role: RoleName::new(role).unwrap(),
        generation: Generation(generation),
        indices: indices.to_vec(),
        spec: Arc::clone(spec),
        next: None,
    }
}

fn spec(value_bytes: usize) -> Arc<ServiceSpec> {
    let env = [("KEY".to_owned(), "x".repeat(value_bytes))];
    Arc::new(ServiceSpec {
        env: env.into_iter().collect(),
        ..ServiceSpec::default()
    })
}

fn arrives(assignment: &Assignment) -> (usize, Assignment) {
    let parts = to_parts(assignment, &SpecTexts::default(), SpecReader::Current).unwrap();
    let (count, mut assembly) = (parts.len(), Assembly::default());
    let mut whole = None;
    for (at, part) in parts.into_iter().enumerate() {
        assert!(whole.is_none(), "nothing follows the last part");
        whole = assembly.push(part).unwrap();
        assert_eq!(whole.is_some(), at + 1 == count);
    }
    (count, whole.unwrap())
}

#[test]
fn an_assignment_arrives_as_it_was_sent() {
    let (old, new) = (spec(1), spec(2));
    let web = vec![
        alike("default", &[0, 4], 1, &old),
        RoleAssignment {
            next: Some(AssignedSettings {
                id: SettingsId(3),
                spec: Arc::clone(&new),
            }),
            ..alike("default", &[1], 1, &old)
        },
        alike("default", &[0], 2, &new),
        alike("spare", &[7], 2, &new),
    ];
    let assignment = Assignment {
        term: Some(Term(4)),
        cluster: None,
        revision: Revision(9),
        whole: false,
        services: [(key("web"), web), (key("db"), Vec::new())].into(),
    };
    assert_eq!(arrives(&assignment), (1, assignment));
    let empty = Assignment::nothing(Revision(3));
    assert_eq!(arrives(&empty), (1, empty));
}

#[test]
fn a_long_assignment_comes_in_parts() {
    let spec = spec(200 * 1024);
    let services = (0..20).map(|n| (key(&format!("web{n}")), vec![alike("default", &[n], 1, &spec)]));
    let assignment = Assignment {
        term: Some(Term(4)),
        services: services.collect(),
        ..Assignment::nothing(Revision(9))
    };
    let (parts, arrived) = arrives(&assignment);
    assert!((5..10).contains(&parts), "{parts} parts");
    assert_eq!(arrived, assignment);
}

#[test]
fn parts_of_different_assignments_are_refused() {
    let part = |revision, more| proto::Assignment {
        revision,
        whole: true,
        more,
        services: Vec::new(),
        term: 4,
    };
    let mut assembly = Assembly::default();
    assert!(assembly.push(part(1, true)).unwrap().is_none());
    assert!(matches!(assembly.push(part(2, false)), Err(Malformed::Parts)));
    assert!(
        assembly.push(part(2, false)).unwrap().is_some(),
        "the next one counts"
    );
}

#[test]
fn bad_names_and_specs_are_named() {
    let push = |deployment: &str, role: &str, spec_json: &[u8]| {
        Assembly::default().push(proto::Assignment {
            revision: 1,
            whole: false,
            more: false,
            term: 1,
            services: vec![proto::ServiceAssignment {
                deployment: deployment.into(),
                service: "web".into(),
                roles: vec![proto::RoleAssignment {
                    role: role.into(),
                    generation: 1,
                    indices: vec![0],
                    spec_json: spec_json.to_vec().into(),
                    next: None,
                }],
            }],
        })
    };
    assert!(matches!(
        push("A", "default", b"{}"),
        Err(Malformed::Name {
            what: "deployment",
            ..
        })
    ));
    assert!(matches!(
        push("shop", "", b"{}"),
        Err(Malformed::Name { what: "role", .. })
    ));
    assert!(matches!(
        push("shop", "default", b"{"),
        Err(Malformed::Spec { .. })
    ));
}

fn events() -> ReportBody {
    let name = replica("web");
    ReportBody::Events {
        first_seq: 7,
        events: vec![
            (name.clone(), ReplicaEvent::PullBegan),
            (name, ReplicaEvent::StopBegan),
        ],
    }
}

#[test]
fn reports_arrive_as_they_were_sent() {
    let inventory = ReportBody::Inventory {
        seq: 12,
        replicas: vec![(replica("web"), Machine::default())],
    };
    let asking = ReportBody::Events {
        first_seq: 1,
        events: Vec::new(),
    };
    for body in [events(), inventory, asking] {
        let sent = to_body(&body).unwrap();
        assert_eq!(from_body(&sent).unwrap(), Some(body));
    }
    let beat = Body::Heartbeat(proto::Heartbeat::default());
    assert_eq!(from_body(&beat).unwrap(), None);
}

#[test]
fn another_form_and_bytes_behind_the_end_are_refused() {
    let Body::Events(sent) = to_body(&events()).unwrap() else {
        panic!("events stay events");
    };
    let changed = |change: fn(&mut Vec<u8>)| {
        let mut sent = sent.clone();
        change(&mut sent.events);
        from_body(&Body::Events(sent))
    };
    assert!(matches!(
        changed(|bytes| bytes[0] = 2),
        Err(Malformed::Form { found: 2, .. })
    ));
    assert!(matches!(
        changed(|bytes| bytes.push(0)),
        Err(Malformed::Bytes { .. })
    ));
    assert!(matches!(
        changed(|bytes| bytes.truncate(bytes.len() - 1)),
        Err(Malformed::Bytes { .. })
    ));
}

#[test]
fn a_node_arrives_as_it_said() {
    let info = NodeInfo {
        role: NodeRole::Server,
        api_addr: Some("127.0.0.1:3669".into()),
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::new([("zone".to_owned(), "a".to_owned())].into()),
        capacity: Amount {
            cpu_milli: 4_000,
            memory_bytes: 1 << 30,
        },
        runs_replicas: true,
        tries_settings: false,
        mounts_files: false,
        runs_steps: false,
        volumes: dhow_core::spec::VolumeSupport::Named,
        mesh_addr: None,
    };
    assert_eq!(from_node_info(to_node_info(&info)).unwrap(), info);
    assert!(from_node_info(proto::NodeInfo::default()).is_err());
    let mut long = to_node_info(&info);
    long.os = "x".repeat(2_000);
    assert!(from_node_info(long).is_err());
}

#[test]
fn every_refusal_arrives() {
    let leader = LeaderHint {
        node: NodeId(3),
        address: Some("127.0.0.1:3670".into()),
    };
    for refusal in [
        Refusal::NotLeader { leader: Some(leader) },
        Refusal::NotLeader { leader: None },
        Refusal::UnknownNode,
        Refusal::Busy,
        Refusal::TooOften,
        Refusal::Identity("who".into()),
        Refusal::Replaced,
        Refusal::ShuttingDown,
        Refusal::Malformed("what".into()),
        Refusal::Credential("old".into()),
        Refusal::NotGiven("no".into()),
    ] {
        assert_eq!(Refusal::from_status(&refusal.to_status()), Some(refusal.clone()));
        let ended = Refusal::from_ended(&refusal.to_ended()).unwrap();
        assert_eq!(ended.to_status().code(), refusal.to_status().code());
    }
    assert_eq!(Refusal::from_status(&tonic::Status::internal("a bug")), None);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let events = Body::Events(proto::Events { first_seq: 1, events: bytes.clone() });
        let _ = from_body(&events);
        let mut formed = vec![1];
        formed.extend(bytes);
        let _ = from_body(&Body::Inventory(proto::Inventory { seq: 1, replicas: formed }));
    }
}

#[test]
fn what_a_node_uses_reads_back_and_odd_names_are_left_out() {
    use dhow_core::rollout::{Counted, Figures};
    use dhow_core::usage::{CanaryCount, EndpointRate, NodeUsage, ReplicaUsage};
    let name = ReplicaName {
        deployment: DeploymentName::fallback(),
        service: ServiceName::new("web").unwrap(),
        role: RoleName::fallback(),
        index: 3,
        generation: Generation(2),
    };
    let used = ReplicaUsage {
        cpu_milli: 250,
        memory_bytes: 1 << 20,
        started_unix_secs: Some(1_800_000_000),
    };
    let usage = NodeUsage {
        cpu_milli: 1_500,
        memory_bytes: 1 << 30,
        replicas: vec![(name.clone(), used)],
        tells_calls: true,
        endpoints: vec![EndpointRate {
            in_flight: 4,
            waiting: 1,
            service: name.service_key(),
            endpoint: "http".into(),
            requests_milli: 2_500,
            errors_milli: 1,
        }],
        canaries: vec![CanaryCount {
            service: name.service_key(),
            number: 3,
            figures: Figures {
                canary: Counted {
                    requests: 200,
                    errors: 41,
                },
                base: Counted {
                    requests: 8_000,
                    errors: 16,
                },
            },
        }],
    };
    let mut told = super::to_usage(&usage);
    assert_eq!(super::from_usage(&told), usage);
    assert_eq!(usage.replica(&name), Some(&used));
    told.replicas[0].service = "NO NAME".into();
    assert_eq!(super::from_usage(&told).replicas, []);
    told.replicas = vec![proto::ReplicaUsage::default(); NodeUsage::REPLICAS_MAX + 1];
    assert_eq!(super::from_usage(&told).replicas.len(), 0);
    told.endpoints[0].deployment = "NO NAME".into();
    assert_eq!(super::from_usage(&told).endpoints, []);
    told.canaries[0].canary_errors = u64::MAX;
    let counted = super::from_usage(&told).canaries[0].figures.canary;
    assert_eq!(
        counted.errors, counted.requests,
        "no more can fail than there were"
    );
}
