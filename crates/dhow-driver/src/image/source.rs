//! Where the parts of an image are read from: a registry, an OCI layout directory, or an archive file. Called
//! by the pull; manifests and configurations come back checked against their digests.

mod archive;
mod archive_files;
mod layout;
mod layout_files;

use std::sync::Arc;

use super::digest::Digest;
use super::error::{ImageError, Subject};
use super::manifest::Descriptor;
use super::progress::ProgressSender;
use super::reference::ImageRef;
use super::registry::{RegistryClient, Repository};
use super::store::Store;
use super::unpack::LayerInput;
use super::work::Work;
use archive::ArchiveSource;
use layout::LayoutSource;

/// One image's source, opened.
pub(crate) enum Source {
    Registry(Repository),
    Local(Arc<LocalSource>),
}

/// A source on this node; reading it blocks.
pub(crate) enum LocalSource {
    Layout(LayoutSource),
    Archive(ArchiveSource),
}

impl Source {
    pub async fn open(
        reference: &ImageRef,
        client: &Arc<RegistryClient>,
        store: &Arc<Store>,
    ) -> Result<Self, ImageError> {
        let subject = Subject::of(reference);
        let local = match reference.clone() {
            ImageRef::Registry(reference) => {
                return Ok(Self::Registry(
                    Repository::open(Arc::clone(client), reference, subject).await?,
                ));
            }
            local @ (ImageRef::OciLayout(_) | ImageRef::DockerArchive(_)) => local,
        };
        let store = Arc::clone(store);
        let opened = blocking(&subject.clone(), move || {
            LocalSource::open(&local, &store, subject)
        })
        .await?;
        Ok(Self::Local(Arc::new(opened)))
    }

    /// What the reference means at present: the digest of a manifest, or of a list of them.
    pub async fn resolve(&self, subject: &Subject) -> Result<Digest, ImageError> {
        match self {
            Self::Registry(repository) => repository.resolve().await,
            Self::Local(local) => {
                let local = Arc::clone(local);
                blocking(subject, move || local.resolve()).await
            }
        }
    }

    /// The names that a source on this node has for an image; a registry's is the reference itself.
    pub async fn names(&self, digest: Digest, subject: &Subject) -> Result<Vec<String>, ImageError> {
        match self {
            Self::Registry(_) => Ok(Vec::new()),
            Self::Local(local) => {
                let local = Arc::clone(local);
                blocking(subject, move || Ok(local.names(digest))).await
            }
        }
    }

    /// A manifest or list, checked.
    pub async fn manifest(&self, digest: Digest, subject: &Subject) -> Result<Vec<u8>, ImageError> {
        match self {
            Self::Registry(repository) => repository.manifest(digest).await,
            Self::Local(local) => {
                let local = Arc::clone(local);
                blocking(subject, move || local.manifest(digest)).await
            }
        }
    }

    /// An image configuration, checked.
    pub async fn config(&self, descriptor: &Descriptor, subject: &Subject) -> Result<Vec<u8>, ImageError> {
        match self {
            Self::Registry(repository) => repository.config(descriptor).await,
            Self::Local(local) => {
                let (local, descriptor) = (Arc::clone(local), descriptor.clone());
                blocking(subject, move || local.config(&descriptor)).await
            }
        }
    }

    /// A layer, ready to be unpacked and checked against its descriptor; transferred first where it is remote.
    pub async fn layer(&self, request: LayerRequest) -> Result<LayerInput, ImageError> {
        match self {
            Self::Registry(repository) => repository.layer(request).await,
            Self::Local(local) => {
                let local = Arc::clone(local);
                let subject = request.subject.clone();
                blocking(&subject, move || {
                    let input = local.layer(&request.descriptor, &request.work)?;
                    request.progress.add_bytes(request.descriptor.size);
                    Ok(input)
                })
                .await
            }
        }
    }

    /// Whether layers pass through a file of the store on their way.
    pub fn leaves_partials(&self) -> bool {
        match self {
            Self::Registry(_) => true,
            Self::Local(_) => false,
        }
    }
}

/// What is needed to get one layer.
pub(crate) struct LayerRequest {
    pub descriptor: Descriptor,
    pub store: Arc<Store>,
    pub progress: ProgressSender,
    pub subject: Subject,
    pub work: Work,
}

impl LocalSource {
    fn open(reference: &ImageRef, store: &Store, subject: Subject) -> Result<Self, ImageError> {
        match reference {
            ImageRef::OciLayout(reference) => LayoutSource::open(reference, subject).map(Self::Layout),
            ImageRef::DockerArchive(reference) => {
                ArchiveSource::open(reference, store, subject).map(Self::Archive)
            }
            ImageRef::Registry(_) => Err(subject.bad_source("a registry is not on this node")),
        }
    }

    fn resolve(&self) -> Result<Digest, ImageError> {
        match self {
            Self::Layout(layout) => layout.resolve(),
            Self::Archive(archive) => archive.resolve(),
        }
    }

    fn names(&self, digest: Digest) -> Vec<String> {
        match self {
            Self::Layout(layout) => layout.names(digest),
            Self::Archive(archive) => archive.names(digest),
        }
    }

    fn manifest(&self, digest: Digest) -> Result<Vec<u8>, ImageError> {
        match self {
            Self::Layout(layout) => layout.manifest(digest),
            Self::Archive(archive) => archive.manifest(digest),
        }
    }

    fn config(&self, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
        match self {
            Self::Layout(layout) => layout.config(descriptor),
            Self::Archive(archive) => archive.config(descriptor),
        }
    }

    fn layer(&self, descriptor: &Descriptor, work: &Work) -> Result<LayerInput, ImageError> {
        match self {
            Self::Layout(layout) => layout.layer(descriptor, work),
            Self::Archive(archive) => archive.layer(descriptor, work),
        }
    }
}

/// Runs work that blocks away from the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    subject: &Subject,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(subject.cancelled()))
}
