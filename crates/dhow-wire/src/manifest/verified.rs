//! A set that has been proven. Only `ReceivedSet::verify` makes one.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::DeploymentName;
use dhow_core::spec::DeploymentSpec;
use serde::{Deserialize, Serialize};

use super::index::FileHash;

/// What to remember of a set that is in force, to tell newer sets from older ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetMark {
    pub version: u64,
    pub created_unix_secs: i64,
    /// Of the index's bytes, which name every file by its own hash.
    pub index_hash: FileHash,
}

/// What a sound set means for the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The set that is already in force.
    Unchanged,
    Newer(VerifiedSet),
}

#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedSet {
    mark: SetMark,
    deployments: BTreeMap<DeploymentName, Arc<DeploymentSpec>>,
}

impl VerifiedSet {
    pub(super) fn new(mark: SetMark, deployments: BTreeMap<DeploymentName, Arc<DeploymentSpec>>) -> Self {
        Self { mark, deployments }
    }

    pub fn mark(&self) -> SetMark {
        self.mark
    }

    pub fn deployments(&self) -> &BTreeMap<DeploymentName, Arc<DeploymentSpec>> {
        &self.deployments
    }

    pub fn into_deployments(self) -> BTreeMap<DeploymentName, Arc<DeploymentSpec>> {
        self.deployments
    }
}
