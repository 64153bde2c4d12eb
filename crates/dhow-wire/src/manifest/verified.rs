//! A set that has been proven. Only `ReceivedSet::verify` makes one.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::DeploymentName;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::ManifestVersion;

/// What a sound set means for the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The set that is already in force.
    Unchanged,
    Newer(VerifiedSet),
}

#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedSet {
    version: ManifestVersion,
    deployments: BTreeMap<DeploymentName, Arc<DeploymentSpec>>,
}

impl VerifiedSet {
    pub(super) fn new(
        version: ManifestVersion,
        deployments: BTreeMap<DeploymentName, Arc<DeploymentSpec>>,
    ) -> Self {
        Self { version, deployments }
    }

    /// What to remember of it once it is in force, to tell newer sets from older ones.
    pub fn version(&self) -> ManifestVersion {
        self.version
    }

    pub fn deployments(&self) -> &BTreeMap<DeploymentName, Arc<DeploymentSpec>> {
        &self.deployments
    }

    pub fn into_deployments(self) -> BTreeMap<DeploymentName, Arc<DeploymentSpec>> {
        self.deployments
    }
}
