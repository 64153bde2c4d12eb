//! Parameters and bodies, refused as problems.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use dhow_wire::ProblemCode;
use serde::de::DeserializeOwned;

use super::body;
use super::limits::JSON_BYTES_MAX;
use super::problem::{Answer, ApiProblem};

/// The query; unknown parameters are ignored.
pub(super) struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiProblem::bad_request(rejection.body_text())),
        }
    }
}

/// The parameters in the path.
pub(super) struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiProblem::bad_request(rejection.body_text())),
        }
    }
}

/// A JSON body with the bytes that it was read from.
pub(super) struct Json<T> {
    pub value: T,
    pub bytes: Bytes,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiProblem> {
        check_media_type(request.headers(), &["application/json"])?;
        let bytes = read(request, JSON_BYTES_MAX).await?;
        let value = parse(&bytes)?;
        Ok(Self { value, bytes })
    }
}

/// A JSON body that may be left out, or `null`.
pub(super) struct OptionalJson<T> {
    pub value: T,
    pub bytes: Bytes,
}

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiProblem> {
        let checked = check_media_type(request.headers(), &["application/json"]);
        let bytes = read(request, JSON_BYTES_MAX).await?;
        if bytes.is_empty() {
            let value = T::default();
            return Ok(Self { value, bytes });
        }
        checked?;
        let value = parse::<Option<T>>(&bytes)?.unwrap_or_default();
        Ok(Self { value, bytes })
    }
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => ApiProblem::invalid(format!("the body does not fit: {error}")),
        serde_json::error::Category::Syntax
        | serde_json::error::Category::Eof
        | serde_json::error::Category::Io => ApiProblem::bad_request(format!("the body is no JSON: {error}")),
    })
}

/// Refuses a body that says to be something else. One that says nothing does not get here, and where there is none
/// nothing has to be said.
pub(super) fn check_media_type(headers: &HeaderMap, taken: &[&str]) -> Answer<()> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let text = value.to_str().unwrap_or_default();
    let media = text.split(';').next().unwrap_or_default().trim();
    if taken.iter().any(|taken| media.eq_ignore_ascii_case(taken)) {
        return Ok(());
    }
    let detail = format!("send the body with `Content-Type: {}`", taken.join("` or `"));
    Err(ApiProblem::new(ProblemCode::UnsupportedMediaType, detail))
}

/// The whole body, up to a limit.
pub(super) async fn read(request: Request, bytes_max: usize) -> Answer<Bytes> {
    let too_large = || {
        ApiProblem::new(
            ProblemCode::TooLarge,
            format!("the body may have {bytes_max} bytes at most"),
        )
    };
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > bytes_max as u64) {
        return Err(too_large());
    }
    let read = axum::body::to_bytes(request.into_body(), bytes_max).await;
    read.map_err(|error| {
        let inner = error.into_inner();
        match inner.downcast_ref::<http_body_util::LengthLimitError>() {
            Some(_) => too_large(),
            None if body::is_late(inner.as_ref()) => {
                ApiProblem::new(ProblemCode::RequestTimeout, body::Late.to_string())
            }
            None => ApiProblem::bad_request("the body did not come whole"),
        }
    })
}

/// The body as text.
pub(super) fn text(bytes: &[u8]) -> Answer<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        ApiProblem::bad_request(format!(
            "the body is not UTF-8: byte {} does not fit",
            error.valid_up_to()
        ))
    })
}
