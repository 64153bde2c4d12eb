//! What is done on the page. Each form becomes one request of the API, which decides and records it; afterwards the page
//! that it came from is shown again.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use dhow_wire::api::Deployed;
use dhow_wire::{Problem, ProblemCode};
use serde_json::{Value, json};

use super::calls::Call;
use super::context::Page;
use super::document::failed;
use super::door::{Fields, back};
use super::format::escaped;
use super::html::query;
use super::place::of_deployment;
use super::plan;
use super::viewer::Viewer;

/// Asks for it, and leads back to where the form was.
async fn act(
    page: &Page,
    viewer: &Viewer,
    fields: &Fields,
    path: String,
    body: &Value,
    done: &str,
) -> Response {
    let place = back(fields);
    match page.ask(viewer, Call::post(path, body)).await {
        Ok(_) => Redirect::to(&query(place, &[("done", done)])).into_response(),
        Err(problem) => failed(page, viewer, place, &problem).into_response(),
    }
}

pub(super) async fn restart(
    State(page): State<Page>,
    Path(name): Path<String>,
    Extension(viewer): Extension<Viewer>,
    Extension(fields): Extension<Fields>,
) -> Response {
    let body = json!({ "service": fields.get("service") });
    let path = format!("deployments/{}/restart", escaped(&name));
    act(&page, &viewer, &fields, path, &body, "restart").await
}

pub(super) async fn scale(
    State(page): State<Page>,
    Path(name): Path<String>,
    Extension(viewer): Extension<Viewer>,
    Extension(fields): Extension<Fields>,
) -> Response {
    let replicas = fields
        .get("replicas")
        .and_then(|text| text.trim().parse::<u32>().ok());
    let Some(replicas) = replicas else {
        let problem = Problem::new(
            ProblemCode::BadRequest,
            "the number of replicas is a whole number from 0 on",
        );
        return failed(&page, &viewer, back(&fields), &problem).into_response();
    };
    let mut change = json!({ "service": fields.get("service").unwrap_or_default(), "replicas": replicas });
    if let Some(role) = fields.get("role") {
        change["role"] = role.into();
    }
    let path = format!("deployments/{}/scale", escaped(&name));
    act(
        &page,
        &viewer,
        &fields,
        path,
        &json!({ "changes": [change] }),
        "scale",
    )
    .await
}

pub(super) async fn rollback(
    State(page): State<Page>,
    Path(name): Path<String>,
    Extension(viewer): Extension<Viewer>,
    Extension(fields): Extension<Fields>,
) -> Response {
    // The last good one is meant only where nothing is said.
    let Ok(to) = fields.get("to").map(str::parse::<u64>).transpose() else {
        let problem = Problem::new(ProblemCode::BadRequest, "a revision is a whole number from 1 on");
        return failed(&page, &viewer, back(&fields), &problem).into_response();
    };
    let path = format!("deployments/{}/rollback", escaped(&name));
    act(&page, &viewer, &fields, path, &json!({ "to": to }), "rollback").await
}

pub(super) async fn drain(
    State(page): State<Page>,
    Path(id): Path<u64>,
    Extension(viewer): Extension<Viewer>,
    Extension(fields): Extension<Fields>,
) -> Response {
    act(
        &page,
        &viewer,
        &fields,
        format!("nodes/{id}/drain"),
        &json!({}),
        "drain",
    )
    .await
}

pub(super) async fn undrain(
    State(page): State<Page>,
    Path(id): Path<u64>,
    Extension(viewer): Extension<Viewer>,
    Extension(fields): Extension<Fields>,
) -> Response {
    act(
        &page,
        &viewer,
        &fields,
        format!("nodes/{id}/undrain"),
        &json!({}),
        "undrain",
    )
    .await
}

/// Deploys a file whose plan was looked at.
pub(super) async fn deploy(
    State(page): State<Page>,
    Extension(viewer): Extension<Viewer>,
    Extension(fields): Extension<Fields>,
) -> Response {
    let file = fields.get("file").unwrap_or_default();
    match page
        .ask_as::<Deployed>(&viewer, plan::call("deployments", file))
        .await
    {
        Ok(deployed) => {
            let place = query(&of_deployment(&deployed.deployment), &[("done", "deploy")]);
            Redirect::to(&place).into_response()
        }
        Err(problem) => plan::refused(&page, &viewer, file, &problem).into_response(),
    }
}
