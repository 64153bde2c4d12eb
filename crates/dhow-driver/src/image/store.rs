//! The content store: a directory of blobs, unpacked layers and image records, all named by digest.
//!
//! ```text
//! blobs/sha256/<hex>              manifests and configurations
//! layers/sha256/<diff id>/fs/     one unpacked layer; layer.json beside it; the directory is complete or absent
//! images/sha256/<hex>.json        a record per complete image; its mtime is when it was last used
//! index.json                      references and the digests they mean
//! partial/sha256-<hex>            a layer in transfer, which can be resumed until it is unpacked
//! locks/                          one lock file per digest being worked on
//! sessions/<name>/                temporary files and leases of one open store, dead when its lock is free
//! ```
//!
//! Everything is made under `sessions/` or `partial/` and enters its place by one rename, so that a crash
//! leaves either all of it or none. A power cut may spoil what was not synced: blobs are hashed whenever they
//! are read, and a layer of an earlier boot counts only if an image's record, written after a sync, names it.
//! All calls block; the async side runs them on blocking threads. The store
//! must never delete what a lease names.

mod dirs;
mod error;
mod files;
mod index;
mod lease;
mod lock_file;
mod locks;
mod record;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::unpack::LayerMeta;
use dirs::Dirs;
pub use error::StoreError;
pub(crate) use files::{Failing, remove_tree};
pub(crate) use index::Index as ReferenceIndex;
pub(crate) use lease::Lease;
use lock_file::LockFile;
pub(crate) use locks::{DigestLock, LockKind, Locks};
pub(crate) use record::{DirFix, ImageRecord, LayerRecord, RECORD_VERSION};
use session::Session;

const PARTIAL_PREFIX: &str = "sha256-";
const LAYER_FS: &str = "fs";
const LAYER_META: &str = "layer.json";
/// The largest own file that is read back: an index of 100,000 references is below 32 MiB.
const MAX_OWN_FILE_BYTES: u64 = 64 << 20;

/// One open store. Several processes may have the same directory open.
#[derive(Debug)]
pub(crate) struct Store {
    dirs: Dirs,
    session: Session,
    pub locks: Locks,
    /// Tells this boot of the host from earlier ones.
    boot: String,
}

/// A layer's own file.
#[derive(Serialize, Deserialize)]
struct LayerFile {
    boot: String,
    #[serde(flatten)]
    meta: LayerMeta,
}

