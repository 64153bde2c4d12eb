//! What images there are.

use std::time::SystemTime;

use super::Images;
use crate::image::digest::Digest;
use crate::image::error::ImageError;
use crate::image::manifest::Platform;
use crate::image::reference::ImageRef;

/// One image as listings show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSummary {
    pub digest: Digest,
    /// Empty where a tag has moved on to another image.
    pub references: Vec<ImageRef>,
    pub platform: Platform,
    /// Unpacked; layers shared with other images count in each.
    pub size_bytes: u64,
    pub layers: usize,
    pub last_used: SystemTime,
}

impl Images {
    /// All complete images, ordered by digest.
    pub async fn list(&self) -> Result<Vec<ImageSummary>, ImageError> {
        let store = std::sync::Arc::clone(&self.inner.store);
        let listed = tokio::task::spawn_blocking(move || {
            let references = store.references()?;
            let mut summaries = Vec::new();
            for digest in store.images()? {
                // One that is being removed at this moment is no longer listed.
                let (Some(record), Some(last_used)) = (store.record(&digest)?, store.last_used(&digest))
                else {
                    continue;
                };
                summaries.push(ImageSummary {
                    digest,
                    references: references.of_image(&digest),
                    size_bytes: record.size_bytes(),
                    layers: record.layers.len(),
                    platform: record.config.platform,
                    last_used,
                });
            }
            Ok(summaries)
        });
        let listed = listed.await.map_err(|error| ImageError::Setup {
            detail: error.to_string(),
        })?;
        listed.map_err(ImageError::Catalogue)
    }
}
