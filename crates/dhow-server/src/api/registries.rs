//! `/registries`: credentials come in, names alone go out.

use axum::Json;
use axum::extract::State;
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::registries::{self, SINCE_LEVEL};
use dhow_wire::ProblemCode;
use dhow_wire::api::{LOGIN_CHARS_MAX, RegistryInfo, RegistryLogin, WriteDone};

use super::caller::Caller;
use super::context::Context;
use super::extract::{self, Path};
use super::problem::{Answer, ApiProblem};

/// The registries that the cluster has credentials for.
#[utoipa::path(get, path = "/api/v1/registries", tag = "registries", responses((status = 200, body = Vec<RegistryInfo>)))]
pub(super) async fn list(State(context): State<Context>) -> Json<Vec<RegistryInfo>> {
    let state = context.manager().state();
    let all = state.secrets.iter().filter_map(|(name, secret)| {
        Some(RegistryInfo {
            registry: registries::host_in(name)?.to_owned(),
            revision: secret.version,
        })
    });
    Json(all.collect())
}

/// Keeps credentials for a registry, for the nodes that pull from it. They are not tried.
#[utoipa::path(
    put, path = "/api/v1/registries/{host}", tag = "registries", params(("host" = String, Path)),
    request_body = RegistryLogin, responses((status = 200, body = WriteDone))
)]
pub(super) async fn login(
    State(context): State<Context>,
    Path(host): Path<String>,
    caller: Caller,
    body: extract::Json<RegistryLogin>,
) -> Answer<Json<WriteDone>> {
    let host = known(&host)?;
    let RegistryLogin { user, password } = &body.value;
    let fits = |text: &str| (1..=LOGIN_CHARS_MAX).contains(&text.len());
    if !fits(user) || !fits(password) || user.contains(':') {
        return Err(ApiProblem::invalid(format!(
            "a login has a user without `:` and a password, each of 1 to {LOGIN_CHARS_MAX} bytes"
        )));
    }
    let level = context.manager().state().feature_level;
    if level < SINCE_LEVEL {
        let detail =
            "servers of an older version in this cluster would not keep it to themselves: upgrade them first";
        return Err(ApiProblem::new(ProblemCode::Refused, detail));
    }
    let name = registries::secret_of(&host);
    let internal = |text: String| ApiProblem::new(ProblemCode::Internal, text);
    let value = serde_json::to_vec(&body.value).map_err(|error| internal(error.to_string()))?;
    let secrets = &context.api.secrets;
    let sealed = secrets
        .seal(&name, &value)
        .map_err(|error| internal(error.to_string()))?;
    // The plain hash of a short password would give it away to whoever reads the log.
    let request = caller.request_id(&secrets.fingerprint(&value));
    let command = ClusterCommand::SetSecret {
        name: name.into(),
        sealed: sealed.into(),
    };
    write(&context, command, request).await
}

/// Forgets the credentials of a registry. A pull that is under way goes on with them.
#[utoipa::path(
    delete, path = "/api/v1/registries/{host}", tag = "registries", params(("host" = String, Path)),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn logout(
    State(context): State<Context>,
    Path(host): Path<String>,
    caller: Caller,
) -> Answer<Json<WriteDone>> {
    let host = known(&host)?;
    let name = registries::secret_of(&host);
    if !context.manager().state().secrets.contains_key(name.as_str()) {
        let detail =
            format!("the cluster has no credentials for `{host}`; `dhow login --ls` lists those there are");
        return Err(ApiProblem::not_found(detail));
    }
    let request = caller.request_id(&[]);
    let command = ClusterCommand::RemoveSecret { name: name.into() };
    write(&context, command, request).await
}

fn known(host: &str) -> Answer<String> {
    let wrong = || {
        ApiProblem::invalid("a registry is written as its host, such as `ghcr.io` or `registry.example:5000`")
    };
    registries::parse_host(host).ok_or_else(wrong)
}

async fn write(
    context: &Context,
    command: ClusterCommand,
    request: Option<dhow_core::command::RequestId>,
) -> Answer<Json<WriteDone>> {
    let applied = context.write(Command::Cluster(command), request).await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}
