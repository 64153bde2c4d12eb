//! Takes an image from a layout or an archive of this node, under the names by which it is asked for later.

use std::sync::Arc;

use super::{Image, Images};
use crate::image::error::{ImageError, Subject};
use crate::image::reference::ImageRef;
use crate::image::source::{Source, blocking};

/// An image that was taken, and what it is called now.
#[derive(Clone, Debug)]
pub struct Imported {
    pub image: Image,
    /// At least one.
    pub names: Vec<ImageRef>,
}

impl Images {
    /// Imports it as `name`; without one, under the names that the source has for it, or else under the source's own.
    pub async fn import(&self, source: &ImageRef, name: Option<ImageRef>) -> Result<Imported, ImageError> {
        let subject = Subject::of(source);
        let was_known = self.at_store({
            let source = source.clone();
            move |store| Ok(store.references()?.get(&source).is_some())
        });
        let was_known = was_known.await?;
        let image = self.pull(source).wait().await?;
        let names = match name {
            Some(name) => vec![name],
            None => self.names_in(source, &image, &subject).await?,
        };
        if names.is_empty() {
            return Ok(Imported {
                image,
                names: vec![source.clone()],
            });
        }
        let (store, digest, about) = (Arc::clone(&self.inner.store), image.digest(), subject.clone());
        let (source, given) = (source.clone(), names.clone());
        blocking(&subject, move || {
            let changed = store.change_references(|index| {
                for name in &given {
                    index.set(name, digest);
                }
                // It has a name of its own now: the path is no second one that would keep it.
                if !was_known && !given.contains(&source) {
                    index.remove(&source);
                }
            });
            changed.map_err(|error| about.store(error))
        })
        .await?;
        Ok(Imported { image, names })
    }

    /// What the source calls the image, as far as these are names that can be asked for.
    async fn names_in(
        &self,
        source: &ImageRef,
        image: &Image,
        subject: &Subject,
    ) -> Result<Vec<ImageRef>, ImageError> {
        let opened = Source::open(source, &self.inner.client, &self.inner.store).await?;
        let names = opened.names(image.digest(), subject).await?;
        let readable = names.iter().filter_map(|name| ImageRef::parse(name).ok());
        Ok(readable
            .filter(|name| matches!(name, ImageRef::Registry(_)))
            .collect())
    }
}
