//! What a user would expect, written out.

use super::world::{OTHER, OURS, World, amount, ids, labelled, labels, node};
use crate::ids::NodeId;
use crate::placement::{NodeRow, Occupant, Openness};
use crate::spec::{AffinityMode, NodeMode, RType};

const ROOMY: (u64, u64) = (4_000, 8 << 30);

fn roomy(id: u64, with: &[(&str, &str)]) -> NodeRow {
    labelled(id, amount(ROOMY.0, ROOMY.1), with)
}

#[test]
fn replicas_spread_over_nodes_before_they_stack() {
    let world = World::of((1..=3).map(|id| roomy(id, &[])).collect());
    assert_eq!(world.table().place(&world.ask(), 7), ids(&[1, 2, 3, 1, 2, 3, 1]));
}

#[test]
fn the_emptiest_of_equals_comes_first() {
    let mut world = World::of((1..=3).map(|id| roomy(id, &[])).collect());
    world.demand = amount(100, 1 << 20);
    // Node 1 is short of memory, node 2 a little of CPU: the larger share counts.
    world.nodes[0].used = amount(0, 7 << 30);
    world.nodes[1].used = amount(1_000, 0);
    assert_eq!(world.table().place(&world.ask(), 3), ids(&[3, 2, 1]));
}

#[test]
fn zones_fill_evenly_whatever_their_size() {
    let zones = [(1, "a"), (2, "a"), (3, "a"), (4, "b")];
    let mut world = World::of(
        zones
            .iter()
            .map(|(id, zone)| roomy(*id, &[("zone", zone)]))
            .collect(),
    );
    world.nodes.push(roomy(5, &[]));
    world.spec.affinity.spread_by = Some("zone".into());
    assert_eq!(world.table().place(&world.ask(), 6), ids(&[1, 4, 5, 2, 4, 5]));
    // What runs on a node that takes no more still counts for its zone.
    world.nodes[0].open = Openness::Draining;
    world.present = vec![(NodeId(1), 2)];
    assert_eq!(world.table().place(&world.ask(), 5), ids(&[4, 5, 4, 5, 2]));
}

#[test]
fn a_role_may_lie_otherwise_than_its_service() {
    let mut world = World::of((1..=2).map(|id| roomy(id, &[])).collect());
    world.spec.replica_groups = serde_json::from_str(
        r#"[{"role": "near", "count": 2, "affinity": "pack"}, {"role": "far", "count": 2}]"#,
    )
    .unwrap();
    world.role = world.spec.replica_groups[0].role.clone();
    assert_eq!(world.table().place(&world.ask(), 2), ids(&[1, 1]));
    world.role = world.spec.replica_groups[1].role.clone();
    assert_eq!(world.table().place(&world.ask(), 2), ids(&[1, 2]));
}

#[test]
fn preferred_labels_win_over_even_spreading() {
    let mut world = World::of(vec![roomy(1, &[]), roomy(2, &[("disk", "ssd")])]);
    world.spec.node_selector.prefer_labels = labels(&[("disk", "ssd")]);
    world.demand = amount(2_000, 0);
    assert_eq!(world.table().place(&world.ask(), 3), ids(&[2, 2, 1]));
}

#[test]
fn a_pinned_service_stays_on_the_selected_nodes() {
    let mut world = World::of(vec![
        roomy(1, &[]),
        roomy(2, &[("zone", "a")]),
        roomy(3, &[("zone", "a")]),
    ]);
    world.spec.affinity.mode = AffinityMode::Pin;
    world.spec.node_selector.labels = labels(&[("zone", "a")]);
    assert_eq!(world.table().place(&world.ask(), 3), ids(&[2, 3, 2]));
}

#[test]
fn packing_fits_the_batch() {
    let mut world = World::of(vec![
        node(1, amount(3, 100)),
        node(2, amount(8, 100)),
        node(3, amount(5, 100)),
    ]);
    world.spec.affinity.mode = AffinityMode::Pack;
    // The least room that holds all.
    assert_eq!(world.table().place(&world.ask(), 4), ids(&[3, 3, 3, 3]));
    // One that it fills exactly.
    assert_eq!(world.table().place(&world.ask(), 3), ids(&[1, 1, 1]));
    // None holds all: the most room, then the least that holds the rest.
    assert_eq!(
        world.table().place(&world.ask(), 10),
        ids(&[2, 2, 2, 2, 2, 2, 2, 2, 1, 1])
    );
    // Where it already runs comes first.
    world.present = vec![(NodeId(2), 1), (NodeId(1), 2)];
    assert_eq!(world.table().place(&world.ask(), 4), ids(&[1, 1, 1, 2]));
}

