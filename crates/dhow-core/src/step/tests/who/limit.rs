//! How many nodes a cluster may have.

use super::World;
use crate::command::{ClusterCommand, Command, Refused};
use crate::state::{NodeRole, State};

fn raise(world: &mut World, level: u32, nodes_limit: u32) {
    let nodes_limit = Some(nodes_limit);
    let raise = ClusterCommand::RaiseFeatureLevel { level, nodes_limit };
    world.apply(Command::Cluster(raise)).unwrap();
}

#[test]
fn one_node_more_than_the_number_in_the_state_is_refused() {
    let mut world = World::new(2, 9);
    world.state.nodes_limit = Some(2);
    world.register(1, NodeRole::Server).unwrap();
    world.join("a", None).unwrap();
    assert_eq!(world.join("b", None), Err(Refused::TooManyNodes { max: 2 }));
    assert_eq!(world.uses(), 1, "the token keeps the use");
    assert!(world.join("a", None).is_ok(), "who is known comes back");
    raise(&mut world, 2, State::NODES_LIMIT);
    world.join("b", None).unwrap();
}

#[test]
fn the_number_is_what_it_was_until_it_is_raised_with_the_level_and_never_falls() {
    let mut world = World::new(1, 9);
    assert_eq!(world.state.nodes_max(), 12_000);
    raise(&mut world, 1, State::NODES_LIMIT);
    assert_eq!(
        world.state.nodes_limit, None,
        "servers of the first version keep none"
    );
    raise(&mut world, 2, State::NODES_LIMIT);
    assert_eq!(world.state.nodes_max(), 40_000);
    assert_eq!(world.state.worker_tokens_max(), 80_000);
    raise(&mut world, 2, 10);
    assert_eq!(world.state.nodes_max(), 40_000);
}

#[test]
fn a_new_cluster_begins_with_the_number_that_it_is_given() {
    for (feature_level, max) in [(1, 12_000), (2, 40_000)] {
        let mut world = World::new(0, 1);
        let bootstrap = ClusterCommand::Bootstrap {
            cluster_id: "c".into(),
            feature_level,
            nodes_limit: Some(State::NODES_LIMIT),
        };
        world.apply(Command::Cluster(bootstrap)).unwrap();
        assert_eq!(world.state.nodes_max(), max, "level {feature_level}");
    }
}
