//! What a directory contains.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::error::{Action, StoreError};
use super::{segment, snapshot};

/// The ending of files that have not got their name yet.
const PASSING_SUFFIX: &str = ".tmp";
/// How their names begin. Files of other names are not the store's and are left alone.
const PASSING_PREFIXES: [&str; 4] = ["manifest", "spare", "segment-", "snapshot-"];

/// The files of a store by their kinds.
#[derive(Debug, Default)]
pub struct Listing {
    /// Segments by their first frame.
    pub segments: BTreeSet<u64>,
    /// Files of unfinished steps.
    pub passing: Vec<PathBuf>,
    /// Snapshots by their index.
    pub snapshots: BTreeSet<u64>,
}

impl Listing {
    /// Lists a directory.
    pub fn read(dir: &Path) -> Result<Listing, StoreError> {
        let cannot = |error| StoreError::io(Action::List, dir, error);
        let mut listing = Listing::default();
        for entry in std::fs::read_dir(dir).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if is_passing(name) {
                listing.passing.push(entry.path());
            } else if let Some(first) = segment::first_of(name) {
                listing.segments.insert(first);
            } else if let Some(index) = snapshot::index_of(name) {
                listing.snapshots.insert(index);
            }
        }
        listing.passing.sort();
        Ok(listing)
    }
}

fn is_passing(name: &str) -> bool {
    name.ends_with(PASSING_SUFFIX) && PASSING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
