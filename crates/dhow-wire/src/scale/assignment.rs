//! Which replicas of a role a node is to have.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The replicas `{service}-{role}-{index}` for each index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScaleAssignment {
    pub role: String,
    pub indices: Vec<u32>,
    /// Tells old and new of one index apart while a rollout surges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The settings that these replicas try beside those that count, one of the request's `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
}

impl ScaleAssignment {
    pub fn new(role: impl Into<String>, indices: Vec<u32>) -> Self {
        Self {
            role: role.into(),
            indices,
            generation: None,
            tries: None,
        }
    }

    #[must_use]
    pub fn with_generation(mut self, generation: u32) -> Self {
        self.generation = Some(generation);
        self
    }

    #[must_use]
    pub fn with_tries(mut self, settings: Option<u32>) -> Self {
        self.tries = settings;
        self
    }
}
