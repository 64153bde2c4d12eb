//! `POST /api/v1/workers/register`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use dhow_core::amount::Amount;
use dhow_core::ids::NodeId;
use dhow_core::state::{NodeInfo, NodeRole};
use dhow_wire::{WorkerProfile, WorkerRegisterRequest};

use super::answer::{Answer, json, read};
use crate::gateway::node_gateway::NodeGateway;
use crate::gateway::workers::register::Joining;

pub(super) async fn register(
    State(gateway): State<NodeGateway>,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    let request: WorkerRegisterRequest = read(body)?;
    let joined = gateway.inner.join(Joining {
        token: request.token,
        wish: request.desired_node_id.map(NodeId),
        info: info_of(request.profile),
        csr_pem: request.csr_pem,
    });
    json(&joined.await?)
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
    }
}
