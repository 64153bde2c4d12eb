//! `/sources`: directories of signed deployment files that the cluster follows.

use axum::Json;
use axum::extract::State;
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::state::{SourceSettings, State as ClusterState};
use dhow_wire::api::{SourceAcceptRequest, SourceAddRequest, SourceStatus, SourceSynced, WriteDone};
use dhow_wire::manifest::{ManifestKey, Verdict};
use dhow_wire::{ProblemCode, source_name_problem};

use super::caller::Caller;
use super::context::Context;
use super::extract::{self, OptionalJson, Path};
use super::problem::{Answer, ApiProblem};
use crate::plane::runtime::{ManifestSource, ManifestSources, Purpose, WaitingSet};

/// The longest path that the kernel takes.
const DIR_BYTES_MAX: usize = 4_096;

/// The sources, by name.
#[utoipa::path(get, path = "/api/v1/sources", tag = "sources", responses((status = 200, body = Vec<SourceStatus>)))]
pub(super) async fn list(State(context): State<Context>) -> Json<Vec<SourceStatus>> {
    let state = context.manager().state();
    let sources = context.manager().view().sources();
    let all = sources.all(&state).into_iter();
    Json(all.map(|source| status(&state, sources, source)).collect())
}

fn status(state: &ClusterState, sources: &ManifestSources, source: ManifestSource) -> SourceStatus {
    let own = || {
        let all = state.deployments.values();
        all.filter(|known| known.owner() == Some(&source.name))
    };
    let last = sources.last_look(&source.name);
    SourceStatus {
        name: source.name.to_string(),
        dir: source.settings.place(),
        keys: source.keys().map(|key| key.to_string()).collect(),
        configured: source.configured,
        version: source.taken(state).map(|taken| taken.version),
        deployments: own().map(|known| known.name.to_string()).collect(),
        problem: last.problem,
        looked_unix_secs: last.looked_unix_secs,
        commit: source.commit(state).as_deref().map(str::to_owned),
        waiting_version: last.waiting.map(|waiting| waiting.version),
        suspended: own()
            .filter(|known| known.suspended.is_some())
            .map(|known| known.name.to_string())
            .collect(),
    }
}

/// Follows a directory that every server has. One of that name gets other keys, or another place.
#[utoipa::path(
    put, path = "/api/v1/sources/{name}", tag = "sources",
    params(("name" = String, Path, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 63)),
    request_body = SourceAddRequest, responses((status = 200, body = WriteDone))
)]
pub(super) async fn set(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    body: extract::Json<SourceAddRequest>,
) -> Answer<Json<WriteDone>> {
    if let Some((message, hint)) = source_name_problem(&name) {
        return Err(ApiProblem::invalid(format!("{message}: {hint}")));
    }
    let state = context.manager().state();
    let known = find(&context, &state, &name);
    if known.is_some_and(|known| known.configured) {
        return Err(configured(&name));
    }
    let settings = settings(&body.value)?;
    let command = ClusterCommand::SetSource {
        name: name.into(),
        settings,
    };
    let request = caller.request_id(&body.bytes);
    let applied = context.write(Command::Cluster(command), request).await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}

fn settings(request: &SourceAddRequest) -> Answer<SourceSettings> {
    let SourceAddRequest { dir, keys } = request;
    if !dir.starts_with('/') || dir.len() > DIR_BYTES_MAX || dir.contains('\0') {
        return Err(ApiProblem::invalid(
            "`dir` is the absolute path of a directory on the servers",
        ));
    }
    if keys.is_empty() || keys.len() > ClusterState::SOURCE_KEYS_MAX {
        let max = ClusterState::SOURCE_KEYS_MAX;
        return Err(ApiProblem::invalid(format!("a source has 1 to {max} `keys`")));
    }
    let read = |key: &String| {
        let known = ManifestKey::from_text(key).filter(|key| key.verifying().is_some());
        let shown: String = key.chars().take(80).collect();
        let wrong = format!(
            "`{shown}` is no public key: it is 64 hexadecimal digits, as `dhow source keygen` prints them"
        );
        known.map(|key| key.0).ok_or_else(|| ApiProblem::invalid(wrong))
    };
    let keys: Vec<[u8; 32]> = keys.iter().map(read).collect::<Answer<_>>()?;
    Ok(SourceSettings {
        dir: dir.as_str().into(),
        keys: keys.into(),
        remote: None,
        max_age_secs: None,
        hook_secret: None,
    })
}

fn find(context: &Context, state: &ClusterState, name: &str) -> Option<ManifestSource> {
    let all = context.manager().view().sources().all(state);
    all.into_iter().find(|source| &*source.name == name)
}

fn missing(name: &str) -> ApiProblem {
    let shown: String = name.chars().take(80).collect();
    ApiProblem::not_found(format!(
        "there is no source `{shown}`; `dhow source ls` lists those there are"
    ))
}

