//! Nodes that fail, and nodes that may not go.

use std::pin::pin;
use std::sync::Arc;

use axum::http::Method;
use dhow_core::ids::NodeId;
use dhow_core::replica::{Exit, ReplicaEvent};
use dhow_wire::api::WriteDone;
use dhow_wire::{NodeFailures, NodeStatus};
use futures_util::poll;

use super::support::{FixedCluster, World};
use crate::api::{Access, Api, router};
use crate::plane::cluster::Member;

/// Starts and ends three times in a row.
fn keeps_failing() -> Vec<ReplicaEvent> {
    let run = [
        ReplicaEvent::StartBegan,
        ReplicaEvent::Started { pid: 42 },
        ReplicaEvent::Ended {
            exit: Exit::Code(1),
            oom: false,
        },
    ];
    std::iter::once(ReplicaEvent::PullBegan)
        .chain(run.iter().cycle().take(3 * run.len()).cloned())
        .collect()
}

async fn failures(world: &World) -> Option<NodeFailures> {
    let node: NodeStatus = world.get("/api/v1/nodes/1").await.json();
    node.failures
}

#[tokio::test]
async fn a_node_where_many_services_fail_is_named() {
    let mut world = World::new().await;
    let services = ["a", "b", "c"].map(|name| format!("  {name}: {{ image: 'nginx:1.27' }}\n"));
    let file = format!("version: v1\ndeployment: shop\nservices:\n{}", services.concat());
    world.post("/api/v1/deployments", &file).await;
    world.wait_for_replicas(3).await;
    assert_eq!(failures(&world).await, None);
    for (count, service) in (1..).zip(["a", "b", "c"]) {
        world
            .happens(|name| name.service.as_str() == service, &keeps_failing())
            .await;
        let told = failures(&world).await.unwrap();
        assert_eq!(told.services.len(), count, "{told:?}");
        assert!(told.services.contains(&format!("shop/{service}")), "{told:?}");
        assert_eq!(told.suspect, count == 3, "one or two may be at fault themselves");
    }
}

/// Two servers that vote, of which this one leads.
fn voters() -> FixedCluster {
    let member = |id| Member {
        node: NodeId(id),
        api_addr: None,
        raft_addr: None,
        is_voter: true,
        is_reachable: true,
    };
    FixedCluster {
        members: vec![member(1), member(2)],
        leads: true,
    }
}

#[tokio::test]
async fn a_server_that_votes_is_not_forgotten_as_a_node() {
    let mut world = World::new().await;
    let api = Api {
        cluster: Arc::new(voters()),
        ..world.api.clone()
    };
    let alone = world.router.clone();
    world.router = router(api.clone(), Access::new(&api, None), world.end.clone());
    for path in ["/api/v1/nodes/1", "/api/v1/nodes/1?force=true"] {
        let refused = world.call(Method::DELETE, path, "").await.problem(409);
        assert!(
            refused.detail.contains("dhow cluster remove 1"),
            "{}",
            refused.detail
        );
    }
    assert!(world.state().node(NodeId(1)).is_some());
    // The same node where no server has a vote.
    world.router = alone;
    let path = "/api/v1/nodes/1";
    world.call(Method::DELETE, path, "").await.json::<WriteDone>();
    assert!(world.state().node(NodeId(1)).is_none());
}

#[tokio::test]
async fn a_removal_is_done_when_no_server_serves_the_node_any_more() {
    let mut world = World::new().await;
    let api = Api {
        cluster: Arc::new(voters()),
        ..world.api.clone()
    };
    world.router = router(api.clone(), Access::new(&api, None), world.end.clone());
    world.register(7).await;
    let view = world.handle.view();
    let holders = view.observed().holders();
    holders.begin(Some(0));
    holders.heard(NodeId(2), Some(view.applied_index()), 0);
    let mut states = view.states();
    let mut removal = pin!(world.call(Method::DELETE, "/api/v1/nodes/7", ""));
    tokio::select! {
        _ = &mut removal => panic!("the other server may have a session of the node"),
        gone = states.wait_for(|state| state.node(NodeId(7)).is_none()) => drop(gone.unwrap()),
    }
    for _ in 0..32 {
        tokio::task::yield_now().await;
        assert!(
            poll!(&mut removal).is_pending(),
            "it has not heard of the removal"
        );
    }
    holders.heard(NodeId(2), Some(view.applied_index()), 0);
    removal.await.json::<WriteDone>();
}
