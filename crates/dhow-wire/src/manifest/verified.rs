//! A set that has been proven. Only `ReceivedSet::verify` makes one.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::command::{ApplyReason, Command, DeploymentCommand, ManifestSpec};
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

/// The deployments of a set whose signature and files are proven. The reducer takes nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedSet {
    version: ManifestVersion,
    deployments: BTreeMap<DeploymentName, Arc<DeploymentSpec>>,
    source: Option<Arc<str>>,
    commit: Option<Arc<str>>,
    why: ApplyReason,
}

impl VerifiedSet {
    pub(super) fn new(
        version: ManifestVersion,
        deployments: BTreeMap<DeploymentName, Arc<DeploymentSpec>>,
    ) -> Self {
        Self {
            version,
            deployments,
            source: None,
            commit: None,
            why: ApplyReason::Newer,
        }
    }

    /// The same, as what this source brings.
    pub fn from_source(self, source: Arc<str>) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// The same, read from this commit of a repository.
    pub fn at_commit(self, commit: Option<Arc<str>>) -> Self {
        Self { commit, ..self }
    }

    /// The same, put in force for another reason than that it is newer.
    pub fn because(self, why: ApplyReason) -> Self {
        Self { why, ..self }
    }

    /// The command that puts it in force.
    pub fn into_command(self, wall_unix_secs: i64) -> Command {
        Command::Deployment(DeploymentCommand::ApplyManifests {
            version: self.version,
            specs: self.deployments.into_values().map(ManifestSpec).collect(),
            wall_unix_secs,
            source: self.source,
            commit: self.commit,
            why: self.why,
        })
    }

    /// The commit of a repository that it was read from.
    pub fn commit(&self) -> Option<&Arc<str>> {
        self.commit.as_ref()
    }

    pub fn why(&self) -> ApplyReason {
        self.why
    }

    pub fn source(&self) -> Option<&Arc<str>> {
        self.source.as_ref()
    }

    /// What to remember of it once it is in force, to tell newer sets from older ones.
    pub fn version(&self) -> ManifestVersion {
        self.version
    }

    pub fn deployments(&self) -> &BTreeMap<DeploymentName, Arc<DeploymentSpec>> {
        &self.deployments
    }
}
