//! Asks the API's own routes on behalf of whoever looks at the page: with their connection, their token or their session,
//! so that the API judges and records them as it does everybody else.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Request, Uri, header};
use axum::response::Response;
use dhow_wire::{Problem, ProblemCode};
use serde::de::DeserializeOwned;
use tower::ServiceExt;

use super::context::Page;
use super::limits::ANSWER_BYTES_MAX;
use super::viewer::Viewer;

/// A request of the API.
pub(super) struct Call {
    pub method: Method,
    /// Escaped, below `/api/v1/`, with its query.
    pub path: String,
    pub kind: &'static str,
    pub body: Bytes,
}

impl Call {
    pub fn get(path: String) -> Self {
        Self {
            method: Method::GET,
            path,
            kind: "",
            body: Bytes::new(),
        }
    }

    pub fn post(path: String, json: &serde_json::Value) -> Self {
        Self {
            method: Method::POST,
            path,
            kind: "application/json",
            body: json.to_string().into(),
        }
    }
}

/// What went wrong inside this process.
pub(super) fn failed(detail: &str) -> Problem {
    Problem::new(ProblemCode::Internal, detail)
}

impl Page {
    /// The answer as it comes.
    pub async fn open(&self, viewer: &Viewer, call: Call) -> Result<Response, Box<Problem>> {
        let uri = format!("/api/v1/{}", call.path).parse::<Uri>();
        let uri = uri.map_err(|_| Box::new(Problem::new(ProblemCode::BadRequest, "the address is none")))?;
        let mut request = Request::new(Body::from(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        if !call.kind.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(call.kind));
        }
        if let Some(authorization) = &viewer.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        let extensions = request.extensions_mut();
        if let Some(peer) = viewer.peer {
            extensions.insert(peer);
        }
        if let Some(visit) = &viewer.visit {
            extensions.insert(visit.clone());
        }
        if let Some((_, session)) = &viewer.session {
            extensions.insert(session.clone());
        }
        let answered = self.inside.routes.clone().oneshot(request).await;
        let response = answered.unwrap_or_else(|never| match never {});
        match response.status().is_success() {
            true => Ok(response),
            false => Err(problem(response).await),
        }
    }

    /// The whole answer.
    pub async fn ask(&self, viewer: &Viewer, call: Call) -> Result<Bytes, Box<Problem>> {
        let response = self.open(viewer, call).await?;
        let body = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
        body.map_err(|_| Box::new(failed("the answer is too long for a page")))
    }

    pub async fn ask_as<T: DeserializeOwned>(&self, viewer: &Viewer, call: Call) -> Result<T, Box<Problem>> {
        let bytes = self.ask(viewer, call).await?;
        serde_json::from_slice(&bytes).map_err(|_| Box::new(failed("the answer is of another version")))
    }
}

async fn problem(response: Response) -> Box<Problem> {
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
    let read = body.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    Box::new(read.unwrap_or_else(|| failed(&format!("the API answered {status}"))))
}
