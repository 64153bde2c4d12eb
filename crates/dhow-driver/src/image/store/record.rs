//! The record of a complete image. Its presence says that all layers are unpacked.

use serde::{Deserialize, Serialize};

use crate::image::config::ImageConfig;
use crate::image::digest::Digest;
use crate::image::unpack::DirAttributes;

/// The form of the file; raised when it changes.
pub(crate) const RECORD_VERSION: u32 = 1;

/// What the store knows of a complete image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    pub version: u32,
    /// The manifest for this platform; the image's own digest may be that of a list.
    pub manifest: Digest,
    pub config_digest: Digest,
    pub config: ImageConfig,
    /// Bottom first, as the image lists them.
    pub layers: Vec<LayerRecord>,
    /// Directories whose attributes the overlay would show wrongly; see `rootfs::fixes`.
    pub fixes: Vec<DirFix>,
}

/// One layer of an image record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    pub diff_id: Digest,
    pub size_bytes: u64,
    /// Hides all layers below, the root included.
    pub opaque_root: bool,
}

/// A directory to make in a replica's own layer, with these attributes. The empty path is the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirFix {
    pub path: String,
    pub attributes: DirAttributes,
}

impl ImageRecord {
    /// Unpacked size; a layer that occurs twice counts once.
    pub fn size_bytes(&self) -> u64 {
        let mut seen = std::collections::BTreeSet::new();
        let fresh = self.layers.iter().filter(|layer| seen.insert(layer.diff_id));
        fresh.map(|layer| layer.size_bytes).fold(0, u64::saturating_add)
    }

    /// Everything in the store that the image needs.
    pub fn needs(&self) -> impl Iterator<Item = Digest> + '_ {
        let layers = self.layers.iter().map(|layer| layer.diff_id);
        [self.manifest, self.config_digest].into_iter().chain(layers)
    }

    /// The layers that make the root file system, top first: those under an opaque root are left out, and of a
    /// layer that occurs twice only the upper one stays (overlayfs refuses a directory twice, and the lower
    /// one adds nothing that the upper does not show or hide).
    pub fn stack(&self) -> Vec<Digest> {
        let mut stack = Vec::new();
        for layer in self.layers.iter().rev() {
            if !stack.contains(&layer.diff_id) {
                stack.push(layer.diff_id);
            }
            if layer.opaque_root {
                break;
            }
        }
        stack
    }
}
