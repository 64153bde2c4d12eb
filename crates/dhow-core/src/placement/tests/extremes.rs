//! Numbers at their ends.

use super::world::{World, amount, ids, labelled, node};
use crate::ids::NodeId;
use crate::placement::{NodeTable, PLACE_MAX};
use crate::spec::{AffinityMode, NodeMode};

const ALL: u64 = u64::MAX;

#[test]
fn nothing_wanted_or_nothing_there() {
    let mut world = World::of(vec![node(1, amount(4, 4))]);
    assert_eq!(world.table().place(&world.ask(), 0), []);
    world.nodes.clear();
    assert_eq!(world.table().place(&world.ask(), 5), []);
    assert_eq!(world.table().fitting(&world.ask()), []);
    assert_eq!(
        world.table().why_not(&world.ask()).to_string(),
        "there are no nodes"
    );
    assert!(!NodeTable::new().remove(NodeId(1)));
}

#[test]
fn a_wish_without_end_ends() {
    let mut world = World::of((1..=3).map(|id| node(id, amount(1, 1))).collect());
    world.demand = amount(0, 0);
    for mode in [AffinityMode::Spread, AffinityMode::Pack] {
        world.spec.affinity.mode = mode;
        let mut table = world.table();
        assert_eq!(table.place(&world.ask(), u32::MAX).len(), PLACE_MAX as usize);
        assert!(!table.why_not(&world.ask()).is_hindered());
    }
    world.bound_to = Some(NodeId(2));
    assert_eq!(
        world.table().place(&world.ask(), u32::MAX).len(),
        PLACE_MAX as usize
    );
}

#[test]
fn counts_stop_at_their_largest() {
    let mut world = World::of(vec![node(1, amount(9, 9)), node(2, amount(9, 9))]);
    world.nodes[0].replicas = u32::MAX;
    world.present = vec![(NodeId(1), u32::MAX), (NodeId(1), u32::MAX), (NodeId(99), 7)];
    world.spec.affinity.spread_by = Some("zone".into());
    let mut table = world.table();
    // Both lie in the unlabelled zone; node 2 has fewer, node 1 takes one only when that is full.
    let chosen = table.place(&world.ask(), 18);
    assert_eq!(chosen[..9], [NodeId(2); 9]);
    assert_eq!(chosen[9..], [NodeId(1); 9]);
    assert_eq!(table.get(NodeId(1)).unwrap().replicas, u32::MAX);
}

#[test]
fn amounts_reach_the_largest_number() {
    let mut world = World::of(vec![node(1, amount(ALL, ALL)), node(2, amount(ALL - 1, ALL))]);
    world.demand = amount(ALL, 1);
    assert_eq!(world.table().place(&world.ask(), 3), ids(&[1]));
    world.demand = amount(ALL / 2, ALL / 2);
    assert_eq!(world.table().place(&world.ask(), 9), ids(&[1, 2, 1, 2]));
    world.spec.affinity.mode = AffinityMode::Pack;
    assert_eq!(world.table().place(&world.ask(), 9), ids(&[2, 2, 1, 1]));
    // More is used than there is: nothing that asks for any of it fits, what asks for none does.
    world.nodes[0].used = amount(ALL, ALL);
    world.nodes.truncate(1);
    world.nodes[0].capacity = amount(1, 1);
    assert_eq!(world.table().place(&world.ask(), 1), []);
    world.demand = amount(0, 0);
    assert_eq!(world.table().place(&world.ask(), 1), ids(&[1]));
}

#[test]
fn nodes_that_offer_nothing_come_last() {
    let mut world = World::of(vec![
        node(1, amount(0, 0)),
        node(2, amount(4, 4)),
        node(3, amount(0, 8)),
    ]);
    world.nodes[1].used = amount(3, 3);
    world.demand = amount(0, 0);
    assert_eq!(world.table().place(&world.ask(), 3), ids(&[2, 1, 3]));
    world.demand = amount(0, 1);
    assert_eq!(world.table().place(&world.ask(), 2), ids(&[2, 3]));
}

#[test]
fn a_zone_for_every_node() {
    let nodes = (1..=300).map(|id| labelled(id, amount(4, 4), &[("host", &format!("h{id}"))]));
    let mut world = World::of(nodes.collect());
    world.spec.affinity.spread_by = Some("host".into());
    world.spec.node_mode = NodeMode::Dedicated;
    let chosen = world.table().place(&world.ask(), 2_000);
    assert_eq!(chosen.len(), 1_200);
    for round in chosen.chunks(300) {
        assert_eq!(round, (1..=300).map(NodeId).collect::<Vec<_>>());
    }
}
