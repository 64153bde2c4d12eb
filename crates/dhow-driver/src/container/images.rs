//! A service's image, from where the spec says, under the spec's rule for fetching it.

use dhow_core::spec::{ImageSpec, PullPolicy};

use crate::driver::{Cause, Progress, ProgressSink};
use crate::image::{Digest, Image, ImageError, ImageRef, Images, PullPhase, PullProgress, ReferenceError};

/// What the spec names, with the digest that it was resolved to.
pub(super) fn reference(spec: Option<&ImageSpec>) -> Result<ImageRef, Cause> {
    let spec = spec.ok_or(Cause::Unsupported {
        field: "image",
        why: "a container needs one".into(),
    })?;
    let failed = |error: ReferenceError| Cause::Image(Box::new(error.into()));
    let reference = ImageRef::parse(&spec.name).map_err(failed)?;
    let Some(text) = &spec.digest else {
        return Ok(reference);
    };
    let digest: Digest = text.parse().map_err(|error| Cause::Unsupported {
        field: "image",
        why: format!("its digest `{text}` cannot be read, {error}"),
    })?;
    Ok(reference.pinned(digest))
}

/// The image, complete in the store.
pub(super) async fn obtain(
    images: &Images,
    spec: Option<&ImageSpec>,
    progress: &dyn ProgressSink,
) -> Result<Image, Cause> {
    let failed = |error: ImageError| Cause::Image(Box::new(error));
    let reference = reference(spec)?;
    let policy = spec.map_or(PullPolicy::default(), |spec| spec.pull_policy);
    // What a digest names is the same bytes wherever they come from.
    let look_first = policy != PullPolicy::Always || reference.digest().is_some();
    if look_first && let Some(image) = images.find(&reference).await.map_err(failed)? {
        progress.report(Progress::Ready);
        return Ok(image);
    }
    if policy == PullPolicy::Never {
        let image = reference.familiar();
        return Err(failed(ImageError::NotHere { image }));
    }
    let pull = images.pull(&reference);
    let mut seen = pull.progress();
    let wait = pull.wait();
    tokio::pin!(wait);
    let image = loop {
        tokio::select! {
            ended = &mut wait => break ended.map_err(failed)?,
            Ok(()) = seen.changed() => {
                let now = *seen.borrow_and_update();
                progress.report(told(now));
            }
        }
    };
    progress.report(Progress::Ready);
    Ok(image)
}

fn told(now: PullProgress) -> Progress {
    match now.phase {
        PullPhase::Resolving => Progress::Resolving,
        PullPhase::Transferring if now.done_bytes < now.total_bytes => Progress::Pulling {
            done_bytes: now.done_bytes,
            total_bytes: Some(now.total_bytes),
        },
        PullPhase::Transferring => Progress::Unpacking {
            done_layers: now.layers_done,
            total_layers: now.layers_total,
        },
        PullPhase::Complete => Progress::Ready,
    }
}
