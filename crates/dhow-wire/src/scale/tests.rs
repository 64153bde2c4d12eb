//! The bytes of scale requests and node states, and what a request means.

use std::sync::Arc;

use dhow_core::spec::ServiceSpec;
use proptest::prelude::*;

use super::*;
use crate::testing::{
    check_golden, check_reads, check_refused, check_round_trip, config, some_spec, some_specs, spec, text,
};

#[test]
fn requests() {
    check_golden(
        &InternalScaleRequest::new("web", 3),
        r#"{"service":"web","replicas":3}"#,
    );
    check_reads(r#"{"service":"web"}"#, &InternalScaleRequest::new("web", 0));
    let assigned = InternalScaleRequest::with_assignments(
        "web",
        vec![
            ScaleAssignment::new("default", vec![0, 2]),
            ScaleAssignment::new("canary", vec![7]).with_generation(4),
        ],
    );
    check_golden(
        &assigned,
        r#"{"service":"web","replicas":3,"assignments":[{"role":"default","indices":[0,2]},{"role":"canary","indices":[7],"generation":4}]}"#,
    );
    let plain = serde_json::to_string(&ServiceSpec::default()).unwrap();
    let full = InternalScaleRequest::new("web", 1)
        .with_spec(ServiceSpec::default())
        .with_deployment("shop")
        .with_epoch(9);
    check_golden(
        &full,
        &format!(r#"{{"service":"web","replicas":1,"spec":{plain},"deployment":"shop","epoch":9}}"#),
    );
    check_refused::<InternalScaleRequest>(r#"{"replicas":3}"#);
    check_refused::<InternalScaleRequest>(r#"{"service":"web","replicas":4294967296}"#);
    check_refused::<InternalScaleRequest>(r#"{"service":"web","replicas":-1}"#);
    assert_eq!(full.service_key().unwrap().to_string(), "shop/web");
    assert!(InternalScaleRequest::new("No", 1).service_key().is_err());
}

fn effective(request: &InternalScaleRequest) -> Vec<ScaleAssignment> {
    request.effective_assignments().unwrap().into_owned()
}

#[test]
fn a_count_means_the_default_role_from_zero() {
    assert_eq!(
        effective(&InternalScaleRequest::new("web", 3)),
        [ScaleAssignment::new("default", vec![0, 1, 2])]
    );
    assert_eq!(
        effective(&InternalScaleRequest::new("web", 0)),
        [ScaleAssignment::new("default", vec![])]
    );
}

#[test]
fn assignments_decide_and_the_count_informs() {
    let assignments = vec![
        ScaleAssignment::new("a", vec![5]),
        ScaleAssignment::new("b", vec![]),
    ];
    let mut request = InternalScaleRequest::with_assignments("web", assignments.clone());
    assert_eq!(request.replicas, 1);
    request.replicas = u32::MAX;
    assert_eq!(effective(&request), assignments);
    assert_eq!(InternalScaleRequest::with_assignments("web", vec![]).replicas, 0);
}

#[test]
fn too_many_replicas_are_refused_without_making_a_list_of_them() {
    let asked = InternalScaleRequest::new("web", REPLICAS_PER_REQUEST_MAX);
    assert_eq!(effective(&asked)[0].indices.len(), 1_000_000);
    for replicas in [REPLICAS_PER_REQUEST_MAX + 1, u32::MAX] {
        let error = InternalScaleRequest::new("web", replicas)
            .effective_assignments()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{replicas} replicas of \"web\" were asked of one node; the limit is 1000000: ask for fewer, or \
                 spread them over more nodes"
            )
        );
    }
    let half = vec![0; 500_001];
    let listed = InternalScaleRequest::with_assignments(
        "web",
        vec![
            ScaleAssignment::new("a", half.clone()),
            ScaleAssignment::new("b", half),
        ],
    );
    assert!(matches!(
        listed.effective_assignments(),
        Err(ScaleError::TooMany { asked: 1_000_002, .. })
    ));
}

#[test]
fn a_request_may_have_a_spec_for_each_generation() {
    let mut request = InternalScaleRequest::new("web", 1).with_spec(spec("new:2"));
    request.specs.insert(1, Arc::new(spec("old:1")));
    check_round_trip(&request);
}

#[test]
fn node_states() {
    let summary = ClusterContainerSummary {
        node_id: 3,
        id: "web-default-0".into(),
        service: "web".into(),
        replica: 0,
        image: "nginx:1.27".into(),
        state: "running".into(),
        ..ClusterContainerSummary::default()
    };
    let text = r#"{"node_id":3,"id":"web-default-0","service":"web","replica":0,"image":"nginx:1.27","state":"running","pid":null,"overlay_ip":null}"#;
    check_golden(&summary, text);
    let full = ClusterContainerSummary {
        pid: Some(9),
        overlay_ip: Some("10.1.0.7".into()),
        deployment: Some("shop".into()),
        ..summary.clone()
    };
    let full_text = text.replace(
        r#"null,"overlay_ip":null}"#,
        r#"9,"overlay_ip":"10.1.0.7","deployment":"shop"}"#,
    );
    check_golden(&full, &full_text);
    let state = NodeServiceState {
        node_id: 3,
        running: 1,
        healthy: true,
        containers: vec![summary],
    };
    check_golden(
        &state,
        &format!(r#"{{"node_id":3,"running":1,"healthy":true,"containers":[{text}]}}"#),
    );
}

#[test]
fn nodes_are_summed() {
    let state = |running, healthy| NodeServiceState {
        running,
        healthy,
        ..NodeServiceState::default()
    };
    assert_eq!(NodeServiceState::total(&[]), (0, true));
    assert_eq!(
        NodeServiceState::total(&[state(2, true), state(1, true)]),
        (3, true)
    );
    assert_eq!(
        NodeServiceState::total(&[state(2, true), state(1, false)]),
        (3, false)
    );
    assert_eq!(
        NodeServiceState::total(&[state(2, true), state(0, false)]),
        (2, true),
        "a node that runs none has no say"
    );
    assert_eq!(
        NodeServiceState::total(&[state(u32::MAX, true), state(1, true)]),
        (u32::MAX, true)
    );
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn scale_messages_read_back(
        (service, replicas, deployment, epoch) in (text(), any::<u32>(), any::<Option<String>>(), any::<Option<u64>>()),
        roles in proptest::collection::vec((text(), any::<Vec<u32>>(), any::<Option<u32>>()), 0..3),
        spec in proptest::option::of(some_spec()),
        specs in some_specs(),
        (node_id, pid, overlay_ip, healthy) in any::<(u64, Option<u32>, Option<String>, bool)>(),
    ) {
        let assignments = roles
            .into_iter()
            .map(|(role, indices, generation)| ScaleAssignment { role, indices, generation, tries: generation })
            .collect();
        let request = InternalScaleRequest { service, replicas, assignments, spec, deployment, epoch, next: specs.clone(), specs };
        check_round_trip(&request);
        let container = ClusterContainerSummary {
            node_id, id: request.service.clone(), service: request.service, replica: replicas,
            image: String::new(), state: "exited".into(), pid, overlay_ip, deployment: request.deployment,
        };
        check_round_trip(&NodeServiceState { node_id, running: replicas, healthy, containers: vec![container] });
    }
}
