//! The request that makes a node have just these replicas of a service.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::{RoleName, ServiceKey};
use dhow_core::spec::ServiceSpec;
use serde::{Deserialize, Serialize};

use super::assignment::ScaleAssignment;
use super::specs_by_generation;
use crate::names::{WireNameError, service_key};

/// The most replicas that one request may ask of one node. A million indices are 4 MB of memory and far more
/// than any node runs; a request for `u32::MAX` would otherwise make a list of 16 GiB.
pub const REPLICAS_PER_REQUEST_MAX: u32 = 1_000_000;

/// A request that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    #[error(
        "{asked} replicas of {service:?} were asked of one node; the limit is {REPLICAS_PER_REQUEST_MAX}: \
         ask for fewer, or spread them over more nodes"
    )]
    TooMany { service: String, asked: u64 },
}

/// The body that tells a node which replicas of a service it is to have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InternalScaleRequest {
    pub service: String,
    /// The count; informational where there are assignments.
    #[serde(default)]
    pub replicas: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<ScaleAssignment>,
    /// The receiver registers or updates the service with it first; without it, the last known spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ServiceSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// The sending leader's term; a receiver that has seen a higher one refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The specs of several generations, while a rollout has old and new side by side; `spec` goes with the
    /// newest.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        with = "specs_by_generation"
    )]
    pub specs: BTreeMap<u32, Arc<ServiceSpec>>,
    /// The specs with the settings that replicas try, by the settings' number.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        with = "specs_by_generation"
    )]
    pub next: BTreeMap<u32, Arc<ServiceSpec>>,
}

impl InternalScaleRequest {
    /// So many replicas of the default role.
    pub fn new(service: impl Into<String>, replicas: u32) -> Self {
        Self {
            service: service.into(),
            replicas,
            ..Self::default()
        }
    }

    /// Just these replicas.
    pub fn with_assignments(service: impl Into<String>, assignments: Vec<ScaleAssignment>) -> Self {
        let count = count_indices(&assignments);
        Self {
            service: service.into(),
            replicas: u32::try_from(count).unwrap_or(u32::MAX),
            assignments,
            ..Self::default()
        }
    }

    #[must_use]
    pub fn with_spec(mut self, spec: ServiceSpec) -> Self {
        self.spec = Some(spec);
        self
    }

    #[must_use]
    pub fn with_deployment(mut self, deployment: impl Into<String>) -> Self {
        self.deployment = Some(deployment.into());
        self
    }

    #[must_use]
    pub fn with_epoch(mut self, epoch: u64) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// The service, as checked names.
    pub fn service_key(&self) -> Result<ServiceKey, WireNameError> {
        service_key(self.deployment.as_deref(), &self.service)
    }

    /// The replicas that the receiver is to have, and no other of that service: the assignments, or the
    /// default role's `0..replicas` where there are none.
    pub fn effective_assignments(&self) -> Result<Cow<'_, [ScaleAssignment]>, ScaleError> {
        let asked = if self.assignments.is_empty() {
            u64::from(self.replicas)
        } else {
            count_indices(&self.assignments)
        };
        if asked > u64::from(REPLICAS_PER_REQUEST_MAX) {
            let service = self.service.clone();
            return Err(ScaleError::TooMany { service, asked });
        }
        if !self.assignments.is_empty() {
            return Ok(Cow::Borrowed(&self.assignments));
        }
        let indices: Vec<u32> = (0..self.replicas).collect();
        let default_role = ScaleAssignment::new(RoleName::fallback().as_str(), indices);
        Ok(Cow::Owned(vec![default_role]))
    }
}

fn count_indices(assignments: &[ScaleAssignment]) -> u64 {
    // A list in memory has fewer than 2^61 elements of 4 bytes, and all lists together fit into memory too.
    assignments
        .iter()
        .map(|assignment| assignment.indices.len() as u64)
        .sum()
}