#[test]
fn packing_over_zones_packs_inside_each() {
    let zones = [(1, "a"), (2, "a"), (3, "b"), (4, "b")];
    let mut world = World::of(
        zones
            .iter()
            .map(|(id, zone)| roomy(*id, &[("zone", zone)]))
            .collect(),
    );
    world.spec.affinity.mode = AffinityMode::Pack;
    world.spec.affinity.spread_by = Some("zone".into());
    assert_eq!(world.table().place(&world.ask(), 6), ids(&[1, 3, 1, 3, 1, 3]));
}

#[test]
fn claimed_nodes_are_closed_to_the_rest() {
    let mut world = World::of((1..=4).map(|id| roomy(id, &[])).collect());
    world.nodes[0].occupant = Occupant::Dedicated(OTHER);
    world.nodes[1].occupant = Occupant::Exclusive(OURS);
    world.nodes[2].replicas = 1;
    assert_eq!(world.table().place(&world.ask(), 2), ids(&[4, 3]));
    world.spec.node_mode = NodeMode::Dedicated;
    assert_eq!(world.table().place(&world.ask(), 2), ids(&[4, 4]));
    world.spec.node_mode = NodeMode::Exclusive;
    let mut table = world.table();
    assert_eq!(table.place(&world.ask(), 2), ids(&[4]));
    assert_eq!(
        table.why_not(&world.ask()).to_string(),
        "2 of 4 nodes are held by an exclusive replica; 1 is dedicated to another service; \
         1 runs replicas already, an exclusive node is asked"
    );
    table.rollback();
    assert_eq!(table.place(&world.ask(), 2), ids(&[4]));
}

#[test]
fn every_node_has_its_first_reason() {
    let mut nodes: Vec<NodeRow> = (1..=12).map(|id| roomy(id, &[("zone", "a")])).collect();
    nodes[0].open = Openness::NoReplicas;
    nodes[0].labels = Default::default();
    nodes[1].os = "windows".into();
    nodes[2].labels = Default::default();
    nodes[2].open = Openness::Draining;
    nodes[3].open = Openness::Unreachable;
    nodes[4].open = Openness::Draining;
    nodes[6].occupant = Occupant::Exclusive(OTHER);
    nodes[7].occupant = Occupant::Dedicated(OTHER);
    nodes[8].replicas = 2;
    nodes[9].used = amount(3_500, 0);
    nodes[10].used = amount(3_750, 0);
    nodes[11].used = amount(0, 7 << 30);
    let mut world = World::of(nodes);
    world.spec.node_selector.labels = labels(&[("zone", "a")]);
    world.spec.platform.os = Some("linux".into());
    world.spec.node_mode = NodeMode::Dedicated;
    world.demand = amount(1_000, 2 << 30);
    world.avoid = ids(&[6]);
    let why = world.table().why_not(&world.ask());
    assert_eq!(
        why.to_string(),
        "1 of 12 nodes runs no replicas; 1 is not linux; 1 lacks label zone=a; 1 is unreachable; \
         1 is draining; 1 would not tell it from another deployment's service of that name; \
         1 is held by an exclusive replica; 1 is dedicated to another service; \
         1 runs other services, a dedicated node is asked; \
         2 have at most 0.5 CPU free, 1 asked; 1 has 1Gi free, 2Gi asked"
    );
    assert_eq!(world.table().place(&world.ask(), 5), []);
}

#[test]
fn a_bound_replica_goes_to_its_node_or_waits() {
    let mut world = World::of((1..=3).map(|id| roomy(id, &[])).collect());
    world.bound_to = Some(NodeId(2));
    world.demand = amount(2_000, 0);
    assert_eq!(world.table().place(&world.ask(), 3), ids(&[2, 2]));
    world.nodes[1].open = Openness::Unreachable;
    assert_eq!(world.table().place(&world.ask(), 1), []);
    let why = world.table().why_not(&world.ask());
    assert_eq!(
        why.to_string(),
        "it is to be moved to node 2, which is unreachable"
    );
    world.bound_to = Some(NodeId(9));
    world.spec.rtype = RType::System;
    let why = world.table().why_not(&world.ask());
    assert_eq!(why.to_string(), "its own node 9 is not in the cluster");
}

#[test]
fn a_system_service_keeps_the_nodes_it_fills() {
    let mut world = World::of((1..=4).map(|id| roomy(id, &[])).collect());
    world.spec.rtype = RType::System;
    world.demand = amount(4_000, 0);
    world.nodes[0].used = world.demand;
    world.nodes[0].replicas = 1;
    world.present = vec![(NodeId(1), 1)];
    world.nodes[1].used = amount(1, 0);
    world.nodes[2].open = Openness::Draining;
    assert_eq!(world.table().fitting(&world.ask()), ids(&[1, 4]));
}