impl Store {
    /// Opens the directory, making it if needed, and clears what dead sessions left behind.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        let dirs = Dirs::create(root)?;
        session::clean_dead(&dirs)?;
        files::clean_old_partials(&dirs.partial())?;
        let session = Session::start(&dirs)?;
        let locks = Locks::new(dirs.locks());
        let boot = files::boot_id();
        Ok(Self {
            dirs,
            session,
            locks,
            boot,
        })
    }

    /// Where temporary files live for as long as this store is open, on the same file system.
    pub fn tmp_dir(&self) -> &Path {
        self.session.tmp_dir()
    }

    /// A lease that names nothing yet.
    pub fn lease(self: &Arc<Self>) -> Lease {
        Lease::create(self, self.session.leases_dir())
    }

    /// Everything that live leases name, in all processes.
    pub fn leased(&self) -> Result<BTreeSet<Digest>, StoreError> {
        session::leased(&self.dirs, &self.session)
    }

    // Blobs.

    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.dirs.blobs().join(digest.hex())
    }

    pub fn partial_path(&self, digest: &Digest) -> PathBuf {
        self.dirs
            .partial()
            .join(format!("{PARTIAL_PREFIX}{}", digest.hex()))
    }

    /// A small blob, if it is there and still has its digest.
    pub fn read_blob(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.blob_path(digest);
        let bytes = files::read_limited(&path, MAX_OWN_FILE_BYTES)?;
        Ok(bytes.filter(|bytes| Digest::of(bytes) == *digest))
    }

    /// Keeps a small blob whose digest the caller has checked.
    pub fn write_blob(&self, digest: &Digest, bytes: &[u8]) -> Result<(), StoreError> {
        files::replace(&self.blob_path(digest), bytes, self.tmp_dir())
    }

    pub fn remove_blob(&self, digest: &Digest) -> Result<(), StoreError> {
        files::remove_if_present(&self.blob_path(digest))
    }

    pub fn blobs(&self) -> Result<Vec<Digest>, StoreError> {
        files::digests_in(&self.dirs.blobs(), "", "")
    }

    /// Layers in transfer, and those that were given up.
    pub fn partials(&self) -> Result<Vec<Digest>, StoreError> {
        files::digests_in(&self.dirs.partial(), PARTIAL_PREFIX, "")
    }

    pub fn remove_partial(&self, digest: &Digest) -> Result<(), StoreError> {
        files::remove_if_present(&self.partial_path(digest))
    }

    // Layers.

    /// The root of an unpacked layer.
    pub fn layer_fs(&self, diff_id: &Digest) -> PathBuf {
        self.layer_dir(diff_id).join(LAYER_FS)
    }

    fn layer_dir(&self, diff_id: &Digest) -> PathBuf {
        self.dirs.layers().join(diff_id.hex())
    }

    fn layer_file(&self, diff_id: &Digest) -> Result<Option<LayerFile>, StoreError> {
        match files::read_json(&self.layer_dir(diff_id).join(LAYER_META)) {
            // A power cut did this; the layer is made again.
            Err(StoreError::Damaged { .. }) => Ok(None),
            read => read,
        }
    }

    /// What is known of a layer that an image's record names.
    pub fn layer_meta(&self, diff_id: &Digest) -> Result<Option<LayerMeta>, StoreError> {
        Ok(self.layer_file(diff_id)?.map(|file| file.meta))
    }

    /// A layer that can be used for another image: one of this boot, or one that a record vouches for.
    pub fn sound_layer(&self, diff_id: &Digest) -> Result<Option<LayerMeta>, StoreError> {
        let Some(file) = self.layer_file(diff_id)? else {
            return Ok(None);
        };
        if file.boot == self.boot {
            return Ok(Some(file.meta));
        }
        for image in self.images()? {
            let names = |record: ImageRecord| record.layers.iter().any(|layer| layer.diff_id == *diff_id);
            if self.record(&image)?.is_some_and(names) {
                return Ok(Some(file.meta));
            }
        }
        Ok(None)
    }

    /// Makes a layer: `fill` unpacks into the directory it is given, which then enters its place. The caller
    /// holds the layer's lock.
    pub fn make_layer<E: From<StoreError>>(
        &self,
        diff_id: &Digest,
        fill: impl FnOnce(&Path) -> Result<LayerMeta, E>,
    ) -> Result<LayerMeta, E> {
        let work = self.tmp_dir().join(format!("layer-{}", diff_id.hex()));
        remove_tree(&work)?;
        let made = self.fill_layer(diff_id, &work, fill);
        if made.is_err() {
            // Best effort: what stays behind is removed when the session is found dead.
            let _ = remove_tree(&work);
        }
        made
    }

    fn fill_layer<E: From<StoreError>>(
        &self,
        diff_id: &Digest,
        work: &Path,
        fill: impl FnOnce(&Path) -> Result<LayerMeta, E>,
    ) -> Result<LayerMeta, E> {
        let tree = work.join(LAYER_FS);
        dirs::create_private(work)?;
        dirs::create_plain(&tree)?;
        let file = LayerFile {
            boot: self.boot.clone(),
            meta: fill(&tree)?,
        };
        files::replace_json(&work.join(LAYER_META), &file, self.tmp_dir())?;
        // What stands there is not sound, or the layer would not be made.
        self.remove_layer(diff_id)?;
        let place = self.layer_dir(diff_id);
        fs::rename(work, &place).failing("place", &place)?;
        Ok(file.meta)
    }

    pub fn layers(&self) -> Result<Vec<Digest>, StoreError> {
        files::digests_in(&self.dirs.layers(), "", "")
    }

    /// Removes a layer: out of its place by one rename, then file by file. The caller holds its lock.
    pub fn remove_layer(&self, diff_id: &Digest) -> Result<(), StoreError> {
        let doomed = self.tmp_dir().join(format!("removed-{}", diff_id.hex()));
        remove_tree(&doomed)?;
        let place = self.layer_dir(diff_id);
        match fs::rename(&place, &doomed) {
            Ok(()) => remove_tree(&doomed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::io("remove", &place, error)),
        }
    }

    // Images and references.

    fn record_path(&self, image: &Digest) -> PathBuf {
        self.dirs.images().join(format!("{}.json", image.hex()))
    }

    pub fn record(&self, image: &Digest) -> Result<Option<ImageRecord>, StoreError> {
        files::read_json(&self.record_path(image))
    }

    /// Makes an image exist. All it consists of is synced before: a record vouches for its layers.
    pub fn write_record(&self, image: &Digest, record: &ImageRecord) -> Result<(), StoreError> {
        files::sync_file_system(&self.dirs.layers())?;
        files::write_json(&self.record_path(image), record, self.tmp_dir())
    }

    pub fn remove_record(&self, image: &Digest) -> Result<(), StoreError> {
        files::remove_if_present(&self.record_path(image))
    }

    pub fn images(&self) -> Result<Vec<Digest>, StoreError> {
        files::digests_in(&self.dirs.images(), "", ".json")
    }

    /// When an image was last used; none if it is not there.
    pub fn last_used(&self, image: &Digest) -> Option<SystemTime> {
        fs::metadata(self.record_path(image))
            .and_then(|meta| meta.modified())
            .ok()
    }

    /// Notes that an image is used now. An image that is gone is no error: there is nothing to note.
    pub fn mark_used(&self, image: &Digest, now: SystemTime) -> Result<(), StoreError> {
        let path = self.record_path(image);
        match fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(now))
        {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::io("set the time of", &path, error)),
        }
    }

    pub fn references(&self) -> Result<ReferenceIndex, StoreError> {
        Ok(files::read_json(&self.dirs.index())?.unwrap_or_default())
    }

    /// Changes the index under its own short lock and replaces the file, unless nothing changed.
    pub fn change_references(&self, change: impl FnOnce(&mut ReferenceIndex)) -> Result<(), StoreError> {
        let lock_path = self.dirs.locks().join("index");
        let _lock = LockFile::acquire(&lock_path).failing("lock", &lock_path)?;
        let before = self.references()?;
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        files::write_json(&self.dirs.index(), &after, self.tmp_dir())
    }
}
