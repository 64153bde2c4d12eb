//! `/tokens`: with which people and programs call this API from elsewhere, and all of them in one list. A token is shown once, when it is made.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use dhow_core::command::{ClusterCommand, Command};
use dhow_core::ids::DeploymentName;
use dhow_core::state::{ApiRole, ApiToken};
use dhow_wire::AccessToken;
use dhow_wire::api::{
    TOKEN_NAME_CHARS_MAX, TokenCreateRequest, TokenCreated, TokenInfo, TokenKind, TokenRole, WriteDone,
};

use super::caller::Caller;
use super::context::Context;
use super::deployments::checked;
use super::extract::{self, Path};
use super::limits::TOKEN_TTL_SECS_MAX;
use super::problem::{Answer, ApiProblem};
use super::worker_tokens;

/// The tokens, without what they prove themselves with.
#[utoipa::path(get, path = "/api/v1/tokens", tag = "tokens", responses((status = 200, body = Vec<TokenInfo>)))]
pub(super) async fn list(State(context): State<Context>) -> Json<Vec<TokenInfo>> {
    let (state, now) = (context.manager().state(), context.wall_unix_secs());
    let of_api = state.api_tokens.iter().map(|(id, token)| TokenInfo {
        id: id.to_string(),
        name: token.name.to_string(),
        role: match token.role {
            ApiRole::Admin => TokenKind::Admin,
            ApiRole::Read => TokenKind::Read,
            ApiRole::Deploy(_) => TokenKind::Deploy,
        },
        deployment: token.role.deployment().map(ToString::to_string),
        created_unix_secs: Some(token.created_unix_secs),
        expires_unix_secs: token.expires_unix_secs,
        expired: token.is_expired(now),
        uses: None,
        uses_left: None,
        revoked: false,
    });
    let of_workers = state.tokens.iter();
    let of_workers = of_workers.map(|(nonce, token)| worker_tokens::info(nonce, token, now));
    Json(of_api.chain(of_workers).collect())
}

/// Makes a token. This answer alone has it.
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "tokens", request_body = TokenCreateRequest,
    responses((status = 200, body = TokenCreated))
)]
pub(super) async fn create(
    State(context): State<Context>,
    caller: Caller,
    extract::Json { value, bytes }: extract::Json<TokenCreateRequest>,
) -> Answer<Json<TokenCreated>> {
    let now = context.wall_unix_secs();
    let request = caller.request_id(&bytes);
    let token = draw(&context, request.as_ref());
    let kept = ApiToken {
        hash: token.secret_hash(),
        role: role(&value)?,
        name: name(&value)?,
        created_unix_secs: now,
        expires_unix_secs: end(now, value.ttl_secs)?,
    };
    let id: Arc<str> = token.id().into();
    let command = ClusterCommand::IssueApiToken {
        id: Arc::clone(&id),
        token: Arc::new(kept),
    };
    context.write(Command::Cluster(command), request).await?;
    Ok(Json(TokenCreated {
        id: id.to_string(),
        token: token.reveal(),
    }))
}

/// Revokes a token of either kind: from then on it is refused.
#[utoipa::path(
    delete, path = "/api/v1/tokens/{id}", tag = "tokens", params(("id" = String, Path)),
    responses((status = 200, body = WriteDone))
)]
pub(super) async fn revoke(
    State(context): State<Context>,
    Path(id): Path<String>,
    caller: Caller,
) -> Answer<Json<WriteDone>> {
    let state = context.manager().state();
    let request = caller.request_id(&[]);
    let is_known = state.api_tokens.contains_key(id.as_str()) || state.tokens.contains_key(id.as_str());
    // A retry whose first attempt was done is answered as that was, although the token is gone by now.
    let was_done = request
        .as_ref()
        .is_some_and(|known| state.requests.contains_key(&known.request));
    if !is_known && !was_done {
        let shown: String = id.chars().take(80).collect();
        return Err(ApiProblem::not_found(format!(
            "there is no token `{shown}`; `dhow token ls` lists those that there are"
        )));
    }
    let command = match state.tokens.contains_key(id.as_str()) {
        true => ClusterCommand::RevokeToken { nonce: id.into() },
        false => ClusterCommand::RevokeApiToken { id: id.into() },
    };
    let applied = context.write(Command::Cluster(command), request).await?;
    Ok(Json(WriteDone {
        state_revision: applied.revision.0,
    }))
}

/// Where a retry of the request can be known, its token is made of that and of a key which only the servers have: an
/// answer that was lost on its way comes again.
fn draw(context: &Context, request: Option<&dhow_core::command::RequestId>) -> AccessToken {
    let seed = match request {
        Some(id) => {
            let (principal, key) = (&id.request.principal, &id.request.key);
            let hash = blake3::Hash::from_bytes(id.body_hash).to_hex();
            let text = format!("API token\0{principal}\0{key}\0{hash}");
            context.api.secrets.fingerprint(text.as_bytes())
        }
        None => rand::random(),
    };
    let secret = blake3::derive_key("dhow 1 secret of an API token", &seed);
    let [a, b, c, d, e, f, g, h, ..] = blake3::derive_key("dhow 1 id of an API token", &seed);
    AccessToken::new([a, b, c, d, e, f, g, h], secret, context.ca)
}

fn role(asked: &TokenCreateRequest) -> Answer<ApiRole> {
    match (asked.role, asked.deployment.as_deref()) {
        (TokenRole::Admin, None) => Ok(ApiRole::Admin),
        (TokenRole::Read, None) => Ok(ApiRole::Read),
        (TokenRole::Deploy, Some(name)) => Ok(ApiRole::Deploy(checked(DeploymentName::new(name))?)),
        (TokenRole::Deploy, None) => Err(ApiProblem::invalid(
            "a token of the role `deploy` is for one deployment: name it in `deployment`",
        )),
        (TokenRole::Admin | TokenRole::Read, Some(_)) => Err(ApiProblem::invalid(
            "only a token of the role `deploy` is for one deployment: leave `deployment` out",
        )),
    }
}

fn name(asked: &TokenCreateRequest) -> Answer<Arc<str>> {
    let Some(name) = &asked.name else {
        return Ok(match asked.role {
            TokenRole::Admin => "admin".into(),
            TokenRole::Read => "read".into(),
            TokenRole::Deploy => "deploy".into(),
        });
    };
    let fits = (1..=TOKEN_NAME_CHARS_MAX).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte));
    if !fits {
        return Err(ApiProblem::invalid(format!(
            "the name of a token has 1 to {TOKEN_NAME_CHARS_MAX} letters, digits and `._@-`, and begins with a letter \
             or a digit"
        )));
    }
    Ok(name.as_str().into())
}

fn end(now_unix_secs: i64, ttl_secs: Option<u64>) -> Answer<Option<i64>> {
    let Some(ttl_secs) = ttl_secs else {
        return Ok(None);
    };
    let ttl = i64::try_from(ttl_secs).ok();
    let ttl = ttl.filter(|_| (1..=TOKEN_TTL_SECS_MAX).contains(&ttl_secs));
    let Some(ttl) = ttl else {
        return Err(ApiProblem::invalid(format!(
            "a token is good for 1 to {TOKEN_TTL_SECS_MAX} seconds, or for ever without `ttl_secs`"
        )));
    };
    Ok(Some(now_unix_secs.saturating_add(ttl)))
}
