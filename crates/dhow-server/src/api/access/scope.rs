//! What of the cluster a caller may know of: all of it, or the one deployment that its token is for.

use axum::RequestExt;
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use dhow_core::ids::DeploymentName;
use dhow_wire::ProblemCode;

use super::forbidden;
use crate::api::problem::{Answer, ApiProblem};

/// How a route meets callers whose token is for one deployment; declared where the route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum Reach {
    /// It is about the whole cluster, or more than such a token is for: they are refused.
    Whole,
    /// Its path names a deployment as `{name}`: they may ask about their own.
    Named,
    /// Its handler takes a [`Scope`], and leaves out or refuses what is not theirs.
    Judged,
    /// It tells nothing about what the cluster runs.
    Open,
}

/// What a caller may know of. Handlers of routes that are [`Reach::Judged`] take it as an extractor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::api) enum Scope {
    Whole,
    One(DeploymentName),
}

impl Reach {
    /// Refuses what the caller's token is not for.
    pub async fn check(self, scope: &Scope, request: &mut Request) -> Answer<()> {
        let Scope::One(own) = scope else {
            return Ok(());
        };
        match self {
            Self::Judged | Self::Open => Ok(()),
            Self::Whole => Err(beyond(own)),
            Self::Named => {
                let params = request.extract_parts::<RawPathParams>().await.ok();
                let name = params.iter().flatten().find(|(key, _)| *key == "name");
                scope.check(name.map_or("", |(_, name)| name))
            }
        }
    }
}

impl Scope {
    /// Refuses another deployment than the one that the token is for. Whether it exists is not told.
    pub fn check(&self, deployment: &str) -> Answer<()> {
        match self {
            Self::One(own) if own.as_str() != deployment => Err(ApiProblem::new(
                ProblemCode::Forbidden,
                format!("this token is for deployment `{own}` alone"),
            )),
            Self::One(_) | Self::Whole => Ok(()),
        }
    }

    /// Refuses what a token for one deployment is not for, where its route is also one of what it is for.
    pub fn check_whole(&self) -> Answer<()> {
        match self {
            Self::Whole => Ok(()),
            Self::One(own) => Err(beyond(own)),
        }
    }

    /// Whether something of this deployment, or of none, is told to the caller.
    pub fn tells(&self, deployment: Option<&str>) -> bool {
        match self {
            Self::Whole => true,
            Self::One(own) => deployment == Some(own.as_str()),
        }
    }
}

fn beyond(own: &DeploymentName) -> ApiProblem {
    forbidden(&format!(
        "this token is for deployment `{own}` alone: it deploys it and looks at it, and nothing else"
    ))
}

impl<S: Send + Sync> FromRequestParts<S> for Scope {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiProblem> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| {
            ApiProblem::new(
                ProblemCode::Internal,
                "nobody has said what the caller may know of",
            )
        })
    }
}
