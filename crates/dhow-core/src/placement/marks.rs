//! What one ask means for each row, worked out once per ask and not once per choice.

use super::ask::Ask;
use super::node_table::NodeTable;
use super::requirement::Requirement;
use super::rules::{Broken, RuleMarks, is_met};
use super::zone_weights::ZoneWeights;
use crate::ids::NodeId;
use crate::spec::ServiceSpec;

/// The zone of rows without the label that spreads, and of all rows where none does.
pub(super) const ZONE_UNLABELLED: u32 = 0;

/// What the ask means for one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// How many of this service's replicas are there.
    pub(super) own: u32,
    /// How many preferred labels the node has.
    pub(super) liked: u32,
    /// How many requirements the node meets before the first that it does not.
    pub(super) met: u32,
    pub(super) zone: u32,
    pub(super) avoided: bool,
}

impl Mark {
    /// The mark of a single row, for an ask that can use no other. Its zone makes no difference then.
    pub(super) fn of_one(table: &NodeTable, row: u32, ask: &Ask<'_>) -> Self {
        let node = table.node(row);
        let has = |(key, value): &(&String, &String)| node.labels.get(*key) == Some(*value);
        let count = |some: usize| u32::try_from(some).unwrap_or(u32::MAX);
        let met = Requirement::all(ask.spec).take_while(|requirement| requirement.is_met_by(node));
        let preferred = ask.spec.node_selector.prefer_labels.iter();
        Self {
            own: ask.present_on(node.id),
            liked: count(preferred.filter(has).count()),
            met: count(met.count()),
            zone: ZONE_UNLABELLED,
            avoided: ask.avoid.contains(&node.id),
        }
    }
}

/// The marks of all rows and the counts of the zones. The table keeps one of these, so that an ask allocates
/// nothing once the buffers have grown.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    rows: Vec<Mark>,
    /// How many of this service's replicas are in each zone, on whatever nodes.
    zone_counts: Vec<u64>,
    weights: ZoneWeights,
    rules: RuleMarks,
}

impl Marks {
    pub(super) fn new(table: &NodeTable, ask: &Ask<'_>, spread_by: Option<&str>) -> Self {
        let mut marks = Self::default();
        marks.set(table, ask, spread_by);
        marks
    }

    /// Forgets the ask before and takes this one.
    pub(super) fn set(&mut self, table: &NodeTable, ask: &Ask<'_>, spread_by: Option<&str>) {
        self.rows.clear();
        self.rows.resize(table.len(), Mark::default());
        self.zone_counts.clear();
        self.zone_counts.push(0);
        self.set_labels(table, ask.spec);
        self.set_zones(table, spread_by);
        self.weights
            .set(table.tags(), spread_by, &ask.spec.spread_percent);
        self.set_rules(table, ask);
        self.set_present(table, ask.present);
        for row in ask.avoid.iter().filter_map(|id| table.find(*id)) {
            self.rows[row as usize].avoided = true;
        }
    }

    fn set_labels(&mut self, table: &NodeTable, spec: &ServiceSpec) {
        let tags = table.tags();
        for (requirement, before) in Requirement::all(spec).zip(0..) {
            for row in requirement.rows(tags, table.count()).iter() {
                let met = &mut self.rows[*row as usize].met;
                *met += u32::from(*met == before);
            }
        }
        for (key, value) in &spec.node_selector.prefer_labels {
            for row in tags.with_label(key, value) {
                self.rows[*row as usize].liked += 1;
            }
        }
    }

    fn set_rules(&mut self, table: &NodeTable, ask: &Ask<'_>) {
        self.rules.set(table, &ask.rules);
        for company in ask.rules.company.iter().filter(|company| !company.required) {
            for (mark, met) in self.rows.iter_mut().zip(is_met(table, company)) {
                mark.liked += u32::from(met);
            }
        }
    }

    fn set_zones(&mut self, table: &NodeTable, spread_by: Option<&str>) {
        let Some(key) = spread_by else { return };
        for (posting, zone) in table.tags().zones(key).zip(ZONE_UNLABELLED + 1..) {
            self.zone_counts.push(0);
            for row in posting {
                self.rows[*row as usize].zone = zone;
            }
        }
    }

    fn set_present(&mut self, table: &NodeTable, present: &[(NodeId, u32)]) {
        let mut finder = table.finder();
        for (id, count) in present {
            let Some(row) = finder.find(*id) else { continue };
            let mark = &mut self.rows[row as usize];
            mark.own = mark.own.saturating_add(*count);
            let zone_count = &mut self.zone_counts[mark.zone as usize];
            *zone_count = zone_count.saturating_add(u64::from(*count));
        }
    }

    pub(super) fn of(&self, row: u32) -> &Mark {
        &self.rows[row as usize]
    }

    pub(super) fn zone_counts(&self) -> &[u64] {
        &self.zone_counts
    }

    /// What a zone's count means beside those of others: the lowest is the one to fill.
    pub(super) fn zone_need(&self, zone: u32) -> u64 {
        self.weights.need(zone, self.zone_counts[zone as usize])
    }

    /// The same without so many of those that the ask says are there.
    pub(super) fn zone_need_without(&self, zone: u32, own: u32) -> u64 {
        let count = self.zone_counts[zone as usize].saturating_sub(u64::from(own));
        self.weights.need(zone, count)
    }

    pub(super) fn weights(&self) -> &ZoneWeights {
        &self.weights
    }

    /// The rule that one more on the row would break.
    pub(super) fn broken(&self, row: u32) -> Option<Broken> {
        self.rules.broken(row)
    }

    /// How many more the row may have by the rules about nodes.
    pub(super) fn room_on(&self, row: u32) -> u32 {
        self.rules.room_on(row)
    }

    /// One more of this service's replicas is on the row.
    pub(super) fn count_one(&mut self, row: u32) {
        let mark = &mut self.rows[row as usize];
        mark.own = mark.own.saturating_add(1);
        let zone_count = &mut self.zone_counts[mark.zone as usize];
        *zone_count = zone_count.saturating_add(1);
        self.rules.count_one(row);
    }
}
