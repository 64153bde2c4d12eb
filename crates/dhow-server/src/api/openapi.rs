//! The description of the API. What every route has in common is added here: the problems that it may answer, and
//! the header that makes a retried write safe.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use axum::http::header;
use axum::response::IntoResponse;
use bytes::Bytes;
use dhow_wire::Problem;
use dhow_wire::api::{EventDocument, ExecExit, LogRecord, Progress, ProgressResult, PullProgress};
use dhow_wire::problem::PROBLEM_MEDIA_TYPE;
use serde::Serialize;
use utoipa::openapi::path::{HttpMethod, Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{
    ContentBuilder, ObjectBuilder, OpenApi as Document, Ref, RefOr, Required, ResponseBuilder, Schema, Type,
};
use utoipa::{OpenApi, ToSchema};

use super::limits::KEY_CHARS_MAX;
use crate::gateway::WorkerRoutes;

/// A deployment file. Whatever breaks its rules is answered with 422 and all findings.
#[derive(Serialize, ToSchema)]
pub(super) struct DeploymentFile {
    /// `v1`.
    #[schema(pattern = "^v1$")]
    version: String,
    #[schema(pattern = "^[a-z][a-z0-9-]{1,61}[a-z0-9]$")]
    deployment: String,
    /// Services by name.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    services: BTreeMap<String, serde_json::Value>,
    /// Configs by name: each has `content`, or `content_base64` for what is no text.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    #[serde(default)]
    configs: BTreeMap<String, serde_json::Value>,
}

/// One event of a stream. Lines that begin with a colon keep the connection alive and are no events.
#[derive(Serialize, ToSchema)]
pub(super) struct ServerSentEvent {
    event: String,
    /// A JSON document.
    data: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    id: Option<String>,
}

/// The value of a secret: any bytes.
#[derive(Serialize, ToSchema)]
#[schema(min_length = 1, max_length = 65536)]
pub(super) struct SecretValue(String);

/// A backup: bytes that only `dhow cluster restore` reads.
#[derive(Serialize, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub(super) struct BackupFile(Vec<u8>);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Dhow",
        description = "The API of Dhow's control plane. Errors are `application/problem+json` with a stable `code`."
    ),
    // Bodies of streams are named by no route.
    components(schemas(
        Problem, Progress, ProgressResult, EventDocument, LogRecord, PullProgress, ExecExit
    ))
)]
struct Head;

pub(super) fn head() -> Document {
    Head::openapi()
}

/// This description.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "server",
    responses((status = 200, body = serde_json::Value))
)]
pub(super) async fn describe() -> impl IntoResponse {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    // The document is texts and numbers, which can always be written.
    let make = || serde_json::to_vec(&document()).unwrap_or_default().into();
    let bytes = DOCUMENT.get_or_init(make).clone();
    ([(header::CONTENT_TYPE, "application/json")], bytes)
}

/// The whole document.
pub fn document() -> Document {
    let mut document = super::router::described().into_openapi();
    document.merge(WorkerRoutes::openapi());
    complete(document)
}

/// Statuses that any call may be answered with.
const ALWAYS: &[(&str, &str)] = &[
    ("400", "The request cannot be read"),
    (
        "401",
        "Over TCP: a valid token is needed, or a certificate of the cluster",
    ),
    (
        "403",
        "Not with this token, not from a web page, and not by another host's name",
    ),
    ("404", "There is no such thing"),
    ("405", "This address does not take that method"),
    ("500", "A bug, or a disk that fails"),
    (
        "503",
        "Busy, shutting down, or without a leader; `Retry-After` says when to try again",
    ),
    ("default", "Any other problem"),
];

/// Statuses of calls that have a body.
const WITH_BODY: &[(&str, &str)] = &[
    ("408", "The body did not come in time"),
    ("413", "The body is too large"),
    (
        "415",
        "The body is of a kind that is not taken, or does not say which",
    ),
    ("422", "The body breaks rules; `findings` says which"),
];

/// Statuses of calls that change something or reach a node.
const OF_WRITES: &[(&str, &str)] = &[
    (
        "409",
        "The present state does not allow it, or the idempotency key was used for another request",
    ),
    ("422", "What was asked breaks rules"),
    ("501", "This host cannot do that"),
    ("502", "The node does not answer"),
    ("504", "It is not known whether it was done"),
];

/// Adds what every route has in common.
fn complete(mut document: Document) -> Document {
    for (path, item) in &mut document.paths.paths {
        let operations = [
            (HttpMethod::Get, &mut item.get),
            (HttpMethod::Put, &mut item.put),
            (HttpMethod::Post, &mut item.post),
            (HttpMethod::Delete, &mut item.delete),
        ];
        for (method, operation) in operations {
            if let Some(operation) = operation {
                complete_operation(path, method, operation);
            }
        }
    }
    document
}

fn complete_operation(path: &str, method: HttpMethod, operation: &mut Operation) {
    let writes = !matches!(method, HttpMethod::Get);
    operation.operation_id = Some(operation_id(path, &method));
    let mut problems: Vec<(&str, &str)> = ALWAYS.to_vec();
    if operation.request_body.is_some() {
        problems.extend(WITH_BODY);
    }
    if writes || path == "/api/v1/images" {
        problems.extend(OF_WRITES);
    }
    if path == "/api/v1/events" {
        problems.push(("410", "That revision is no longer kept"));
    }
    for (status, description) in problems {
        let responses = &mut operation.responses.responses;
        responses
            .entry(status.to_owned())
            .or_insert_with(|| RefOr::T(problem(description)));
    }
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            never_null(parameter);
        }
    }
    let keyed = writes
        && !path.contains("/images")
        && !path.ends_with("/plan")
        && !path.ends_with("/exec")
        && !path.contains("/members")
        && !path.contains("/workers/");
    if keyed {
        operation
            .parameters
            .get_or_insert_default()
            .push(RefOr::T(key_header()));
    }
}

/// A parameter that may be left out is not `null` when it is there.
fn never_null(parameter: &mut Parameter) {
    let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema else {
        return;
    };
    if let SchemaType::Array(types) = &object.schema_type
        && let Some(kind) = types.iter().find(|kind| **kind != Type::Null)
    {
        object.schema_type = SchemaType::Type(kind.clone());
    }
}

/// `get_deployments_name_history`: names of handlers are not unique, addresses are.
fn operation_id(path: &str, method: &HttpMethod) -> String {
    let method = match method {
        HttpMethod::Get => "get",
        HttpMethod::Put => "put",
        HttpMethod::Delete => "delete",
        HttpMethod::Post | HttpMethod::Options | HttpMethod::Head | HttpMethod::Patch | HttpMethod::Trace => {
            "post"
        }
    };
    let words = path.strip_prefix("/api/v1").unwrap_or(path);
    let is_word = |c: char| c.is_ascii_alphanumeric();
    let words = words.split(|c| !is_word(c)).filter(|word| !word.is_empty());
    let all: Vec<&str> = std::iter::once(method).chain(words).collect();
    all.join("_")
}

fn problem(description: &str) -> utoipa::openapi::Response {
    let schema = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM_MEDIA_TYPE, content)
        .build()
}

fn key_header() -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[!-~]+$"))
        .max_length(Some(KEY_CHARS_MAX))
        .build();
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "Makes a retry safe: the same key with the same request is answered and not done again",
        ))
        .schema(Some(schema))
        .build()
}
