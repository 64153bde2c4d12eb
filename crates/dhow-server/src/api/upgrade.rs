//! `/cluster/upgrade`: how far an upgrade of the cluster is.

use axum::Json;
use axum::extract::State;
use dhow_core::state::{self, Node};
use dhow_wire::api::{OlderNode, UpgradeCheck};

use super::context::Context;
use crate::plane::feature_level::levels;

/// What each member knows, and what keeps the cluster at an older feature level. Every server is asked.
#[utoipa::path(
    get, path = "/api/v1/cluster/upgrade", tag = "cluster", responses((status = 200, body = UpgradeCheck))
)]
pub(super) async fn check(State(context): State<Context>) -> Json<UpgradeCheck> {
    let servers = levels(context.api.cluster.as_ref(), &context.api.peers).await;
    let state = context.manager().state();
    let older = state.nodes.values().filter(|node| node.info.runs_replicas);
    let nodes = older.filter_map(|node| older_node(node)).collect();
    let level = (state.feature_level, state::State::FEATURE_LEVEL);
    Json(UpgradeCheck::of(level, servers, nodes))
}

/// What a node's agent does not know, by what it says of itself. One that nobody can reach says nothing new.
fn older_node(node: &Node) -> Option<OlderNode> {
    let knows = [
        (node.info.tries_settings, "settings that change under a replica"),
        (node.info.mounts_files, "configs and secrets as files"),
        (node.info.runs_steps, "`init` steps"),
    ];
    let lacks: Vec<String> = knows
        .iter()
        .filter(|(knows, _)| !knows)
        .map(|(_, what)| (*what).to_owned())
        .collect();
    (!lacks.is_empty()).then_some(OlderNode {
        node_id: node.id.0,
        lacks,
    })
}
