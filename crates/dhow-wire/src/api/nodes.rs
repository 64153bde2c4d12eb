//! Writes that change a node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body with which a node is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeDrainRequest {
    /// Whether the node's process ends once the last replica has gone.
    #[serde(default)]
    pub shutdown: bool,
    /// After so many seconds what is left is ended, whatever that costs its services; 0 ends all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_secs: Option<u64>,
    /// Whether replicas of `system` services stay.
    #[serde(default)]
    pub ignore_system: bool,
}

/// The body with which labels of a node are set and taken away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeLabelRequest {
    #[serde(default)]
    #[schema(value_type = BTreeMap<LabelText, LabelText>)]
    pub set: BTreeMap<String, String>,
    #[serde(default)]
    #[schema(value_type = Vec<LabelText>, max_items = 64)]
    pub unset: Vec<String>,
}

/// A key or a value of a label, as the description of the API has it.
#[derive(ToSchema)]
#[schema(pattern = "^[A-Za-z0-9._/-]+$", max_length = 63)]
#[expect(dead_code, reason = "it only describes the texts above")]
struct LabelText(String);