fn configured(name: &str) -> ApiProblem {
    let detail = format!("the source `{name}` is in the configuration of the servers: change it there");
    ApiProblem::new(ProblemCode::Refused, detail)
}

/// Follows it no longer. What it has brought stays.
#[utoipa::path(
    delete, path = "/api/v1/sources/{name}", tag = "sources", params(("name" = String, Path)),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn remove(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
) -> Answer<Json<WriteDone>> {
    let state = context.manager().state();
    if find(&context, &state, &name).is_some_and(|source| source.configured) {
        return Err(configured(&name));
    }
    let command = ClusterCommand::RemoveSource { name: name.into() };
    let request = caller.request_id(&[]);
    let applied = context.write(Command::Cluster(command), request).await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}

/// Looks at it now and puts what is new in force.
#[utoipa::path(
    post, path = "/api/v1/sources/{name}/sync", tag = "sources", params(("name" = String, Path)),
    responses((status = 200, body = SourceSynced))
)]
pub(super) async fn sync(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Answer<Json<SourceSynced>> {
    look(&context, name, Purpose::Follow, None).await.map(Json)
}

/// Puts the set in force once more, and so tries again what was taken back.
#[utoipa::path(
    post, path = "/api/v1/sources/{name}/retry", tag = "sources", params(("name" = String, Path)),
    responses((status = 200, body = SourceSynced))
)]
pub(super) async fn retry(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Answer<Json<SourceSynced>> {
    look(&context, name, Purpose::Retry, None).await.map(Json)
}

/// Says yes to the set that waits for it.
#[utoipa::path(
    post, path = "/api/v1/sources/{name}/accept", tag = "sources", params(("name" = String, Path)),
    request_body = Option<SourceAcceptRequest>, responses((status = 200, body = SourceSynced))
)]
pub(super) async fn accept(
    State(context): State<Context>,
    Path(name): Path<String>,
    body: OptionalJson<SourceAcceptRequest>,
) -> Answer<Json<SourceSynced>> {
    let sources = context.manager().view().sources();
    if sources.last_look(&name).waiting.is_none() {
        // This server may not have looked yet.
        let _ = look(&context, name.clone(), Purpose::Follow, None).await;
    }
    let waiting = sources.last_look(&name).waiting;
    let asked = body.value.version;
    let waiting = waiting.filter(|waiting| asked.is_none_or(|asked| asked == waiting.version));
    let waiting = waiting.ok_or_else(|| {
        find(&context, &context.manager().state(), &name)
            .map(|_| nothing_waits(&name, asked))
            .unwrap_or_else(|| missing(&name))
    })?;
    look(&context, name, Purpose::Accept, Some(waiting))
        .await
        .map(Json)
}

fn nothing_waits(name: &str, asked: Option<u64>) -> ApiProblem {
    let what = asked.map_or("nothing".to_owned(), |version| format!("no version {version}"));
    let detail = format!("{what} of the source `{name}` waits for a yes; `dhow source ls` says what does");
    ApiProblem::new(ProblemCode::Refused, detail)
}

async fn look(
    context: &Context,
    name: String,
    purpose: Purpose,
    only: Option<WaitingSet>,
) -> Answer<SourceSynced> {
    let state = context.manager().state();
    let source = find(context, &state, &name).ok_or_else(|| missing(&name))?;
    let now_unix_secs = context.wall_unix_secs();
    let sources = context.manager().view().sources();
    let taken = source.taken(&state);
    let looked = sources.look(&state, source, purpose, now_unix_secs).await;
    let verdict = looked.map_err(|error| ApiProblem::new(ProblemCode::Refused, error.reason()))?;
    let (version, changed) = match verdict {
        Verdict::Unchanged => (taken.map_or(0, |taken| taken.version), false),
        Verdict::Newer(set) => {
            let found = WaitingSet::of(&set);
            if only.is_some_and(|only| only != found) {
                let detail = format!(
                    "version {} is there by now: look at it with `dhow source ls`, and say yes again",
                    found.version
                );
                return Err(ApiProblem::new(ProblemCode::Refused, detail));
            }
            put_in_force(context, &name, found.version, set.into_command(now_unix_secs)).await?;
            (found.version, true)
        }
    };
    Ok(SourceSynced {
        name,
        version,
        changed,
    })
}

/// The poll may have been quicker with the same set: then it is in force as well.
async fn put_in_force(context: &Context, name: &str, version: u64, command: Command) -> Answer<()> {
    let Err(problem) = context.write(command, None).await else {
        return Ok(());
    };
    let state = context.manager().state();
    let taken = find(context, &state, name).and_then(|source| source.taken(&state));
    match taken.is_some_and(|taken| taken.version == version) {
        true => Ok(()),
        false => Err(problem),
    }
}
