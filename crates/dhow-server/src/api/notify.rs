//! `/notify`: who is told of what goes wrong.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::state::{Notice, NotifySettings, NotifyTarget};
use dhow_wire::api::{NoticeKind, NotifySetRequest, NotifyStatus, WriteDone};
use dhow_wire::{ProblemCode, source_name_problem};

use super::caller::Caller;
use super::context::Context;
use super::extract::{self, Path};
use super::problem::{Answer, ApiProblem};
use crate::plane::notify::{Address, NoticeDocument};
use crate::plane::runtime::EventId;

/// A key that somebody could guess signs nothing.
const KEY_BYTES_MIN: usize = 8;
const KEY_BYTES_MAX: usize = 256;

/// The targets, by name, and how they fare.
#[utoipa::path(get, path = "/api/v1/notify", tag = "notify", responses((status = 200, body = Vec<NotifyStatus>)))]
pub(super) async fn list(State(context): State<Context>) -> Json<Vec<NotifyStatus>> {
    let state = context.manager().state();
    let all = state.notify.iter();
    Json(all.map(|(name, target)| status(&context, name, target)).collect())
}

fn status(context: &Context, name: &str, target: &NotifyTarget) -> NotifyStatus {
    let figures = context.api.notify.board.of(name);
    let told = EventId {
        revision: target.done.revision,
        part: target.done.part,
    };
    NotifyStatus {
        name: name.to_owned(),
        address: target.settings.shown.to_string(),
        on: target.settings.on.iter().map(|notice| kind(*notice)).collect(),
        sent: figures.sent,
        failed_attempts: figures.failed_attempts,
        given_up: figures.given_up,
        last_sent_unix_secs: figures.last_sent_unix_secs,
        told_up_to: told.to_string(),
        problem: figures.problem,
    }
}

fn kind(notice: Notice) -> NoticeKind {
    match notice {
        Notice::RolloutFailed => NoticeKind::RolloutFailed,
        Notice::RolloutReverted => NoticeKind::RolloutReverted,
        Notice::NodeLost => NoticeKind::NodeLost,
        Notice::RunFailed => NoticeKind::RunFailed,
        Notice::Alarm => NoticeKind::Alarm,
    }
}

fn notice(kind: NoticeKind) -> Notice {
    match kind {
        NoticeKind::RolloutFailed => Notice::RolloutFailed,
        NoticeKind::RolloutReverted => Notice::RolloutReverted,
        NoticeKind::NodeLost => Notice::NodeLost,
        NoticeKind::RunFailed => Notice::RunFailed,
        NoticeKind::Alarm => Notice::Alarm,
    }
}

/// Tells somebody from now on. One of that name gets another address, key or choice, and goes on where it was.
#[utoipa::path(
    put, path = "/api/v1/notify/{name}", tag = "notify",
    params(("name" = String, Path, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 63)),
    request_body = NotifySetRequest, responses((status = 200, body = WriteDone))
)]
pub(super) async fn set(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    body: extract::Json<NotifySetRequest>,
) -> Answer<Json<WriteDone>> {
    // Names of targets are written as those of sources.
    if let Some((message, hint)) = source_name_problem(&name) {
        return Err(ApiProblem::invalid(format!("{message}: {hint}")));
    }
    let asked = &body.value;
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&asked.key.len()) {
        return Err(ApiProblem::invalid(format!(
            "the `key` of the signatures has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes"
        )));
    }
    let address = Address::new(&asked.url, &asked.key, asked.plain_http).map_err(ApiProblem::invalid)?;
    let sealed = address.seal(&context.api.secrets, &name);
    let sealed = sealed.map_err(|error| ApiProblem::new(ProblemCode::Internal, error.to_string()))?;
    let on: BTreeSet<Notice> = asked.on.iter().map(|kind| notice(*kind)).collect();
    let settings = NotifySettings {
        shown: address.shown().into(),
        sealed: sealed.into(),
        on: match on.is_empty() {
            true => Notice::ALL.into(),
            false => on,
        },
    };
    let command = ClusterCommand::SetNotify {
        name: name.into(),
        settings,
    };
    // The plain hash of a short key would give it away to whoever reads the log.
    let request = caller.request_id(&context.api.secrets.fingerprint(&body.bytes));
    let applied = context.write(Command::Cluster(command), request).await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}

/// Tells it no more.
#[utoipa::path(
    delete, path = "/api/v1/notify/{name}", tag = "notify", params(("name" = String, Path)),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn remove(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
) -> Answer<Json<WriteDone>> {
    let command = ClusterCommand::RemoveNotify { name: name.into() };
    let request = caller.request_id(&[]);
    let applied = context.write(Command::Cluster(command), request).await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}

/// Sends one notice now, once, and says whether it was taken.
#[utoipa::path(
    post, path = "/api/v1/notify/{name}/test", tag = "notify", params(("name" = String, Path)),
    responses((status = 200, body = NotifyStatus))
)]
pub(super) async fn test(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Answer<Json<NotifyStatus>> {
    let state = context.manager().state();
    let shown: String = name.chars().take(80).collect();
    let target = state.notify.get(name.as_str()).ok_or_else(|| {
        ApiProblem::not_found(format!(
            "nobody called `{shown}` is told; `dhow notify ls` lists who is"
        ))
    })?;
    let not_taken =
        |why: String| ApiProblem::new(ProblemCode::Failed, format!("the notice was not taken: {why}"));
    let address = Address::unseal(&context.api.secrets, &name, &target.settings.sealed);
    let address = address.map_err(|error| not_taken(error.told()))?;
    let cluster_id = state.cluster_id.as_deref().unwrap_or_default();
    let document = NoticeDocument::test(cluster_id, &name, rand::random());
    let sent = context
        .api
        .notify
        .post
        .send(&address, &document, context.wall_unix_secs());
    sent.await.map_err(|error| not_taken(error.told()))?;
    Ok(Json(status(&context, &name, target)))
}
