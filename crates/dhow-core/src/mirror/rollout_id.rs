//! The name of a rollout: one revision of one deployment, `shop@3`.

use std::fmt;
use std::str::FromStr;

use crate::ids::{DeploymentName, DeploymentRevision, NameError};

/// Names a rollout in reports and heartbeats.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RolloutId {
    pub deployment: DeploymentName,
    pub revision: DeploymentRevision,
}

/// Why a text names no rollout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRolloutId {
    #[error("a rollout is named `deployment@revision`, this has no @")]
    NoRevision,
    #[error("the part before @ is no name of a deployment")]
    Deployment(#[source] NameError),
    #[error("the part after @ is no revision: a number from 1 on")]
    Revision,
}

impl fmt::Display for RolloutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.deployment, self.revision)
    }
}

impl FromStr for RolloutId {
    type Err = BadRolloutId;

    fn from_str(text: &str) -> Result<Self, BadRolloutId> {
        let (deployment, revision) = text.split_once('@').ok_or(BadRolloutId::NoRevision)?;
        let deployment = DeploymentName::new(deployment).map_err(BadRolloutId::Deployment)?;
        let digits = revision.bytes().all(|byte| byte.is_ascii_digit());
        let revision = revision.parse().ok().filter(|revision| digits && *revision > 0);
        Ok(Self {
            deployment,
            revision: DeploymentRevision(revision.ok_or(BadRolloutId::Revision)?),
        })
    }
}
