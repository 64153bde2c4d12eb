//! `/logs`: lines of a deployment, a service or a replica, from whatever nodes they are on.

mod follower;
mod tail;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use dhow_wire::api::LogRecord;
use futures_util::StreamExt;
use serde::Deserialize;
use std::convert::Infallible;

use super::context::Context;
use super::extract::Query;
use super::feed;
use super::limits::LOG_TAIL_MAX;
use super::problem::Answer;
use crate::plane::services::{select, without_log};
use follower::Follower;

/// The query of `/logs`.
#[derive(Deserialize)]
pub(super) struct Params {
    deployment: String,
    name: Option<String>,
    tail: Option<usize>,
    #[serde(default)]
    follow: bool,
}

/// One [`LogRecord`] in each line. The tail comes in the order of time; what is new, as it comes.
#[utoipa::path(
    get, path = "/api/v1/logs", tag = "logs",
    params(
        ("deployment" = String, Query),
        ("name" = Option<String>, Query, description = "A service, or a replica's id; all where it is absent"),
        ("tail" = Option<u32>, Query, description = "The last so many lines; at most 10,000 and as many where it is absent"),
        ("follow" = Option<bool>, Query, description = "Whether to go on with what is written from then on")
    ),
    responses((status = 200, body = LogRecord, content_type = "application/x-ndjson"))
)]
pub(super) async fn stream(State(context): State<Context>, Query(params): Query<Params>) -> Answer<Response> {
    let manager = context.manager().clone();
    let within = params.name.filter(|name| !name.is_empty());
    let selected = select(&manager.state(), &params.deployment, within.as_deref())?;
    let tail = params.tail.unwrap_or(LOG_TAIL_MAX).min(LOG_TAIL_MAX);
    let reasons = match params.follow {
        true => Vec::new(),
        false => without_log(&manager.state(), &params.deployment, within.as_deref())?,
    };
    let mut follower = Follower::new(manager, params.deployment, within, params.follow);
    follower.tell(reasons);
    let records = feed::feed(context.end, move |feed| async move {
        for record in follower.tail(selected, tail).await {
            feed.send(record).await?;
        }
        while let Some(record) = follower.next().await {
            feed.send(record).await?;
        }
        Ok(())
    });
    let lines = records.map(|record| Ok::<Bytes, Infallible>(line(&record)));
    let media_type = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((media_type, Body::from_stream(lines)).into_response())
}

fn line(record: &LogRecord) -> Bytes {
    // A record is texts and numbers, which can always be written.
    let mut bytes = serde_json::to_vec(record).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}
