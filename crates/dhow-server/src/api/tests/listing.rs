//! What listings show.

use dhow_core::ids::{DeploymentName, Generation, NodeId, ReplicaName, ServiceKey, ServiceName};
use dhow_core::replica::{Exit, Machine, ReplicaEvent};
use dhow_core::usage::{EndpointFigures, EndpointRate, LATENCY_BOUNDS_US, NodeUsage, ReplicaUsage};
use dhow_wire::api::{
    Deployed, DeploymentPlan, Explanation, HealthDocument, NetCheck, NetVerdict, PlanChange,
};
use dhow_wire::{
    ClusterModeName, ClusterStatus, DeploymentState, DeploymentStatus, NodeState, NodeStatus,
    ReplicaStateName, ReplicaStatus, ResourceAmount,
};

use super::support::{SHOP, WALL_UNIX_SECS, World};
use crate::net::node_door::PresentReplica;

#[tokio::test]
async fn an_empty_cluster() {
    let world = World::new().await;
    let cluster: ClusterStatus = world.get("/api/v1/cluster").await.json();
    assert_eq!((cluster.mode, cluster.node_id), (ClusterModeName::SingleNode, 1));
    assert_eq!((cluster.leader_id, cluster.nodes), (Some(1), 1));
    let nodes: Vec<NodeStatus> = world.get("/api/v1/nodes").await.json();
    assert_eq!(
        (nodes[0].status, nodes[0].leader, nodes[0].replicas),
        (NodeState::Ready, true, 0)
    );
    let node: NodeStatus = world.get("/api/v1/nodes/1").await.json();
    assert_eq!(node.labels["zone"], "a");
    world.get("/api/v1/nodes/7").await.problem(404);
    world.get("/api/v1/nodes/x").await.problem(400);
    assert_eq!(world.get("/api/v1/deployments").await.text(), "[]");
    assert_eq!(world.get("/api/v1/replicas").await.text(), "[]");
    assert_eq!(world.get("/health").await.json::<HealthDocument>().status, "ok");
    world.get("/ready").await.json::<HealthDocument>();
    world.end.cancel();
    assert_eq!(world.get("/ready").await.problem(503).code, "shutting_down");
}

#[tokio::test]
async fn a_deployment_from_pending_to_degraded() {
    let mut world = World::new().await;
    world.post("/api/v1/deployments", SHOP).await;
    world.wait_for_replicas(2).await;
    let replicas: Vec<ReplicaStatus> = world.get("/api/v1/replicas?deployment=shop").await.json();
    assert_eq!(replicas[1].id, "web-default-1");
    assert_eq!(
        (replicas[1].state, replicas[1].node_id),
        (ReplicaStateName::Pending, Some(1))
    );
    world.deploy_shop_again().await;
    let shop: DeploymentStatus = world.get("/api/v1/deployments/shop").await.json();
    assert_eq!((shop.revision, shop.state), (1, DeploymentState::Stable));
    let web = &shop.services[0];
    assert_eq!((web.running, web.desired, web.healthy), (2, 2, true));
    assert_eq!(web.endpoints, ["http://localhost:8080"]);
    world.clock.advance(90_000);
    let replicas: Vec<ReplicaStatus> = world.get("/api/v1/replicas?service=web&unknown=1").await.json();
    let first = &replicas[0];
    assert_eq!((first.pid, first.healthy, first.restarts), (Some(42), true, 0));
    assert_eq!(first.image.as_deref(), Some("nginx:1.27"));
    assert_eq!(first.started_unix_secs, Some(WALL_UNIX_SECS), "90 seconds ago");

    let ended = ReplicaEvent::Ended {
        exit: Exit::Code(3),
        oom: false,
    };
    world.happens(|name| name.index == 0, &[ended]).await;
    let shop: Vec<DeploymentStatus> = world.get("/api/v1/deployments").await.json();
    assert_eq!(shop[0].state, DeploymentState::Degraded);
    assert_eq!((first.revision, first.generation), (Some(1), Some(1)));
    assert_eq!(
        (shop[0].services[0].running, shop[0].services[0].healthy),
        (1, false)
    );

    world.get("/api/v1/deployments/none").await.problem(404);
    world.get("/api/v1/deployments/N%20ONE").await.problem(404);
    world.get("/api/v1/replicas?deployment=none").await.problem(404);
    world
        .get("/api/v1/replicas?deployment=shop&service=db")
        .await
        .problem(404);
}

