//! `/replicas`.

use axum::Json;
use axum::extract::State;
use dhow_core::ids::NodeId;
use dhow_core::replica::Exit;
use dhow_wire::{ReplicaStateName, ReplicaStatus};
use serde::Deserialize;

use super::access::Scope;
use super::context::Context;
use super::extract::Query;
use super::health::{WAITS, own_replicas};
use super::past::AtQuery;
use super::problem::{Answer, ApiProblem};
use crate::net::node_door::PresentReplica;
use crate::plane::services::{ReplicaFilter, ServiceManager};

/// The query of `/replicas`.
#[derive(Deserialize)]
pub(super) struct Filter {
    deployment: Option<String>,
    service: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    live: bool,
    at: Option<u64>,
}

/// Replicas by deployment, service and slot.
#[utoipa::path(
    get, path = "/api/v1/replicas", tag = "replicas",
    params(
        ("deployment" = Option<String>, Query),
        ("service" = Option<String>, Query),
        ("all" = Option<bool>, Query, description = "Those that have ended and are remembered, too"),
        ("at" = Option<u64>, Query, description = "As they were at this revision of the state"),
        ("live" = Option<bool>, Query, description = "Asks each node, and tells where it says something else")
    ),
    responses((status = 200, body = Vec<ReplicaStatus>))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(filter): Query<Filter>,
    scope: Scope,
) -> Answer<Json<Vec<ReplicaStatus>>> {
    // An empty value is what a client sends that has nothing to say.
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (is_live, at) = (filter.live, filter.at);
    let asked = match (said(filter.deployment), &scope) {
        // Of all that there is, a token for one deployment is told of that.
        (None, Scope::One(own)) => Some(own.to_string()),
        (asked, _) => asked,
    };
    if let Some(asked) = &asked {
        scope.check(asked)?;
    }
    let filter = ReplicaFilter {
        deployment: asked,
        service: said(filter.service),
        all: filter.all,
    };
    if let Some(moment) = context.asked_moment(&AtQuery { at }).await? {
        if is_live {
            return Err(ApiProblem::bad_request(
                "nodes know of the present alone: leave `live` or `at` out",
            ));
        }
        let found = ServiceManager::listed_at(&moment, |listings| listings.replicas(&filter));
        return Ok(Json(found?));
    }
    let manager = context.manager();
    let mut replicas = match is_live {
        true => manager.replicas_live(&filter).await?,
        false => manager.replicas(&filter)?,
    };
    let own = manager.identity().node_id;
    let has_leader = manager.view().leadership().leader.is_some();
    for present in own_replicas(&**manager.door(), own).await {
        let name = &present.name;
        let is_it = |replica: &&mut ReplicaStatus| {
            replica.node_id == Some(own.0)
                && replica.deployment == name.deployment.as_str()
                && replica.id == name.id()
                && replica
                    .generation
                    .is_none_or(|generation| generation == name.generation.0)
        };
        match replicas.iter_mut().find(is_it) {
            Some(replica) if present.waits => {
                // What the cluster last knew of it was before the host was started again.
                (replica.state, replica.healthy, replica.pid) = (ReplicaStateName::Pending, false, None);
                replica.message = Some(WAITS.to_owned());
            }
            Some(_) => {}
            // A server without a leader may know less of the cluster than its own node does.
            None if (present.waits || !has_leader) && filter.takes(&name.deployment, &name.service) => {
                replicas.push(only_here(own, &present));
            }
            None => {}
        }
    }
    Ok(Json(replicas))
}

/// What this node has and the server has not heard of.
fn only_here(node: NodeId, present: &PresentReplica) -> ReplicaStatus {
    let (name, machine) = (&present.name, &present.machine);
    let (state, pid) = match present.waits {
        true => (ReplicaStateName::Pending, None),
        false => (machine.state.into(), machine.pid),
    };
    ReplicaStatus {
        deployment: name.deployment.to_string(),
        service: name.service.to_string(),
        role: name.role.to_string(),
        replica: name.index,
        id: name.id(),
        node_id: Some(node.0),
        image: present.image.clone(),
        state,
        healthy: !present.waits && machine.healthy,
        restarts: machine.restarts,
        pid,
        exit_code: machine.exit.and_then(Exit::code),
        generation: Some(name.generation.0),
        revision: None,
        started_unix_secs: None,
        cpu_used_milli: None,
        memory_used_bytes: None,
        live: None,
        message: present.waits.then(|| WAITS.to_owned()),
    }
}
