//! `/tokens/workers`: with which workers join. A token is signed and shown once, when it is made; the log counts its
//! uses.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use dhow_core::command::{ClusterCommand, Command, Refused, RequestId};
use dhow_core::ids::NodeId;
use dhow_core::spec::check::check_worker_label;
use dhow_core::state::{NodeRole, State as ClusterState, Token};
use dhow_wire::api::{TokenCreated, TokenInfo, TokenKind, WorkerTokenCreateRequest};
use dhow_wire::token::{TokenClaims, TokenNonce};
use dhow_wire::{ProblemCode, WorkerBootstrapToken};

use super::caller::Caller;
use super::context::Context;
use super::extract;
use super::limits::{LABELS_MAX, WORKER_TOKEN_TTL_SECS_MAX};
use super::problem::{Answer, ApiProblem};

/// Makes a token with which workers join. This answer alone has it.
#[utoipa::path(
    post, path = "/api/v1/tokens/workers", tag = "tokens", request_body = WorkerTokenCreateRequest,
    responses((status = 200, body = TokenCreated))
)]
pub(super) async fn create(
    State(context): State<Context>,
    caller: Caller,
    extract::Json { value, bytes }: extract::Json<WorkerTokenCreateRequest>,
) -> Answer<Json<TokenCreated>> {
    let (Some(key), Some(ca_fingerprint)) = (&context.api.worker_tokens, context.ca) else {
        let detail = "this cluster takes no workers: it has no worker tier";
        return Err(ApiProblem::new(ProblemCode::WrongMode, detail));
    };
    let state = context.manager().state();
    let cluster_id = state.cluster_id.as_deref().ok_or_else(|| {
        let detail = "the cluster has no id yet; try again in a second";
        ApiProblem::new(ProblemCode::NoLeader, detail)
    })?;
    let ttl_secs = i64::try_from(value.ttl_secs).ok();
    let ttl_secs = ttl_secs.filter(|_| (1..=WORKER_TOKEN_TTL_SECS_MAX).contains(&value.ttl_secs));
    let Some(ttl_secs) = ttl_secs else {
        return Err(ApiProblem::invalid(format!(
            "a worker's token is good for 1 to {WORKER_TOKEN_TTL_SECS_MAX} seconds: it lies in files until it is used"
        )));
    };
    let uses_max = state.nodes_max();
    if !(1..=uses_max).contains(&(value.uses as usize)) {
        return Err(ApiProblem::invalid(format!(
            "a worker's token has 1 to {uses_max} uses: this cluster has no more nodes"
        )));
    }
    let members = context.api.cluster.members();
    let members: BTreeSet<NodeId> = members.iter().map(|member| member.node).collect();
    check_node_ids(&state, &members, &value.node_ids)?;
    let request = caller.request_id(&bytes);
    let issued_unix_secs = context.wall_unix_secs();
    let claims = TokenClaims {
        cluster_id: cluster_id.to_owned(),
        issued_unix_secs,
        expires_unix_secs: issued_unix_secs.saturating_add(ttl_secs),
        uses: value.uses,
        nonce: nonce(&context, request.as_ref()),
        ca_fingerprint,
        allowed_labels: allowed_labels(value.allowed_labels, value.any_label)?,
        allowed_node_ids: value.node_ids,
    };
    let (id, expires_unix_secs) = (claims.nonce.to_string(), claims.expires_unix_secs);
    let token = WorkerBootstrapToken::issue(key, claims);
    let token = token.map_err(|error| ApiProblem::invalid(error.to_string()))?;
    let command = ClusterCommand::IssueToken {
        nonce: id.as_str().into(),
        uses_allowed: value.uses,
        expires_unix_secs,
    };
    context.write(Command::Cluster(command), request).await?;
    Ok(Json(TokenCreated {
        id,
        token: token.reveal(),
    }))
}

/// A worker's token as the list shows it.
pub(super) fn info(nonce: &str, token: &Token, now_unix_secs: i64) -> TokenInfo {
    let used = u32::try_from(token.uses.len()).unwrap_or(u32::MAX);
    TokenInfo {
        id: nonce.to_owned(),
        name: "worker".to_owned(),
        role: TokenKind::Worker,
        deployment: None,
        created_unix_secs: None,
        expires_unix_secs: Some(token.expires_unix_secs),
        expired: now_unix_secs >= token.expires_unix_secs,
        uses: Some(token.uses_allowed),
        uses_left: Some(token.uses_allowed.saturating_sub(used)),
        revoked: token.revoked,
    }
}

/// Where a retry of the request can be known, its token is counted with the first one's.
fn nonce(context: &Context, request: Option<&RequestId>) -> TokenNonce {
    let Some(id) = request else {
        return TokenNonce(rand::random());
    };
    let hash = blake3::Hash::from_bytes(id.body_hash).to_hex();
    let text = format!(
        "worker token\0{}\0{}\0{hash}",
        id.request.principal, id.request.key
    );
    let seed = context.api.secrets.fingerprint(text.as_bytes());
    let mut nonce = [0; 16];
    nonce.copy_from_slice(&seed[..16]);
    TokenNonce(nonce)
}

/// An id that no worker can be given is refused now, and not silently left out when the worker comes.
fn check_node_ids(state: &ClusterState, members: &BTreeSet<NodeId>, ids: &BTreeSet<u64>) -> Answer<()> {
    for id in ids.iter().copied().map(NodeId) {
        if !id.is_in_range() {
            return Err(ApiProblem::invalid(Refused::NodeIdRange(id).to_string()));
        }
        let role = state.node(id).map(|node| node.info.role);
        let is_server = members.contains(&id)
            || state.node_ids.servers.contains(&id)
            || matches!(role, Some(NodeRole::Server | NodeRole::Peer));
        let why = match (is_server, state.is_node_id_free(id)) {
            (true, _) => "is a server's",
            (false, false) => "is or was another node's, or cannot be kept out of turn",
            (false, true) => continue,
        };
        return Err(ApiProblem::new(
            ProblemCode::Refused,
            format!(
                "the id {id} {why}: no worker can have it; name one that is free, or none for the next in turn"
            ),
        ));
    }
    Ok(())
}

type Labels = BTreeMap<String, BTreeSet<String>>;

/// Without a word about labels a token allows none; whoever has it must not choose where services go.
fn allowed_labels(asked: Option<Labels>, any: bool) -> Answer<Option<Labels>> {
    let labels = match (asked, any) {
        (None, true) => return Ok(None),
        (Some(_), true) => {
            let detail = "`any_label` and `allowed_labels` exclude each other: any label, or these";
            return Err(ApiProblem::invalid(detail));
        }
        (asked, false) => asked.unwrap_or_default(),
    };
    if labels.len() > LABELS_MAX {
        return Err(ApiProblem::invalid(format!(
            "a token names at most {LABELS_MAX} labels"
        )));
    }
    for (key, values) in &labels {
        // Without a value the key alone is looked at.
        let mut shown: Vec<&str> = values.iter().map(String::as_str).collect();
        if shown.is_empty() {
            shown.push("");
        }
        for value in shown {
            check_worker_label(key, value).map_err(ApiProblem::invalid)?;
        }
    }
    Ok(Some(labels))
}
