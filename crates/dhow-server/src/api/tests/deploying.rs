//! Writes: what they answer, and that a retry does nothing twice.

use axum::body::Body;
use axum::http::Method;
use dhow_core::command::Command;
use dhow_core::ids::DeploymentName;
use dhow_core::spec::Expose;
use dhow_wire::api::{Deployed, HistoryEntry, RevisionState, WriteDone};
use dhow_wire::{DeploymentState, DeploymentStatus};

use crate::net::node_door::ImagePort;

use super::support::{Reply, SHOP, WALL_UNIX_SECS, World, digest, media_type, request};

fn image_digest(world: &World) -> Option<String> {
    let state = world.state();
    let shop = state.deployment(&DeploymentName::new("shop").unwrap()).unwrap();
    let spec = &shop.current().unwrap().spec;
    let web = spec.services.values().next().unwrap();
    web.image.as_ref().unwrap().digest.clone()
}

async fn keyed(world: &World, key: &str, path: &str, body: &str) -> Reply {
    let builder = request(Method::POST, path)
        .header("idempotency-key", key)
        .header("content-type", media_type(path, body));
    world
        .send(builder.body(Body::from(body.to_owned())).unwrap())
        .await
}

#[tokio::test]
async fn a_tag_is_resolved_once_per_revision_and_kept_when_the_registry_is_away() {
    let world = World::new().await;
    let first: Deployed = world
        .post("/api/v1/deployments?source=shop.yaml", SHOP)
        .await
        .json();
    assert_eq!(
        (first.deployment.as_str(), first.revision, first.changed),
        ("shop", 1, true)
    );
    assert_eq!(image_digest(&world), Some(digest('1')));
    assert_eq!(world.door.resolved(), ["nginx:1.27"], "once for both replicas");

    world.door.forget_digests();
    let same: Deployed = world.post("/api/v1/deployments", SHOP).await.json();
    assert_eq!((same.revision, same.changed), (1, false));
    let other: Deployed = world
        .post("/api/v1/deployments", &SHOP.replace("1.27", "1.99"))
        .await
        .json();
    assert_eq!((other.revision, other.changed), (2, true));
    assert_eq!(
        image_digest(&world),
        None,
        "the replicas' own pull says what is wrong"
    );
    let pinned = SHOP.replace("nginx:1.27", &format!("nginx@{}", digest('3')));
    world
        .post("/api/v1/deployments", &pinned)
        .await
        .json::<Deployed>();
    assert_eq!(world.door.resolved().len(), 3, "a pinned name is not asked for");
}

#[tokio::test]
async fn a_service_without_endpoints_has_the_ports_of_its_image() {
    let world = World::new().await;
    let port = |port, is_udp| ImagePort { port, is_udp };
    world
        .door
        .set_ports("nginx:1.27", &[port(53, true), port(80, false), port(80, false)]);
    let endpoints = || {
        let state = world.state();
        let shop = state.deployment(&DeploymentName::new("shop").unwrap()).unwrap();
        let spec = &shop.current().unwrap().spec;
        let web = spec.services.values().next().unwrap();
        web.endpoints.clone()
    };
    let names = || -> Vec<String> { endpoints().into_iter().map(|endpoint| endpoint.name).collect() };
    world.post("/api/v1/deployments", SHOP).await.json::<Deployed>();
    assert_eq!(names(), ["http"], "what the file says holds");
    let (bare, _) = SHOP.split_once("    endpoints").unwrap();
    let first: Deployed = world.post("/api/v1/deployments", bare).await.json();
    assert_eq!((first.revision, first.changed), (2, true));
    assert_eq!(names(), ["udp-53", "tcp-80"]);
    assert!(
        endpoints()
            .iter()
            .all(|endpoint| endpoint.expose == Expose::Internal)
    );
    world.door.forget_digests();
    let same: Deployed = world.post("/api/v1/deployments", bare).await.json();
    assert_eq!((same.revision, same.changed), (2, false), "the registry is away");
    let other = bare.replace("1.27", "1.99");
    world.post("/api/v1/deployments", &other).await.json::<Deployed>();
    assert_eq!(names(), Vec::<String>::new(), "another image may have others");
    let job = bare.replace("    image", "    rtype: job\n    image");
    world.door.set_digest("nginx:1.27", &digest('1'));
    world.post("/api/v1/deployments", &job).await;
    assert_eq!(names(), Vec::<String>::new(), "nobody calls a job");
}

#[tokio::test]
async fn json_of_the_spec_means_the_same_as_the_file() {
    let world = World::new().await;
    world.post("/api/v1/deployments", SHOP).await.json::<Deployed>();
    let spec = dhow_wire::parse_deployment(SHOP, "shop.yaml", &|_| None).unwrap();
    let text = serde_json::to_string(&spec).unwrap();
    let builder = request(Method::POST, "/api/v1/deployments").header("content-type", "application/json");
    let reply = world.send(builder.body(Body::from(text)).unwrap()).await;
    assert!(!reply.json::<Deployed>().changed);
}