#[tokio::test]
async fn nothing_that_runs_is_neither_healthy_nor_stable_and_want_of_memory_is_told() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let killed = ReplicaEvent::Ended {
        exit: Exit::Signal(9),
        oom: true,
    };
    world.happens(|_| true, &[killed]).await;
    let shop: DeploymentStatus = world.get("/api/v1/deployments/shop").await.json();
    let web = &shop.services[0];
    assert_eq!((web.running, web.desired, web.healthy), (0, 2, false));
    assert_eq!(shop.state, DeploymentState::Degraded);
    let explained: Explanation = world
        .get("/api/v1/deployments/shop/explain?name=web")
        .await
        .json();
    let headline = "shop/web is degraded: 0 of 2 replicas run, 0 healthy";
    assert_eq!(explained.lines[0], headline);
    let told = "it ran out of memory and was ended by signal 9";
    assert_eq!(explained.replicas[0].message.as_deref(), Some(told));
    let replicas: Vec<ReplicaStatus> = world.get("/api/v1/replicas").await.json();
    assert_eq!(replicas[0].message.as_deref(), Some(told));
    assert_eq!(replicas[0].exit_code, Some(137));
}

#[tokio::test]
async fn what_nodes_measure_and_their_leases_are_shown() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let (state, view) = (world.state(), world.handle.view());
    let name = {
        let key = state.replicas.keys().next().unwrap();
        state.replica_name(key).unwrap()
    };
    let used = ReplicaUsage {
        cpu_milli: 120,
        memory_bytes: 64,
        started_unix_secs: Some(WALL_UNIX_SECS + 500),
    };
    let usage = NodeUsage {
        tells_calls: true,
        cpu_milli: 900,
        memory_bytes: 1_000,
        replicas: vec![(name, used)],
        endpoints: Vec::new(),
        canaries: Vec::new(),
    };
    view.observed().used(&state, NodeId(1), usage.clone(), 0);
    view.observed().used(&state, NodeId(9), usage, 0);
    assert_eq!(view.observed().usage(NodeId(9)), None, "there is no such node");
    view.observed().renewed(NodeId(1), WALL_UNIX_SECS, 20, 10);
    view.observed().renewed(NodeId(1), WALL_UNIX_SECS + 5, 30, 10);
    let node: NodeStatus = world.get("/api/v1/nodes/1").await.json();
    let resources = node.resources.unwrap();
    assert_eq!(resources.used.unwrap().cpu_milli, 900);
    assert!(resources.capacity.memory_bytes > 0);
    assert_eq!(
        resources.reserved,
        ResourceAmount::from(state.node(NodeId(1)).unwrap().used)
    );
    let lease = node.lease.unwrap();
    let times = (lease.acquired_unix_secs, lease.renewed_unix_secs);
    assert_eq!(times, (WALL_UNIX_SECS, WALL_UNIX_SECS + 5));
    assert_eq!((lease.ttl_secs, lease.grace_secs), (30, 10));
    let replicas: Vec<ReplicaStatus> = world.get("/api/v1/replicas").await.json();
    assert_eq!(
        (replicas[0].cpu_used_milli, replicas[0].memory_used_bytes),
        (Some(120), Some(64))
    );
    let started = replicas[0].started_unix_secs;
    assert_eq!(started, Some(WALL_UNIX_SECS + 500), "its node knows best");
    view.observed().ended([NodeId(1)]);
    let node: NodeStatus = world.get("/api/v1/nodes/1").await.json();
    assert_eq!(node.lease, None);
}

