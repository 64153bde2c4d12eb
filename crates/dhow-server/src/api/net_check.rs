//! Whether one service reaches another, tried from inside one of its replicas.

use axum::Json;
use axum::extract::{Path, State};
use dhow_core::ids::{DeploymentName, NodeId, ReplicaName, ServiceKey, ServiceName};
use dhow_core::state::Service;
use dhow_wire::ProblemCode;
use dhow_wire::api::{NetCheck, NetStep, NetStepKind, NetVerdict};
use serde::Deserialize;

use super::context::Context;
use super::extract::Query;
use super::problem::{Answer, ApiProblem};
use crate::net::node_door::NetCheckRequest;
use crate::plane::services::{may_call, select};

/// Which call to try.
#[derive(Deserialize)]
pub(super) struct Asked {
    from: String,
    to: String,
    endpoint: Option<String>,
}

/// Tries a call from inside a replica: the name, the rule, the ready replicas, the connection.
#[utoipa::path(
    get, path = "/api/v1/deployments/{name}/net-check", tag = "deployments",
    params(
        ("name" = String, Path),
        ("from" = String, Query, description = "The service that calls, or one of its replicas"),
        ("to" = String, Query, description = "What it calls, as DEPLOYMENT/SERVICE"),
        ("endpoint" = Option<String>, Query, description = "The endpoint's name; without it the first one")
    ),
    responses((status = 200, body = NetCheck))
)]
pub(super) async fn net_check(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Answer<Json<NetCheck>> {
    let state = context.manager().state();
    let (replica, node) = running(&state, &name, &asked.from)?;
    let to = called(&state, &asked.to)?;
    let endpoint = endpoint_of(to, asked.endpoint.as_deref())?;
    let request = NetCheckRequest {
        replica: replica.clone(),
        to: to.key.clone(),
        endpoint: endpoint.clone(),
    };
    let mut check = context.manager().door().net_check(node, request).await?;
    let rule = may_call(to, &endpoint, &replica.service_key());
    // A node is not told of what its replicas may not call: then there is no name either, and this is why.
    if let (NetVerdict::NoName, Err(why)) = (check.verdict, rule) {
        check.verdict = NetVerdict::Refused;
        check.steps.push(NetStep {
            step: NetStepKind::Rule,
            ok: false,
            text: why,
        });
    }
    Ok(Json(check))
}

/// A replica that runs.
fn running(state: &dhow_core::state::State, name: &str, from: &str) -> Answer<(ReplicaName, NodeId)> {
    let selected = select(state, name, Some(from))?;
    let mut running = selected.into_iter().filter(|replica| {
        let found = state.replicas.get(&replica.key);
        found.is_some_and(|found| found.is_running())
    });
    let found = running.next().ok_or_else(|| {
        let detail =
            format!("no replica of `{name}/{from}` is running; `dhow explain {name}/{from}` says why");
        ApiProblem::new(ProblemCode::Refused, detail)
    })?;
    Ok((found.name, found.node))
}

fn called<'a>(state: &'a dhow_core::state::State, to: &str) -> Answer<&'a Service> {
    let key = to.split_once('/').and_then(|(deployment, service)| {
        Some(ServiceKey {
            deployment: DeploymentName::new(deployment).ok()?,
            service: ServiceName::new(service).ok()?,
        })
    });
    let key = key.ok_or_else(|| ApiProblem::bad_request("`to` is DEPLOYMENT/SERVICE"))?;
    let found = state.service_named(&key.deployment, &key.service);
    found.map(AsRef::as_ref).ok_or_else(|| {
        ApiProblem::not_found(format!(
            "there is no service `{key}`; `dhow status {}` lists those there are",
            key.deployment
        ))
    })
}

fn endpoint_of(service: &Service, name: Option<&str>) -> Answer<String> {
    let endpoints = service
        .spec()
        .map(|spec| spec.endpoints.as_slice())
        .unwrap_or_default();
    let found = match name {
        Some(name) => endpoints.iter().find(|endpoint| endpoint.name == name),
        None => endpoints.first(),
    };
    found.map(|found| found.name.clone()).ok_or_else(|| {
        let key = &service.key;
        let names: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
        ApiProblem::not_found(match names.as_slice() {
            [] => format!("`{key}` has no endpoints: nobody can call it"),
            names => format!("`{key}` has no such endpoint, only {}", names.join(", ")),
        })
    })
}
