//! An id names one node for good.

use super::*;

#[test]
fn a_server_that_has_not_started_yet_finds_its_id() {
    let mut world = World::new(2, 9);
    world.register(1, NodeRole::Server).unwrap();
    world.register(2, NodeRole::Server).unwrap();
    world.keep(&[1, 2, 3]).unwrap();
    assert_eq!(world.join("a", None), Ok(4));
    assert_eq!(world.join("b", Some(3)), Ok(5), "not even where it is wished for");
    world.register(3, NodeRole::Server).unwrap();
    assert_eq!(world.state.node(NodeId(3)).unwrap().info.role, NodeRole::Server);
    assert_eq!(world.join("c", None), Ok(6));
}

#[test]
fn a_node_never_changes_its_role() {
    let mut world = World::new(2, 9);
    world.register(1, NodeRole::Server).unwrap();
    let worker = world.join("a", None).unwrap();
    assert_eq!(world.keep(&[worker]), Err(Refused::NodeRole(NodeId(worker))));
    let taken = world.register(worker, NodeRole::Server);
    assert_eq!(taken, Err(Refused::NodeRole(NodeId(worker))));
    let taken = world.register(1, NodeRole::Worker);
    assert_eq!(taken, Err(Refused::NodeRole(NodeId(1))));
    assert_eq!(
        world.join("a", None),
        Ok(worker),
        "the same key is the same worker"
    );
}

#[test]
fn a_removed_node_does_not_come_back_under_its_id() {
    let mut world = World::new(2, 9);
    for server in 1..=3 {
        world.register(server, NodeRole::Server).unwrap();
    }
    world.keep(&[1, 2, 3]).unwrap();
    let worker = world.join("a", None).unwrap();
    world.remove(worker);
    world.remove(2);
    for id in [2, worker] {
        let used = Err(Refused::NodeIdUsed(NodeId(id)));
        assert_eq!(world.register(id, NodeRole::Server), used);
        assert_eq!(world.keep(&[id]), used);
    }
    assert_eq!(world.join("a", None), Err(Refused::NodeIdUsed(NodeId(worker))));
    assert_eq!(world.join("b", Some(worker)), Ok(worker + 1));
}

#[test]
fn one_wish_ends_nothing() {
    let mut world = World::new(2, 9);
    world.register(1, NodeRole::Server).unwrap();
    assert_eq!(world.join("a", Some(u64::MAX)), Ok(2));
    assert_eq!(world.join("b", Some(NodeId::MAX.0 + 1)), Ok(3));
    assert_eq!(world.join("c", Some(NodeId::MAX.0)), Ok(NodeId::MAX.0));
    assert_eq!(world.join("d", Some(NodeId::MAX.0)), Ok(4), "it is somebody's");
    assert_eq!(world.join("e", Some(0)), Ok(5));
    assert_eq!(world.join("f", Some(2)), Ok(6));
    assert_eq!(world.uses(), 6);
}

#[test]
fn running_out_is_refused_and_costs_no_use() {
    let mut world = World::new(2, 9);
    world.state.last_node_id = NodeId(u64::MAX);
    assert_eq!(world.join("a", None), Err(Refused::NoNodeIds));
    assert_eq!(world.join("b", Some(7)), Err(Refused::NoNodeIds));
    assert_eq!(world.uses(), 0);
    assert!(matches!(
        world.register(NodeId::MAX.0 + 1, NodeRole::Server),
        Err(Refused::NodeIdRange(_))
    ));
}

/// Servers of the version before apply the same entries, and must come to the same.
#[test]
fn below_its_level_everything_is_as_it_was() {
    let mut world = World::new(1, 9);
    assert_eq!(world.keep(&[3]), Err(Refused::FeatureLevel { needed: 2, has: 1 }));
    let told = Command::Node(NodeCommand::TellsGenerations { node: NodeId(1) });
    assert_eq!(
        world.apply(told),
        Err(Refused::FeatureLevel { needed: 2, has: 1 })
    );
    world.register(1, NodeRole::Server).unwrap();
    assert_eq!(world.join_as("a", Some(40), true), Ok(40));
    assert_eq!(world.join("b", Some(40)), Ok(41));
    world.register(41, NodeRole::Server).unwrap();
    assert_eq!(world.state.node_ids, Default::default());
    assert!(!world.state.node(NodeId(40)).unwrap().is_plain);
}

#[test]
fn which_internal_token_was_shown_only_goes_up_and_needs_the_level() {
    let shown = |number, earlier_until_unix_secs| {
        Command::Node(NodeCommand::InternalTokenShown {
            node: NodeId(1),
            number,
            earlier_until_unix_secs,
        })
    };
    let mut old = World::new(1, 1);
    assert!(matches!(
        old.apply(shown(1, 0)),
        Err(Refused::FeatureLevel { .. })
    ));
    let mut world = World::new(2, 1);
    assert!(matches!(world.apply(shown(1, 0)), Err(Refused::Missing(_))));
    let node = NodeId(world.join_as("a", None, true).unwrap());
    assert_eq!(node, NodeId(1));
    let mark = |world: &World| world.state.node(node).unwrap().internal_token;
    assert!(!mark(&world).is_heard() && mark(&world).takes(0, 0));
    world.apply(shown(2, 100)).unwrap();
    world.apply(shown(1, 900)).unwrap();
    world.apply(shown(2, 900)).unwrap();
    assert_eq!(
        (mark(&world).number, mark(&world).earlier_until_unix_secs),
        (2, 100)
    );
    assert!(mark(&world).takes(2, 500) && mark(&world).takes(3, 500));
    assert!(mark(&world).takes(1, 99) && !mark(&world).takes(1, 100));
}