#[tokio::test]
async fn a_live_listing_shows_where_a_node_says_something_else() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let state = world.state();
    let on_node = |index: u32, change: fn(&mut Machine)| {
        let found = state.replicas.iter().find(|(key, _)| key.slot.index == index);
        let (key, replica) = found.unwrap();
        let mut machine = replica.machine.clone();
        change(&mut machine);
        PresentReplica {
            name: state.replica_name(key).unwrap(),
            machine,
            image: None,
            volumes: Some(Vec::new()),
            waits: false,
        }
    };
    let mut stray = on_node(0, |_| {});
    stray.name.index = 7;
    world.door.set_replicas(vec![
        on_node(0, |_| {}),
        on_node(1, |machine| machine.pid = Some(99)),
        stray,
    ]);
    let live: Vec<ReplicaStatus> = world.get("/api/v1/replicas?live=true").await.json();
    let said: Vec<(&str, Option<&str>)> = live
        .iter()
        .map(|replica| (replica.id.as_str(), replica.live.as_deref()))
        .collect();
    let expected = [
        ("web-default-0", None),
        ("web-default-1", Some("running, pid 99")),
        ("web-default-7", Some("only its node knows of it")),
    ];
    assert_eq!(said, expected);
    world.door.set_replicas(Vec::new());
    let live: Vec<ReplicaStatus> = world.get("/api/v1/replicas?live=true").await.json();
    assert!(
        live.iter()
            .all(|replica| replica.live.as_deref() == Some("not there")),
        "{live:?}"
    );
    // A node that should have nothing of a service is asked as well.
    world.register(2).await;
    world.door.set_replicas(vec![on_node(0, |_| {})]);
    let live: Vec<ReplicaStatus> = world.get("/api/v1/replicas?live=true").await.json();
    let strays = live.iter().filter(|replica| replica.node_id == Some(2));
    let said: Vec<_> = strays
        .map(|replica| (replica.id.as_str(), replica.live.as_deref()))
        .collect();
    assert_eq!(said, [("web-default-0", Some("only its node knows of it"))]);
}

#[tokio::test]
async fn what_waits_for_a_servers_word_on_this_node_is_said() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.get("/ready").await.json::<HealthDocument>();
    let state = world.state();
    let (key, replica) = state
        .replicas
        .iter()
        .find(|(key, _)| key.slot.index == 1)
        .unwrap();
    world.door.set_replicas(vec![PresentReplica {
        name: state.replica_name(key).unwrap(),
        machine: replica.machine.clone(),
        image: None,
        volumes: Some(Vec::new()),
        waits: true,
    }]);
    let problem = world.get("/ready").await.problem(503);
    let detail = problem.detail;
    assert!(
        detail.contains("these wait") && detail.contains("web"),
        "{detail}"
    );
    let replicas: Vec<ReplicaStatus> = world.get("/api/v1/replicas").await.json();
    let said = |index: usize| (replicas[index].state.to_string(), replicas[index].message.clone());
    assert_eq!(said(0), ("running".to_owned(), None));
    let (state, message) = said(1);
    assert_eq!(state, "pending");
    assert!(message.unwrap().contains("waits until a server has confirmed"));
}

/// A server that was started anew and has heard of no leader yet knows nothing of what its own node has.
#[tokio::test]
async fn what_waits_here_is_said_although_the_server_has_not_heard_of_it() {
    let world = World::new().await;
    let name = ReplicaName {
        deployment: "shop".parse().unwrap(),
        service: "web".parse().unwrap(),
        role: "default".parse().unwrap(),
        index: 4,
        generation: Generation(2),
    };
    world.door.set_replicas(vec![PresentReplica {
        name,
        machine: Machine::default(),
        image: None,
        volumes: Some(Vec::new()),
        waits: true,
    }]);
    let listed: Vec<ReplicaStatus> = world.get("/api/v1/replicas").await.json();
    let [only] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!((only.id.as_str(), only.node_id), ("web-default-4", Some(1)));
    assert_eq!(only.state, ReplicaStateName::Pending);
    assert!(
        only.message
            .as_ref()
            .unwrap()
            .contains("waits until a server has confirmed")
    );
}

