//! A lease names digests that nobody may delete. A pull takes one before it looks at anything, and the image
//! it returns keeps it, so that `prune` never takes away what is about to be mounted.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Store;
use super::error::StoreError;
use super::files;
use super::session::lease_path;
use crate::image::digest::Digest;

pub(super) const SUFFIX: &str = ".json";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Given back when dropped, or when its process ends.
#[derive(Debug)]
pub(crate) struct Lease {
    path: PathBuf,
    tmp_dir: PathBuf,
    named: Mutex<BTreeSet<Digest>>,
    /// A lease lives as long as the session it belongs to; this keeps that open.
    _store: Arc<Store>,
}

impl Lease {
    pub(super) fn create(store: &Arc<Store>, leases_dir: &Path) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let tmp_dir = leases_dir.with_file_name("tmp");
        let _store = Arc::clone(store);
        Self {
            path: lease_path(leases_dir, number),
            tmp_dir,
            named: Mutex::default(),
            _store,
        }
    }

    /// Adds digests. Once this returns, what they name stays if it is there; look for it only afterwards.
    pub fn protect(&self, digests: impl IntoIterator<Item = Digest>) -> Result<(), StoreError> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.extend(digests);
        files::replace_json(&self.path, &*named, &self.tmp_dir)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A lease that stays keeps files a little longer, until this process ends.
        let _ = fs::remove_file(&self.path);
    }
}
