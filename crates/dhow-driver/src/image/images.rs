//! The handle that the container driver and the commands for images use.
//!
//! Cheap to clone; all clones share one store. Calls that look at files run on blocking threads.

mod catalogue;
mod described;
mod flight;
mod image;
mod import;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::digest::Digest;
use super::error::{ImageError, Subject};
use super::manifest::Platform;
use super::reference::ImageRef;
use super::registry::{RegistryClient, RegistryOptions};
use super::source::{Source, blocking};
use super::store::{ImageRecord, Lease, LockKind, Store, StoreError};
use super::transfers::Transfers;
use super::unpack::{Privilege, UnpackLimits};
pub use catalogue::ImageSummary;
use flight::Flights;
pub use flight::Pull;
pub use image::Image;
pub use import::Imported;

/// Layers being unpacked at a time. Unpacking is bound by processor and disk, and each holds a blocking thread.
const MAX_UNPACKS: usize = 4;

/// How images are kept and fetched.
#[derive(Clone, Debug)]
pub struct ImagesOptions {
    /// The store's directory; several processes may open the same one.
    pub dir: PathBuf,
    pub registries: RegistryOptions,
    pub limits: UnpackLimits,
    pub privilege: Privilege,
}

impl ImagesOptions {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            registries: RegistryOptions::default(),
            limits: UnpackLimits::default(),
            privilege: Privilege::default(),
        }
    }
}

/// All images of this node.
#[derive(Clone, Debug)]
pub struct Images {
    pub(super) inner: Arc<ImagesParts>,
}

/// What all clones of [`Images`] and the pulls on their way work with.
#[derive(Debug)]
pub(crate) struct ImagesParts {
    pub store: Arc<Store>,
    pub client: Arc<RegistryClient>,
    pub limits: UnpackLimits,
    pub privilege: Privilege,
    pub platform: Platform,
    pub transfers: Transfers,
    pub unpacks: Arc<Semaphore>,
    flights: Flights,
}

impl Images {
    /// Opens the store and clears what ended processes left in it. Blocks, for a moment.
    pub fn open(options: ImagesOptions) -> Result<Self, ImageError> {
        let store = Store::open(&options.dir).map_err(|source| ImageError::Open {
            path: options.dir.clone(),
            source,
        })?;
        let inner = ImagesParts {
            store: Arc::new(store),
            client: Arc::new(RegistryClient::new(options.registries)?),
            limits: options.limits,
            privilege: options.privilege,
            platform: Platform::host(),
            transfers: Transfers::default(),
            unpacks: Arc::new(Semaphore::new(MAX_UNPACKS)),
            flights: Flights::default(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What a reference means at present. A reference with a digest is its own answer and asks nobody.
    pub async fn resolve(&self, reference: &ImageRef) -> Result<Digest, ImageError> {
        if let Some(digest) = reference.digest() {
            return Ok(digest);
        }
        let source = Source::open(reference, &self.inner.client, &self.inner.store).await?;
        source.resolve(&Subject::of(reference)).await
    }

    /// The image if it is complete in the store; asks nobody.
    pub async fn find(&self, reference: &ImageRef) -> Result<Option<Image>, ImageError> {
        let subject = Subject::of(reference);
        let (store, wanted, about) = (Arc::clone(&self.inner.store), reference.clone(), subject.clone());
        let (digest, lease) = blocking(&subject, move || {
            let failed = |error| about.store(error);
            let digest = match wanted.digest() {
                Some(digest) => Some(digest),
                None => store.references().map_err(failed)?.get(&wanted),
            };
            Ok((digest, store.lease()))
        })
        .await?;
        let Some(digest) = digest else { return Ok(None) };
        self.inner.load(reference, digest, Arc::new(lease)).await
    }

    /// Brings the image into the store, or joins a pull of the same reference that is under way. The pull
    /// runs by itself; it ends early when the last [`Pull`] for it is dropped. Must be called inside a
    /// tokio runtime.
    pub fn pull(&self, reference: &ImageRef) -> Pull {
        self.inner.flights.join(&self.inner, reference)
    }
}

impl ImagesParts {
    /// Reads a complete image under a lease: from then on it stays.
    pub(crate) async fn load(
        &self,
        reference: &ImageRef,
        digest: Digest,
        lease: Arc<Lease>,
    ) -> Result<Option<Image>, ImageError> {
        let subject = Subject::of(reference);
        // First the lease, then the look: whoever removes images looks for leases under the same lock.
        let (held, about) = (Arc::clone(&lease), subject.clone());
        blocking(&subject, move || {
            held.protect([digest]).map_err(|error| about.store(error))
        })
        .await?;
        let lock = self.store.locks.acquire(LockKind::Image, &digest).await;
        let lock = lock.map_err(|error| subject.store(error))?;
        let (store, reference, about) = (Arc::clone(&self.store), reference.clone(), subject.clone());
        blocking(&subject, move || {
            let _lock = lock;
            let record = complete_record(&store, &digest).map_err(|error| about.store(error))?;
            let Some(record) = record else { return Ok(None) };
            lease
                .protect(record.needs())
                .map_err(|error| about.store(error))?;
            Ok(Some(Image::new(reference, digest, record, store, lease)))
        })
        .await
    }
}

/// The record of an image, unless a layer is missing: a store that somebody tidied by hand heals by pulling.
fn complete_record(store: &Store, digest: &Digest) -> Result<Option<ImageRecord>, StoreError> {
    let Some(record) = store.record(digest)? else {
        return Ok(None);
    };
    for layer in &record.layers {
        if store.layer_meta(&layer.diff_id)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(record))
}