#[tokio::test]
async fn old_and_new_replicas_of_a_rollout_have_their_own_revisions() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world
        .post("/api/v1/deployments", &SHOP.replace("1.27", "1.28"))
        .await;
    world.wait_for_replicas(3).await;
    let replicas: Vec<ReplicaStatus> = world.get("/api/v1/replicas").await.json();
    let seen = |revision| {
        let of = replicas
            .iter()
            .filter(|replica| replica.revision == Some(revision));
        of.count()
    };
    assert_eq!((seen(1), seen(2)), (2, 1), "{replicas:?}");
    let explained: Explanation = world
        .get("/api/v1/deployments/shop/explain?name=web")
        .await
        .json();
    let headline = "shop/web is deploying: 0 of 2 replicas run revision 2, 0 of them healthy; 2 of another one \
                    are to be replaced";
    assert_eq!(explained.lines[0], headline);
}

impl World {
    async fn deploy_shop_again(&mut self) {
        self.happens(|_| true, &super::support::start_events()).await;
        self.wait_for(|state| state.deployments.values().all(|known| !known.is_under_way()))
            .await;
    }
}

#[tokio::test]
async fn what_cannot_be_placed_says_why() {
    let world = World::new().await;
    let file = SHOP.replace("rollout:", "node_selector: { labels: { zone: b } }\n    rollout:");
    world.post("/api/v1/deployments", &file).await;
    let mut reports = world.handle.view();
    while reports.plan_report().services.is_empty() {
        tokio::task::yield_now().await;
        reports = world.handle.view();
    }
    let replicas: Vec<ReplicaStatus> = world.get("/api/v1/replicas").await.json();
    assert_eq!(replicas.len(), 2);
    assert_eq!(
        (replicas[0].node_id, replicas[0].state),
        (None, ReplicaStateName::Pending)
    );
    let why = replicas[0].message.clone().unwrap();
    assert!(why.contains("zone"), "{why}");
    let explained: Explanation = world
        .get("/api/v1/deployments/shop/explain?name=web")
        .await
        .json();
    assert_eq!(explained.subject, "shop/web");
    assert_eq!(
        (explained.waiting[0].first.as_str(), explained.waiting[0].slots),
        ("web-default-0", 2)
    );
    assert!(
        explained
            .lines
            .iter()
            .any(|line| line.contains("web-default-0 and 1 more"))
    );
    let one = world
        .get("/api/v1/deployments/shop/explain?name=web-default-1")
        .await;
    assert_eq!(one.json::<Explanation>().waiting[0].first, "web-default-1");
    world.get("/api/v1/deployments/shop/explain").await.problem(400);
    world
        .get("/api/v1/deployments/shop/explain?name=db")
        .await
        .problem(404);
    world
        .get("/api/v1/deployments/shop/explain?name=web-default-9")
        .await
        .problem(404);
}

#[tokio::test]
async fn what_runs_is_explained_and_a_plan_changes_nothing() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let explained: Explanation = world
        .get("/api/v1/deployments/shop/explain?name=web-default-0")
        .await
        .json();
    let replica = &explained.replicas[0];
    assert_eq!((replica.node_id, replica.state), (1, ReplicaStateName::Running));
    assert!(
        replica.placed_because.contains("node 1"),
        "{}",
        replica.placed_because
    );
    let before = world.state().revision;
    let plan: DeploymentPlan = world.post("/api/v1/plan", SHOP).await.json();
    assert_eq!(plan.services[0].change, PlanChange::Unchanged);
    let plan: DeploymentPlan = world
        .post("/api/v1/plan", &SHOP.replace("1.27", "1.28"))
        .await
        .json();
    assert_eq!(plan.services[0].change, PlanChange::Rolls);
    let plan: DeploymentPlan = world
        .post("/api/v1/plan", &SHOP.replace("replicas: 2", "replicas: 3"))
        .await
        .json();
    assert_eq!(
        (plan.services[0].change, plan.services[0].to),
        (PlanChange::Scales, 3)
    );
    assert_eq!(
        (plan.placements[0].replica.as_str(), plan.placements[0].node_id),
        ("web-default-2", 1)
    );
    assert_eq!(world.state().revision, before);
}

