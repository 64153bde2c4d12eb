//! Image tags are resolved to digests once per revision, so that all replicas run the same bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::spec::{DeploymentSpec, ImageSpec, PullPolicy, ServiceSpec};
use dhow_core::state::State;
use futures_util::stream::{self, StreamExt};

use crate::node_door::NodeDoor;

/// Registries that are asked at a time.
const RESOLVED_AT_ONCE: usize = 8;
/// A registry that has not answered by then is taken as one that does not answer.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Puts digests into a spec. Where one cannot be found, the current revision's is kept if the name is the same;
/// else there is none, and the replicas' own pull says what is wrong.
pub async fn resolve_digests(door: &dyn NodeDoor, state: &State, spec: &mut DeploymentSpec) {
    let mut found: BTreeMap<(String, u8), Option<String>> = BTreeMap::new();
    for service in spec.services.values() {
        for image in images(service).filter(|image| wants_digest(image)) {
            found.insert(key(image), None);
        }
    }
    let asked: Vec<(String, u8)> = found.keys().cloned().collect();
    let answers = stream::iter(asked.into_iter().map(|(name, policy)| async move {
        let question = door.resolve_image(name.clone(), policy_of(policy));
        let digest = match tokio::time::timeout(RESOLVE_TIMEOUT, question).await {
            Ok(Ok(digest)) => Some(digest),
            Ok(Err(error)) => {
                tracing::info!(image = name, %error, "the image's digest is not known");
                None
            }
            Err(_) => {
                tracing::info!(image = name, "the image's digest was not found in time");
                None
            }
        };
        ((name, policy), digest)
    }));
    let mut answers = answers.buffer_unordered(RESOLVED_AT_ONCE);
    while let Some((key, digest)) = answers.next().await {
        found.insert(key, digest);
    }
    drop(answers);
    let before = state
        .deployment(&spec.deployment)
        .and_then(|known| known.current())
        .map(|record| Arc::clone(&record.spec));
    for (name, service) in &mut spec.services {
        let old = before.as_ref().and_then(|before| before.services.get(name));
        let service = Arc::make_mut(service);
        fill(service, &found, old.map(AsRef::as_ref));
    }
}

fn images(service: &ServiceSpec) -> impl Iterator<Item = &ImageSpec> {
    let groups = service
        .replica_groups
        .iter()
        .filter_map(|group| group.image.as_ref());
    service.image.iter().chain(groups)
}

/// A name that is pinned by its author needs none.
fn wants_digest(image: &ImageSpec) -> bool {
    image.digest.is_none() && !image.name.contains('@')
}

/// The policy as something that can be ordered.
fn key(image: &ImageSpec) -> (String, u8) {
    let policy = match image.pull_policy {
        PullPolicy::IfNotPresent => 0,
        PullPolicy::Always => 1,
        PullPolicy::Never => 2,
    };
    (image.name.clone(), policy)
}

fn policy_of(number: u8) -> PullPolicy {
    match number {
        1 => PullPolicy::Always,
        2 => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    }
}

fn fill(
    service: &mut ServiceSpec,
    found: &BTreeMap<(String, u8), Option<String>>,
    old: Option<&ServiceSpec>,
) {
    let kept = |image: &ImageSpec| {
        let same = old.into_iter().flat_map(images);
        same.filter(|known| known.name == image.name)
            .find_map(|known| known.digest.clone())
    };
    let groups = service
        .replica_groups
        .iter_mut()
        .filter_map(|group| group.image.as_mut());
    for image in service.image.iter_mut().chain(groups) {
        if wants_digest(image) {
            let digest = found.get(&key(image)).cloned().flatten();
            image.digest = digest.or_else(|| kept(image));
        }
    }
}
