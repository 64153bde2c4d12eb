//! The verdict and its message, to the letter.

use dhow_core::spec::{Endpoint, Expose, Protocol, ServiceSpec};

use super::*;
use crate::scale::NodeServiceState;
use crate::testing::check_golden;

fn seen(name: &str, desired: u32, running: u32, healthy: bool) -> ServiceHealthSummary {
    ServiceHealthSummary {
        name: name.into(),
        desired,
        running,
        healthy,
        ..ServiceHealthSummary::default()
    }
}

fn silent(_: &str) -> ServiceLogs {
    Ok(Vec::new())
}

fn message(observations: Vec<ServiceHealthSummary>, logs_of: impl FnMut(&str) -> ServiceLogs) -> String {
    match evaluate(observations).into_timed_out(logs_of).outcome {
        StabilizationOutcome::TimedOut { message } => message,
        StabilizationOutcome::Ready => panic!("asked for the time-out"),
    }
}

#[test]
fn ready_when_each_wanted_service_runs_in_full_and_is_healthy() {
    for (desired, running, healthy, ready) in [
        (3, 3, true, true),
        (3, 3, false, false),
        (3, 2, true, false),
        (3, 4, true, false),
        (0, 0, true, true),
        (0, 0, false, true),
        (0, 2, false, true),
        (1, 0, true, false),
    ] {
        let evaluation = evaluate([seen("db", 1, 1, true), seen("web", desired, running, healthy)]);
        assert_eq!(evaluation.is_ready(), ready, "{running}/{desired} {healthy}");
        assert_eq!(evaluation.clone().into_ready().is_ok(), ready);
        let web = &evaluation.services()[1];
        assert_eq!(web.healthy, healthy || desired == 0, "wanting none is healthy");
    }
    assert!(evaluate([]).is_ready(), "nothing to wait for");
}

#[test]
fn the_result_has_every_service_whatever_the_outcome() {
    let result = evaluate([seen("db", 1, 1, true), seen("web", 0, 0, false)])
        .into_ready()
        .unwrap();
    assert_eq!(result.outcome, StabilizationOutcome::Ready);
    let names: Vec<&str> = result
        .services
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    assert_eq!(names, ["db", "web"]);
    let late = evaluate([seen("db", 1, 1, true), seen("web", 2, 0, true)]).into_timed_out(silent);
    assert_eq!(late.services.len(), 2);
    check_golden(
        &late,
        r#"{"outcome":{"kind":"timed_out","message":"Stabilization timed out: web: 0/2 replicas, healthy=true"},"services":[{"name":"db","running":1,"desired":1,"healthy":true,"endpoints":[]},{"name":"web","running":0,"desired":2,"healthy":true,"endpoints":[]}]}"#,
    );
    check_golden(
        &result,
        r#"{"outcome":{"kind":"ready"},"services":[{"name":"db","running":1,"desired":1,"healthy":true,"endpoints":[]},{"name":"web","running":0,"desired":0,"healthy":true,"endpoints":[]}]}"#,
    );
}

#[test]
fn nodes_and_endpoints() {
    let endpoint = |protocol, port| Endpoint {
        target_port: Some(80),
        expose: Expose::Public,
        ..Endpoint::new("e", protocol, port)
    };
    let spec = ServiceSpec {
        endpoints: vec![
            endpoint(Protocol::Http, 8080),
            endpoint(Protocol::Https, 8443),
            endpoint(Protocol::Tcp, 5432),
            endpoint(Protocol::Udp, 53),
            endpoint(Protocol::Websocket, 9000),
        ],
        ..ServiceSpec::default()
    };
    let nodes = [(2, true), (1, true)].map(|(running, healthy)| NodeServiceState {
        running,
        healthy,
        ..NodeServiceState::default()
    });
    let seen = ServiceHealthSummary::from_nodes("web", &spec, 3, &nodes);
    assert_eq!((seen.running, seen.desired, seen.healthy), (3, 3, true));
    assert_eq!(
        seen.endpoints,
        [
            "http://localhost:8080",
            "https://localhost:8443",
            "tcp://localhost:5432",
            "udp://localhost:53",
            "ws://localhost:9000"
        ]
    );
}

#[test]
fn the_header_stands_alone_where_nobody_is_to_blame() {
    assert_eq!(
        message(vec![seen("web", 3, 3, true)], silent),
        "Stabilization timed out"
    );
    assert_eq!(message(vec![], silent), "Stabilization timed out");
}

#[test]
fn parts_without_logs_share_the_line() {
    let observations = vec![
        seen("web", 3, 1, false),
        seen("ok", 1, 1, true),
        seen("db", 1, 0, true),
    ];
    assert_eq!(
        message(observations, silent),
        "Stabilization timed out: web: 1/3 replicas, healthy=false; db: 0/1 replicas, healthy=true"
    );
}

#[test]
fn logs_stand_below_their_service() {
    let mut asked = Vec::new();
    let observations = vec![
        seen("web", 3, 1, false),
        seen("ok", 1, 1, true),
        seen("quiet", 2, 0, true),
        seen("db", 1, 0, true),
        seen("lost", 1, 0, true),
    ];
    let text = message(observations, |name| {
        asked.push(name.to_owned());
        match name {
            "web" => Ok(vec!["starting".into(), "FATAL: cannot open config".into()]),
            "lost" => Err("node 4 does not answer\n(timed out)".into()),
            "quiet" => Ok(vec![]),
            _ => Ok(vec!["one\r\ntwo\n".into()]),
        }
    });
    assert_eq!(
        asked,
        ["web", "quiet", "db", "lost"],
        "only those that fail, once each"
    );
    assert_eq!(
        text,
        "Stabilization timed out: web: 1/3 replicas, healthy=false\n  logs:\n    starting\n    FATAL: cannot open \
         config\nquiet: 0/2 replicas, healthy=true; db: 0/1 replicas, healthy=true\n  logs:\n    one\n    two\n\
         lost: 0/1 replicas, healthy=true\n  logs: not available: node 4 does not answer (timed out)"
    );
}

#[test]
fn the_last_twenty_lines_are_shown_and_long_ones_are_cut() {
    let lines: Vec<String> = (1..=30).map(|n| format!("line {n}")).collect();
    let text = message(vec![seen("web", 1, 0, true)], |_| Ok(lines.clone()));
    let shown: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(shown.len(), LOG_LINES_SHOWN_MAX);
    assert_eq!((shown[0], shown[19]), ("    line 11", "    line 30"));

    let long = message(vec![seen("web", 1, 0, true)], |_| Ok(vec!["é".repeat(100_000)]));
    assert_eq!(long.lines().nth(2).unwrap().chars().count(), 4 + 1_000 + 1);
    assert!(long.ends_with("é…"));
}
