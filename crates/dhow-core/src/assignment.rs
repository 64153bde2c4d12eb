//! What a node has to be told to run, read off the state: the one form of it, whatever carries it. Servers derive it,
//! `dhow-wire` renders it for gRPC and JSON, a static leader as scale requests, agents and the simulator act on it. Pure;
//! it never remembers what was told to whom: the node says what it has seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{
    Generation, NodeId, ReplicaKey, ReplicaName, Revision, RoleId, RoleName, ServiceId, ServiceKey,
    SettingsId, Term,
};
use crate::spec::ServiceSpec;
use crate::state::{Assigned, AssignmentChange, GenerationInfo, Service, State};

/// What a node is to run, or what of that has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The term of the state that it was read from. None where whoever gives it keeps count of what is newer by
    /// itself.
    pub term: Option<Term>,
    /// The cluster whose state that is, where it has said its name.
    pub cluster: Option<Arc<str>>,
    pub revision: Revision,
    /// It is everything: what it does not name is not to run.
    pub whole: bool,
    /// Each one replaces all that the node has of that service; one without replicas is to go.
    pub services: BTreeMap<ServiceKey, Vec<RoleAssignment>>,
}

/// Replicas of one service that are alike: of one role and generation, with the same settings to try.
#[derive(Clone, Debug, PartialEq)]
pub struct RoleAssignment {
    pub role: RoleName,
    pub generation: Generation,
    /// Ascending.
    pub indices: Vec<u32>,
    /// As `ServiceSpec::for_role` gives it.
    pub spec: Arc<ServiceSpec>,
    /// What they try beside `spec`.
    pub next: Option<AssignedSettings>,
}

/// Settings that a replica tries, and takes for its own once it has passed them. Agents keep them in their ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssignedSettings {
    pub id: SettingsId,
    /// The spec as it will be, for the same role.
    pub spec: Arc<ServiceSpec>,
}

impl Assignment {
    /// Everything that there is to run, which is nothing.
    pub fn nothing(revision: Revision) -> Self {
        Self {
            term: None,
            cluster: None,
            revision,
            whole: true,
            services: BTreeMap::new(),
        }
    }

    /// Takes what came after this one into it: whoever acts on the result has acted on both.
    pub fn follow(&mut self, next: Self) {
        if next.whole {
            *self = next;
            return;
        }
        (self.term, self.cluster) = (next.term, next.cluster);
        self.revision = next.revision;
        self.services.extend(next.services);
        if self.whole {
            // What is not named is not to run anyway.
            self.services.retain(|_, roles| !roles.is_empty());
        }
    }

    /// Every replica that it names, with what it runs.
    pub fn replicas(&self) -> impl Iterator<Item = (ReplicaName, &RoleAssignment)> {
        let services = self.services.iter();
        services.flat_map(|(service, roles)| replicas(service, roles))
    }
}

/// The replicas of one service, each with what it runs.
pub fn replicas<'a>(
    service: &'a ServiceKey,
    roles: &'a [RoleAssignment],
) -> impl Iterator<Item = (ReplicaName, &'a RoleAssignment)> {
    let named = |role: &'a RoleAssignment, index: u32| ReplicaName {
        deployment: service.deployment.clone(),
        service: service.service.clone(),
        role: role.role.clone(),
        index,
        generation: role.generation,
    };
    roles.iter().flat_map(move |role| {
        let indices = role.indices.iter();
        indices.map(move |index| (named(role, *index), role))
    })
}

/// What a node has to be told that has seen everything up to `last`, or nothing yet. None where there is no news.
pub fn assignment_since(state: &State, node: NodeId, last: Option<Revision>) -> Option<Assignment> {
    let assignments = &state.node(node)?.assignments;
    let whole = last.is_none_or(|last| assignments.is_whole_needed(last));
    let from = last.filter(|_| !whole).unwrap_or_default();
    if !whole && assignments.revision <= from {
        return None;
    }
    let mut specs = Specs::new();
    let changes = assignments.since(from).into_iter();
    let services = changes.filter_map(|change| match change {
        AssignmentChange::Set { service, assigned } => {
            let service = state.service(service)?;
            let roles = roles_of(state, service, assigned, &mut specs);
            Some((service.key.clone(), roles))
        }
        // A whole assignment need not name what is not in it.
        AssignmentChange::Delete { name, .. } => {
            let name = name.filter(|_| !whole)?;
            Some((name.clone(), Vec::new()))
        }
    });
    Some(Assignment {
        term: Some(state.term),
        cluster: state.cluster_id.clone(),
        revision: assignments.revision,
        whole,
        services: services.collect(),
    })
}

/// Specs as roles run them: by service, generation, role, and whether it is the one that is to come.
type Specs = BTreeMap<(ServiceId, Generation, RoleId, bool), Arc<ServiceSpec>>;

fn roles_of(state: &State, service: &Service, assigned: &Assigned, specs: &mut Specs) -> Vec<RoleAssignment> {
    let mut alike: BTreeMap<(&RoleName, Generation, Option<SettingsId>), RoleAssignment> = BTreeMap::new();
    for replica in &assigned.replicas {
        let (Some(role), Some(info)) = (service.role(replica.slot.role), service.info(replica.generation))
        else {
            continue;
        };
        let key = ReplicaKey {
            service: service.id,
            slot: replica.slot,
            generation: replica.generation,
        };
        let tried = tried_by(state, service, info, &key);
        let alike = alike.entry((role, replica.generation, tried.map(|(id, _)| id)));
        let alike = alike.or_insert_with(|| {
            let mut spec_for = |is_next: bool, spec: &Arc<ServiceSpec>| {
                let key = (service.id, replica.generation, replica.slot.role, is_next);
                Arc::clone(specs.entry(key).or_insert_with(|| resolved(spec, role)))
            };
            RoleAssignment {
                role: role.clone(),
                generation: replica.generation,
                indices: Vec::new(),
                spec: spec_for(false, &info.spec),
                next: tried.map(|(id, spec)| AssignedSettings {
                    id,
                    spec: spec_for(true, spec),
                }),
            }
        });
        alike.indices.push(replica.slot.index);
    }
    alike.into_values().collect()
}

/// The settings that a replica was told to try, where there are any of its generation.
fn tried_by<'a>(
    state: &State,
    service: &Service,
    info: &'a GenerationInfo,
    key: &ReplicaKey,
) -> Option<(SettingsId, &'a Arc<ServiceSpec>)> {
    let next = info.next.as_ref()?;
    let replica = state.replicas.get(key)?;
    service.trial(key.generation, replica)?;
    Some((next.id, &next.spec))
}

/// The state's own where the role changes nothing, so that all nodes that run it share one value.
fn resolved(spec: &Arc<ServiceSpec>, role: &RoleName) -> Arc<ServiceSpec> {
    match spec.replica_groups.is_empty() {
        true => Arc::clone(spec),
        false => Arc::new(spec.for_role(role)),
    }
}

#[cfg(test)]
mod tests;
