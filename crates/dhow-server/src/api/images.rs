//! `/images`: those of the node that answers.

use std::path::Path as FilePath;

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json};
use dhow_wire::Problem;
use dhow_wire::api::{ImageImportRequest, ImageInfo, ImageName, ImagePullRequest, ImagesRemoved};
use futures_util::StreamExt;
use serde::Deserialize;

use super::audit::About;
use super::extract::{self, Query};
use super::feed;
use super::internal::DoorContext;
use super::limits::IMAGE_TEXT_BYTES_MAX;
use super::problem::{Answer, ApiProblem};
use crate::net::node_door::PullStep;

fn check_name(name: &str) -> Answer<()> {
    let fits =
        (1..=IMAGE_TEXT_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if !fits {
        return Err(ApiProblem::invalid(format!(
            "an image's name has 1 to {IMAGE_TEXT_BYTES_MAX} visible ASCII characters"
        )));
    }
    Ok(())
}

/// The node's images.
#[utoipa::path(get, path = "/api/v1/images", tag = "images", responses((status = 200, body = Vec<ImageInfo>)))]
pub(super) async fn list(State(context): State<DoorContext>) -> Answer<Json<Vec<ImageInfo>>> {
    Ok(Json(context.door.images(context.node).await?))
}

/// Pulls an image. Server-sent: `progress` events with a [`dhow_wire::api::PullProgress`], then `result` with an
/// [`ImageName`], or `error` with a [`Problem`].
#[utoipa::path(
    post, path = "/api/v1/images/pull", tag = "images", request_body = ImagePullRequest,
    responses((status = 200, body = super::openapi::ServerSentEvent, content_type = "text/event-stream"))
)]
pub(super) async fn pull(
    State(context): State<DoorContext>,
    body: extract::Json<ImagePullRequest>,
) -> Answer<Response> {
    check_name(&body.value.image)?;
    let about = About(body.value.image.clone());
    let mut steps = context.door.pull_image(context.node, body.value.image).await?;
    let mut response = feed::events(context.end, |feed| async move {
        while let Some(step) = steps.next().await {
            match step {
                Ok(PullStep::Progress(progress)) => feed.event("progress", &progress).await?,
                Ok(PullStep::Done(image)) => return feed.event("result", &image).await,
                Err(error) => return feed.event("error", &Problem::from(error)).await,
            }
        }
        Ok(())
    });
    response.extensions_mut().insert(about);
    Ok(response)
}

/// Takes an image from a file or directory of the node.
#[utoipa::path(
    post, path = "/api/v1/images/import", tag = "images", request_body = ImageImportRequest,
    responses((status = 200, body = ImageName))
)]
pub(super) async fn import(
    State(context): State<DoorContext>,
    body: extract::Json<ImageImportRequest>,
) -> Answer<(Extension<About>, Json<ImageName>)> {
    let request = body.value;
    let path = &request.path;
    if !FilePath::new(path).is_absolute() || path.len() > IMAGE_TEXT_BYTES_MAX || path.contains('\0') {
        return Err(ApiProblem::invalid(
            "`path` is an absolute path on the node that answers",
        ));
    }
    if let Some(name) = &request.name {
        check_name(name)?;
    }
    let about = About(path.clone());
    let imported = context.door.import_image(context.node, request).await?;
    Ok((Extension(about), Json(imported)))
}

/// The query that names an image.
#[derive(Deserialize)]
pub(super) struct Named {
    name: String,
}

/// Removes an image that nothing uses.
#[utoipa::path(
    delete, path = "/api/v1/images", tag = "images",
    params(("name" = String, Query, pattern = "^[!-~]+$", max_length = 4096)),
    responses((status = 200, body = ImagesRemoved))
)]
pub(super) async fn remove(
    State(context): State<DoorContext>,
    Query(named): Query<Named>,
) -> Answer<(Extension<About>, Json<ImagesRemoved>)> {
    check_name(&named.name)?;
    let about = About(named.name.clone());
    let removed = context.door.remove_image(context.node, named.name).await?;
    Ok((Extension(about), Json(removed)))
}

/// Removes every image that nothing uses.
#[utoipa::path(post, path = "/api/v1/images/prune", tag = "images", responses((status = 200, body = ImagesRemoved)))]
pub(super) async fn prune(State(context): State<DoorContext>) -> Answer<Json<ImagesRemoved>> {
    Ok(Json(context.door.prune_images(context.node).await?))
}
