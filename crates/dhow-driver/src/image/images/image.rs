//! One complete image.

use std::path::PathBuf;
use std::sync::Arc;

use crate::image::clock;
use crate::image::config::ImageConfig;
use crate::image::digest::Digest;
use crate::image::error::{ImageError, Subject};
use crate::image::reference::ImageRef;
use crate::image::store::{ImageRecord, Lease, Store};

/// An image whose layers are all unpacked. While any clone of it lives, nothing removes it.
#[derive(Clone, Debug)]
pub struct Image {
    inner: Arc<ImageInner>,
}

#[derive(Debug)]
struct ImageInner {
    reference: ImageRef,
    digest: Digest,
    record: ImageRecord,
    store: Arc<Store>,
    _lease: Arc<Lease>,
}

impl Image {
    pub(crate) fn new(
        reference: ImageRef,
        digest: Digest,
        record: ImageRecord,
        store: Arc<Store>,
        lease: Arc<Lease>,
    ) -> Self {
        Self {
            inner: Arc::new(ImageInner {
                reference,
                digest,
                record,
                store,
                _lease: lease,
            }),
        }
    }

    /// The reference it was asked for by.
    pub fn reference(&self) -> &ImageRef {
        &self.inner.reference
    }

    /// The digest that the reference resolves to; of a list where the image is for several platforms.
    pub fn digest(&self) -> Digest {
        self.inner.digest
    }

    /// How the image says it is to be run.
    pub fn config(&self) -> &ImageConfig {
        &self.inner.record.config
    }

    /// Unpacked, on disk; layers may be shared with other images.
    pub fn size_bytes(&self) -> u64 {
        self.inner.record.size_bytes()
    }

    /// The unpacked layers, top first, without those that nothing shows of.
    pub fn layer_dirs(&self) -> Vec<PathBuf> {
        self.inner
            .record
            .stack()
            .iter()
            .map(|layer| self.inner.store.layer_fs(layer))
            .collect()
    }

    /// Notes that the image is used now. Mounting does it too.
    pub fn mark_used(&self) -> Result<(), ImageError> {
        let marked = self.inner.store.mark_used(&self.inner.digest, clock::now());
        marked.map_err(|error| Subject::of(&self.inner.reference).store(error))
    }

    pub(crate) fn record(&self) -> &ImageRecord {
        &self.inner.record
    }
}
