//! Why a root file system is not there.

use std::io;
use std::path::PathBuf;

use super::super::digest::Digest;
use super::super::store::StoreError;

/// What mounting and unmounting can end with.
#[derive(Debug, thiserror::Error)]
pub enum RootfsError {
    #[error("mounting an image needs root; run the daemon as root, or use services with `runtime: process`")]
    NotRoot,
    #[error(
        "the root file system at {path} cannot be mounted{}; the file system that holds the data directory has \
         to support overlayfs (ext4 and xfs do, an overlay itself does not)",
        said(.kernel)
    )]
    Mount {
        path: PathBuf,
        /// What the kernel says about it, where it says anything.
        kernel: String,
        #[source]
        source: io::Error,
    },
    #[error("the image has {layers} layers, more than this kernel can mount at once")]
    TooManyLayers { layers: usize },
    #[error("the root file system at {path} cannot be unmounted")]
    Unmount {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} is still mounted after many attempts to unmount it; something mounts there again and again"
    )]
    StillMounted { path: PathBuf },
    #[error(
        "{path} holds the root file system of another image ({}) or another mode; remove that replica first",
        .image.short()
    )]
    Another { path: PathBuf, image: Box<Digest> },
    #[error("{path} is damaged ({detail}); remove the replica")]
    Damaged { path: PathBuf, detail: String },
    #[error(transparent)]
    File(#[from] StoreError),
}

fn said(kernel: &str) -> String {
    if kernel.is_empty() {
        String::new()
    } else {
        format!(" ({kernel})")
    }
}
