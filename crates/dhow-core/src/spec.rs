//! What a user asks for: the deployment and its services, as the deployment file and the API's JSON have
//! them. These types are plain values with their defaults; reading a file with positions is `dhow-wire`'s
//! work, judging a spec is [`check`]'s. Nothing here touches the world.

pub mod check;
mod command;
mod containers;
mod difference;
mod endpoint;
mod endpoint_options;
mod files;
mod health;
mod ip_range;
mod jobs;
pub mod json_text;
mod label_rule;
mod neighbour;
mod percent;
mod placement;
pub mod policy;
mod rollout;
mod scale;
mod service;
mod storage;
mod text_or_map;
mod units;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use command::{CommandSpec, ImageSpec, PullPolicy, Resources, Runtime};
pub use containers::{HOST_GATEWAY, SERVICE_MARK, host_entry};
pub use difference::differences;
pub use endpoint::{
    Allowed, Endpoint, Expose, ImagePorts, Protocol, SHARED_HTTP_PORT, SHARED_HTTPS_PORT, Takes, Tls,
};
pub use endpoint_options::{EndpointOptions, ProxyProtocol, Sticky};
pub use files::{
    ConfigSpec, ContentHash, FileKind, FileMode, FileMount, OnChange, PlacedFile, SECRETS_FOLDER,
};
pub use health::{Backoff, Check, HealthSpec, RestartPolicy, RestartSpec, StopSpec};
pub use ip_range::{IpRange, IpRangeError};
pub use jobs::{Concurrency, InitStep, JobSpec, Missed};
pub use label_rule::{Comparison, LabelRule, LabelRuleError, LabelTest};
pub use neighbour::Neighbour;
pub use percent::{Percent, PercentError};
pub use placement::{Affinity, AffinityMode, NodeMode, NodeSelector, Platform, Reschedule};
pub use policy::Policy;
pub use rollout::{OnFailure, Promote, RolloutSpec};
pub use scale::{Condition, Dependency, OnTimeout, ReplicaGroup, ScaleSpec, ScaleTargets};
pub use service::{Capabilities, Offline, RType, ServiceSpec, Ulimit};
pub use storage::{Storage, VolumeSupport};
pub use units::{ByteSize, Cpu, TimeSpan, UnitError};

use crate::ids::{DeploymentName, RoleName, ServiceName};

/// The version of the deployment file's language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpecVersion {
    #[default]
    #[serde(rename = "v1")]
    V1,
}

/// A whole deployment file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeploymentSpec {
    pub version: SpecVersion,
    pub deployment: DeploymentName,
    pub services: BTreeMap<ServiceName, Arc<ServiceSpec>>,
    /// Counts that people asked for by a scale while this was the current revision, by service and role. Never in a file:
    /// it is noted when the next revision takes its place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scaled: BTreeMap<ServiceName, BTreeMap<RoleName, u32>>,
    /// Files that its services may mount, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub configs: BTreeMap<String, ConfigSpec>,
}
