//! `POST /api/v1/workers/register`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use dhow_core::amount::Amount;
use dhow_core::ids::NodeId;
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_wire::grpc::{Refusal, from_node_info, to_node_info};
use dhow_wire::{WorkerProfile, WorkerRegisterRequest, WorkerRegisterResponse};

use super::answer::{Answer, json, read};
use crate::gateway::node_gateway::NodeGateway;
use crate::gateway::workers::register::Joining;

/// A worker of the JSON form joins.
#[utoipa::path(
    post, path = "/api/v1/workers/register", tag = "workers", request_body = WorkerRegisterRequest,
    responses((status = 200, body = WorkerRegisterResponse))
)]
pub(in crate::gateway) async fn register(
    State(gateway): State<NodeGateway>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let request: WorkerRegisterRequest = read(body)?;
    // The same limits as in the other form of the protocol.
    let info = from_node_info(to_node_info(&info_of(request.profile)));
    let info = info.map_err(|error| Refusal::Malformed(error.to_string()))?;
    let joined = gateway.inner.join(Joining {
        token: request.token,
        wish: request.desired_node_id.map(NodeId),
        info,
        csr_pem: request.csr_pem,
        client_id: request.client_id,
        is_plain: true,
    });
    let joined: WorkerRegisterResponse = joined.await?;
    json(&joined)
}

fn info_of(profile: WorkerProfile) -> NodeInfo {
    NodeInfo {
        role: NodeRole::Worker,
        api_addr: Some(profile.api_addr.to_string().into()),
        os: profile.os.into(),
        arch: profile.arch.into(),
        labels: Arc::new(profile.labels),
        capacity: Amount {
            cpu_milli: u64::from(profile.cpu_total) * 1_000,
            memory_bytes: profile.memory_total_bytes,
        },
        runs_replicas: true,
        tries_settings: false,
        mounts_files: false,
        runs_steps: false,
        volumes: dhow_core::spec::VolumeSupport::Named,
        mesh_addr: None,
    }
}
