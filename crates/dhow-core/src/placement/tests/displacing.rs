//! Who makes room for whom.

use proptest::prelude::*;

use super::naive::Naive;
use super::world::{OTHER, OURS, World, amount, any_world, config, node};
use crate::amount::Amount;
use crate::ids::{Generation, NodeId, ReplicaKey, RoleId, Slot};
use crate::placement::{Candidate, DISPLACE_PRIORITY_GAP, Displacement};

fn candidate(index: u32, priority: u8, demand: Amount) -> Candidate {
    let slot = Slot {
        role: RoleId(0),
        index,
    };
    Candidate {
        key: ReplicaKey {
            service: OTHER,
            slot,
            generation: Generation(1),
        },
        priority,
        demand,
    }
}

/// A world of nodes that are full with these.
fn full(nodes: &[&[Candidate]]) -> World {
    let row = |(running, id): (&&[Candidate], u64)| {
        let mut node = node(id, amount(8, 8));
        node.used = node.capacity;
        node.replicas = running.len() as u32;
        node
    };
    World::of(nodes.iter().zip(1..).map(row).collect())
}

fn displaced(world: &World, nodes: &[&[Candidate]], priority: u8) -> Option<(u64, Vec<u32>)> {
    let running = |NodeId(id): NodeId| nodes[id as usize - 1].to_vec();
    let found = world.table().displace(&world.ask(), priority, &running);
    found.map(|Displacement { node, victims }| (node.0, victims.iter().map(|key| key.slot.index).collect()))
}

#[test]
fn ten_below_is_low_enough() {
    let nodes: &[&[Candidate]] = &[&[candidate(0, 40, amount(8, 8))]];
    let world = full(nodes);
    assert_eq!(displaced(&world, nodes, 49), None);
    assert_eq!(displaced(&world, nodes, 50), Some((1, vec![0])));
    assert_eq!(displaced(&world, nodes, 9), None);
}

#[test]
fn the_lowest_priorities_go_and_no_more_than_needed() {
    let nodes: &[&[Candidate]] = &[
        &[candidate(0, 30, amount(4, 4)), candidate(1, 10, amount(4, 4))],
        &[candidate(2, 10, amount(1, 1)), candidate(3, 20, amount(7, 7))],
        &[candidate(4, 10, amount(3, 3)), candidate(5, 10, amount(5, 5))],
    ];
    let mut world = full(nodes);
    // One of priority 10 is enough on nodes 1 and 3: the least is freed in excess on node 1.
    world.demand = amount(4, 4);
    assert_eq!(displaced(&world, nodes, 50), Some((1, vec![1])));
    // Node 3 frees it with priority 10 alone, if with two victims.
    world.demand = amount(6, 6);
    assert_eq!(displaced(&world, nodes, 50), Some((3, vec![5, 4])));
    // On node 2 the small one is spared again, as the large one is enough.
    world.avoid = vec![NodeId(3)];
    assert_eq!(displaced(&world, nodes, 50), Some((2, vec![3])));
    world.bound_to = Some(NodeId(1));
    assert_eq!(displaced(&world, nodes, 50), Some((1, vec![1, 0])));
}

#[test]
fn neither_the_own_service_nor_the_useless_go() {
    let mut own = candidate(0, 10, amount(8, 8));
    own.key.service = OURS;
    let nodes: &[&[Candidate]] = &[
        &[own],
        &[candidate(1, 10, amount(0, 0)), candidate(2, 20, amount(8, 0))],
    ];
    let mut world = full(nodes);
    assert_eq!(displaced(&world, nodes, 90), None);
    world.demand = amount(1, 0);
    assert_eq!(displaced(&world, nodes, 90), Some((2, vec![2])));
}

