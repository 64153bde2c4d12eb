//! What a desk holds of one service, and how it is compared with what the leader wants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::assignment::{AssignedSettings, RoleAssignment};
use dhow_core::ids::{Generation, RoleName, SettingsId};
use dhow_core::spec::ServiceSpec;
use dhow_wire::{InternalScaleRequest, ScaleAssignment};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// What a node has been told, for the leader to compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldListing {
    /// The highest epoch that the node has taken anything of.
    pub epoch: u64,
    #[serde(default)]
    pub services: Vec<HeldService>,
    /// The node reads what it is to run off its own copy of the state, and has to be told nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub derives: bool,
}

/// One service in a desk's listing, by which a leader compares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldService {
    pub deployment: String,
    pub service: String,
    /// The epoch of the leader that sent the request; none where a person sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    pub digest: String,
}

/// One service on the desk, as it is written to disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Held {
    pub epoch: Option<u64>,
    /// Every one with its generation.
    pub assignments: Vec<ScaleAssignment>,
    /// Of the generations above, and the newest known.
    pub specs: BTreeMap<u32, Arc<ServiceSpec>>,
    /// Those with the settings that replicas try, by the settings' number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next: BTreeMap<u32, Arc<ServiceSpec>>,
    /// When it was last told, counted by this desk; begins anew with each start.
    #[serde(skip)]
    pub changed: u64,
    /// When the request came, where that was lately: it counts, whatever the cluster says, until the node puts it
    /// right.
    #[serde(skip)]
    pub news_at: Option<Instant>,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.assignments
            .iter()
            .all(|assignment| assignment.indices.is_empty())
    }

    pub fn digest(&self) -> String {
        digest(&self.assignments, &self.specs, &self.next)
    }

    /// The same as a node is assigned it. The desk checked the names when the request came.
    pub fn roles(&self) -> Vec<RoleAssignment> {
        let roles = self.assignments.iter().filter_map(|assignment| {
            let generation = assignment.generation.unwrap_or_default();
            let role = RoleName::new(&assignment.role).ok()?;
            let spec = self.specs.get(&generation)?;
            let tries = assignment.tries.and_then(|id| Some((id, self.next.get(&id)?)));
            Some(RoleAssignment {
                generation: Generation(generation),
                indices: assignment.indices.clone(),
                spec: Arc::new(spec.for_role(&role)),
                next: tries.map(|(id, spec)| AssignedSettings {
                    id: SettingsId(id),
                    spec: Arc::new(spec.for_role(&role)),
                }),
                role,
            })
        });
        roles.collect()
    }
}

/// The same for a request as the leader sends it: every assignment has its generation.
pub(super) fn digest_of(request: &InternalScaleRequest) -> String {
    let mut specs = request.specs.clone();
    if let (Some(spec), true) = (&request.spec, specs.is_empty()) {
        let newest = request
            .assignments
            .iter()
            .filter_map(|assignment| assignment.generation);
        if let Some(newest) = newest.max() {
            specs.insert(newest, Arc::new(spec.clone()));
        }
    }
    digest(&request.assignments, &specs, &request.next)
}

fn digest(
    assignments: &[ScaleAssignment],
    specs: &BTreeMap<u32, Arc<ServiceSpec>>,
    next: &BTreeMap<u32, Arc<ServiceSpec>>,
) -> String {
    let mut tries: BTreeSet<(&str, u32, u32, u32)> = BTreeSet::new();
    let mut replicas: BTreeSet<(&str, u32, u32)> = BTreeSet::new();
    for assignment in assignments {
        let generation = assignment.generation.unwrap_or_default();
        replicas.extend(
            assignment
                .indices
                .iter()
                .map(|index| (assignment.role.as_str(), generation, *index)),
        );
        let tried = assignment.tries.filter(|id| next.contains_key(id));
        tries.extend(tried.into_iter().flat_map(|id| {
            let indices = assignment.indices.iter();
            indices.map(move |index| (assignment.role.as_str(), generation, *index, id))
        }));
    }
    let used: BTreeSet<u32> = replicas.iter().map(|(_, generation, _)| *generation).collect();
    let specs: Vec<_> = specs
        .iter()
        .filter(|(generation, _)| used.contains(generation))
        .collect();
    // Specs and numbers can always be written.
    let text = match tries.is_empty() {
        true => serde_json::to_vec(&(replicas, specs)),
        false => serde_json::to_vec(&(replicas, specs, tries, next)),
    };
    let text = text.unwrap_or_default();
    blake3::hash(&text).to_hex().to_string()
}
