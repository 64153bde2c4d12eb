//! How much of a service each zone is to have, where its file says so in percent.

use std::collections::BTreeMap;

use super::marks::ZONE_UNLABELLED;
use super::tag_index::TagIndex;
use crate::spec::Percent;

/// Parts of one replica that needs are told apart by: with a million replicas and ten thousand zones a need stays below
/// 2^45.
const PARTS: u64 = 1 << 24;

/// The weight of each zone by its number; none of them where all zones are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneWeights(Vec<u64>);

impl ZoneWeights {
    /// Values that are not named share alike what the named ones leave; nodes without the label get none of it.
    pub(super) fn set(
        &mut self,
        tags: &TagIndex,
        spread_by: Option<&str>,
        percent: &BTreeMap<String, Percent>,
    ) {
        self.0.clear();
        let Some(label) = spread_by.filter(|_| !percent.is_empty()) else {
            return;
        };
        let hundredths = |share: &Percent| u64::from(share.hundredths());
        let named: u64 = percent.values().map(hundredths).sum();
        let rest = 100_u64.saturating_sub(named);
        let unnamed = tags.values(label).filter(|value| !percent.contains_key(*value));
        let unnamed = unnamed.count().max(1) as u64;
        let weight = |value: &str| {
            percent
                .get(value)
                .map_or(rest, |share| hundredths(share) * unnamed)
        };
        self.0.push(0);
        self.0.extend(tags.values(label).map(weight));
    }

    /// The zone with the lowest need is the one to fill: each has so many, in relation to what it is to have.
    pub(super) fn need(&self, zone: u32, count: u64) -> u64 {
        match self.0.get(zone as usize) {
            None => {
                debug_assert!(self.0.is_empty() || zone == ZONE_UNLABELLED);
                count
            }
            Some(0) => u64::MAX,
            // Half of one that is there already: this order comes closest to the shares at every count.
            Some(weight) => (2 * count + 1).saturating_mul(PARTS) / weight,
        }
    }
}
