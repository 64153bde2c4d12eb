//! The directory: what a node is told of services. For each service that concerns it: its endpoints, who may call them
//! and where its ready replicas are, and where the proxies of those nodes are reached.
//!
//! [`DirectoryIndex`] derives it from State; servers send a node what changed since the last time, and the node's agent
//! applies that. Whoever applies all changes one after the other has what the index gives as a whole.
//! [`InterestBook`] says who has asked for services beside those of its own deployments.

mod change;
mod chosen;
mod index;
mod interest;
mod mesh_way;
mod told;
mod touched;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdSet;
use serde::{Deserialize, Serialize};

use crate::ids::{Generation, NodeId, ReplicaName, RoleName, ServiceKey};
use crate::spec::{Endpoint, RType, TimeSpan};
use crate::state::Service;

pub use change::{DirectoryChange, ListingChange};
pub use index::{Concerned, DirectoryIndex, certificates_for};
pub use interest::{Absent, INTERESTS_MAX, Interest, InterestBook, WordOfInterest};
pub use mesh_way::{MeshWay, RELAYS_MAX, REVERSE};
pub use told::ToldListings;
pub use touched::Touched;
pub use ways::relays_through;

/// Ready replicas of one service that a node is told of: enough to spread its own calls, and a service of 100,000
/// replicas costs each node no more than one of 128.
pub const READY_MAX: usize = 128;

/// While the cluster has so many nodes, all of them take requests from outside; beyond, those that are labelled.
pub const INGRESS_NODES_MAX: usize = 100;

/// The label that makes a node of a larger cluster take requests from outside.
pub const INGRESS_LABEL: &str = "ingress";

/// The label that says which nodes are near each other: of a large service those of the own zone are called first.
pub const ZONE_LABEL: &str = "zone";

/// What one node knows of the cluster's services.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directory {
    pub services: BTreeMap<ServiceKey, Arc<Listing>>,
    /// How the proxies of the nodes that `services` name are reached, as [`MeshWay`] writes it; one that is not there cannot
    /// be. The node's own entry says through whom it is reached, or that it passes on for others.
    pub nodes: BTreeMap<NodeId, Arc<str>>,
    /// Whether this node takes requests from outside for public endpoints.
    pub is_ingress: bool,
    /// Nodes that were removed and whose certificates may still be good: this node's proxy is not to let them in. Shared by
    /// the directories of all nodes.
    pub removed: OrdSet<NodeId>,
    /// The secrets with the certificates of public endpoints, by name, with the version that counts: a node that takes
    /// requests from outside may ask for them. 0: there is no such secret.
    pub certificates: BTreeMap<Arc<str>, u64>,
    /// Services of other deployments are told when they are asked for: what is not here may be there all the same.
    pub by_interest: bool,
    /// What of the node's interest there is not, or not for it.
    pub absent: Absent,
}

/// One service of a directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    pub endpoints: Arc<[Endpoint]>,
    /// Running, healthy and wanted.
    pub ready: BTreeSet<ReadyReplica>,
    /// How requests are shared out while a canary is tried.
    #[serde(default)]
    pub canary: Option<CanaryShare>,
    /// It may have no replica: requests wait so long for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_start: Option<TimeSpan>,
}

/// How long requests wait for the first replica of a service that may have none.
fn cold_start_of(service: &Service) -> Option<TimeSpan> {
    let spec = service.spec().filter(|_| !service.is_off())?;
    let cold_start = spec.scale.cold_start();
    cold_start.filter(|_| spec.rtype == RType::Service && spec.replica_groups.is_empty())
}

/// The share of a canary in the requests to its service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanaryShare {
    /// Tells one canary of the service from the next: each is counted by itself.
    pub number: u32,
    /// The generations of its replicas; all others are the version beside it.
    pub generations: Vec<Generation>,
    /// So many of so many requests.
    pub share: u32,
    pub of: u32,
}

impl CanaryShare {
    /// None while no canary is tried.
    pub fn of(service: &Service) -> Option<Self> {
        let base = service.canary_base()?;
        let info = service.target_info()?;
        let canary = service.canary_count();
        let generations = service.generations.iter();
        let generations = generations.filter(|(_, known)| known.template == info.template);
        Some(Self {
            number: base.0,
            generations: generations.map(|(generation, _)| *generation).collect(),
            share: canary,
            of: service.count_total().saturating_add(canary),
        })
    }
}

/// A replica that may be called, and the node that has it. Its address is its node's own affair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReadyReplica {
    pub node: NodeId,
    pub role: RoleName,
    pub index: u32,
    pub generation: Generation,
}

impl ReadyReplica {
    pub fn name(&self, service: &ServiceKey) -> ReplicaName {
        ReplicaName {
            deployment: service.deployment.clone(),
            service: service.service.clone(),
            role: self.role.clone(),
            index: self.index,
            generation: self.generation,
        }
    }
}

#[cfg(test)]
mod tests;
