//! Who is where, as far as rules about several nodes ask: what the planner tells the placement engine of the state, and
//! what `step` goes by when it checks a plan's placements again. Both go by the same.

use std::collections::BTreeMap;

use crate::ids::{NodeId, ServiceId};
use crate::placement::{Company, Rules, Wish};
use crate::replica::ReplicaState;
use crate::spec::{Neighbour, ServiceSpec};
use crate::state::{Node, Replica, Service, State, Wanted};

/// What the rules of one service go by. Empty for a service that nobody has such rules about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    /// Replicas of the service by node, of every version and those that are still ending. What is lost counts no more:
    /// others take its place.
    held: BTreeMap<NodeId, u32>,
    company: Vec<Company>,
    as_list: Vec<(NodeId, u32)>,
}

impl Around {
    pub(crate) fn of(state: &State, service: &Service, spec: &ServiceSpec) -> Self {
        let mut around = Self::default();
        if spec.has_limits_of_places() {
            for (_, replica) in state.replicas_of(service.id).filter(|(_, found)| is_there(found)) {
                *around.held.entry(replica.node).or_default() += 1;
            }
            around.list();
        }
        let affinity = &spec.affinity;
        for (wish, neighbours) in [(Wish::Near, &affinity.near), (Wish::Away, &affinity.away_from)] {
            for neighbour in neighbours {
                around.company.extend(company(state, service, neighbour, wish));
            }
        }
        for other in service.shunned_by.iter().filter_map(|id| state.service(*id)) {
            around.company.extend(kept_away(state, service, other));
        }
        around
    }

    pub(crate) fn rules<'a>(&'a self, spec: &'a ServiceSpec) -> Rules<'a> {
        Rules {
            max_per_node: spec.max_per_node,
            max_per: (!spec.max_per.is_empty()).then_some(&spec.max_per),
            held: &self.as_list,
            company: &self.company,
        }
    }

    fn list(&mut self) {
        self.as_list = self.held.iter().map(|(node, count)| (*node, *count)).collect();
    }

    /// The same once what is ending has ended.
    pub(crate) fn without_ending(mut self, state: &State, service: ServiceId) -> Self {
        let ending = state.replicas_of(service);
        let ending = ending.filter(|(_, replica)| is_there(replica) && replica.wanted == Wanted::Stop);
        for (_, replica) in ending {
            if let Some(count) = self.held.get_mut(&replica.node) {
                *count = count.saturating_sub(1);
            }
        }
        self.list();
        self
    }

    /// As if the service lay so, and others where they are said to be; those that nothing is said of stay.
    pub(crate) fn proposed_as(
        mut self,
        held: &[(NodeId, u32)],
        others: &dyn Fn(&Company) -> Option<Vec<NodeId>>,
    ) -> Self {
        self.held = held.iter().copied().collect();
        self.list();
        for company in &mut self.company {
            if let Some(mut nodes) = others(company) {
                nodes.sort_unstable();
                nodes.dedup();
                company.nodes = nodes;
            }
        }
        self
    }

    /// As if these had a replica more each, of the service itself or of another one.
    pub(crate) fn with_placed(mut self, own: &[NodeId], others: &dyn Fn(&Company) -> Vec<NodeId>) -> Self {
        for node in own {
            *self.held.entry(*node).or_default() += 1;
        }
        self.list();
        for company in &mut self.company {
            company.nodes.extend(others(company));
            company.nodes.sort_unstable();
            company.nodes.dedup();
        }
        self
    }
}

/// Whether it is on its node, or is about to be.
fn is_there(replica: &Replica) -> bool {
    replica.reserves() && replica.machine.state != ReplicaState::Lost
}

