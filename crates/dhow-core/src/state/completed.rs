//! What a job has done under one spec.

use std::sync::Arc;

use imbl::OrdSet;
use serde::{Deserialize, Serialize};

use crate::ids::RoleName;
use crate::spec::ServiceSpec;

/// Remembered beside the job itself, whose replicas and even its service may be gone: bringing the spec back does
/// not do the work again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompletedWork {
    #[serde(with = "crate::spec::json_text")]
    pub spec: Arc<ServiceSpec>,
    /// The replicas that have done theirs, by role and index.
    pub replicas: OrdSet<(RoleName, u32)>,
}

impl CompletedWork {
    /// Whether it was done by what `spec` runs.
    pub fn is_of(&self, spec: &ServiceSpec) -> bool {
        self.spec.rtype == spec.rtype && !self.spec.rolls_into(spec)
    }
}
