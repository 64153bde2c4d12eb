//! Small random clusters and asks, and builders for written ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::amount::Amount;
use crate::ids::{NodeId, RoleName, ServiceId};
use crate::placement::{Ask, NodeRow, NodeTable, Occupant, Openness};
use crate::spec::{Affinity, AffinityMode, NodeMode, NodeSelector, Platform, ServiceSpec};

/// The service that asks, and another one.
pub const OURS: ServiceId = ServiceId(1);
pub const OTHER: ServiceId = ServiceId(2);

/// The same cases each time; many more of them in a long round, which is compiled for it.
pub fn config(cases: u32) -> ProptestConfig {
    let long = option_env!("DHOW_TEST_LONG").is_some();
    ProptestConfig {
        cases: if long { cases * 100 } else { cases },
        rng_seed: RngSeed::Fixed(3669),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A cluster and an ask, with everything that the ask borrows.
#[derive(Clone, Debug)]
pub struct World {
    pub nodes: Vec<NodeRow>,
    pub spec: ServiceSpec,
    pub role: RoleName,
    pub demand: Amount,
    pub present: Vec<(NodeId, u32)>,
    pub bound_to: Option<NodeId>,
    pub avoid: Vec<NodeId>,
}

impl World {
    pub fn of(nodes: Vec<NodeRow>) -> Self {
        Self {
            nodes,
            spec: ServiceSpec::default(),
            role: RoleName::fallback(),
            demand: amount(1, 1),
            present: Vec::new(),
            bound_to: None,
            avoid: Vec::new(),
        }
    }

    pub fn table(&self) -> NodeTable {
        let mut table = NodeTable::new();
        for node in &self.nodes {
            table.upsert(node.clone());
        }
        table
    }

    pub fn ask(&self) -> Ask<'_> {
        Ask {
            service: OURS,
            spec: &self.spec,
            role: &self.role,
            demand: self.demand,
            present: &self.present,
            bound_to: self.bound_to,
            avoid: &self.avoid,
        }
    }

    /// The same ask after these were placed.
    pub fn with_present(&self, chosen: &[NodeId]) -> Self {
        let mut world = self.clone();
        world.present.extend(chosen.iter().map(|id| (*id, 1)));
        world
    }
}

pub fn amount(cpu_milli: u64, memory_bytes: u64) -> Amount {
    Amount {
        cpu_milli,
        memory_bytes,
    }
}

pub fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// An open, empty Linux node.
pub fn node(id: u64, capacity: Amount) -> NodeRow {
    NodeRow {
        id: NodeId(id),
        open: Openness::Open,
        os: "linux".into(),
        arch: "x86_64".into(),
        labels: Arc::default(),
        capacity,
        used: Amount::ZERO,
        replicas: 0,
        occupant: Occupant::Nobody,
        mounts_files: true,
        runs_steps: true,
        volumes: crate::spec::VolumeSupport::Sized,
    }
}

pub fn labelled(id: u64, capacity: Amount, with: &[(&str, &str)]) -> NodeRow {
    NodeRow {
        labels: Arc::new(labels(with)),
        ..node(id, capacity)
    }
}

pub fn ids(ids: &[u64]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// Amounts are small counts of this unit, so that nodes tie and fill up; the large one reaches 2^64.
fn any_unit() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(1), 1 => Just(7), 1 => Just(u64::MAX / 8)]
}

fn any_amount(most: u64) -> impl Strategy<Value = Amount> {
    (0..=most, 0..=most).prop_map(|(cpu, memory)| amount(cpu, memory))
}

fn any_labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    let zone = prop::option::weighted(0.8, prop::sample::select(vec!["a", "b", "c"]));
    let disk = prop::option::of(prop::sample::select(vec!["ssd", "hdd"]));
    (zone, disk).prop_map(|(zone, disk)| {
        let zone = zone.map(|zone| ("zone".to_owned(), zone.to_owned()));
        zone.into_iter()
            .chain(disk.map(|disk| ("disk".to_owned(), disk.to_owned())))
            .collect()
    })
}

fn any_open() -> impl Strategy<Value = Openness> {
    prop_oneof![
        12 => Just(Openness::Open),
        1 => Just(Openness::Draining),
        1 => Just(Openness::Drained),
        1 => Just(Openness::Unreachable),
        1 => Just(Openness::NoReplicas),
    ]
}

