//! Rules about several nodes at once: how many replicas of the service a node or a group of nodes may have, and which
//! other services are to be near or away. What of the state they go by comes with them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::node_table::NodeTable;
use super::tag_index::TagIndex;
use crate::ids::{NodeId, ServiceName};

/// The rules of an ask, with who is where; none of them by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    pub max_per_node: Option<u32>,
    pub max_per: Option<&'a BTreeMap<String, u32>>,
    /// How many replicas of the service are on which node, of every version and those that are still stopping, in
    /// ascending order of node ids; each node once.
    pub held: &'a [(NodeId, u32)],
    pub company: &'a [Company],
}

/// Where another service is to be, as seen by a replica that is placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Company {
    /// The other service.
    pub service: ServiceName,
    /// Nodes with the same value of this label count as one place; without it, each node is one.
    pub by: Option<String>,
    pub wish: Wish,
    /// No node will do that does not meet it; else such nodes merely come last.
    pub required: bool,
    /// The nodes that run it, ascending.
    pub nodes: Vec<NodeId>,
}

/// What is asked of the other service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    Near,
    Away,
    /// It is the other one that asks to be alone.
    AwayFromIt,
}

impl Rules<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.max_per_node.is_none() && self.max_per.is_none() && self.company.is_empty()
    }
}

/// The first rule that a node would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Broken {
    MaxPerNode,
    /// It lacks the label of the limit at this place.
    LacksLabelOf(u32),
    /// Its group has as many as may be, by the limit at this place.
    MaxPer(u32),
    /// The company at this place.
    Company(u32),
}

/// One limit over groups of nodes, while an ask is answered.
#[derive(Clone, Debug)]
struct Limit {
    max: u32,
    /// The group of each row; 0 for rows without the label.
    group_of: Vec<u32>,
    counts: Vec<u32>,
}

impl Limit {
    fn of(table: &NodeTable, label: &str, max: u32, held: &[(NodeId, u32)]) -> Self {
        let mut group_of = vec![0; table.len()];
        let mut counts = vec![0_u32];
        for (posting, group) in table.tags().zones(label).zip(1..) {
            counts.push(0);
            for row in posting {
                group_of[*row as usize] = group;
            }
        }
        let mut finder = table.finder();
        for (id, count) in held {
            if let Some(row) = finder.find(*id) {
                let count_here = &mut counts[group_of[row as usize] as usize];
                *count_here = count_here.saturating_add(*count);
            }
        }
        Self {
            max,
            group_of,
            counts,
        }
    }
}

/// The rules of one ask, worked out for every row.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleMarks {
    max_per_node: Option<u32>,
    /// How many of the service each row has; empty without such a limit.
    held: Vec<u32>,
    limits: Vec<Limit>,
    /// Required company that a row lacks, by its place plus one; 0 where it lacks none. Empty without any.
    lacking: Vec<u32>,
}

impl RuleMarks {
    pub(super) fn set(&mut self, table: &NodeTable, rules: &Rules<'_>) {
        *self = Self::default();
        if rules.is_empty() {
            return;
        }
        self.max_per_node = rules.max_per_node;
        if self.max_per_node.is_some() {
            self.held.resize(table.len(), 0);
            let mut finder = table.finder();
            for (id, count) in rules.held {
                if let Some(row) = finder.find(*id) {
                    self.held[row as usize] = *count;
                }
            }
        }
        let max_per = rules.max_per.into_iter().flatten();
        self.limits
            .extend(max_per.map(|(label, max)| Limit::of(table, label, *max, rules.held)));
        for (company, place) in rules.company.iter().zip(1..) {
            if company.required {
                self.lacking.resize(table.len(), 0);
                for (lacks, first) in is_met(table, company).iter().zip(&mut self.lacking) {
                    if !*lacks && *first == 0 {
                        *first = place;
                    }
                }
            }
        }
    }

    /// How many more the row may have by the limit of nodes.
    pub(super) fn room_on(&self, row: u32) -> u32 {
        let Some(max) = self.max_per_node else {
            return u32::MAX;
        };
        max.saturating_sub(self.held.get(row as usize).copied().unwrap_or(0))
    }

    /// The rule that one more on the row would break.
    pub(super) fn broken(&self, row: u32) -> Option<Broken> {
        if self.room_on(row) == 0 {
            return Some(Broken::MaxPerNode);
        }
        for (limit, place) in self.limits.iter().zip(0..) {
            let group = limit.group_of[row as usize];
            if group == 0 {
                return Some(Broken::LacksLabelOf(place));
            }
            if limit.counts[group as usize] >= limit.max {
                return Some(Broken::MaxPer(place));
            }
        }
        let lacking = self.lacking.get(row as usize).copied().unwrap_or(0);
        lacking.checked_sub(1).map(Broken::Company)
    }

    /// One more of the service is on the row.
    pub(super) fn count_one(&mut self, row: u32) {
        if let Some(held) = self.held.get_mut(row as usize) {
            *held = held.saturating_add(1);
        }
        for limit in &mut self.limits {
            let group = limit.group_of[row as usize];
            let count = &mut limit.counts[group as usize];
            *count = count.saturating_add(1);
        }
    }
}

/// For each row whether it meets what is asked of the company.
pub(super) fn is_met(table: &NodeTable, company: &Company) -> Vec<bool> {
    let mut beside = vec![false; table.len()];
    let mut finder = table.finder();
    let rows: Vec<u32> = company.nodes.iter().filter_map(|id| finder.find(*id)).collect();
    match &company.by {
        None => rows.iter().for_each(|row| beside[*row as usize] = true),
        Some(label) => mark_groups(table.tags(), label, &rows, &mut beside),
    }
    if company.wish != Wish::Near {
        beside.iter_mut().for_each(|is_beside| *is_beside = !*is_beside);
    }
    beside
}

/// Marks every row of the groups that have one of these rows.
fn mark_groups(tags: &TagIndex, label: &str, rows: &[u32], beside: &mut [bool]) {
    for row in rows {
        beside[*row as usize] = true;
    }
    for posting in tags.zones(label) {
        if posting.iter().any(|row| beside[*row as usize]) {
            posting.iter().for_each(|row| beside[*row as usize] = true);
        }
    }
}
