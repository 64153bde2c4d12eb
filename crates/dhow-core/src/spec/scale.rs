//! How many replicas, in which roles, after whom.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::command::{CommandSpec, ImageSpec, Resources};
use super::placement::Affinity;
use super::units::TimeSpan;
use super::{DeploymentSpec, RType};
use crate::ids::{RoleName, ServiceName};

/// How many replicas a service has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum ScaleSpec {
    Fixed {
        replicas: u32,
    },
    Adaptive {
        min: u32,
        max: u32,
        #[serde(default = "ScaleSpec::default_cooldown")]
        cooldown: TimeSpan,
        #[serde(default)]
        targets: ScaleTargets,
        /// How long a request waits for the first replica, where there may be none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cold_start: Option<TimeSpan>,
    },
    Manual {},
}

impl ScaleSpec {
    pub const DEFAULT_COLD_START: TimeSpan = TimeSpan::from_secs(30);

    pub fn default_cooldown() -> TimeSpan {
        TimeSpan::from_secs(30)
    }

    /// How long a request waits for the first replica; none where there always is one.
    pub fn cold_start(&self) -> Option<TimeSpan> {
        match self {
            Self::Adaptive {
                min: 0, cold_start, ..
            } => Some(cold_start.unwrap_or(Self::DEFAULT_COLD_START)),
            Self::Adaptive { .. } | Self::Fixed { .. } | Self::Manual {} => None,
        }
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// How many replicas a first deployment asks for.
    pub fn desired_at_first(&self) -> u32 {
        match self {
            Self::Fixed { replicas } => *replicas,
            Self::Adaptive { min, .. } => *min,
            Self::Manual {} => 0,
        }
    }
}

impl DeploymentSpec {
    /// Whether it has services that came with feature level 6.
    pub fn needs_scaler(&self) -> bool {
        let mut services = self.services.values();
        services.any(|service| {
            service.rtype == RType::Service && matches!(service.scale, ScaleSpec::Adaptive { .. })
        })
    }
}

impl Default for ScaleSpec {
    fn default() -> Self {
        Self::Fixed { replicas: 1 }
    }
}

/// What an adaptive service is measured by, for each replica: percent of what it reserves, requests a second, and requests
/// under way at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ScaleTargets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rps: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<f64>,
}

/// A role of a service with its own count, and what it has otherwise than the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaGroup {
    pub role: RoleName,
    pub count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
}

/// What a service waits for in another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    #[default]
    Healthy,
    Started,
    Ready,
    /// A job of the same deployment has done all its work.
    Completed,
}

/// What happens when a service has waited for another one for too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    #[default]
    Fail,
    Warn,
    Continue,
}

/// A service that has to be there first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub service: ServiceName,
    #[serde(default)]
    pub condition: Condition,
    #[serde(default = "Dependency::default_timeout")]
    pub timeout: TimeSpan,
    #[serde(default)]
    pub on_timeout: OnTimeout,
}

impl Dependency {
    pub fn default_timeout() -> TimeSpan {
        TimeSpan::from_secs(300)
    }
}
