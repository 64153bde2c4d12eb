//! What `step` says that may change a directory.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::change::{Change, ChangeSink, ClusterChange, NodeChange};
use crate::ids::{DeploymentName, NodeId, ServiceId};
use crate::state::State;

/// Services and nodes of which something has changed since the index was last brought up to date. It has one place for
/// each of them, whatever happens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    pub services: BTreeSet<ServiceId>,
    /// Those that may have other services than before.
    pub deployments: BTreeSet<DeploymentName>,
    pub nodes: BTreeSet<NodeId>,
    /// Something that every node is told has changed: which CAs are believed.
    pub everybody: bool,
    /// Those that were set anew or removed.
    pub secrets: BTreeSet<Arc<str>>,
    /// The state came as a whole.
    pub all: bool,
}

impl Touched {
    /// Of a state that came as a whole.
    pub fn everything() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        let Self {
            services,
            deployments,
            nodes,
            secrets,
            everybody,
            all,
        } = self;
        let is_nothing = services.is_empty() && deployments.is_empty() && nodes.is_empty();
        !all && !everybody && is_nothing && secrets.is_empty()
    }

    pub fn merge(&mut self, later: Self) {
        self.services.extend(later.services);
        self.deployments.extend(later.deployments);
        self.nodes.extend(later.nodes);
        self.everybody |= later.everybody;
        self.secrets.extend(later.secrets);
        self.all |= later.all;
    }

    fn deployment(&mut self, state: &State, name: &DeploymentName) {
        self.deployments.insert(name.clone());
        let known = state.deployment(name).into_iter();
        self.services
            .extend(known.flat_map(|known| known.services.values().copied()));
    }
}

impl ChangeSink for Touched {
    fn tell(&mut self, state: &State, change: Change<'_>) {
        match change {
            Change::Replica(key, ..) => {
                self.services.insert(key.service);
            }
            Change::Service(id, _) => {
                self.services.insert(id);
            }
            Change::Deployment(name, _) => self.deployment(state, name),
            Change::Node(node, change) => match change {
                NodeChange::Joined
                | NodeChange::Renewed
                | NodeChange::Lost
                | NodeChange::Back
                | NodeChange::Labelled
                | NodeChange::Removed
                | NodeChange::AssignmentChanged => {
                    self.nodes.insert(node);
                }
                NodeChange::Inventory { .. } | NodeChange::Drain(_) => {}
            },
            Change::Cluster(ClusterChange::WorkerCaRotated) => self.everybody = true,
            Change::Cluster(ClusterChange::SecretSet { name } | ClusterChange::SecretRemoved { name }) => {
                self.secrets.insert(name.clone());
            }
            Change::Cluster(_) | Change::Refused(_) => {}
        }
    }
}
