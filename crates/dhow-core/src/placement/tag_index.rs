//! Which rows have a label, an operating system or an architecture: an inverted index, kept up as rows come,
//! change and go. An ask looks each of its labels up once here and then works with row numbers; the values
//! of a label are its zones.

use std::collections::BTreeMap;

use super::node_row::NodeRow;
use crate::spec::LabelRule;

/// Rows in ascending order; never empty while it is in the index.
type Posting = Vec<u32>;

/// The rows of a node table by label, operating system and architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TagIndex {
    labels: BTreeMap<String, BTreeMap<String, Posting>>,
    os: BTreeMap<String, Posting>,
    arch: BTreeMap<String, Posting>,
}

impl TagIndex {
    pub(super) fn add(&mut self, row: u32, node: &NodeRow) {
        for (key, value) in node.labels.iter() {
            add_to(self.labels.entry(key.clone()).or_default(), value, row);
        }
        add_to(&mut self.os, &node.os, row);
        add_to(&mut self.arch, &node.arch, row);
    }

    pub(super) fn remove(&mut self, row: u32, node: &NodeRow) {
        for (key, value) in node.labels.iter() {
            let Some(values) = self.labels.get_mut(key) else {
                continue;
            };
            remove_from(values, value, row);
            if values.is_empty() {
                self.labels.remove(key);
            }
        }
        remove_from(&mut self.os, &node.os, row);
        remove_from(&mut self.arch, &node.arch, row);
    }

    pub(super) fn with_label(&self, key: &str, value: &str) -> &[u32] {
        let posting = self.labels.get(key).and_then(|values| values.get(value));
        posting.map_or(&[], Vec::as_slice)
    }

    pub(super) fn with_os(&self, os: &str) -> &[u32] {
        self.os.get(os).map_or(&[], Vec::as_slice)
    }

    pub(super) fn with_arch(&self, arch: &str) -> &[u32] {
        self.arch.get(arch).map_or(&[], Vec::as_slice)
    }

    /// The rows whose label meets a comparison, of so many rows: each value is compared once, not each row.
    pub(super) fn meeting(&self, rule: &LabelRule, count: u32) -> Vec<u32> {
        let values = || self.labels.get(&rule.label).into_iter().flatten();
        let is_met = |value: &String| rule.is_met_by(Some(value));
        if !rule.is_met_by(None) {
            let postings = values().filter(|(value, _)| is_met(value));
            return postings
                .flat_map(|(_, posting)| posting.iter().copied())
                .collect();
        }
        // Met by whoever lacks the label: all but those whose value fails.
        let mut fails = vec![false; count as usize];
        for (_, posting) in values().filter(|(value, _)| !is_met(value)) {
            posting.iter().for_each(|row| fails[*row as usize] = true);
        }
        (0..count).filter(|row| !fails[*row as usize]).collect()
    }

    /// The values of a label, in order.
    pub(super) fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        let values = self.labels.get(key).into_iter();
        values.flat_map(|values| values.keys().map(String::as_str))
    }

    /// The rows of each value of a label, in the order of the values.
    pub(super) fn zones(&self, key: &str) -> impl Iterator<Item = &[u32]> {
        let values = self.labels.get(key).into_iter();
        values.flat_map(|values| values.values().map(Vec::as_slice))
    }
}

fn add_to(postings: &mut BTreeMap<String, Posting>, value: &str, row: u32) {
    let posting = postings.entry(value.to_owned()).or_default();
    if let Err(at) = posting.binary_search(&row) {
        posting.insert(at, row);
    }
}

fn remove_from(postings: &mut BTreeMap<String, Posting>, value: &str, row: u32) {
    let Some(posting) = postings.get_mut(value) else {
        return;
    };
    if let Ok(at) = posting.binary_search(&row) {
        posting.remove(at);
    }
    if posting.is_empty() {
        postings.remove(value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::amount::Amount;
    use crate::ids::NodeId;
    use crate::placement::{Occupant, Openness};

    fn node(labels: &[(&str, &str)]) -> NodeRow {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        NodeRow {
            id: NodeId(1),
            open: Openness::Open,
            os: "linux".into(),
            arch: "x86_64".into(),
            labels: Arc::new(labels.collect()),
            capacity: Amount::ZERO,
            used: Amount::ZERO,
            replicas: 0,
            occupant: Occupant::Nobody,
            mounts_files: true,
            runs_steps: true,
            volumes: crate::spec::VolumeSupport::Sized,
        }
    }

    #[test]
    fn what_came_and_went_leaves_nothing() {
        let mut tags = TagIndex::default();
        let (a, b) = (
            node(&[("zone", "a"), ("disk", "ssd")]),
            node(&[("zone", "b"), ("host", "x")]),
        );
        tags.add(7, &a);
        tags.add(3, &b);
        tags.add(5, &a);
        assert_eq!(tags.with_label("zone", "a"), [5, 7]);
        assert_eq!(tags.with_os("linux"), [3, 5, 7]);
        assert_eq!(tags.zones("zone").collect::<Vec<_>>(), [&[5, 7][..], &[3]]);
        assert_eq!(tags.zones("rack").count(), 0);
        // Taking away what is not there changes nothing.
        tags.remove(4, &a);
        tags.remove(3, &a);
        assert_eq!(tags.with_label("zone", "b"), [3]);
        for (row, node) in [(7, &a), (3, &b), (5, &a)] {
            tags.add(row, node);
            tags.remove(row, node);
        }
        assert_eq!(tags, TagIndex::default());
    }
}
