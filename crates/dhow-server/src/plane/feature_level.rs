//! Raises the cluster's feature level once every server knows the newer one: the task of whoever leads, and the
//! question that it asks the other members.
//!
//! Started by the daemon in every mode; a single node has nobody to ask. It must never raise the level while a member
//! has not answered: a server of the version before could not read what is written at the newer level.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::state::State;
use dhow_wire::api::ServerLevel;
use http_body_util::{BodyExt, Limited};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::net::peer_http::PeerHttp;
use crate::plane::cluster::{Cluster, Member};
use crate::plane::runtime::{InputSender, RuntimeView};

/// Where a member says which level it knows.
pub(crate) const FEATURE_LEVEL_PATH: &str = "/api/v1/internal/feature-level";
/// How long the leader waits before it asks again whom it could not ask: an upgrade of a cluster takes minutes.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How long a member may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// An answer is one small number.
const ANSWER_BYTES_MAX: usize = 1_024;

/// The answer of a member.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FeatureLevelAnswer {
    feature_level: u32,
    /// Absent from a server of a version before it told so.
    #[serde(default)]
    version: Option<String>,
}

impl FeatureLevelAnswer {
    pub(crate) fn own() -> Self {
        Self {
            feature_level: State::FEATURE_LEVEL,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        }
    }
}

/// Asks the members while this server leads a cluster at an older level, and raises the level once all know it.
pub async fn raise_feature_level(
    cluster: Arc<dyn Cluster>,
    peers: PeerHttp,
    input: InputSender,
    view: RuntimeView,
    end: CancellationToken,
) {
    let mut leaderships = view.leaderships();
    let mut states = view.states();
    loop {
        let leads = leaderships.borrow_and_update().is_here;
        let state = states.borrow_and_update().clone();
        let is_older = state.feature_level < State::FEATURE_LEVEL || state.nodes_max() < State::NODES_MAX;
        let is_due = state.cluster_id.is_some() && is_older;
        if leads && is_due && all_know(cluster.as_ref(), &peers).await {
            let level = State::FEATURE_LEVEL;
            let raise = Command::Cluster(ClusterCommand::RaiseFeatureLevel {
                level,
                nodes_limit: Some(State::NODES_LIMIT),
            });
            match input.write(raise, None).await {
                Ok(_) => tracing::info!(
                    level,
                    "every server knows the newer feature level; the cluster has it now"
                ),
                Err(error) => tracing::debug!(%error, "the feature level is not raised yet"),
            }
        }
        let asks_again = async {
            match leads && is_due {
                true => tokio::time::sleep(ASK_EVERY).await,
                false => std::future::pending().await,
            }
        };
        let news = tokio::select! {
            () = end.cancelled() => return,
            () = asks_again => Ok(()),
            news = leaderships.changed() => news,
            news = states.changed(), if !is_due => news,
        };
        if news.is_err() {
            return;
        }
    }
}

async fn all_know(cluster: &dyn Cluster, peers: &PeerHttp) -> bool {
    let own = cluster.node_id();
    let others = cluster.members().into_iter().filter(|member| member.node != own);
    let asked = others.map(|member| async move {
        let level = tokio::time::timeout(ANSWER_WITHIN, ask(peers, &member)).await;
        let level = level.ok().flatten();
        if level.is_none_or(|level| level < State::FEATURE_LEVEL) {
            tracing::debug!(
                node = member.node.0,
                ?level,
                "a server does not know the newer feature level yet"
            );
        }
        level
    });
    let levels = futures_util::future::join_all(asked).await;
    levels
        .iter()
        .all(|level| level.is_some_and(|level| level >= State::FEATURE_LEVEL))
}

/// What every member knows, this server included, for people who upgrade a cluster.
pub(crate) async fn levels(cluster: &dyn Cluster, peers: &PeerHttp) -> Vec<ServerLevel> {
    let own = cluster.node_id();
    let asked = cluster.members().into_iter().map(|member| async move {
        let answer = match member.node == own {
            true => Some(FeatureLevelAnswer::own()),
            false => tokio::time::timeout(ANSWER_WITHIN, answer_of(peers, &member))
                .await
                .ok()
                .flatten(),
        };
        ServerLevel {
            node_id: member.node.0,
            level: answer.as_ref().map(|answer| answer.feature_level),
            version: answer.and_then(|answer| answer.version),
        }
    });
    futures_util::future::join_all(asked).await
}

async fn ask(peers: &PeerHttp, member: &Member) -> Option<u32> {
    answer_of(peers, member).await.map(|answer| answer.feature_level)
}

/// What a member knows. One of the first version has no such route, and knows no level but the first.
async fn answer_of(peers: &PeerHttp, member: &Member) -> Option<FeatureLevelAnswer> {
    const FIRST: FeatureLevelAnswer = FeatureLevelAnswer {
        feature_level: 1,
        version: None,
    };
    let request = Request::get(FEATURE_LEVEL_PATH).body(Body::empty()).ok()?;
    let answer = peers.send(member.node, member.api_addr?, request).await.ok()?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Some(FIRST),
        _ => return None,
    }
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .ok()?;
    serde_json::from_slice(&body.to_bytes()).ok()
}

#[cfg(test)]
mod tests;
