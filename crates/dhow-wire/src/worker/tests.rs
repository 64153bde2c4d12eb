//! The bytes of every message of the worker protocol, and peers of other versions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::ServiceSpec;
use proptest::prelude::*;

use super::*;
use crate::scale::ScaleAssignment;
use crate::status::ReplicaStateName;
use crate::testing::{
    check_golden, check_reads, check_refused, check_round_trip, config, some_spec, some_specs, text,
};

fn profile() -> WorkerProfile {
    WorkerProfile {
        api_addr: "10.0.0.5:3669".parse().unwrap(),
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: BTreeMap::new(),
        cpu_total: 0,
        memory_total_bytes: 0,
    }
}

const PROFILE: &str =
    r#"{"api_addr":"10.0.0.5:3669","os":"linux","arch":"x86_64","cpu_total":0,"memory_total_bytes":0}"#;

#[test]
fn profiles() {
    check_golden(&profile(), PROFILE);
    let full = WorkerProfile {
        api_addr: "[fd00::5]:3669".parse().unwrap(),
        labels: BTreeMap::from([("zone".into(), "a".into())]),
        cpu_total: 8,
        memory_total_bytes: 1 << 34,
        ..profile()
    };
    check_golden(
        &full,
        r#"{"api_addr":"[fd00::5]:3669","os":"linux","arch":"x86_64","labels":{"zone":"a"},"cpu_total":8,"memory_total_bytes":17179869184}"#,
    );
    check_reads(
        r#"{"api_addr":"10.0.0.5:3669","os":"linux","arch":"x86_64"}"#,
        &profile(),
    );
    check_refused::<WorkerProfile>(r#"{"os":"linux","arch":"x86_64"}"#);
    check_refused::<WorkerProfile>(r#"{"api_addr":"10.0.0.5","os":"linux","arch":"x86_64"}"#);
}

#[test]
fn registration() {
    let mut request = WorkerRegisterRequest {
        token: "secret-token".into(),
        desired_node_id: None,
        profile: profile(),
        csr_pem: None,
        client_id: None,
    };
    check_golden(
        &request,
        &format!(r#"{{"token":"secret-token","profile":{PROFILE}}}"#),
    );
    request.desired_node_id = Some(7);
    request.csr_pem = Some("CSR".into());
    check_golden(
        &request,
        &format!(r#"{{"token":"secret-token","desired_node_id":7,"profile":{PROFILE},"csr_pem":"CSR"}}"#),
    );
    check_refused::<WorkerRegisterRequest>(r#"{"token":"secret-token"}"#);
    assert!(!format!("{request:?}").contains("secret-token"));

    let mut response = WorkerRegisterResponse {
        node_id: 12,
        cluster_id: "c-1".into(),
        heartbeat_ttl_secs: 10,
        heartbeat_grace_secs: 10,
        internal_token: "secret-internal".into(),
        certificate_chain_pem: None,
    };
    let old = r#"{"node_id":12,"cluster_id":"c-1","heartbeat_ttl_secs":10,"heartbeat_grace_secs":10,"internal_token":"secret-internal"}"#;
    check_golden(&response, old);
    response.certificate_chain_pem = Some("PEM".into());
    check_golden(
        &response,
        &old.replace("l\"}", "l\",\"certificate_chain_pem\":\"PEM\"}"),
    );
    assert!(response.is_from_cluster("c-1") && !response.is_from_cluster("c-2"));
    assert!(!format!("{response:?}").contains("secret-internal"));
}

#[test]
fn polls() {
    check_golden(
        &WorkerPollRequest::new(3, 9),
        r#"{"node_id":3,"last_revision":9,"max_wait_secs":30}"#,
    );
    check_reads(r#"{"node_id":3}"#, &WorkerPollRequest::new(3, 0));
    for (asked, waits) in [(0, 0), (30, 30), (60, 60), (61, 60), (u32::MAX, 60)] {
        let request = WorkerPollRequest {
            max_wait_secs: asked,
            ..WorkerPollRequest::new(3, 0)
        };
        assert_eq!(request.wait_secs(), waits);
    }
    check_golden(&WorkerPollResponse::above(4, 9, vec![]), r#"{"revision":9}"#);
    check_golden(
        &WorkerPollResponse::above(0, 9, vec![WorkerAssignmentEvent::Drain { revision: 9 }]),
        r#"{"revision":9,"events":[{"kind":"drain","revision":9}]}"#,
    );
}

fn delete(service: &str, revision: u64) -> WorkerAssignmentEvent {
    WorkerAssignmentEvent::Delete {
        service: service.into(),
        revision,
        deployment: None,
    }
}

#[test]
fn a_poll_gives_what_is_above_ascending() {
    let events = vec![delete("c", 7), delete("a", 3), delete("old", 2), delete("b", 7)];
    let response = WorkerPollResponse::above(2, 5, events.clone());
    assert_eq!(
        response.events,
        [delete("a", 3), delete("c", 7), delete("b", 7)],
        "events of one revision keep their order"
    );
    assert_eq!(response.revision, 7, "never below an event in it");
    let careless = WorkerPollResponse {
        revision: 7,
        events,
        whole: false,
        term: None,
    };
    assert_eq!(careless.into_events_above(3), [delete("c", 7), delete("b", 7)]);
    assert_eq!(
        WorkerPollResponse::above(u64::MAX, 1, vec![delete("a", u64::MAX)]).events,
        []
    );
}

#[test]
fn assignment_events() {
    let set = |deployment: Option<&str>, spec| WorkerAssignmentEvent::Set {
        service: "web".into(),
        assignments: vec![ScaleAssignment::new("default", vec![0, 2])],
        revision: 4,
        deployment: deployment.map(Into::into),
        spec,
        specs: BTreeMap::new(),
        role_specs: BTreeMap::new(),
        whole: false,
    };
    let old =
        r#"{"kind":"set","service":"web","assignments":[{"role":"default","indices":[0,2]}],"revision":4}"#;
    check_golden(&set(None, None), old);
    let plain = serde_json::to_string(&ServiceSpec::default()).unwrap();
    check_golden(
        &set(Some("shop"), Some(Arc::new(ServiceSpec::default()))),
        &old.replace(":4}", &format!(r#":4,"deployment":"shop","spec":{plain}}}"#)),
    );
    check_golden(
        &delete("web", 5),
        r#"{"kind":"delete","service":"web","revision":5}"#,
    );
    check_reads(
        r#"{"deployment":"shop","revision":5,"service":"web","kind":"delete"}"#,
        &WorkerAssignmentEvent::Delete {
            service: "web".into(),
            revision: 5,
            deployment: Some("shop".into()),
        },
    );
    check_refused::<WorkerAssignmentEvent>(r#"{"kind":"explode","revision":1}"#);
    check_refused::<WorkerAssignmentEvent>(r#"{"kind":"drain"}"#);
    check_refused::<WorkerAssignmentEvent>(r#"{"kind":"set","service":"web","revision":1}"#);
    let key = |event: &WorkerAssignmentEvent| event.service_key().unwrap().map(|key| key.to_string());
    assert_eq!(key(&set(Some("shop"), None)).as_deref(), Some("shop/web"));
    assert_eq!(key(&delete("web", 1)).as_deref(), Some("default/web"));
    assert_eq!(key(&WorkerAssignmentEvent::Drain { revision: 1 }), None);
    assert!(delete("Not A Name", 1).service_key().is_err());
}

/// Each role runs its own; a whole answer says so in its first event and beside them.
#[test]
fn specs_of_several_roles_and_whole_answers() {
    let plain = serde_json::to_string(&ServiceSpec::default()).unwrap();
    let text = format!(
        r#"{{"kind":"set","service":"web","assignments":[],"revision":4,"role_specs":{{"a":{{"7":{plain}}},"b":{{"7":{plain},"8":{plain}}}}}}}"#
    );
    let event: WorkerAssignmentEvent = serde_json::from_str(&text).unwrap();
    check_golden(&event, &text);
    let whole = WorkerPollResponse::whole(3, vec![event.clone(), delete("a", 4)]);
    assert_eq!(whole.revision, 4);
    let marked = format!("{},\"whole\":true}}", text.strip_suffix('}').unwrap());
    let events = whole.clone().into_events_above(u64::MAX);
    assert_eq!(events.len(), 2, "whatever the worker has");
    check_golden(&events[0], &marked);
    assert!(
        serde_json::to_string(&whole)
            .unwrap()
            .ends_with(r#","whole":true}"#)
    );
    check_golden(
        &WorkerPollResponse::whole(3, vec![]),
        r#"{"revision":3,"whole":true}"#,
    );
}

/// Several generations side by side; the keys of JSON are text, and must still be numbers.
#[test]
fn specs_of_several_generations() {
    let plain = serde_json::to_string(&ServiceSpec::default()).unwrap();
    let text = |key: &str| {
        format!(
            r#"{{"kind":"set","service":"web","assignments":[{{"role":"a","indices":[0],"generation":7}}],"revision":4,"specs":{{"7":{plain},"{key}":{plain}}}}}"#
        )
    };
    let event: WorkerAssignmentEvent = serde_json::from_str(&text("8")).unwrap();
    check_golden(&event, &text("8"));
    for wrong in ["x", "-1", "4294967296", "07", ""] {
        check_refused::<WorkerAssignmentEvent>(&text(wrong));
    }
}

#[test]
fn status_reports() {
    let report = WorkerStatusReport {
        node_id: 3,
        ts_ns: 1_800_000_000_000_000_000,
        ..WorkerStatusReport::default()
    };
    let old = r#"{"node_id":3,"ts_ns":1800000000000000000,"containers":[],"resources":{"cpu_used":0.0,"memory_used_bytes":0,"gpu_used":0}}"#;
    check_golden(&report, old);
    check_reads(&old.replace(r#""containers":[],"#, ""), &report);
    check_golden(
        &WorkerStatusReport {
            incarnation: Some(1),
            seq: Some(2),
            revision: Some(3),
            ..report
        },
        &old.replace("}}", r#"},"incarnation":1,"seq":2,"revision":3}"#),
    );
    check_refused::<WorkerStatusReport>(r#"{"node_id":3,"ts_ns":1}"#);

    let status = WorkerContainerStatus {
        service: "web".into(),
        role: "default".into(),
        replica: 2,
        state: "running".into(),
        ..WorkerContainerStatus::default()
    };
    let old = r#"{"service":"web","role":"default","replica":2,"state":"running"}"#;
    check_golden(&status, old);
    let full = WorkerContainerStatus {
        overlay_ip: Some("10.1.0.7".parse().unwrap()),
        deployment: Some("shop".into()),
        generation: Some(4),
        healthy: Some(false),
        restarts: Some(1),
        pid: Some(99),
        exit_code: Some(-9),
        image: Some("nginx".into()),
        message: Some("ok".into()),
        cpu_used_milli: Some(250),
        memory_used_bytes: Some(4096),
        ..status.clone()
    };
    check_golden(
        &full,
        &old.replace(
            '}',
            r#","overlay_ip":"10.1.0.7","deployment":"shop","generation":4,"healthy":false,"restarts":1,"pid":99,"exit_code":-9,"image":"nginx","message":"ok","cpu_used_milli":250,"memory_used_bytes":4096}"#,
        ),
    );
    assert_eq!(
        ReplicaName::try_from(&status).unwrap().to_string(),
        "default/web-default-2"
    );
    let name = ReplicaName::try_from(&full).unwrap();
    assert_eq!(
        (name.to_string().as_str(), name.generation.0),
        ("shop/web-default-2", 4)
    );
    assert_eq!(status.known_state(), Some(ReplicaStateName::Running));
    let odd = WorkerContainerStatus {
        state: "hibernating".into(),
        role: "Not A Role".into(),
        ..status
    };
    assert_eq!(odd.known_state(), None);
    assert_eq!(ReplicaName::try_from(&odd).unwrap_err().field, "role");
}

/// JSON has no such numbers: `null` would make the whole report unreadable and cost the lease.
#[test]
fn what_is_not_a_number_does_not_spoil_a_report() {
    for cpu_used in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let usage = WorkerResourceUsage {
            cpu_used,
            ..WorkerResourceUsage::default()
        };
        assert_eq!(
            serde_json::to_string(&usage).unwrap(),
            r#"{"cpu_used":0.0,"memory_used_bytes":0,"gpu_used":0}"#
        );
    }
    let whole: WorkerResourceUsage =
        serde_json::from_str(r#"{"cpu_used":2,"memory_used_bytes":1,"gpu_used":0}"#).unwrap();
    assert_eq!(whole.cpu_used, 2.0, "a peer may write a whole number");
}

#[test]
fn acks() {
    let ack = WorkerStatusAck {
        next_ttl_secs: 20,
        ..WorkerStatusAck::default()
    };
    check_golden(&ack, r#"{"next_ttl_secs":20}"#);
    let full = WorkerStatusAck {
        durable_seq: Some(5),
        replay_from: Some(3),
        bootstrap: vec![BootstrapRollout {
            rollout_id: "r-1".into(),
            service: "web".into(),
            deployment: Some("shop".into()),
            generation: Some(2),
            specs: Vec::new(),
        }],
        ..ack
    };
    check_golden(
        &full,
        r#"{"next_ttl_secs":20,"durable_seq":5,"replay_from":3,"bootstrap":[{"rollout_id":"r-1","service":"web","deployment":"shop","generation":2}]}"#,
    );
    let mut with_specs = full;
    with_specs.bootstrap[0].specs = vec![Arc::new(ServiceSpec::default())];
    check_round_trip(&with_specs);
}

fn some_profile() -> impl Strategy<Value = WorkerProfile> {
    let labels = proptest::collection::btree_map(text(), text(), 0..3);
    (
        any::<std::net::SocketAddr>(),
        text(),
        text(),
        labels,
        any::<u32>(),
        any::<u64>(),
    )
        .prop_map(
            |(api_addr, os, arch, labels, cpu_total, memory_total_bytes)| WorkerProfile {
                // Scope ids and flow labels have no place in the text of an address.
                api_addr: std::net::SocketAddr::new(api_addr.ip(), api_addr.port()),
                os,
                arch,
                labels,
                cpu_total,
                memory_total_bytes,
            },
        )
}

fn some_assignment() -> impl Strategy<Value = ScaleAssignment> {
    let indices = proptest::collection::vec(any::<u32>(), 0..4);
    (text(), indices, any::<Option<u32>>()).prop_map(|(role, indices, generation)| ScaleAssignment {
        role,
        indices,
        generation,
        tries: generation,
    })
}

fn some_event() -> impl Strategy<Value = WorkerAssignmentEvent> {
    let deployment = || proptest::option::of(text());
    let spec = proptest::option::of(some_spec().prop_map(Arc::new));
    let assignments = proptest::collection::vec(some_assignment(), 0..3);
    prop_oneof![
        (
            text(),
            assignments,
            any::<u64>(),
            deployment(),
            spec,
            some_specs(),
            (some_specs(), any::<bool>()),
        )
            .prop_map(
                |(service, assignments, revision, deployment, spec, specs, (roles, whole))| {
                    WorkerAssignmentEvent::Set {
                        service,
                        assignments,
                        revision,
                        deployment,
                        spec,
                        specs,
                        role_specs: BTreeMap::from([("a".to_owned(), RoleSpecs(roles))]),
                        whole,
                    }
                }
            ),
        (text(), any::<u64>(), deployment()).prop_map(|(service, revision, deployment)| {
            WorkerAssignmentEvent::Delete {
                service,
                revision,
                deployment,
            }
        }),
        any::<u64>().prop_map(|revision| WorkerAssignmentEvent::Drain { revision }),
    ]
}

fn some_status() -> impl Strategy<Value = WorkerContainerStatus> {
    let names = (text(), text(), any::<u32>(), text(), proptest::option::of(text()));
    let facts = (
        any::<Option<IpAddr>>(),
        any::<Option<u32>>(),
        any::<Option<bool>>(),
        any::<Option<u32>>(),
    );
    let ends = (
        any::<Option<u32>>(),
        any::<Option<i32>>(),
        any::<Option<String>>(),
        any::<Option<String>>(),
        any::<(Option<u64>, Option<u64>)>(),
    );
    (names, facts, ends).prop_map(
        |(
            (service, role, replica, state, deployment),
            (overlay_ip, generation, healthy, restarts),
            (pid, exit_code, image, message, (cpu_used_milli, memory_used_bytes)),
        )| WorkerContainerStatus {
            service,
            role,
            replica,
            state,
            overlay_ip,
            deployment,
            generation,
            healthy,
            restarts,
            pid,
            exit_code,
            image,
            message,
            cpu_used_milli,
            memory_used_bytes,
        },
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn registrations_read_back(
        (token, desired_node_id, profile, csr_pem) in (text(), any::<Option<u64>>(), some_profile(), any::<Option<String>>()),
        (node_id, cluster_id, ttl, grace) in (any::<u64>(), text(), any::<u32>(), any::<u32>()),
    ) {
        check_round_trip(&WorkerLease {
            node_id,
            profile: profile.clone(),
            acquired_unix_secs: i64::from(ttl) - i64::from(grace),
            renewed_unix_secs: -i64::from(ttl),
            ttl_secs: ttl,
            grace_secs: grace,
        });
        check_round_trip(&WorkerRegisterRequest { token: token.clone(), desired_node_id, profile, csr_pem: csr_pem.clone(), client_id: csr_pem });
        check_round_trip(&WorkerRegisterResponse {
            node_id,
            cluster_id,
            heartbeat_ttl_secs: ttl,
            heartbeat_grace_secs: grace,
            internal_token: token.clone(),
            certificate_chain_pem: Some(token),
        });
    }

    #[test]
    fn polls_read_back(
        (node_id, last_revision, max_wait_secs, revision) in any::<(u64, u64, u32, u64)>(),
        events in proptest::collection::vec(some_event(), 0..4),
    ) {
        let request = WorkerPollRequest { node_id, last_revision, max_wait_secs };
        prop_assert!(request.wait_secs() <= 60);
        check_round_trip(&request);
        let response = WorkerPollResponse { revision, events, whole: false, term: Some(revision) };
        check_round_trip(&response);
        let answer = WorkerPollResponse::above(last_revision, revision, response.events.clone());
        prop_assert!(answer.events.is_sorted_by_key(WorkerAssignmentEvent::revision));
        prop_assert!(answer.events.iter().all(|event| event.revision() > last_revision));
        let above = response.events.iter().filter(|event| event.revision() > last_revision);
        prop_assert_eq!(above.count(), answer.events.len());
    }

    #[test]
    fn reports_and_acks_read_back(
        (node_id, ts_ns, incarnation, seq, revision) in any::<(u64, u64, Option<u64>, Option<u64>, Option<u64>)>(),
        containers in proptest::collection::vec(some_status(), 0..4),
        // Thousandths of a core, which JSON carries exactly.
        (cpu_thousandths, memory_used_bytes, gpu_used) in (0..10_000_000_u32, any::<u64>(), any::<u32>()),
        (next_ttl_secs, durable_seq, replay_from, generation) in any::<(u32, Option<u64>, Option<u64>, Option<u32>)>(),
    ) {
        let cpu_used = f64::from(cpu_thousandths) / 1_000.0;
        let resources = WorkerResourceUsage { cpu_used, memory_used_bytes, gpu_used };
        check_round_trip(&WorkerStatusReport {
            node_id, ts_ns, containers, resources, incarnation, seq, revision, rollouts: vec!["shop@2".into()],
        });
        let rollout = BootstrapRollout {
            rollout_id: "r".into(), service: "s".into(), deployment: None, generation, specs: Vec::new(),
        };
        check_round_trip(&WorkerStatusAck { next_ttl_secs, durable_seq, replay_from, bootstrap: vec![rollout], term: durable_seq });
    }
}
