//! One pull from beginning to end: what the reference means, the manifest for this platform, all layers at
//! once, and the record that makes the image exist.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::task::JoinSet;

use super::config::{self, ImageConfig};
use super::digest::Digest;
use super::error::{ImageError, Subject};
use super::images::{Image, ImagesParts};
use super::manifest::{Descriptor, Document, Manifest, ManifestError};
use super::progress::ProgressSender;
use super::reference::ImageRef;
use super::room::Room;
use super::rootfs;
use super::source::{LayerRequest, Source, blocking};
use super::store::{DigestLock, ImageRecord, LayerRecord, Lease, LockKind, RECORD_VERSION};
use super::unpack::{LayerInput, LayerMeta, LimitKind, UnpackError, UnpackJob, unpack};
use super::work::{Work, WorkScope};

/// A pull with all it needs.
pub(crate) struct Job {
    pub inner: Arc<ImagesParts>,
    pub reference: ImageRef,
    pub progress: ProgressSender,
    pub cancelled: Arc<AtomicBool>,
}

/// What the manifest and the configuration say.
struct Plan {
    manifest: Digest,
    config_digest: Digest,
    config: ImageConfig,
    /// Each layer as transferred and as unpacked, bottom first.
    layers: Vec<(Descriptor, Digest)>,
}

impl Job {
    pub async fn run(self) -> Result<Image, ImageError> {
        let subject = Subject::of(&self.reference);
        self.inner.privilege.check().map_err(|_| ImageError::NotRoot {
            image: subject.image.clone(),
        })?;
        let lease = Arc::new(self.inner.store.lease());
        // A pinned image that is here needs nobody's help.
        if let Some(digest) = self.reference.digest()
            && let Some(image) = self
                .inner
                .load(&self.reference, digest, Arc::clone(&lease))
                .await?
        {
            return self.done(image, &subject).await;
        }
        let source = Source::open(&self.reference, &self.inner.client, &self.inner.store).await?;
        let digest = source.resolve(&subject).await?;
        if let Some(image) = self
            .inner
            .load(&self.reference, digest, Arc::clone(&lease))
            .await?
        {
            return self.done(image, &subject).await;
        }
        let plan = self.plan(&source, digest, &lease, &subject).await?;
        self.check_room(&plan, &subject).await?;
        let sizes = plan.layers.iter().map(|(layer, _)| layer.size);
        self.progress
            .start(plan.layers.len(), sizes.fold(0, u64::saturating_add));
        let metas = self.layers(source, &plan, &subject).await?;
        self.record(digest, plan, metas, &subject).await?;
        // Read back under the lease: the image that is returned is the one on disk.
        let image = self.inner.load(&self.reference, digest, lease).await?;
        self.done(image.ok_or_else(|| subject.not_found())?, &subject)
            .await
    }

    /// Notes the reference, which may be new for an image that was there, and the use.
    async fn done(&self, image: Image, subject: &Subject) -> Result<Image, ImageError> {
        let store = Arc::clone(&self.inner.store);
        let (reference, digest, about) = (self.reference.clone(), image.digest(), subject.clone());
        blocking(subject, move || {
            let noted = store.change_references(|index| index.set(&reference, digest));
            noted.map_err(|error| about.store(error))
        })
        .await?;
        image.mark_used()?;
        self.progress.complete();
        Ok(image)
    }

    async fn plan(
        &self,
        source: &Source,
        digest: Digest,
        lease: &Lease,
        subject: &Subject,
    ) -> Result<Plan, ImageError> {
        let (manifest_digest, manifest) = self.manifest(source, digest, lease, subject).await?;
        let config_digest = manifest.config.digest;
        lease
            .protect([config_digest])
            .map_err(|error| subject.store(error))?;
        let fetch = source.config(&manifest.config, subject);
        let bytes = self.small_blob(config_digest, fetch, subject).await?;
        let (config, diff_ids) = config::parse(&bytes).map_err(|error| {
            let detail = format!("its configuration cannot be read: {error}");
            subject.manifest(ManifestError::Malformed { detail })
        })?;
        self.check_platform(&config, subject)?;
        if diff_ids.len() != manifest.layers.len() {
            let (diff_ids, layers) = (diff_ids.len(), manifest.layers.len());
            return Err(subject.manifest(ManifestError::LayerCount { diff_ids, layers }));
        }
        let blobs = manifest.layers.iter().map(|layer| layer.digest);
        let named = blobs.chain(diff_ids.iter().copied());
        lease.protect(named).map_err(|error| subject.store(error))?;
        let layers = manifest.layers.into_iter().zip(diff_ids).collect();
        Ok(Plan {
            manifest: manifest_digest,
            config_digest,
            config,
            layers,
        })
    }

