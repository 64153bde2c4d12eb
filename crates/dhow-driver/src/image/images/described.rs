//! What an image says about itself, without bringing its layers here.

use super::Images;
use crate::image::config::{self, ImageConfig};
use crate::image::digest::Digest;
use crate::image::error::{ImageError, Subject};
use crate::image::manifest::{Document, Manifest, ManifestError};
use crate::image::reference::ImageRef;
use crate::image::source::Source;

impl Images {
    /// The configuration of an image: from the store where it is there, else from where it would be pulled.
    pub async fn config(&self, reference: &ImageRef) -> Result<ImageConfig, ImageError> {
        if let Some(image) = self.find(reference).await? {
            return Ok(image.config().clone());
        }
        let subject = Subject::of(reference);
        let source = Source::open(reference, &self.inner.client, &self.inner.store).await?;
        let digest = source.resolve(&subject).await?;
        let manifest = self.manifest(&source, digest, &subject).await?;
        let bytes = source.config(&manifest.config, &subject).await?;
        let (config, _) = config::parse(&bytes).map_err(|error| {
            let detail = format!("its configuration cannot be read: {error}");
            subject.manifest(ManifestError::Malformed { detail })
        })?;
        Ok(config)
    }

    /// The manifest for this platform, through a list where there is one.
    async fn manifest(
        &self,
        source: &Source,
        digest: Digest,
        subject: &Subject,
    ) -> Result<Manifest, ImageError> {
        let bytes = source.manifest(digest, subject).await?;
        let index = match Document::parse(&bytes).map_err(|error| subject.manifest(error))? {
            Document::Manifest(manifest) => return Ok(manifest),
            Document::Index(index) => index,
        };
        let platform = &self.inner.platform;
        let chosen = index.choose(platform).map_err(|offered| ImageError::NoPlatform {
            image: subject.image.clone(),
            origin: subject.origin.clone(),
            wanted: Box::new(platform.clone()),
            offered,
        })?;
        let bytes = source.manifest(chosen.digest, subject).await?;
        match Document::parse(&bytes).map_err(|error| subject.manifest(error))? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(_) => {
                let detail = "a list of manifests that names another list".to_owned();
                Err(subject.manifest(ManifestError::Malformed { detail }))
            }
        }
    }
}
