//! Laws over small random clusters.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::naive::Naive;
use super::world::{OURS, World, any_node, any_world, config, labelled};
use crate::amount::Amount;
use crate::ids::NodeId;
use crate::placement::marks::{Mark, Marks};
use crate::placement::place::Search;
use crate::placement::{NodeRow, NodeTable, Occupant};
use crate::spec::{AffinityMode, NodeMode, ServiceSpec};

/// All that can be asked of a table, to compare two tables.
fn answers(table: &mut NodeTable, world: &World) -> impl PartialEq + std::fmt::Debug + use<> {
    let before = (table.why_not(&world.ask()), table.fitting(&world.ask()));
    let chosen = table.place(&world.ask(), 7);
    let after: Vec<NodeRow> = table.nodes().cloned().collect();
    table.rollback();
    let told: Vec<NodeRow> = table.nodes().cloned().collect();
    (before, chosen, after, told)
}

/// The fewest nodes that hold so many replicas together with those that hold some already.
fn fewest_nodes(rooms: &[(NodeId, u32)], present: &BTreeSet<NodeId>, wanted: u32) -> usize {
    let subsets = (0..1_u32 << rooms.len()).filter_map(|subset| {
        let within = || rooms.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1);
        let holds = within().map(|(_, (_, room))| room).sum::<u32>() >= wanted;
        let nodes: BTreeSet<NodeId> = within()
            .map(|(_, (id, _))| *id)
            .chain(present.iter().copied())
            .collect();
        holds.then_some(nodes.len())
    });
    subsets.min().unwrap_or(usize::MAX)
}

