//! Removing images, and the layers and blobs that nothing needs any more.
//!
//! Nothing is removed that the caller says is in use or that a lease names. Each removal happens under the
//! lock of its digest, after a fresh look at leases and then at records: a pull writes its lease before it
//! looks for anything and its record before it gives the lease back, so it is seen either way.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::clock;
use super::digest::Digest;
use super::error::{ImageError, Subject};
use super::images::Images;
use super::reference::ImageRef;
use super::store::{LockKind, Store, StoreError};

/// What may go.
#[derive(Clone, Debug, Default)]
pub struct PruneOptions {
    /// Images (as [`super::Image::digest`] names them) that replicas on this node use.
    pub in_use: BTreeSet<Digest>,
    /// Only images that nobody used for this long.
    pub unused_for: Duration,
}

/// What went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneReport {
    pub images: Vec<Digest>,
    /// Names that went although their image stays.
    pub untagged: Vec<ImageRef>,
    /// The other names of such an image.
    pub kept_as: Vec<ImageRef>,
    pub layers: usize,
    pub blobs: usize,
    /// Of layers and blobs.
    pub freed_bytes: u64,
}

impl Images {
    /// Removes every image that is not in use, and what it alone needed.
    pub async fn prune(&self, options: &PruneOptions) -> Result<PruneReport, ImageError> {
        let mut report = PruneReport::default();
        let now = clock::now();
        for image in self.at_store(|store| store.images()).await? {
            let is_candidate = !options.in_use.contains(&image) && self.is_unused(&image, options, now);
            if is_candidate && self.remove_record(image).await? {
                report.images.push(image);
            }
        }
        self.sweep(&mut report).await?;
        Ok(report)
    }

    /// Removes a name with all that pins it to a digest, and each image that has no other. A name with a digest means
    /// the image itself, however many names it has.
    pub async fn remove(
        &self,
        reference: &ImageRef,
        in_use: &BTreeSet<Digest>,
    ) -> Result<PruneReport, ImageError> {
        if let Some(image) = reference.digest() {
            return self.remove_image(image, in_use).await;
        }
        let subject = Subject::of(reference);
        let index = self.at_store(|store| store.references()).await?;
        let known = self.at_store(|store| store.images()).await?;
        let mut named = index.named(reference);
        named.retain(|(_, image)| known.contains(image));
        if named.is_empty() {
            return Err(ImageError::NotHere { image: subject.image });
        }
        let names: BTreeSet<ImageRef> = named.iter().map(|(name, _)| name.clone()).collect();
        let images: BTreeSet<Digest> = named.iter().map(|(_, image)| *image).collect();
        let others = |image: &Digest| -> Vec<ImageRef> {
            let all = index.of_image(image).into_iter();
            all.filter(|other| !names.contains(other)).collect()
        };
        let (last, kept): (Vec<Digest>, Vec<Digest>) =
            images.into_iter().partition(|image| others(image).is_empty());
        if last.iter().any(|image| in_use.contains(image)) {
            return Err(ImageError::InUse { image: subject.image });
        }
        let mut report = PruneReport {
            kept_as: kept.iter().flat_map(others).collect(),
            ..PruneReport::default()
        };
        for image in last {
            if !self.remove_record(image).await? {
                return Err(ImageError::InUse { image: subject.image });
            }
            report.images.push(image);
        }
        let gone: Vec<ImageRef> = named
            .into_iter()
            .filter(|(_, image)| kept.contains(image))
            .map(|(name, _)| name)
            .collect();
        report.untagged.clone_from(&gone);
        self.at_store(move |store| {
            store.change_references(|index| gone.iter().for_each(|name| index.remove(name)))
        })
        .await?;
        self.sweep(&mut report).await?;
        Ok(report)
    }

    /// Removes an image with all its names.
    pub async fn remove_image(
        &self,
        image: Digest,
        in_use: &BTreeSet<Digest>,
    ) -> Result<PruneReport, ImageError> {
        let shown = || image.to_string();
        if !self.at_store(|store| store.images()).await?.contains(&image) {
            return Err(ImageError::NotHere { image: shown() });
        }
        if in_use.contains(&image) || !self.remove_record(image).await? {
            return Err(ImageError::InUse { image: shown() });
        }
        let mut report = PruneReport {
            images: vec![image],
            ..PruneReport::default()
        };
        self.sweep(&mut report).await?;
        Ok(report)
    }

