//! `ps` and `ps --all`: the replicas that are there, and those that were.

use dhow_core::ids::{ReplicaKey, ServiceId};
use dhow_core::replica::Exit;
use dhow_core::state::{Replica, Service, State};

use crate::scenario::table::table;

/// By deployment and service, then by slot.
pub(in crate::scenario) fn replicas(state: &State) -> Vec<String> {
    let mut rows = Vec::new();
    for id in state.service_ids.values() {
        rows.extend(
            state
                .replicas_of(*id)
                .map(|(key, replica)| row(state, key, replica)),
        );
    }
    if rows.is_empty() {
        return vec!["nothing runs".into()];
    }
    let heads = ["REPLICA", "NODE", "IMAGE", "STATE", "HEALTHY", "RESTARTS"];
    table(heads, &rows)
}

fn row(state: &State, key: &ReplicaKey, replica: &Replica) -> [String; 6] {
    let healthy = if replica.is_healthy() { "yes" } else { "no" };
    [
        name(state, key),
        replica.node.to_string(),
        image(state, key),
        replica.machine.state.word().into(),
        healthy.into(),
        replica.machine.restarts.to_string(),
    ]
}

fn name(state: &State, key: &ReplicaKey) -> String {
    let name = state.replica_name(key).map(|name| name.to_string());
    format!("{}#{}", name.unwrap_or_default(), key.generation)
}

fn image(state: &State, key: &ReplicaKey) -> String {
    let spec = state.service(key.service).and_then(|service| {
        let role = service.role(key.slot.role)?;
        Some(service.info(key.generation)?.spec.for_role(role))
    });
    spec.and_then(|spec| spec.image)
        .map_or_else(|| "-".into(), |image| image.name)
}

/// What each service remembers of replicas that are gone, the oldest first.
pub(in crate::scenario) fn ended(state: &State) -> Vec<String> {
    let mut rows = Vec::new();
    for id in state.service_ids.values() {
        if let Some(service) = state.service(*id) {
            rows.extend(ended_of(state, *id, service));
        }
    }
    if rows.is_empty() {
        return vec!["nothing has ended".into()];
    }
    table(["ENDED", "NODE", "RESTARTS", "HOW"], &rows)
}

fn ended_of(state: &State, id: ServiceId, service: &Service) -> Vec<[String; 4]> {
    let row = |ended: &std::sync::Arc<dhow_core::state::EndedReplica>| {
        let key = ReplicaKey {
            service: id,
            slot: ended.slot,
            generation: ended.generation,
        };
        let how = ended
            .exit
            .map_or_else(|| "-".into(), |exit: Exit| exit.to_string());
        [
            name(state, &key),
            ended.node.to_string(),
            ended.restarts.to_string(),
            how,
        ]
    };
    service.ended.iter().map(row).collect()
}
