//! What an agent does with orders of a control plane that is older than what it has acted on.

use std::time::Duration;

use dhow_driver::fake::FakeHost;

use super::plane::{Node, Plane, healthy, service};

#[tokio::test(start_paused = true)]
async fn an_older_order_stops_nothing_and_one_of_a_later_term_counts() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(3, &[]))]);
    plane.until("all healthy", |state| healthy(state) == 3).await;
    node.kill().await;

    // A server of the same cluster that has slept through all of it, in the same term.
    let older = Plane::new();
    let node = Node::start(&older, &host, dir.path()).await;
    older.until("it has asked", |_| older.asked() >= 3).await;
    assert_eq!(
        (host.names().len(), host.starts()),
        (3, 3),
        "nothing is stopped or started"
    );
    node.kill().await;

    // One that was begun anew, in a later term and with fewer revisions.
    let restored = Plane::in_term(1 << 20);
    let _node = Node::start(&restored, &host, dir.path()).await;
    restored.until("it has asked", |_| restored.asked() >= 1).await;
    while !host.names().is_empty() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Two halves of a divided cluster gave one number to two generations: the half that won means something else by it.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_to_run_something_else_under_its_name_is_made_anew() {
    let (plane, host, dir) = (Plane::new(), FakeHost::default(), tempfile::tempdir().unwrap());
    let node = Node::start(&plane, &host, dir.path()).await;
    plane.deploy(&[("web", service(2, &[("HALF", "one")])), ("db", service(1, &[]))]);
    plane.until("all healthy", |state| healthy(state) == 3).await;
    node.kill().await;

    let other = Plane::in_term(2);
    other.deploy(&[("web", service(2, &[("HALF", "two")])), ("db", service(1, &[]))]);
    let _node = Node::start(&other, &host, dir.path()).await;
    other
        .until("both of the service are made anew", |_| {
            (host.starts(), host.names().len()) == (5, 3)
        })
        .await;
}
