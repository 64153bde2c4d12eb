//! References and the digests they mean, one JSON file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::image::digest::Digest;
use crate::image::reference::ImageRef;

/// The form of the file; raised when it changes.
const VERSION: u32 = 1;

/// Which image each reference means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    version: u32,
    references: BTreeMap<String, Digest>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            version: VERSION,
            references: BTreeMap::new(),
        }
    }
}

impl Index {
    pub fn get(&self, reference: &ImageRef) -> Option<Digest> {
        self.references.get(&reference.to_string()).copied()
    }

    pub fn set(&mut self, reference: &ImageRef, digest: Digest) {
        self.references.insert(reference.to_string(), digest);
    }

    pub fn remove(&mut self, reference: &ImageRef) {
        self.references.remove(&reference.to_string());
    }

    /// The references that a name without a digest stands for: itself, and those that pin it to one.
    pub fn named(&self, name: &ImageRef) -> Vec<(ImageRef, Digest)> {
        let all = self.references.iter();
        let read = all.filter_map(|(text, digest)| Some((text.parse::<ImageRef>().ok()?, *digest)));
        read.filter(|(reference, _)| reference == name || reference.unpinned() == *name)
            .collect()
    }

    pub fn remove_image(&mut self, image: &Digest) {
        self.references.retain(|_, digest| digest != image);
    }

    /// The references of one image. What was written by hand and does not parse is not shown.
    pub fn of_image(&self, image: &Digest) -> Vec<ImageRef> {
        let named = self.references.iter().filter(|(_, digest)| *digest == image);
        named.filter_map(|(text, _)| text.parse().ok()).collect()
    }
}