    fn is_unused(&self, image: &Digest, options: &PruneOptions, now: SystemTime) -> bool {
        let last_used = self.inner.store.last_used(image);
        // A time in the future, from a clock that was wrong, is as good as now.
        last_used.is_some_and(|used| now.duration_since(used).unwrap_or_default() >= options.unused_for)
    }

    /// Removes the record of an image unless a lease names it; says whether it did.
    async fn remove_record(&self, image: Digest) -> Result<bool, ImageError> {
        let store = &self.inner.store;
        let lock = store
            .locks
            .acquire(LockKind::Image, &image)
            .await
            .map_err(ImageError::Catalogue)?;
        self.at_store(move |store| {
            let _lock = lock;
            if store.leased()?.contains(&image) {
                return Ok(false);
            }
            store.change_references(|index| index.remove_image(&image))?;
            store.remove_record(&image)?;
            Ok(true)
        })
        .await
    }

    /// Removes layers, blobs and given-up transfers that no image and no lease needs.
    async fn sweep(&self, report: &mut PruneReport) -> Result<(), ImageError> {
        for layer in self.dead(Store::layers).await? {
            let freed = self.remove_dead(LockKind::Layer, layer, |store, layer| {
                let size_bytes = store.layer_meta(layer)?.map_or(0, |meta| meta.size_bytes);
                store.remove_layer(layer).map(|()| size_bytes)
            });
            if let Some(freed) = freed.await? {
                report.layers += 1;
                report.freed_bytes += freed;
            }
        }
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
        for blob in self.dead(Store::blobs).await? {
            let freed = self.remove_dead(LockKind::Blob, blob, move |store, blob| {
                let size_bytes = size(&store.blob_path(blob));
                store.remove_blob(blob).map(|()| size_bytes)
            });
            if let Some(freed) = freed.await? {
                report.blobs += 1;
                report.freed_bytes += freed;
            }
        }
        for partial in self.dead(Store::partials).await? {
            let freed = self.remove_dead(LockKind::Blob, partial, move |store, partial| {
                let size_bytes = size(&store.partial_path(partial));
                store.remove_partial(partial).map(|()| size_bytes)
            });
            report.freed_bytes += freed.await?.unwrap_or(0);
        }
        Ok(())
    }

    /// Those that nothing needs at present.
    async fn dead(
        &self,
        all: impl FnOnce(&Store) -> Result<Vec<Digest>, StoreError> + Send + 'static,
    ) -> Result<Vec<Digest>, ImageError> {
        self.at_store(move |store| {
            let all = all(store)?;
            let live = live(store)?;
            Ok(all.into_iter().filter(|digest| !live.contains(digest)).collect())
        })
        .await
    }

    /// Removes one thing under its lock if it still is dead then; returns what that freed.
    async fn remove_dead(
        &self,
        kind: LockKind,
        digest: Digest,
        remove: impl FnOnce(&Store, &Digest) -> Result<u64, StoreError> + Send + 'static,
    ) -> Result<Option<u64>, ImageError> {
        let store = &self.inner.store;
        let lock = store
            .locks
            .acquire(kind, &digest)
            .await
            .map_err(ImageError::Catalogue)?;
        self.at_store(move |store| {
            let _lock = lock;
            if live(store)?.contains(&digest) {
                return Ok(None);
            }
            remove(store, &digest).map(Some)
        })
        .await
    }

    pub(super) async fn at_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, ImageError> {
        let store = Arc::clone(&self.inner.store);
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        let done = done.map_err(|error| ImageError::Setup {
            detail: error.to_string(),
        })?;
        done.map_err(ImageError::Catalogue)
    }
}

/// Everything that a lease or a record needs, in that order of looking.
fn live(store: &Store) -> Result<BTreeSet<Digest>, StoreError> {
    let mut live = store.leased()?;
    for image in store.images()? {
        live.insert(image);
        if let Some(record) = store.record(&image)? {
            live.extend(record.needs());
        }
    }
    Ok(live)
}