fn any_occupant() -> impl Strategy<Value = Occupant> {
    let service = prop_oneof![Just(OURS), Just(OTHER)].boxed();
    prop_oneof![
        10 => Just(Occupant::Nobody),
        1 => service.clone().prop_map(Occupant::Dedicated),
        1 => service.prop_map(Occupant::Exclusive),
    ]
}

/// A node with the number of the asking service's replicas on it; its id comes later.
pub fn any_node() -> impl Strategy<Value = (NodeRow, u32)> {
    let platform = (prop::bool::weighted(0.9), prop::bool::weighted(0.9));
    let taken = (
        any_amount(4),
        prop_oneof![3 => 0..1_u32, 1 => 1..4_u32],
        prop_oneof![3 => 0..1_u32, 1 => 1..4_u32],
    );
    (
        any_open(),
        platform,
        any_labels(),
        any_amount(8),
        taken,
        any_occupant(),
    )
        .prop_map(
            |(open, (linux, x86), labels, capacity, (used, own, others), occupant)| {
                let row = NodeRow {
                    id: NodeId(0),
                    open,
                    os: if linux { "linux" } else { "windows" }.into(),
                    arch: if x86 { "x86_64" } else { "aarch64" }.into(),
                    labels: Arc::new(labels),
                    capacity,
                    used,
                    replicas: own + others,
                    occupant,
                    mounts_files: true,
                    runs_steps: true,
                    volumes: crate::spec::VolumeSupport::Sized,
                };
                (row, own)
            },
        )
}

fn any_spec() -> impl Strategy<Value = ServiceSpec> {
    let mode = prop_oneof![
        4 => Just(AffinityMode::Spread),
        3 => Just(AffinityMode::Pack),
        1 => Just(AffinityMode::Pin),
    ];
    let spread_by = prop::option::of(prop::sample::select(vec!["zone", "disk", "rack"]));
    let node_mode = prop_oneof![
        6 => Just(NodeMode::Shared),
        1 => Just(NodeMode::Dedicated),
        1 => Just(NodeMode::Exclusive),
    ];
    let selector = (
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.1),
        prop::bool::ANY,
        prop::bool::ANY,
    );
    let platform = (prop::bool::weighted(0.3), prop::bool::weighted(0.2));
    (mode, spread_by, node_mode, selector, platform).prop_map(
        |(mode, spread_by, node_mode, (zone, disk, prefer_zone, prefer_disk), (os, arch))| {
            let when =
                |asked: bool, label: (&str, &str)| asked.then(|| (label.0.to_owned(), label.1.to_owned()));
            let must = when(zone, ("zone", "a"))
                .into_iter()
                .chain(when(disk, ("disk", "ssd")));
            let prefer = when(prefer_zone, ("zone", "b")).into_iter();
            ServiceSpec {
                affinity: Affinity {
                    mode,
                    spread_by: spread_by.map(str::to_owned),
                },
                node_mode,
                node_selector: NodeSelector {
                    labels: must.collect(),
                    prefer_labels: prefer.chain(when(prefer_disk, ("disk", "ssd"))).collect(),
                },
                platform: Platform {
                    os: os.then(|| "linux".to_owned()),
                    arch: arch.then(|| "x86_64".to_owned()),
                },
                ..ServiceSpec::default()
            }
        },
    )
}

/// Any small cluster with an ask that fits it more or less.
pub fn any_world() -> impl Strategy<Value = World> {
    let nodes = prop::collection::vec(any_node(), 0..9);
    let bound = prop::option::weighted(0.1, 1..10_u64);
    let avoid = prop::collection::vec(1..10_u64, 0..2);
    (nodes, any_spec(), any_amount(3), any_unit(), bound, avoid).prop_map(
        |(nodes, spec, demand, unit, bound, avoid)| {
            let scaled = |small: Amount| amount(small.cpu_milli * unit, small.memory_bytes * unit);
            let mut world = World::of(Vec::new());
            for ((mut row, own), id) in nodes.into_iter().zip(1..) {
                row.id = NodeId(id);
                row.capacity = scaled(row.capacity);
                row.used = scaled(row.used);
                if own > 0 {
                    world.present.push((row.id, own));
                }
                world.nodes.push(row);
            }
            World {
                spec,
                demand: scaled(demand),
                bound_to: bound.map(NodeId),
                avoid: ids(&avoid),
                ..world
            }
        },
    )
}
