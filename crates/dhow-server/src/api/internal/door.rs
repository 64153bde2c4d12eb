//! The door to this node, for other members: [`crate::net::node_door::ClusterDoor`] is the other end.

use std::convert::Infallible;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dhow_wire::api::NetCheck;
use futures_util::StreamExt;

use super::DoorContext;
use crate::api::exec;
use crate::api::extract::{self, Query};
use crate::api::feed;
use crate::api::problem::{Answer, ApiProblem};
use crate::api::volumes::{tar_answer, tar_body};
use crate::net::node_door::{
    ExecRequest, LogItem, LogLine, LogQuery, NetCheckRequest, NodeVolume, ReplicaPull, VolumeName,
};

/// The lines of replicas, one [`LogLine`] in each line.
pub(in crate::api) async fn logs(
    State(context): State<DoorContext>,
    query: extract::Json<LogQuery>,
) -> Answer<Response> {
    let mut items = context.door.logs(context.node, query.value).await?;
    let lines = feed::feed(context.end.clone(), |feed| async move {
        while let Some(item) = items.next().await {
            let line = match item {
                Ok(LogItem::Record(record)) => LogLine::Record(record),
                Ok(LogItem::CaughtUp) => LogLine::CaughtUp,
                Err(error) => LogLine::Failed(error.to_string()),
            };
            // Texts and numbers can always be written.
            let mut bytes = serde_json::to_vec(&line).unwrap_or_default();
            bytes.push(b'\n');
            feed.send(Bytes::from(bytes)).await?;
        }
        Ok(())
    });
    let lines = lines.map(Ok::<Bytes, Infallible>);
    Ok((
        [(header::CONTENT_TYPE, "application/x-ndjson")],
        Body::from_stream(lines),
    )
        .into_response())
}

/// How far the pulls of this node are.
pub(in crate::api) async fn pulls(State(context): State<DoorContext>) -> Answer<Json<Vec<ReplicaPull>>> {
    Ok(Json(context.door.pulls(context.node).await?))
}

/// Tries a call from inside a replica of this node. The query holds which, as JSON.
pub(in crate::api) async fn net_check(
    State(context): State<DoorContext>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Answer<Json<NetCheck>> {
    let asked = pairs.iter().find(|(key, _)| key == "request");
    let asked = asked.and_then(|(_, text)| serde_json::from_str::<NetCheckRequest>(text).ok());
    let asked = asked.ok_or_else(|| ApiProblem::bad_request("`request` says which call to try"))?;
    Ok(Json(context.door.net_check(context.node, asked).await?))
}

/// Runs a command in a replica of this node, over an upgraded connection. The query holds what, as JSON.
pub(in crate::api) async fn exec(
    State(context): State<DoorContext>,
    Query(pairs): Query<Vec<(String, String)>>,
    mut request: Request,
) -> Answer<Response> {
    let asked = pairs.iter().find(|(key, _)| key == "request");
    let asked = asked.and_then(|(_, text)| serde_json::from_str::<ExecRequest>(text).ok());
    let asked = asked.ok_or_else(|| ApiProblem::bad_request("`request` says what to run"))?;
    let protocol = asked.protocol();
    let upgrade = exec::take_upgrade(&mut request, protocol)?;
    let session = context.door.exec(context.node, asked).await?;
    Ok(exec::switch(
        upgrade,
        protocol,
        session,
        context.end.clone(),
        std::future::pending(),
    ))
}

/// The volumes of this node.
pub(in crate::api) async fn volumes(State(context): State<DoorContext>) -> Answer<Json<Vec<NodeVolume>>> {
    Ok(Json(context.door.volumes(context.node).await?))
}

/// Removes a volume of this node. The query holds which, as JSON.
pub(in crate::api) async fn remove_volume(
    State(context): State<DoorContext>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Answer<Json<()>> {
    let volume = volume_of(&pairs)?;
    context.door.remove_volume(context.node, volume).await?;
    Ok(Json(()))
}

/// What is in a volume of this node.
pub(in crate::api) async fn backup_volume(
    State(context): State<DoorContext>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Answer<Response> {
    let volume = volume_of(&pairs)?;
    Ok(tar_answer(
        context.door.backup_volume(context.node, volume).await?,
    ))
}

/// Puts what is sent in place of what a volume of this node has.
pub(in crate::api) async fn restore_volume(
    State(context): State<DoorContext>,
    Query(pairs): Query<Vec<(String, String)>>,
    request: Request,
) -> Answer<Json<()>> {
    let volume = volume_of(&pairs)?;
    let bytes = tar_body(request.into_body());
    context.door.restore_volume(context.node, volume, bytes).await?;
    Ok(Json(()))
}

fn volume_of(pairs: &[(String, String)]) -> Answer<VolumeName> {
    let asked = pairs.iter().find(|(key, _)| key == "volume");
    let asked = asked.and_then(|(_, text)| serde_json::from_str::<VolumeName>(text).ok());
    asked.ok_or_else(|| ApiProblem::bad_request("`volume` says which volume"))
}
