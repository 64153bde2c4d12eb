//! Where replicas may and should go.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::text_or_map::text_or_map;
use super::units::TimeSpan;

/// Labels that a node must have, and labels that it should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSelector {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefer_labels: BTreeMap<String, String>,
}

/// Whether replicas are spread over nodes, packed onto few, or pinned to named ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AffinityMode {
    #[default]
    Spread,
    Pack,
    Pin,
}

/// How one service's replicas lie to each other; `spread_by` names a label (a zone, a rack) to spread over first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    pub mode: AffinityMode,
    pub spread_by: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct AffinityMap {
    #[serde(default)]
    mode: AffinityMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spread_by: Option<String>,
}

impl From<AffinityMap> for Affinity {
    fn from(map: AffinityMap) -> Self {
        Self {
            mode: map.mode,
            spread_by: map.spread_by,
        }
    }
}

impl AffinityMode {
    pub fn from_text(text: &str) -> Option<Self> {
        match text {
            "spread" => Some(Self::Spread),
            "pack" => Some(Self::Pack),
            "pin" => Some(Self::Pin),
            _ => None,
        }
    }
}

text_or_map!(
    Affinity,
    AffinityMap,
    "`spread`, `pack`, `pin` or `{ mode, spread_by }`",
    |text| {
        AffinityMode::from_text(text).map(|mode| Affinity {
            mode,
            spread_by: None,
        })
    }
);

impl Serialize for Affinity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.spread_by {
            None => self.mode.serialize(to),
            Some(label) => AffinityMap {
                mode: self.mode,
                spread_by: Some(label.clone()),
            }
            .serialize(to),
        }
    }
}

/// With whom a replica shares its node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeMode {
    #[default]
    Shared,
    /// No other service's replicas.
    Dedicated,
    /// No other replica at all.
    Exclusive,
}

/// The operating system and architecture that a service needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
}

/// What happens to replicas of a node that is lost: after `lost_after` they are given up, and `delay` later
/// placed elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reschedule {
    #[serde(default = "Reschedule::on")]
    pub enabled: bool,
    #[serde(default)]
    pub delay: TimeSpan,
    #[serde(default)]
    pub lost_after: TimeSpan,
}

impl Reschedule {
    fn on() -> bool {
        true
    }
}

impl Default for Reschedule {
    fn default() -> Self {
        Self {
            enabled: true,
            delay: TimeSpan::ZERO,
            lost_after: TimeSpan::ZERO,
        }
    }
}
