//! The newest order that this node has acted on, on disk before it does: so that neither a server that missed its own
//! replacement nor a cluster that was put back to an earlier day makes the node undo what came later. Owned by the
//! keeper; nothing else writes it.
//!
//! A file of two places that are written in turn and synced: a write that is cut off leaves the other one, and a disk
//! without room takes it all the same, so that a full node can still be told to stop something.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dhow_core::assignment::Assignment;
use dhow_disk::Outlives;
use serde::{Deserialize, Serialize};

use crate::ledger::LedgerError;

/// One place: a checksum, three numbers and a cluster's id of 32 characters are below 200 bytes; a sector of any disk
/// is at least this.
const PLACE_BYTES: usize = 512;

/// A position in the history of a cluster: a later leadership is above every earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Highest {
    /// The cluster whose history it is; none before it has said its name.
    pub cluster: Option<String>,
    pub term: u64,
    pub revision: u64,
}

/// What is to be done with an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be acted on, once this is on disk where it is news.
    Act(Option<Highest>),
    /// It is older than one that the node has acted on.
    Older,
}

impl Highest {
    /// Compares an order with the highest that the node has acted on. An order of another cluster begins anew:
    /// certificates settle which cluster the node belongs to.
    pub fn judge(&self, order: &Assignment) -> Verdict {
        let Some(term) = order.term else {
            return Verdict::Act(None);
        };
        let found = Self {
            cluster: order.cluster.as_deref().map(str::to_owned),
            term: term.0,
            revision: order.revision.0,
        };
        if found.is_of_another_cluster(self) {
            return Verdict::Act(Some(found));
        }
        let cluster = found.cluster.or_else(|| self.cluster.clone());
        let found = Self { cluster, ..found };
        match (found.term, found.revision) < (self.term, self.revision) {
            true => Verdict::Older,
            false => Verdict::Act((found != *self).then_some(found)),
        }
    }

    /// Whether both name a cluster and not the same one.
    pub fn is_of_another_cluster(&self, other: &Self) -> bool {
        matches!((&self.cluster, &other.cluster), (Some(own), Some(other)) if own != other)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// Which of the two places is the newer one.
    count: u64,
    #[serde(flatten)]
    highest: Highest,
}

/// The open file with the highest order that the node has acted on. The keeper writes an order there before it acts on
/// it, and refuses lower ones.
#[derive(Debug)]
pub struct HighestFile {
    path: PathBuf,
    file: File,
    count: u64,
    highest: Highest,
}

impl HighestFile {
    /// Opens the file of a directory that is there, or begins one. Blocks.
    pub fn open(dir: &Path) -> Result<Self, LedgerError> {
        let path = dir.join("highest");
        let failed = |doing| {
            let path = path.clone();
            move |source| LedgerError::File { doing, path, source }
        };
        let mut bytes = vec![0; 2 * PLACE_BYTES];
        let found_bytes = match std::fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(failed("reading")(error)),
        };
        if found_bytes < bytes.len() as u64 {
            // All of its room is taken now, and its name is on disk before anything is acted on.
            dhow_disk::replace(&path, &bytes, Outlives::PowerCut).map_err(failed("writing"))?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed("opening"))?;
        file.read_exact_at(&mut bytes, 0).map_err(failed("reading"))?;
        let places = bytes.chunks_exact(PLACE_BYTES).filter_map(read_place);
        let newest = places.max_by_key(|written| written.count);
        if newest.is_none() && bytes.iter().any(|byte| *byte != 0) {
            tracing::error!(
                path = %path.display(),
                "it cannot be read what this node has acted on: it believes the next order, whatever its age"
            );
        }
        let (count, highest) = newest.map_or((0, Highest::default()), |written| {
            (written.count, written.highest)
        });
        Ok(Self {
            path,
            file,
            count,
            highest,
        })
    }

    pub fn highest(&self) -> &Highest {
        &self.highest
    }

    /// Once this returns, it survives a power cut. Blocks.
    pub fn put(&mut self, highest: Highest) -> Result<(), LedgerError> {
        let count = self.count.saturating_add(1);
        let written = Written { count, highest };
        let place = to_place(&written)?;
        let at = (count % 2) * PLACE_BYTES as u64;
        let synced = self
            .file
            .write_all_at(&place, at)
            .and_then(|()| self.file.sync_data());
        synced.map_err(|source| LedgerError::File {
            doing: "writing",
            path: self.path.clone(),
            source,
        })?;
        (self.count, self.highest) = (count, written.highest);
        Ok(())
    }
}

fn to_place(written: &Written) -> Result<Vec<u8>, LedgerError> {
    let json = serde_json::to_vec(written).map_err(LedgerError::Record)?;
    let mut place = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
    place.extend_from_slice(&json);
    place.push(b'\n');
    if place.len() > PLACE_BYTES {
        let why = "the cluster's id is longer than any that a server makes";
        return Err(LedgerError::Record(serde::ser::Error::custom(why)));
    }
    place.resize(PLACE_BYTES, 0);
    Ok(place)
}

fn read_place(place: &[u8]) -> Option<Written> {
    let end = place.iter().position(|byte| *byte == b'\n')?;
    let (sum, json) = (place.get(..8)?, place.get(9..end)?);
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (crc32fast::hash(json) == sum).then(|| serde_json::from_slice(json).ok())?
}

#[cfg(test)]
mod tests;
