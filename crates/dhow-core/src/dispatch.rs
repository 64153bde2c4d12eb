//! What a node has to be told to run, read off the state. Used by whatever carries assignments to nodes, and by
//! the agents that take them. Pure; it never remembers what was told to whom: the node says what it has seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{
    Generation, NodeId, ReplicaKey, ReplicaName, Revision, RoleId, ServiceId, ServiceKey, SettingsId, Term,
};
use crate::spec::ServiceSpec;
use crate::state::{Assigned, AssignmentChange, State};

/// What a node is to run, or what of that has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// The term of the state that it was read from. None where whoever gives it keeps count of what is newer by
    /// itself.
    pub term: Option<Term>,
    /// The cluster whose state that is, where it has said its name.
    pub cluster: Option<Arc<str>>,
    pub revision: Revision,
    /// It is everything: what it does not name is not to run.
    pub whole: bool,
    pub changes: Vec<DispatchChange>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DispatchChange {
    /// Replaces all that the node has of that service.
    Set {
        service: ServiceKey,
        replicas: Vec<DispatchedReplica>,
    },
    Delete {
        service: ServiceKey,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct DispatchedReplica {
    pub name: ReplicaName,
    /// As `ServiceSpec::for_role` gives it; one value for all replicas of a generation and role.
    pub spec: Arc<ServiceSpec>,
    /// What it tries beside `spec`.
    pub next: Option<DispatchedSettings>,
}

/// Settings that a replica tries, and takes for its own once it has passed them. Agents keep them in their ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchedSettings {
    pub id: SettingsId,
    /// The spec as it will be, for the same role.
    pub spec: Arc<ServiceSpec>,
}

/// What a node has to be told that has seen everything up to `last`, or nothing yet. None where there is no news.
pub fn dispatch_since(state: &State, node: NodeId, last: Option<Revision>) -> Option<Dispatch> {
    let assignments = &state.node(node)?.assignments;
    let whole = last.is_none_or(|last| assignments.is_whole_needed(last));
    let from = last.filter(|_| !whole).unwrap_or_default();
    if !whole && assignments.revision <= from {
        return None;
    }
    let mut specs = Specs::default();
    let changes = assignments.since(from).into_iter();
    let changes = changes.filter_map(|change| match change {
        AssignmentChange::Set { service, assigned } => set_of(state, service, assigned, &mut specs),
        // One that is told everything needs no word of what is not there.
        AssignmentChange::Delete { name, .. } => name.filter(|_| !whole).map(|name| DispatchChange::Delete {
            service: name.clone(),
        }),
    });
    Some(Dispatch {
        term: Some(state.term),
        cluster: state.cluster_id.clone(),
        revision: assignments.revision,
        whole,
        changes: changes.collect(),
    })
}

/// By service, generation, role, and whether it is the one that is to come.
type Specs = BTreeMap<(ServiceId, Generation, RoleId, bool), Arc<ServiceSpec>>;

fn set_of(state: &State, id: ServiceId, assigned: &Assigned, specs: &mut Specs) -> Option<DispatchChange> {
    let service = state.service(id)?;
    let replicas = assigned.replicas.iter().filter_map(|replica| {
        let role = service.role(replica.slot.role)?;
        let info = service.info(replica.generation)?;
        let mut spec_for = |is_next: bool, spec: &Arc<ServiceSpec>| {
            let key = (id, replica.generation, replica.slot.role, is_next);
            let made = specs.entry(key);
            Arc::clone(made.or_insert_with(|| Arc::new(spec.for_role(role))))
        };
        let known = state.replicas.get(&ReplicaKey {
            service: id,
            slot: replica.slot,
            generation: replica.generation,
        });
        let trial = known.and_then(|known| service.trial(replica.generation, known));
        let next = trial.map(|(next, _)| DispatchedSettings {
            id: next.id,
            spec: spec_for(true, &next.spec),
        });
        Some(DispatchedReplica {
            name: ReplicaName {
                deployment: service.key.deployment.clone(),
                service: service.key.service.clone(),
                role: role.clone(),
                index: replica.slot.index,
                generation: replica.generation,
            },
            spec: spec_for(false, &info.spec),
            next,
        })
    });
    Some(DispatchChange::Set {
        service: service.key.clone(),
        replicas: replicas.collect(),
    })
}
