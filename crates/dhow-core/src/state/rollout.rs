//! How far the rollout of a service has come, where it goes in stages or a person has stopped it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Generation;
use crate::rollout::Judgement;
use crate::time::ClusterTime;

/// The stages of one rollout. A service whose rollout has none, or that rolls nothing, has no such thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    pub stage: Stage,
    /// Who stopped it, until somebody lets it go on.
    pub paused_by: Option<Arc<str>>,
    /// What the canary was last judged by.
    pub judgement: Option<Judgement>,
    /// Since when a canary that was found worse is tried anew.
    #[serde(default)]
    pub tried_anew: Option<ClusterTime>,
}

/// Which part of a rollout it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Some of the new version run beside all of the old one, which is still started anew where it is missing.
    Canary {
        /// The generation of the version before in which it is started until then.
        base: Generation,
    },
    /// The old version is replaced.
    Spread,
}

impl Rollout {
    pub(crate) fn canary(base: Generation) -> Self {
        Self {
            stage: Stage::Canary { base },
            paused_by: None,
            judgement: None,
            tried_anew: None,
        }
    }

    pub(crate) fn spread() -> Self {
        Self {
            stage: Stage::Spread,
            paused_by: None,
            judgement: None,
            tried_anew: None,
        }
    }
}
