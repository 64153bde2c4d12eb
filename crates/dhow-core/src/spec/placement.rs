//! Where replicas may and should go.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::label_rule::LabelRule;
use super::neighbour::Neighbour;
use super::text_or_map::text_or_map;
use super::units::TimeSpan;
use super::{DeploymentSpec, ServiceSpec};

/// Labels that a node must have, and labels that it should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSelector {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefer_labels: BTreeMap<String, String>,
    /// Comparisons that must hold for its labels.
    #[serde(default, rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<LabelRule>,
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
    /// Other services of the deployment that are to be beside it.
    pub near: Vec<Neighbour>,
    /// Other services of the deployment that are not to be beside it.
    pub away_from: Vec<Neighbour>,
}

#[derive(Serialize, Deserialize)]
struct AffinityMap {
    #[serde(default)]
    mode: AffinityMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spread_by: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    near: Vec<Neighbour>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    away_from: Vec<Neighbour>,
}

impl From<AffinityMap> for Affinity {
    fn from(map: AffinityMap) -> Self {
        Self {
            mode: map.mode,
            spread_by: map.spread_by,
            near: map.near,
            away_from: map.away_from,
        }
    }
}

impl Affinity {
    /// Whether it says anything of other services.
    pub fn has_neighbours(&self) -> bool {
        !self.near.is_empty() || !self.away_from.is_empty()
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
    "`spread`, `pack`, `pin` or `{ mode, spread_by, near, away_from }`",
    |text| {
        AffinityMode::from_text(text).map(|mode| Affinity {
            mode,
            ..Affinity::default()
        })
    }
);

impl Serialize for Affinity {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.spread_by.is_none() && !self.has_neighbours() {
            return self.mode.serialize(to);
        }
        AffinityMap {
            mode: self.mode,
            spread_by: self.spread_by.clone(),
            near: self.near.clone(),
            away_from: self.away_from.clone(),
        }
        .serialize(to)
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

impl DeploymentSpec {
    /// Whether it has rules of placement that came with feature level 6.
    pub fn needs_placement_rules(&self) -> bool {
        self.services
            .values()
            .any(|service| service.has_placement_rules())
    }
}

impl DeploymentSpec {
    /// Whether attempts to start something again are counted within an interval, which came with feature level 6.
    pub fn has_restart_intervals(&self) -> bool {
        let mut services = self.services.values();
        services.any(|service| service.restart.interval.is_some())
    }
}

impl ServiceSpec {
    fn has_placement_rules(&self) -> bool {
        self.has_limits_of_places()
            || self.affinity.has_neighbours()
            || !self.spread_percent.is_empty()
            || !self.node_selector.rules.is_empty()
    }

    /// Whether where its replicas may go depends on where its others are.
    pub fn has_limits_of_places(&self) -> bool {
        self.max_per_node.is_some() || !self.max_per.is_empty()
    }
}
