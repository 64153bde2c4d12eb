//! Image tags are resolved to digests once per revision, so that all replicas run the same bytes.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::spec::{DeploymentSpec, ImageSpec, ServiceSpec};
use dhow_core::state::State;
use futures_util::stream::{self, StreamExt};

use crate::net::node_door::NodeDoor;

/// Registries that are asked at a time.
const RESOLVED_AT_ONCE: usize = 8;
/// A registry that has not answered by then is taken as one that does not answer.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(20);

/// What names mean now, in the order of their asking; none where that is not known.
type Found = Vec<(ImageSpec, Option<String>)>;

/// Puts digests into a spec. Where one cannot be found, the current revision's is kept if the name is the same;
/// else there is none, and the replicas' own pull says what is wrong.
pub async fn resolve_digests(door: &dyn NodeDoor, state: &State, spec: &mut DeploymentSpec) {
    let mut asked: Vec<ImageSpec> = Vec::new();
    for image in spec.services.values().flat_map(|service| images(service)) {
        if wants_digest(image) && !asked.contains(image) {
            asked.push(image.clone());
        }
    }
    let answers = asked.into_iter().map(|image| async move {
        let digest = resolve(door, &image).await;
        (image, digest)
    });
    let found: Found = stream::iter(answers).buffered(RESOLVED_AT_ONCE).collect().await;
    let before = state
        .deployment(&spec.deployment)
        .and_then(|known| known.current())
        .map(|record| Arc::clone(&record.spec));
    for (name, service) in &mut spec.services {
        let old = before.as_ref().and_then(|before| before.services.get(name));
        fill(Arc::make_mut(service), &found, old.map(AsRef::as_ref));
    }
}

async fn resolve(door: &dyn NodeDoor, image: &ImageSpec) -> Option<String> {
    let question = door.resolve_image(image.name.clone(), image.pull_policy);
    match tokio::time::timeout(RESOLVE_TIMEOUT, question).await {
        Ok(Ok(digest)) => Some(digest),
        Ok(Err(error)) => {
            tracing::info!(image = image.name, %error, "the image's digest is not known");
            None
        }
        Err(_) => {
            tracing::info!(image = image.name, "the image's digest was not found in time");
            None
        }
    }
}

fn images(service: &ServiceSpec) -> impl Iterator<Item = &ImageSpec> {
    let groups = service
        .replica_groups
        .iter()
        .filter_map(|group| group.image.as_ref());
    let steps = service.init_steps.iter().filter_map(|step| step.image.as_ref());
    service.image.iter().chain(groups).chain(steps)
}

/// A name that is pinned by its author needs none.
fn wants_digest(image: &ImageSpec) -> bool {
    image.digest.is_none() && !image.name.contains('@')
}

fn fill(service: &mut ServiceSpec, found: &Found, old: Option<&ServiceSpec>) {
    let kept = |image: &ImageSpec| {
        let same = old.into_iter().flat_map(images);
        same.filter(|known| known.name == image.name)
            .find_map(|known| known.digest.clone())
    };
    let groups = service
        .replica_groups
        .iter_mut()
        .filter_map(|group| group.image.as_mut());
    let steps = service.init_steps.iter_mut();
    let steps = steps.filter_map(|step| step.image.as_mut());
    for image in service.image.iter_mut().chain(groups).chain(steps) {
        if wants_digest(image) {
            let known = found.iter().find(|(asked, _)| asked == image);
            let digest = known.and_then(|(_, digest)| digest.clone());
            image.digest = digest.or_else(|| kept(image));
        }
    }
}