#[test]
fn an_overfull_node_must_lose_what_it_has_too_much() {
    let nodes: &[&[Candidate]] = &[&[candidate(0, 10, amount(2, 2)), candidate(1, 20, amount(8, 8))]];
    let mut world = full(nodes);
    world.nodes[0].used = amount(10, 10);
    assert_eq!(displaced(&world, nodes, 50), Some((1, vec![1])));
    world.nodes[0].capacity = amount(u64::MAX, u64::MAX);
    world.nodes[0].used = world.nodes[0].capacity;
    world.demand = amount(9, 9);
    assert_eq!(displaced(&world, nodes, 50), Some((1, vec![0, 1])));
}

fn any_running() -> impl Strategy<Value = Vec<Vec<(u8, u64, u64)>>> {
    let one = (1..=60_u8, 0..4_u64, 0..4_u64);
    prop::collection::vec(prop::collection::vec(one, 0..5), 9)
}

/// Whether the ask fits once these are gone.
fn fits_without(world: &World, node: NodeId, gone: &[Candidate]) -> bool {
    let mut row = world.nodes.iter().find(|row| row.id == node).unwrap().clone();
    let freed = gone.iter().fold(Amount::ZERO, |sum, one| sum.plus(one.demand));
    row.used = row.used.minus(freed);
    row.free().covers(world.demand)
}

/// The lowest priority that must go, over every node and every set of victims.
fn lowest_possible(world: &World, running: &[Vec<Candidate>], ceiling: u8) -> Option<(u8, usize)> {
    let naive = Naive::new(world);
    let open = world
        .nodes
        .iter()
        .zip(running)
        .filter(|(node, _)| naive.open_to_it(node));
    let costs = open.flat_map(|(node, running)| {
        (1..1_u32 << running.len()).filter_map(move |subset| {
            let picked = running.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1);
            let gone: Vec<Candidate> = picked.map(|(_, one)| *one).collect();
            let highest = gone.iter().map(|one| one.priority).max()?;
            (highest <= ceiling && fits_without(world, node.id, &gone)).then_some((highest, gone.len()))
        })
    });
    costs.min()
}

proptest! {
    #![proptest_config(config(800))]

    #[test]
    fn what_goes_is_enough_needed_and_of_the_lowest_priority(
        mut world in any_world(), drawn in any_running(), priority in 1..=100_u8,
    ) {
        let mut running = Vec::new();
        for (node, drawn) in world.nodes.iter_mut().zip(&drawn) {
            let here: Vec<Candidate> = drawn
                .iter()
                .zip(0..)
                .map(|((priority, cpu, memory), index)| candidate(index, *priority, amount(*cpu, *memory)))
                .collect();
            node.used = here.iter().fold(Amount::ZERO, |sum, one| sum.plus(one.demand));
            running.push(here);
        }
        let at = |id: NodeId| world.nodes.iter().position(|node| node.id == id).unwrap();
        let found = world.table().displace(&world.ask(), priority, &|id| running[at(id)].clone());

        if !world.table().why_not(&world.ask()).is_hindered() {
            prop_assert_eq!(found, None);
            return Ok(());
        }
        let ceiling = priority.saturating_sub(DISPLACE_PRIORITY_GAP);
        let Some((lowest, fewest)) = lowest_possible(&world, &running, ceiling) else {
            prop_assert_eq!(found, None);
            return Ok(());
        };
        let Displacement { node, victims } = found.unwrap();
        let gone: Vec<Candidate> =
            running[at(node)].iter().filter(|one| victims.contains(&one.key)).copied().collect();
        prop_assert_eq!(gone.len(), victims.len());
        prop_assert!(gone.len() >= fewest);
        prop_assert!(fits_without(&world, node, &gone));
        prop_assert_eq!(gone.iter().map(|one| one.priority).max(), Some(lowest));
        for spared in 0..gone.len() {
            let mut fewer = gone.clone();
            fewer.remove(spared);
            prop_assert!(!fits_without(&world, node, &fewer), "{:?} was not needed", gone[spared]);
        }
    }
}