    /// The manifest for this platform, through a list where there is one.
    async fn manifest(
        &self,
        source: &Source,
        digest: Digest,
        lease: &Lease,
        subject: &Subject,
    ) -> Result<(Digest, Manifest), ImageError> {
        let index = match self.document(source, digest, lease, subject).await? {
            Document::Manifest(manifest) => return Ok((digest, manifest)),
            Document::Index(index) => index,
        };
        let chosen = index
            .choose(&self.inner.platform)
            .map_err(|offered| ImageError::NoPlatform {
                image: subject.image.clone(),
                origin: subject.origin.clone(),
                wanted: Box::new(self.inner.platform.clone()),
                offered,
            })?;
        match self.document(source, chosen.digest, lease, subject).await? {
            Document::Manifest(manifest) => Ok((chosen.digest, manifest)),
            Document::Index(_) => {
                let detail = "a list of manifests that names another list".to_owned();
                Err(subject.manifest(ManifestError::Malformed { detail }))
            }
        }
    }

    async fn document(
        &self,
        source: &Source,
        digest: Digest,
        lease: &Lease,
        subject: &Subject,
    ) -> Result<Document, ImageError> {
        lease.protect([digest]).map_err(|error| subject.store(error))?;
        let bytes = self
            .small_blob(digest, source.manifest(digest, subject), subject)
            .await?;
        Document::parse(&bytes).map_err(|error| subject.manifest(error))
    }

    /// A manifest or configuration: from the store, or fetched once for all who want it.
    async fn small_blob(
        &self,
        digest: Digest,
        fetch: impl Future<Output = Result<Vec<u8>, ImageError>>,
        subject: &Subject,
    ) -> Result<Vec<u8>, ImageError> {
        let store = &self.inner.store;
        let lock = store.locks.acquire(LockKind::Blob, &digest).await;
        let lock = lock.map_err(|error| subject.store(error))?;
        let (reader, about) = (Arc::clone(store), subject.clone());
        let kept = blocking(subject, move || {
            reader.read_blob(&digest).map_err(|error| about.store(error))
        });
        if let Some(bytes) = kept.await? {
            return Ok(bytes);
        }
        let bytes = fetch.await?;
        let (writer, about) = (Arc::clone(store), subject.clone());
        blocking(subject, move || {
            let _lock = lock;
            writer
                .write_blob(&digest, &bytes)
                .map_err(|error| about.store(error))?;
            Ok(bytes)
        })
        .await
    }

    fn check_platform(&self, config: &ImageConfig, subject: &Subject) -> Result<(), ImageError> {
        let (found, wanted) = (&config.platform, &self.inner.platform);
        if !found.os.is_empty() && found.os != wanted.os {
            return Err(ImageError::NoPlatform {
                image: subject.image.clone(),
                origin: subject.origin.clone(),
                wanted: Box::new(wanted.clone()),
                offered: vec![found.clone()],
            });
        }
        if !found.architecture.is_empty() && found.architecture != wanted.architecture {
            // The host may run it through an emulator; only the user knows.
            tracing::warn!(image = %subject.image, %found, %wanted, "the image is for another architecture");
        }
        Ok(())
    }

    /// Refuses an image whose missing layers do not even fit the disk as they are transferred; unpacked they are
    /// larger, and looked at file by file.
    async fn check_room(&self, plan: &Plan, subject: &Subject) -> Result<(), ImageError> {
        let (store, about, layers) = (
            Arc::clone(&self.inner.store),
            subject.clone(),
            plan.layers.clone(),
        );
        blocking(subject, move || {
            let failed = |error| about.store(error);
            let mut needed_bytes = 0u64;
            for (descriptor, diff_id) in layers {
                if store.sound_layer(&diff_id).map_err(failed)?.is_none() {
                    needed_bytes = needed_bytes.saturating_add(descriptor.size);
                }
            }
            Room::of(store.tmp_dir()).check(needed_bytes).map_err(failed)
        })
        .await
    }

    /// Brings all layers into the store, several at a time; the first failure ends the rest.
    async fn layers(
        &self,
        source: Source,
        plan: &Plan,
        subject: &Subject,
    ) -> Result<Vec<LayerMeta>, ImageError> {
        let source = Arc::new(source);
        let scope = WorkScope::new(Arc::clone(&self.cancelled));
        let mut tasks = JoinSet::new();
        for (at, (descriptor, diff_id)) in plan.layers.iter().enumerate() {
            let layer = LayerJob {
                inner: Arc::clone(&self.inner),
                source: Arc::clone(&source),
                descriptor: descriptor.clone(),
                diff_id: *diff_id,
                progress: self.progress.clone(),
                work: scope.work(),
                subject: subject.clone(),
            };
            tasks.spawn(async move { (at, layer.run().await) });
        }
        let mut metas = vec![LayerMeta::default(); plan.layers.len()];
        while let Some(ended) = tasks.join_next().await {
            let ended = ended
                .map_err(|_| subject.cancelled())
                .and_then(|(at, meta)| Ok((at, meta?)));
            match ended {
                Ok((at, meta)) => metas[at] = meta,
                Err(error) => {
                    tasks.shutdown().await;
                    scope.cancel().await;
                    return Err(error);
                }
            }
        }
        Ok(metas)
    }

