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

use super::access::Scope;
use super::context::Context;
use super::extract::Query;
use super::feed;
use super::limits::{GREP_BYTES_MAX, LOG_TAIL_MAX};
use super::problem::{Answer, ApiProblem};
use crate::net::node_door::LineFilter;
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
    since_unix_us: Option<i64>,
    until_unix_us: Option<i64>,
    grep: Option<String>,
    #[serde(default)]
    previous: bool,
}

impl Params {
    fn lines(&self) -> Answer<LineFilter> {
        if self.follow && self.until_unix_us.is_some() {
            let why = "`until_unix_us` ends what `follow` goes on with: leave one of them out";
            return Err(ApiProblem::bad_request(why));
        }
        if self.follow && self.previous {
            let why = "`previous` is of a run that has ended: leave `follow` out";
            return Err(ApiProblem::bad_request(why));
        }
        if self.grep.as_ref().is_some_and(|text| text.len() > GREP_BYTES_MAX) {
            let why = format!("`grep` is a text of at most {GREP_BYTES_MAX} bytes");
            return Err(ApiProblem::bad_request(why));
        }
        Ok(LineFilter {
            since_unix_us: self.since_unix_us,
            until_unix_us: self.until_unix_us,
            grep: self.grep.clone().filter(|text| !text.is_empty()),
            previous: self.previous,
        })
    }
}

/// One [`LogRecord`] in each line. The tail comes in the order of time; what is new, as it comes.
#[utoipa::path(
    get, path = "/api/v1/logs", tag = "logs",
    params(
        ("deployment" = String, Query),
        ("name" = Option<String>, Query, description = "A service, or a replica's id; all where it is absent"),
        ("tail" = Option<u32>, Query, description = "The last so many lines; at most 10,000 and as many where it is absent"),
        ("follow" = Option<bool>, Query, description = "Whether to go on with what is written from then on"),
        ("since_unix_us" = Option<i64>, Query, description = "Lines that were written then or later, in microseconds since 1970"),
        ("until_unix_us" = Option<i64>, Query, description = "Lines that were written before; not with `follow`"),
        ("previous" = Option<bool>, Query, description = "Lines of the run before the newest one of each replica; not with `follow`"),
        ("grep" = Option<String>, Query, description = "Lines that have this text in them; what is left out does not count for `tail`")
    ),
    responses((status = 200, body = LogRecord, content_type = "application/x-ndjson"))
)]
pub(super) async fn stream(
    State(context): State<Context>,
    Query(params): Query<Params>,
    scope: Scope,
) -> Answer<Response> {
    scope.check(&params.deployment)?;
    let manager = context.manager().clone();
    let lines = params.lines()?;
    let within = params.name.filter(|name| !name.is_empty());
    let selected = select(&manager.state(), &params.deployment, within.as_deref())?;
    let tail = params.tail.unwrap_or(LOG_TAIL_MAX).min(LOG_TAIL_MAX);
    let reasons = match params.follow {
        true => Vec::new(),
        false => without_log(&manager.state(), &params.deployment, within.as_deref())?,
    };
    let mut follower = Follower::new(manager, params.deployment, within, params.follow, lines);
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
