//! Every error as its answer.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use dhow_wire::problem::PROBLEM_MEDIA_TYPE;
use dhow_wire::{Findings, Problem, ProblemCode};

use crate::net::node_door::DoorError;
use crate::plane::runtime::{InboxError, WriteError};
use crate::plane::services::NoSuchName;

/// A problem that a handler ends with.
#[derive(Debug)]
pub(super) struct ApiProblem(pub Box<Problem>);

pub(super) type Answer<T> = Result<T, ApiProblem>;

impl ApiProblem {
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code, detail)))
    }

    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::BadRequest, detail)
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::InvalidSpec, detail)
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ProblemCode::NotFound, detail)
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response<Body> {
        // A problem is texts and numbers, which can always be written.
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        // The codes have valid numbers.
        *response.status_mut() =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(code) = ProblemCode::from_text(&self.0.code) {
            // For whoever stands between this and the caller.
            response.extensions_mut().insert(code);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_MEDIA_TYPE));
        if let Some(secs) = self.0.retry_after_secs {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
        }
        response
    }
}

impl From<Problem> for ApiProblem {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<NoSuchName> for ApiProblem {
    fn from(error: NoSuchName) -> Self {
        Problem::from(error).into()
    }
}

impl From<DoorError> for ApiProblem {
    fn from(error: DoorError) -> Self {
        Self(Box::new(error.into()))
    }
}

impl From<InboxError> for ApiProblem {
    fn from(error: InboxError) -> Self {
        WriteError::from(error).into()
    }
}

impl From<WriteError> for ApiProblem {
    fn from(error: WriteError) -> Self {
        Problem::from(error).into()
    }
}

impl From<Findings> for ApiProblem {
    fn from(findings: Findings) -> Self {
        let told = findings.list().iter().map(|finding| {
            let place = match (finding.line, finding.column) {
                (Some(line), Some(column)) => format!("{}:{line}:{column}: ", finding.file),
                (Some(_), None) | (None, _) => format!("{}: ", finding.file),
            };
            let path = match finding.path.as_str() {
                "" => String::new(),
                path => format!("{path}: "),
            };
            let hint = finding
                .hint
                .as_ref()
                .map(|hint| format!("; {hint}"))
                .unwrap_or_default();
            format!("{place}{path}{}{hint}", finding.message)
        });
        let problem = Problem::new(ProblemCode::InvalidSpec, findings.summary());
        problem.with_findings(told.collect()).into()
    }
}
