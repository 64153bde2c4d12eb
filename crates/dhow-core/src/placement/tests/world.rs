//! Small random clusters and asks, and builders for written ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::amount::Amount;
use crate::ids::{NodeId, RoleName, ServiceId};
use crate::placement::{Ask, Company, NodeRow, NodeTable, Occupant, Openness, Rules, Wish};
use crate::spec::{
    Affinity, AffinityMode, LabelRule, NodeMode, NodeSelector, Percent, Platform, ServiceSpec,
};

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
    /// Replicas that are ending, beside those present: they count for rules alone.
    pub ending: Vec<(NodeId, u32)>,
    pub held: Vec<(NodeId, u32)>,
    pub company: Vec<Company>,
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
            ending: Vec::new(),
            held: Vec::new(),
            company: Vec::new(),
        }
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            max_per_node: self.spec.max_per_node,
            max_per: (!self.spec.max_per.is_empty()).then_some(&self.spec.max_per),
            held: &self.held,
            company: &self.company,
        }
    }

    /// Counts anew what rules about nodes go by.
    pub fn count_held(&mut self) {
        let mut held = BTreeMap::new();
        for (node, count) in self.present.iter().chain(&self.ending) {
            *held.entry(*node).or_insert(0) += count;
        }
        self.held = held.into_iter().collect();
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
            rules: self.rules(),
        }
    }

    /// The same ask after these were placed.
    pub fn with_present(&self, chosen: &[NodeId]) -> Self {
        let mut world = self.clone();
        world.present.extend(chosen.iter().map(|id| (*id, 1)));
        world.count_held();
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
    (mode, spread_by, node_mode, selector, platform, any_limits()).prop_map(
        |(mode, spread_by, node_mode, (zone, disk, prefer_zone, prefer_disk), (os, arch), limits)| {
            let (max_per_node, max_per, rules, spread_percent) = limits;
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
                    ..Affinity::default()
                },
                node_mode,
                node_selector: NodeSelector {
                    labels: must.collect(),
                    prefer_labels: prefer.chain(when(prefer_disk, ("disk", "ssd"))).collect(),
                    rules,
                },
                max_per_node,
                max_per,
                spread_percent,
                platform: Platform {
                    os: os.then(|| "linux".to_owned()),
                    arch: arch.then(|| "x86_64".to_owned()),
                },
                ..ServiceSpec::default()
            }
        },
    )
}

type Limits = (
    Option<u32>,
    BTreeMap<String, u32>,
    Vec<LabelRule>,
    BTreeMap<String, Percent>,
);

/// Mostly none.
fn any_limits() -> impl Strategy<Value = Limits> {
    let max_per = (
        prop::option::weighted(0.2, 1..5_u32),
        prop::option::weighted(0.1, 1..5_u32),
    );
    let rules = prop::sample::select(vec![
        "zone != a",
        "disk in [ssd]",
        "zone not in [b, c]",
        "disk exists",
        "rack absent",
    ]);
    let rules = prop::collection::vec(rules, 0..2).prop_map(|rules| {
        let read = |text: &str| text.parse().unwrap();
        rules.into_iter().map(read).collect()
    });
    let percent = prop::option::weighted(0.2, (0..60_u32, 0..41_u32));
    (
        prop::option::weighted(0.3, 1..4_u32),
        max_per,
        prop::option::weighted(0.2, rules),
        percent,
    )
        .prop_map(|(max_per_node, (zone, disk), rules, percent)| {
            let named = |name: &str, max: Option<u32>| max.map(|max| (name.to_owned(), max));
            let share = |number: u32| format!("{number}%").parse().unwrap();
            let percent = percent.map(|(a, b)| [("a".to_owned(), share(a)), ("b".to_owned(), share(b))]);
            (
                max_per_node,
                named("zone", zone)
                    .into_iter()
                    .chain(named("disk", disk))
                    .collect(),
                rules.unwrap_or_default(),
                percent.into_iter().flatten().collect(),
            )
        })
}

fn any_company() -> impl Strategy<Value = Vec<Company>> {
    let wish = prop::sample::select(vec![Wish::Near, Wish::Away, Wish::AwayFromIt]);
    let one = (
        wish,
        prop::bool::ANY,
        prop::bool::ANY,
        prop::collection::btree_set(1..10_u64, 0..5),
    );
    let one = one.prop_map(|(wish, by_zone, required, nodes)| Company {
        service: crate::ids::ServiceName::new("other").unwrap(),
        by: by_zone.then(|| "zone".to_owned()),
        wish,
        required,
        nodes: nodes.into_iter().map(NodeId).collect(),
    });
    prop_oneof![4 => Just(Vec::new()).boxed(), 1 => prop::collection::vec(one, 1..3).boxed()]
}

/// Any small cluster with an ask that fits it more or less.
pub fn any_world() -> impl Strategy<Value = World> {
    let nodes = prop::collection::vec(any_node(), 0..9);
    let bound = prop::option::weighted(0.1, 1..10_u64);
    let avoid = prop::collection::vec(1..10_u64, 0..2);
    let ending = prop::collection::vec((1..10_u64, 1..3_u32), 0..2);
    let more = (bound, avoid, ending, any_company());
    (nodes, any_spec(), any_amount(3), any_unit(), more).prop_map(
        |(nodes, spec, demand, unit, (bound, avoid, ending, company))| {
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
            let mut world = World {
                spec,
                demand: scaled(demand),
                bound_to: bound.map(NodeId),
                avoid: ids(&avoid),
                ending: ending
                    .into_iter()
                    .map(|(id, count)| (NodeId(id), count))
                    .collect(),
                company,
                ..world
            };
            world.count_held();
            world
        },
    )
}
