//! Another service of the deployment that a service is to be near to, or away from.

use serde::{Deserialize, Serialize, Serializer};

use super::text_or_map::text_or_map;
use crate::ids::ServiceName;

/// One of `near` or `away_from` of an affinity: a name, or the name with what counts as one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub service: ServiceName,
    /// Nodes with the same value of this label are one place; without it, each node is one.
    pub by: Option<String>,
    /// Other places merely come last.
    pub prefer: bool,
}

#[derive(Serialize, Deserialize)]
struct NeighbourMap {
    service: ServiceName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    prefer: bool,
}

impl Neighbour {
    /// On the same node, and nowhere else.
    pub fn of(service: ServiceName) -> Self {
        Self {
            service,
            by: None,
            prefer: false,
        }
    }
}

impl From<NeighbourMap> for Neighbour {
    fn from(map: NeighbourMap) -> Self {
        Self {
            service: map.service,
            by: map.by,
            prefer: map.prefer,
        }
    }
}

text_or_map!(
    Neighbour,
    NeighbourMap,
    "a service, or `{ service, by, prefer }`",
    |text| ServiceName::new(text).ok().map(Neighbour::of)
);

impl Serialize for Neighbour {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.by.is_none() && !self.prefer {
            return self.service.serialize(to);
        }
        NeighbourMap {
            service: self.service.clone(),
            by: self.by.clone(),
            prefer: self.prefer,
        }
        .serialize(to)
    }
}