#[tokio::test]
async fn a_file_that_the_policy_forbids_names_the_rule() {
    let policy = dhow_core::spec::Policy {
        privileged: false,
        root_processes: false,
        ..Default::default()
    };
    let world = World::new().await.under(policy);
    let file = "version: v1\ndeployment: shop\nservices:\n  web:\n    image: nginx:1.27\n    privileged: true\n  \
                job:\n    command: [\"true\"]\n";
    for path in [
        "/api/v1/deployments?source=shop.yaml",
        "/api/v1/plan?source=shop.yaml",
    ] {
        let problem = world.post(path, file).await.problem(422);
        assert_eq!(problem.findings.len(), 2, "{:?}", problem.findings);
        let told = problem.findings.join("\n");
        assert!(told.contains("rule `policy.root_processes`"), "{told}");
        assert!(
            told.contains("shop.yaml:6:17: ") && told.contains("rule `policy.privileged`"),
            "{told}"
        );
    }
    assert!(world.state().deployments.is_empty());
    world.post("/api/v1/deployments", SHOP).await.json::<Deployed>();
}

#[tokio::test]
async fn a_revision_that_the_policy_forbids_by_now_is_not_brought_back() {
    let world = World::new().await;
    let privileged = SHOP.replace("image:", "privileged: true\n    image:");
    world
        .post("/api/v1/deployments", &privileged)
        .await
        .json::<Deployed>();
    world.post("/api/v1/deployments", SHOP).await.json::<Deployed>();
    let world = world.under(dhow_core::spec::Policy {
        privileged: false,
        ..Default::default()
    });
    let path = "/api/v1/deployments/shop/rollback";
    let problem = world.post(path, r#"{"to":1}"#).await.problem(422);
    let told = problem.findings.join("\n");
    assert!(
        told.contains("revision 1: services.web.privileged") && told.contains("rule `policy.privileged`"),
        "{told}"
    );
    world.post(path, r#"{"to":2}"#).await.json::<Deployed>();
    world.post(path, r#"{"to":9}"#).await.problem(404);
}

#[tokio::test]
async fn every_finding_is_told() {
    let world = World::new().await;
    let file = "version: v1\ndeployment: shop\nservices:\n  web:\n    imag: nginx\n    scale: { mode: fixd }\n    \
                env: { A: \"$E:HOME\" }\n";
    let problem = world
        .post("/api/v1/deployments?source=shop.yaml", file)
        .await
        .problem(422);
    assert_eq!(problem.code, "invalid_spec");
    assert_eq!(problem.findings.len(), 3, "{:?}", problem.findings);
    assert!(
        problem.findings[0].starts_with("shop.yaml:5:5: "),
        "{}",
        problem.findings[0]
    );
    assert!(problem.findings[0].contains("image"));
    let planned = world.post("/api/v1/plan", file).await.problem(422);
    assert_eq!(planned.findings.len(), 3);
    assert!(world.state().deployments.is_empty());
}

#[tokio::test]
async fn a_scale_begins_at_once() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let scale = r#"{"changes":[{"service":"web","replicas":3}]}"#;
    world
        .post("/api/v1/deployments/shop/scale", scale)
        .await
        .json::<WriteDone>();
    let shop: DeploymentStatus = world.get("/api/v1/deployments/shop").await.json();
    assert_eq!(
        (shop.state, shop.services[0].desired),
        (DeploymentState::Deploying, 3)
    );
    world
        .post("/api/v1/deployments/none/scale", scale)
        .await
        .problem(404);
}

#[tokio::test]
async fn a_scale_that_cannot_be_is_refused() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    for (body, status) in [
        (r#"{"changes":[{"service":"db","replicas":3}]}"#, 404),
        (
            r#"{"changes":[{"service":"web","role":"none","replicas":3}]}"#,
            404,
        ),
        (r#"{"changes":[{"service":"W","replicas":3}]}"#, 422),
        (r#"{"changes":[{"service":"web","replicas":4000000000}]}"#, 422),
        (r#"{"changes":[{"service":"web","replicas":-1}]}"#, 422),
        (r#"{"changes":[]}"#, 422),
        (r#"{"changes":[{"service":"web","replicas":3,"extra":1}]}"#, 422),
        (r#"{"changes""#, 400),
        ("", 400),
    ] {
        world
            .post("/api/v1/deployments/shop/scale", body)
            .await
            .problem(status);
    }
}

#[tokio::test]
async fn restarts_rollbacks_and_removal() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world
        .post("/api/v1/deployments/shop/restart", "")
        .await
        .json::<WriteDone>();
    world
        .post("/api/v1/deployments/shop/restart", r#"{"service":"db"}"#)
        .await
        .problem(404);
    world
        .post("/api/v1/deployments/shop/rollback", "")
        .await
        .problem(409);
    world
        .post("/api/v1/deployments/shop/rollback", r#"{"to":9}"#)
        .await
        .problem(404);
    world
        .post("/api/v1/deployments", &SHOP.replace("1.27", "1.28"))
        .await
        .json::<Deployed>();
    let back: Deployed = world
        .post("/api/v1/deployments/shop/rollback", r#"{"to":1}"#)
        .await
        .json();
    assert_eq!(
        (back.revision, back.changed, back.brings_back),
        (3, true, Some(1))
    );
    let history: Vec<HistoryEntry> = world.get("/api/v1/deployments/shop/history").await.json();
    let states: Vec<_> = history
        .iter()
        .map(|entry| (entry.revision, entry.state, entry.current))
        .collect();
    assert_eq!(
        states,
        [
            (3, RevisionState::Deploying, true),
            (2, RevisionState::Superseded, false),
            (1, RevisionState::Good, false)
        ]
    );
    assert_eq!(history[0].brings_back, Some(1));
    assert_eq!(history[1].images, ["nginx:1.28"]);
    assert_eq!(
        (history[2].author.as_str(), history[2].created_unix_secs),
        ("user root", WALL_UNIX_SECS)
    );
    world
        .call(Method::DELETE, "/api/v1/deployments/shop", "")
        .await
        .json::<WriteDone>();
    world.post("/api/v1/deployments", SHOP).await.problem(409);
    world
        .call(Method::DELETE, "/api/v1/deployments/none", "")
        .await
        .problem(404);
}

#[tokio::test]
async fn a_retry_with_the_same_key_does_nothing_twice() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let path = "/api/v1/deployments/shop/rollback";
    let first: Deployed = keyed(&world, "k1", path, r#"{"to":1}"#).await.json();
    let again: Deployed = keyed(&world, "k1", path, r#"{"to":1}"#).await.json();
    assert_eq!((first.revision, first.changed), (again.revision, again.changed));
    let history: Vec<HistoryEntry> = world.get("/api/v1/deployments/shop/history").await.json();
    assert_eq!(history.len() as u64, first.revision);
    let other = keyed(&world, "k1", path, r#"{"to":2}"#).await.problem(409);
    assert_eq!(other.code, "idempotency_mismatch");
    let elsewhere = keyed(&world, "k1", "/api/v1/deployments/shop/restart", r#"{"to":1}"#).await;
    assert_ne!(elsewhere.status, 200, "the key belongs to another address");
    for key in ["", " ", "a b", "é", &"k".repeat(129)] {
        keyed(&world, key, path, r#"{"to":1}"#).await.problem(400);
    }
    keyed(&world, &"k".repeat(128), path, r#"{"to":1}"#)
        .await
        .json::<Deployed>();
}

#[tokio::test]
async fn nodes_are_drained_labelled_and_removed() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.post("/api/v1/nodes/1/drain", "").await.json::<WriteDone>();
    let node: dhow_wire::NodeStatus = world.get("/api/v1/nodes/1").await.json();
    assert_eq!(node.status, dhow_wire::NodeState::Draining);
    world
        .post("/api/v1/nodes/1/undrain", "")
        .await
        .json::<WriteDone>();
    let labels = r#"{"set":{"zone":"b","rack":"r1"},"unset":[]}"#;
    world
        .post("/api/v1/nodes/1/labels", labels)
        .await
        .json::<WriteDone>();
    let node: dhow_wire::NodeStatus = world.get("/api/v1/nodes/1").await.json();
    assert_eq!(
        (node.labels["zone"].as_str(), node.status),
        ("b", dhow_wire::NodeState::Ready)
    );
    world
        .post("/api/v1/nodes/1/labels", r#"{"set":{"a b":"c"}}"#)
        .await
        .problem(422);
    world.post("/api/v1/nodes/9/drain", "{}").await.problem(404);
    let in_use = world
        .call(Method::DELETE, "/api/v1/nodes/1", "")
        .await
        .problem(409);
    assert!(in_use.detail.contains("drain"), "{}", in_use.detail);
}

#[tokio::test]
async fn a_full_inbox_is_told_with_the_time_to_come_again() {
    let world = World::new().await;
    let input = world.handle.input();
    // Nothing runs between these sends and the call on this one thread, so that the inbox stays full.
    while input
        .try_send(crate::plane::runtime::ReducerInput::PlanTick)
        .is_ok()
    {}
    let command = Command::Cluster(dhow_core::command::ClusterCommand::RemoveSecret { name: "x".into() });
    assert!(matches!(
        input.write(command, None).await,
        Err(crate::plane::runtime::WriteError::Busy)
    ));
    let reply = world.call(Method::DELETE, "/api/v1/deployments/shop", "").await;
    assert_eq!(reply.problem(503).code, "busy");
    assert_eq!(reply.headers["retry-after"], "1");
}
