//! What a server tells a worker to have.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::ServiceKey;
use dhow_core::spec::ServiceSpec;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{WireNameError, service_key};
use crate::scale::{ScaleAssignment, specs_by_generation};

/// One change of a worker's assignment, with the revision that it belongs to. Specs are shared, because one
/// spec goes out to thousands of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WorkerAssignmentEvent {
    /// Replaces all that the worker has of that service.
    Set {
        service: String,
        assignments: Vec<ScaleAssignment>,
        revision: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deployment: Option<String>,
        /// What to run; without it the last known spec. With several generations it belongs to the newest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        spec: Option<Arc<ServiceSpec>>,
        /// The specs of several generations, while a rollout has old and new side by side.
        #[serde(
            default,
            skip_serializing_if = "BTreeMap::is_empty",
            with = "specs_by_generation"
        )]
        #[schema(value_type = BTreeMap<String, Object>)]
        specs: BTreeMap<u32, Arc<ServiceSpec>>,
        /// What each role runs, by generation, where there are several roles: then `spec` and `specs` are of the first
        /// one.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        role_specs: BTreeMap<String, RoleSpecs>,
        /// The answer that begins with this event names everything: services that it does not name are to go.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        whole: bool,
    },
    /// Removes the service from the worker entirely.
    Delete {
        service: String,
        revision: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deployment: Option<String>,
    },
    /// Take no new work, and end the process with 0 once the last replica has gone.
    Drain { revision: u64 },
}

/// What the replicas of one role run, by generation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = BTreeMap<String, Object>)]
pub struct RoleSpecs(#[serde(with = "specs_by_generation")] pub BTreeMap<u32, Arc<ServiceSpec>>);

impl WorkerAssignmentEvent {
    pub fn revision(&self) -> u64 {
        match self {
            Self::Set { revision, .. } | Self::Delete { revision, .. } | Self::Drain { revision } => {
                *revision
            }
        }
    }

    /// The service that it speaks of, as checked names; none for a drain, which speaks of the whole worker.
    pub fn service_key(&self) -> Result<Option<ServiceKey>, WireNameError> {
        match self {
            Self::Set {
                service, deployment, ..
            }
            | Self::Delete {
                service, deployment, ..
            } => service_key(deployment.as_deref(), service).map(Some),
            Self::Drain { .. } => Ok(None),
        }
    }
}
