//! `/secrets`: names go out, values only come in.

use axum::Json;
use axum::extract::{Request, State};
use dhow_core::acme;
use dhow_core::command::{ClusterCommand, Command, RequestId};
use dhow_core::registries;
use dhow_core::spec::check::secret_name_problem;
use dhow_wire::ProblemCode;
use dhow_wire::api::{SECRET_BYTES_MAX, SecretInfo, WriteDone};

use super::caller::Caller;
use super::context::Context;
use super::extract::{Path, check_media_type, read};
use super::problem::{Answer, ApiProblem};

/// The names of the secrets.
#[utoipa::path(get, path = "/api/v1/secrets", tag = "secrets", responses((status = 200, body = Vec<SecretInfo>)))]
pub(super) async fn list(State(context): State<Context>) -> Json<Vec<SecretInfo>> {
    let state = context.manager().state();
    // The cluster's own are nobody's to set or remove.
    let of_people = state
        .secrets
        .iter()
        .filter(|(name, _)| !acme::is_own(name) && !registries::is_own(name));
    let all = of_people.map(|(name, secret)| SecretInfo {
        name: name.to_string(),
        revision: secret.version,
    });
    Json(all.collect())
}

/// Sets a secret: the body is its value, as it is.
#[utoipa::path(
    put, path = "/api/v1/secrets/{name}", tag = "secrets",
    params(("name" = String, Path, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length = 63)),
    request_body(content = super::openapi::SecretValue, content_type = "application/octet-stream"),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn set(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Answer<Json<WriteDone>> {
    if let Some((message, hint)) = secret_name_problem(&name) {
        return Err(ApiProblem::invalid(format!("{message}; {hint}")));
    }
    check_media_type(request.headers(), &["application/octet-stream"])?;
    let value = read(request, SECRET_BYTES_MAX).await?;
    if value.is_empty() {
        return Err(ApiProblem::invalid(
            "the body is the secret's value, and it is empty",
        ));
    }
    let secrets = &context.api.secrets;
    let sealed = secrets.seal(&name, &value);
    let sealed = sealed.map_err(|error| ApiProblem::new(ProblemCode::Internal, error.to_string()))?;
    // The plain hash of a short secret would give it away to whoever reads the log.
    let request = caller.request_id(&secrets.fingerprint(&value));
    let command = ClusterCommand::SetSecret {
        name: name.into(),
        sealed: sealed.into(),
    };
    write(&context, command, request).await
}

/// Removes a secret. What runs keeps the value that it was started with.
#[utoipa::path(
    delete, path = "/api/v1/secrets/{name}", tag = "secrets", params(("name" = String, Path)),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn remove(
    State(context): State<Context>,
    Path(name): Path<String>,
    caller: Caller,
) -> Answer<Json<WriteDone>> {
    if secret_name_problem(&name).is_some() {
        let shown: String = name.chars().take(80).collect();
        return Err(ApiProblem::not_found(format!("there is no secret `{shown}`")));
    }
    let request = caller.request_id(&[]);
    let command = ClusterCommand::RemoveSecret { name: name.into() };
    write(&context, command, request).await
}

async fn write(
    context: &Context,
    command: ClusterCommand,
    request: Option<RequestId>,
) -> Answer<Json<WriteDone>> {
    let applied = context.write(Command::Cluster(command), request).await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}