#[tokio::test]
async fn metrics_have_few_series() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let reply = world.get("/metrics").await;
    assert!(
        reply.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    let text = reply.text();
    for line in [
        "dhow_nodes{status=\"ready\"} 1",
        "dhow_nodes{status=\"unreachable\"} 0",
        "dhow_replicas{state=\"running\"} 2",
        "dhow_replicas{state=\"failed\"} 0",
        "dhow_leads 1",
        "dhow_inbox_capacity 1024",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(text.lines().filter(|line| !line.starts_with('#')).count() < 30);
}

#[tokio::test]
async fn an_endpoint_that_was_called_has_its_series() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let mut latency = vec![0; LATENCY_BOUNDS_US.len() + 1];
    (latency[0], latency[2]) = (3, 1);
    world.door.set_figures(vec![EndpointFigures {
        waiting: 0,
        id: "shop/web/http".into(),
        requests: 5,
        errors: 1,
        refused: 2,
        received_bytes: 100,
        sent_bytes: 2_000,
        open: 1,
        latency,
        latency_sum_us: 1_500,
        canary: None,
    }]);
    let text = world.get("/metrics").await.text();
    let labels = "deployment=\"shop\",service=\"web\",endpoint=\"http\"";
    for line in [
        format!("dhow_endpoint_requests_total{{{labels}}} 5"),
        format!("dhow_endpoint_errors_total{{{labels}}} 1"),
        format!("dhow_endpoint_refused_total{{{labels}}} 2"),
        format!("dhow_endpoint_sent_bytes_total{{{labels}}} 2000"),
        format!("dhow_endpoint_open{{{labels}}} 1"),
        format!("dhow_endpoint_latency_seconds_sum{{{labels}}} 0.0015"),
        format!("dhow_endpoint_latency_seconds_count{{{labels}}} 4"),
        format!("dhow_endpoint_latency_seconds_bucket{{le=\"0.00025\",{labels}}} 3"),
        format!("dhow_endpoint_latency_seconds_bucket{{le=\"+Inf\",{labels}}} 4"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let rate = EndpointRate {
        service: ServiceKey {
            deployment: DeploymentName::new("shop").unwrap(),
            service: ServiceName::new("web").unwrap(),
        },
        endpoint: "http".into(),
        requests_milli: 1_500,
        errors_milli: 0,
        in_flight: 0,
        waiting: 0,
    };
    let usage = NodeUsage {
        endpoints: vec![rate],
        ..NodeUsage::default()
    };
    let view = world.handle.view();
    for _ in 0..2 {
        // The newest figures of a node take the place of those before.
        view.observed().used(&view.state(), NodeId(1), usage.clone(), 0);
    }
    let status: DeploymentStatus = world.get("/api/v1/deployments/shop").await.json();
    assert_eq!(status.served[0].requests_per_second, Some(1.5));
    assert_eq!(status.served[0].errors_per_second, Some(0.0));
}

#[tokio::test]
async fn a_call_that_is_tried_says_why_there_is_no_name() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let other = SHOP.replace("deployment: shop", "deployment: blog");
    world.post("/api/v1/deployments", &other).await.json::<Deployed>();
    world.door.set_net_check(NetCheck {
        from: "shop/web-default-0".into(),
        node_id: 1,
        to: "blog/web".into(),
        endpoint: "http".into(),
        verdict: NetVerdict::NoName,
        steps: Vec::new(),
    });
    let path = |to: &str| format!("/api/v1/deployments/shop/net-check?from=web&to={to}");
    let own: NetCheck = world.get(&path("shop/web")).await.json();
    assert_eq!(own.verdict, NetVerdict::NoName, "it may call");
    let refused: NetCheck = world.get(&path("blog/web")).await.json();
    assert_eq!(refused.verdict, NetVerdict::Refused);
    let why =
        "endpoint http of blog/web is internal: replicas of its deployment may call it, shop/web may not";
    assert_eq!(refused.steps[0].text, why);
    for (to, status) in [("nosuch/web", 404), ("shop/web&endpoint=x", 404), ("shop", 400)] {
        assert_eq!(world.get(&path(to)).await.status.as_u16(), status, "{to}");
    }
}
