//! What an agent does with the answers to its heartbeats.

use std::sync::Arc;
use std::time::Duration;

use dhow_agent::OpenRollout;
use dhow_core::ids::{Generation, ServiceName};
use dhow_driver::fake::FakeHost;

use super::plane::{Node, Plane, healthy, service};

#[tokio::test(start_paused = true)]
async fn events_are_told_again_to_a_control_plane_that_was_put_back() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.until("it is known", |_| plane.asked() > 0).await;
    plane.deploy(&[("web", service(3, &[]))]);
    let placed = plane
        .until("placed and not begun", |state| {
            state.replicas.len() == 3 && healthy(state) == 0
        })
        .await;
    let before = plane.until("all healthy", |state| healthy(state) == 3).await;
    let inventories = plane.inventories();
    plane.put_back(placed);
    let after = plane
        .until("all are known again", |state| healthy(state) == 3)
        .await;
    assert_eq!(plane.inventories(), inventories, "its events were enough");
    assert_eq!(host.starts(), 3);
    let pids = |state: &dhow_core::state::State| -> Vec<_> {
        state
            .replicas
            .values()
            .map(|replica| replica.machine.pid)
            .collect()
    };
    assert_eq!(pids(&before), pids(&after));
}

#[tokio::test(start_paused = true)]
async fn where_that_does_not_help_everything_is_told() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(1, &[]))]);
    let mut state = plane.until("all healthy", |state| healthy(state) == 1).await;
    let inventories = plane.inventories();
    // It has heard of everything, and believes something else.
    let (key, replica) = state
        .replicas
        .iter()
        .next()
        .map(|(key, replica)| (*key, replica))
        .unwrap();
    let mut changed = dhow_core::state::Replica::clone(replica);
    changed.machine.restarts = 9;
    state.replicas.insert(key, Arc::new(changed));
    plane.put_back(state);
    plane
        .until("it is set right", |state| {
            state
                .replicas
                .values()
                .all(|replica| replica.machine.restarts == 0)
        })
        .await;
    assert_eq!(plane.inventories(), inventories + 1);
}

#[tokio::test(start_paused = true)]
async fn an_open_rollout_is_prepared_for_before_its_turn_and_named_from_then_on() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(1, &[]))]);
    plane.until("all healthy", |state| healthy(state) == 1).await;
    let prepares = host.prepares();
    let open = |id: &str, env: &[(&str, &str)]| OpenRollout {
        id: id.parse().unwrap(),
        service: ServiceName::new("web").unwrap(),
        generation: Generation(2),
        specs: vec![Arc::new(service(1, env)), Arc::new(service(2, env))],
    };
    plane.open(vec![
        open("shop@2", &[]),
        open("other@7", &[("FAKE_PREPARE_ERROR", "the registry is away")]),
    ]);
    plane.until("it is named", |_| !plane.named().is_empty()).await;
    assert_eq!(
        host.prepares(),
        prepares + 2,
        "each spec, and nothing was started for it"
    );
    assert_eq!(host.starts(), 1);
    let named = |ids: &[&str]| plane.named() == ids.iter().map(|id| id.parse().unwrap()).collect::<Vec<_>>();
    assert!(
        named(&["shop@2"]),
        "what could not be had is not named: {:?}",
        plane.named()
    );
    plane.open(vec![open("other@7", &[]), open("shop@2", &[])]);
    plane
        .until("it was handed again", |_| named(&["other@7", "shop@2"]))
        .await;
    // What happens from now on is told with the rollout that the node works on.
    plane.deploy(&[("web", service(2, &[]))]);
    plane.until("one more", |state| healthy(state) == 2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(plane.told().last(), Some(&Some("other@7".parse().unwrap())));
}

/// A heartbeat may be minutes away in a large cluster.
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_hears_of_open_rollouts_with_its_first_report() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    plane.open(vec![OpenRollout {
        id: "shop@2".parse().unwrap(),
        service: ServiceName::new("web").unwrap(),
        generation: Generation(2),
        specs: vec![Arc::new(service(1, &[]))],
    }]);
    plane.refuse_heartbeats();
    let _node = Node::start(&plane, &host, dir.path()).await;
    plane.until("it prepares", |_| host.prepares() == 1).await;
    assert_eq!(host.starts(), 0, "nothing was assigned");
}