proptest! {
    #![proptest_config(config(800))]

    #[test]
    fn quick_and_plain_choose_the_same(world in any_world(), wanted in 0..24_u32) {
        let mut naive = Naive::new(&world);
        let expected = naive.place(wanted);
        for search in [Search::Scan, Search::Heap] {
            let mut table = world.table();
            prop_assert_eq!(&table.place_by(search, &world.ask(), wanted), &expected, "{:?}", search);
            let rows: Vec<NodeRow> = table.nodes().cloned().collect();
            prop_assert_eq!(&rows, &naive.nodes, "{:?}", search);
        }
        prop_assert_eq!(world.table().place(&world.ask(), wanted), expected);
    }

    /// Nodes that are all open and alike but for their room, so that the batch meets every kind of fit.
    #[test]
    fn a_batch_is_packed_as_if_one_by_one(mut world in any_world(), wanted in 1..12_u32) {
        for node in &mut world.nodes {
            let capacity = node.capacity;
            *node = labelled(node.id.0, capacity, &[]);
        }
        world.spec = ServiceSpec::default();
        world.spec.affinity.mode = AffinityMode::Pack;
        world.present.clear();
        world.count_held();
        world.bound_to = None;
        prop_assert_eq!(world.table().place(&world.ask(), wanted), Naive::new(&world).place(wanted));
    }

    #[test]
    fn no_node_gets_more_than_it_has(world in any_world(), wanted in 0..24_u32) {
        let mut table = world.table();
        let chosen = table.place(&world.ask(), wanted);
        prop_assert!(chosen.len() <= wanted as usize);
        for id in chosen {
            let node = table.get(id).unwrap();
            let (demand, used, capacity) = (world.demand, node.used, node.capacity);
            prop_assert!(demand.cpu_milli == 0 || used.cpu_milli <= capacity.cpu_milli);
            prop_assert!(demand.memory_bytes == 0 || used.memory_bytes <= capacity.memory_bytes);
        }
    }

    #[test]
    fn no_rule_is_broken(world in any_world(), wanted in 0..24_u32) {
        let chosen = world.table().place(&world.ask(), wanted);
        let mut sofar = Vec::new();
        for id in chosen {
            let before = world.with_present(&sofar);
            let naive = Naive::new(&before);
            let node = before.nodes.iter().find(|node| node.id == id).unwrap();
            prop_assert!(naive.keeps_rules(node), "node {id} after {sofar:?}");
            sofar.push(id);
        }
    }

    #[test]
    fn node_modes_are_kept(world in any_world(), wanted in 0..24_u32) {
        let before = world.table();
        let mut table = world.table();
        let mut counts = BTreeMap::<NodeId, u32>::new();
        for id in table.place(&world.ask(), wanted) {
            *counts.entry(id).or_default() += 1;
        }
        for (id, placed) in counts {
            let (was, now) = (before.get(id).unwrap(), table.get(id).unwrap());
            let own: u32 = world.present.iter().filter(|(node, _)| *node == id).map(|(_, count)| count).sum();
            prop_assert!(!matches!(was.occupant, Occupant::Exclusive(_)));
            prop_assert!(was.occupant == Occupant::Nobody || was.occupant == Occupant::Dedicated(OURS));
            prop_assert_eq!(now.replicas, was.replicas + placed);
            match world.spec.node_mode {
                NodeMode::Shared => prop_assert_eq!(now.occupant, was.occupant),
                NodeMode::Dedicated => {
                    prop_assert_eq!(was.replicas, own);
                    prop_assert_eq!(now.occupant, Occupant::Dedicated(OURS));
                }
                NodeMode::Exclusive => {
                    prop_assert_eq!((was.replicas, placed), (0, 1));
                    prop_assert_eq!(now.occupant, Occupant::Exclusive(OURS));
                }
            }
        }
    }

    #[test]
    fn packing_takes_the_fewest_nodes(mut world in any_world(), wanted in 1..24_u32) {
        world.spec.affinity.mode = AffinityMode::Pack;
        world.spec.affinity.spread_by = None;
        world.spec.node_selector.prefer_labels.clear();
        world.spec.max_per.clear();
        world.company.retain(|company| company.required);
        let naive = Naive::new(&world);
        let feasible = naive.nodes.iter().filter(|node| naive.feasible(node));
        let rooms: Vec<(NodeId, u32)> = feasible.map(|node| (node.id, naive.room(node, wanted))).collect();
        let present: BTreeSet<NodeId> = world.present.iter().map(|(id, _)| *id).collect();

        let chosen = world.table().place(&world.ask(), wanted);
        prop_assert_eq!(chosen.len() as u32, wanted.min(rooms.iter().map(|(_, room)| room).sum()));
        let used: BTreeSet<NodeId> = chosen.iter().chain(&present).copied().collect();
        prop_assert_eq!(used.len(), fewest_nodes(&rooms, &present, chosen.len() as u32));
    }

    #[test]
    fn there_is_a_reason_exactly_when_there_is_no_place(world in any_world(), wanted in 0..24_u32) {
        let mut table = world.table();
        let chosen = table.place(&world.ask(), wanted);
        let next = world.with_present(&chosen);
        let why = table.why_not(&next.ask());
        prop_assert!(chosen.len() == wanted as usize || why.is_hindered(), "{}", why);
        prop_assert_eq!(table.place(&next.ask(), 1).is_empty(), why.is_hindered(), "{}", why);

        let hindered: u32 = why.hindrances.iter().map(|hindrance| hindrance.nodes).sum();
        prop_assert_eq!(why.nodes as usize, world.nodes.len());
        prop_assert_eq!(hindered + why.fitting, why.nodes);
        prop_assert!(why.hindrances.iter().all(|hindrance| hindrance.nodes > 0));
        prop_assert!(!why.to_string().is_empty());
    }

    #[test]
    fn nodes_that_would_take_it_are_counted(world in any_world()) {
        let naive = Naive::new(&world);
        let feasible = naive.nodes.iter().filter(|node| naive.feasible(node)).count();
        prop_assert_eq!(world.table().why_not(&world.ask()).fitting as usize, feasible);
    }

    #[test]
    fn where_it_runs_it_fits_and_elsewhere_it_needs_room(world in any_world()) {
        // The same cluster without the service itself.
        let mut bare = world.clone();
        for node in &mut bare.nodes {
            let own = world.ask().present_on(node.id);
            node.replicas -= own;
            match node.occupant {
                Occupant::Dedicated(OURS) | Occupant::Exclusive(OURS) => node.occupant = Occupant::Nobody,
                Occupant::Nobody | Occupant::Dedicated(_) | Occupant::Exclusive(_) => {}
            }
            if own > 0 {
                (node.used, node.capacity) = (Amount::ZERO, world.demand);
            }
        }
        bare.present.clear();
        // Services that run on every node have no such rules.
        let mut world = world;
        for world in [&mut bare, &mut world] {
            world.spec.max_per_node = None;
            world.spec.max_per.clear();
            world.company.clear();
        }
        let naive = Naive::new(&bare);
        let expected: Vec<NodeId> =
            bare.nodes.iter().filter(|node| naive.feasible(node)).map(|node| node.id).collect();
        prop_assert_eq!(world.table().fitting(&world.ask()), expected);
    }

    #[test]
    fn the_order_of_arrival_makes_no_difference(
        (world, shuffled) in any_world().prop_flat_map(|world| {
            let nodes = Just(world.nodes.clone()).prop_shuffle();
            (Just(world), nodes)
        }),
    ) {
        let mut other = World { nodes: shuffled, ..world.clone() };
        other.present.reverse();
        prop_assert_eq!(answers(&mut world.table(), &world), answers(&mut other.table(), &other));
    }

    #[test]
    fn a_table_with_a_past_equals_a_new_one(
        world in any_world(),
        past in prop::collection::vec((1..10_u64, prop::option::weighted(0.7, any_node())), 0..30),
    ) {
        let mut warm = world.table();
        let mut nodes: BTreeMap<NodeId, NodeRow> =
            world.nodes.iter().map(|node| (node.id, node.clone())).collect();
        for (id, change) in past {
            let id = NodeId(id);
            match change {
                Some((row, _)) => {
                    let row = NodeRow { id, ..row };
                    warm.upsert(row.clone());
                    nodes.insert(id, row);
                }
                None => prop_assert_eq!(warm.remove(id), nodes.remove(&id).is_some()),
            }
            // Reservations must leave no trace behind.
            warm.place(&world.ask(), 3);
            warm.rollback();
        }
        let world = World { nodes: nodes.into_values().collect(), ..world };
        prop_assert_eq!(answers(&mut warm, &world), answers(&mut world.table(), &world));
    }

    #[test]
    fn one_row_is_marked_as_all_are(mut world in any_world()) {
        // With rules all rows are looked at.
        world.company.clear();
        let table = world.table();
        let marks = Marks::new(&table, &world.ask(), Some("zone"));
        for row in table.row_numbers() {
            let one = Mark::of_one(&table, row, &world.ask());
            prop_assert_eq!(one, Mark { zone: one.zone, ..*marks.of(row) });
        }
    }
}