fn nodes_of(state: &State, service: ServiceId, wish: Wish) -> Vec<NodeId> {
    // Who is about to leave is no company any more, but is kept away from to the end.
    let counts = |replica: &Replica| match wish {
        Wish::Near => replica.wanted == Wanted::Run,
        Wish::Away | Wish::AwayFromIt => true,
    };
    let there = state.replicas_of(service);
    let there = there.filter(|(_, replica)| is_there(replica) && counts(replica));
    let mut nodes: Vec<NodeId> = there.map(|(_, replica)| replica.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn company(state: &State, service: &Service, neighbour: &Neighbour, wish: Wish) -> Option<Company> {
    let deployment = state.deployment(&service.key.deployment)?;
    let other = deployment.services.get(&neighbour.service).copied();
    Some(Company {
        service: neighbour.service.clone(),
        by: neighbour.by.clone(),
        wish,
        required: !neighbour.prefer,
        nodes: other.map_or_else(Vec::new, |other| nodes_of(state, other, wish)),
    })
}

/// What another service asks of this one, seen from here.
fn kept_away(state: &State, service: &Service, other: &Service) -> Option<Company> {
    let spec = other.spec()?;
    let rule = spec.affinity.away_from.iter();
    let mut rule = rule.filter(|rule| rule.service == service.key.service && !rule.prefer);
    let rule = rule.next_back()?;
    Some(Company {
        service: other.key.service.clone(),
        by: rule.by.clone(),
        wish: Wish::AwayFromIt,
        required: true,
        nodes: nodes_of(state, other.id, Wish::AwayFromIt),
    })
}

/// The rules of one service while placements are checked one by one.
pub(crate) struct Admission<'a> {
    spec: &'a ServiceSpec,
    held: BTreeMap<NodeId, u32>,
    /// How many replicas each value of a limited label has.
    groups: Vec<(&'a str, u32, BTreeMap<String, u32>)>,
    company: Vec<(Company, Vec<String>)>,
}

impl<'a> Admission<'a> {
    pub(crate) fn of(state: &State, around: &Around, spec: &'a ServiceSpec) -> Self {
        let value = |id: NodeId, label: &str| state.node(id)?.labels().get(label).cloned();
        let group = |(label, max): (&'a String, &u32)| {
            let mut counts = BTreeMap::new();
            for (node, count) in &around.held {
                if let Some(value) = value(*node, label) {
                    *counts.entry(value).or_insert(0) += count;
                }
            }
            (label.as_str(), *max, counts)
        };
        let places = |company: &Company| {
            let label = company.by.as_deref();
            let values = company.nodes.iter().filter_map(|node| value(*node, label?));
            (company.clone(), values.collect())
        };
        let required = around.company.iter().filter(|company| company.required);
        Self {
            spec,
            held: around.held.clone(),
            groups: spec.max_per.iter().map(group).collect(),
            company: required.map(places).collect(),
        }
    }

    /// Whether the node may have one more.
    pub(crate) fn admits(&self, node: &Node) -> bool {
        self.admits_beside(node, 0)
    }

    /// Whether one that is there may be there.
    pub(crate) fn keeps(&self, node: &Node) -> bool {
        self.admits_beside(node, 1)
    }

    /// Whether one more may be there once so many of those there are not counted.
    fn admits_beside(&self, node: &Node, own: u32) -> bool {
        let held = self.held.get(&node.id).copied().unwrap_or(0).saturating_sub(own);
        if self.spec.max_per_node.is_some_and(|max| held >= max) {
            return false;
        }
        let labels = node.labels();
        let has_room = |(label, max, counts): &(&str, u32, BTreeMap<String, u32>)| {
            let value = labels.get(*label);
            value.is_some_and(|value| counts.get(value).copied().unwrap_or(0).saturating_sub(own) < *max)
        };
        let is_met = |(company, values): &(Company, Vec<String>)| {
            let on_node = company.nodes.binary_search(&node.id).is_ok();
            let value = company.by.as_ref().and_then(|label| labels.get(label));
            let beside = on_node || value.is_some_and(|value| values.contains(value));
            beside == (company.wish == Wish::Near)
        };
        self.groups.iter().all(has_room) && self.company.iter().all(is_met)
    }

    /// The node has one more.
    pub(crate) fn count_one(&mut self, node: &Node) {
        *self.held.entry(node.id).or_default() += 1;
        let labels = node.labels();
        for (label, _, counts) in &mut self.groups {
            if let Some(value) = labels.get(*label) {
                *counts.entry(value.clone()).or_insert(0) += 1;
            }
        }
    }
}