    async fn record(
        &self,
        digest: Digest,
        plan: Plan,
        metas: Vec<LayerMeta>,
        subject: &Subject,
    ) -> Result<(), ImageError> {
        let store = Arc::clone(&self.inner.store);
        let lock = store.locks.acquire(LockKind::Image, &digest).await;
        let lock = lock.map_err(|error| subject.store(error))?;
        let about = subject.clone();
        blocking(subject, move || {
            let _lock = lock;
            let layers = plan
                .layers
                .iter()
                .zip(&metas)
                .map(|((_, diff_id), meta)| LayerRecord {
                    diff_id: *diff_id,
                    size_bytes: meta.size_bytes,
                    opaque_root: meta.opaque_root,
                });
            let mut record = ImageRecord {
                version: RECORD_VERSION,
                manifest: plan.manifest,
                config_digest: plan.config_digest,
                config: plan.config,
                layers: layers.collect(),
                fixes: Vec::new(),
            };
            record.fixes = rootfs::fixes(&store, &record).map_err(|error| about.store(error))?;
            store
                .write_record(&digest, &record)
                .map_err(|error| about.store(error))
        })
        .await
    }
}

/// One layer of one pull.
struct LayerJob {
    inner: Arc<ImagesParts>,
    source: Arc<Source>,
    descriptor: Descriptor,
    diff_id: Digest,
    progress: ProgressSender,
    work: Work,
    subject: Subject,
}

impl LayerJob {
    async fn run(self) -> Result<LayerMeta, ImageError> {
        let store = &self.inner.store;
        let failed = |error| self.subject.store(error);
        let lock = store
            .locks
            .acquire(LockKind::Layer, &self.diff_id)
            .await
            .map_err(failed)?;
        if let Some(meta) = store.sound_layer(&self.diff_id).map_err(failed)? {
            self.progress.add_bytes(self.descriptor.size);
            self.progress.layer_done();
            return Ok(meta);
        }
        let limit = self.inner.limits.max_layer_bytes;
        if self.descriptor.size > limit {
            let error = UnpackError::TooLarge {
                kind: LimitKind::Bytes,
                limit,
            };
            return Err(self.subject.layer(self.diff_id, error));
        }
        let input = {
            let place = self.inner.transfers.place(&self.subject.origin).await;
            let _place = place.ok_or_else(|| self.subject.cancelled())?;
            let request = LayerRequest {
                descriptor: self.descriptor.clone(),
                store: Arc::clone(store),
                progress: self.progress.clone(),
                subject: self.subject.clone(),
                work: self.work.clone(),
            };
            self.source.layer(request).await?
        };
        let meta = self.unpack(input, lock).await?;
        self.progress.layer_done();
        Ok(meta)
    }

    /// Unpacks on a blocking thread, which holds the lock and the slot to its end whatever becomes of us.
    async fn unpack(&self, input: LayerInput, lock: DigestLock) -> Result<LayerMeta, ImageError> {
        let slot = Arc::clone(&self.inner.unpacks).acquire_owned().await;
        let slot = slot.map_err(|_| self.subject.cancelled())?;
        let (inner, subject) = (Arc::clone(&self.inner), self.subject.clone());
        let (diff_id, blob) = (self.diff_id, self.descriptor.digest);
        let work = self.work.clone();
        let leaves_partial = self.source.leaves_partials();
        blocking(&self.subject, move || {
            let _held = (lock, slot);
            let job = UnpackJob {
                limits: &inner.limits,
                privilege: inner.privilege,
                diff_id,
                cancelled: work.cancelled(),
            };
            let made = inner
                .store
                .make_layer(&diff_id, |target| unpack(input, target, &job));
            // A transfer is kept only for a pull that may be taken up again.
            let is_done_with = !matches!(made, Err(UnpackError::Cancelled));
            if leaves_partial && is_done_with && inner.store.remove_partial(&blob).is_err() {
                tracing::debug!(%blob, "the transferred layer was not removed; `prune` will");
            }
            made.map_err(|error| subject.layer(diff_id, error))
        })
        .await
    }
}
