//! Settings that can change under a running replica: how it is checked, reached, restarted and stopped. Those of a
//! generation are what counts now and, while a change is under way, what is to count next.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::SettingsId;
use crate::spec::ServiceSpec;
use crate::time::ClusterTime;

/// What is to count once every replica has passed it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NextSettings {
    pub id: SettingsId,
    /// The whole spec as it will be.
    #[serde(with = "crate::spec::json_text")]
    pub spec: Arc<ServiceSpec>,
}

/// One replica's attempt at the next settings. It is out of date where its generation has others, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub settings: SettingsId,
    pub began: ClusterTime,
    pub passed: Option<ClusterTime>,
    /// Why it has not passed yet, in words for people.
    pub message: Option<Arc<str>>,
}
