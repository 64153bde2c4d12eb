//! `/sources`: places of signed deployment files that the cluster follows.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::state::{SourceSettings, State as ClusterState};
use dhow_wire::api::{SourceAcceptRequest, SourceAddRequest, SourceStatus, SourceSynced, WriteDone};
use dhow_wire::manifest::{FileHash, ManifestKey, Verdict};
use dhow_wire::{ProblemCode, source_name_problem};

use super::caller::Caller;
use super::context::Context;
use super::extract::{self, OptionalJson, Path};
use super::limits::HOOK_BYTES_MAX;
use super::problem::{Answer, ApiProblem};
use crate::plane::runtime::{HookProof, HookRefused, ManifestSource, ManifestSources, Purpose, WaitingSet};

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
        hook_refused_unix_secs: last.hook_refused_unix_secs,
    }
}

/// Follows a source. One of that name gets other keys, or another place.
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
    let written = request.written();
    if let Some(problem) = written.problems().into_iter().next() {
        let (field, message, hint) = (problem.field, problem.message, problem.hint);
        return Err(ApiProblem::invalid(format!("`{field}`: {message}; {hint}")));
    }
    let keys = &request.keys;
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
    Ok(written.settings(keys.into()))
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

/// Has it looked at now: for git servers. Whoever calls proves to know the source's `hook_secret`, and what the body says is
/// not read.
#[utoipa::path(
    post, path = "/api/v1/sources/{name}/hook", tag = "sources",
    params(
        ("name" = String, Path),
        ("X-Hub-Signature-256" = Option<String>, Header, description = "`sha256=` and the HMAC of the body"),
        ("X-Gitlab-Token" = Option<String>, Header, description = "The secret itself")
    ),
    responses((status = 202, description = "The source is looked at"))
)]
pub(super) async fn hook(
    State(context): State<Context>,
    Path(name): Path<String>,
    request: Request,
) -> Answer<StatusCode> {
    let headers = request.headers().clone();
    let body = extract::read(request, HOOK_BYTES_MAX).await?;
    let header = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let signature = header("x-hub-signature-256").and_then(|value| value.strip_prefix(b"sha256="));
    let signature = signature.map(|digits| {
        let text = str::from_utf8(digits).unwrap_or_default();
        // What are no digits is a signature of nothing.
        FileHash::from_text(text).map_or([0; 32], |signature| signature.0)
    });
    let proof = match (&signature, header("x-gitlab-token")) {
        (Some(signature), _) => Some(HookProof::Signature(signature)),
        (None, Some(token)) => Some(HookProof::Token(token)),
        (None, None) => None,
    };
    let now = (context.monotonic_ms(), context.wall_unix_secs());
    let sources = context.manager().view().sources();
    let called = sources.call(&context.manager().state(), &name, (proof, &body), now);
    match called {
        Ok(()) => Ok(StatusCode::ACCEPTED),
        Err(refused @ (HookRefused::NoProof | HookRefused::WrongProof)) => {
            Err(ApiProblem::new(ProblemCode::Unauthorized, refused.to_string()))
        }
        Err(refused @ HookRefused::TooOften) => Err(ApiProblem::new(ProblemCode::Busy, refused.to_string())),
    }
}
