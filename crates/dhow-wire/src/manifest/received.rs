//! A set as it was read from its directory, and the one way to trust it.

use std::collections::BTreeMap;
use std::sync::Arc;

use dhow_core::ids::DeploymentName;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::ManifestVersion;
use ed25519_dalek::VerifyingKey;

use super::error::{IndexReadError, ManifestError};
use super::index::{FileHash, INDEX_BYTES_MAX, ManifestFile, ManifestIndex, check_path};
use super::verified::{Verdict, VerifiedSet};
use crate::hex;
use crate::signing::{Domain, SIGNATURE_BYTES};

pub const INDEX_NAME: &str = "index.json";
pub const SIGNATURE_NAME: &str = "index.json.sig";

/// A set holds as many deployments as one cluster has at most.
pub const FILES_MAX: usize = 1_000;
/// A deployment of hundreds of services is far below a mebibyte.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// What one poll may hold in memory: 64 files of the largest size, or a thousand of 64 KiB.
pub const SET_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// 128 hexadecimal digits and a line end.
pub const SIGNATURE_TEXT_BYTES_MAX: usize = 2 * SIGNATURE_BYTES + 2;

/// Reads a deployment file, given its path in the set and its text; the error is for people.
pub type ParseManifest<'a> = &'a dyn Fn(&str, &str) -> Result<DeploymentSpec, String>;

/// The raw bytes of a set. A reader stops at the limits above and never follows a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedSet {
    pub index: Vec<u8>,
    /// The text of the signature file.
    pub signature: Vec<u8>,
    /// Every other file below the directory, by its path in the index's form.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl ReceivedSet {
    /// Proves the set and reads its deployments. Refused is, in this order, what is too large, not signed by
    /// one of `keys`, not newer than `previous`, dated ahead of `now_unix_secs` by more than the skew, or other than
    /// its index says.
    pub fn verify(
        &self,
        keys: &[VerifyingKey],
        previous: Option<&ManifestVersion>,
        now_unix_secs: i64,
        max_clock_skew_secs: u32,
        parse: ParseManifest<'_>,
    ) -> Result<Verdict, ManifestError> {
        self.check_sizes()?;
        self.check_signature(keys)?;
        let index = self.read_index()?;
        let next = ManifestVersion {
            version: index.version,
            created_unix_secs: index.created_unix_secs,
            index_hash: FileHash::of(&self.index).0,
        };
        if let Some(previous) = previous {
            if next == *previous {
                return Ok(Verdict::Unchanged);
            }
            check_succession(&next, previous, max_clock_skew_secs)?;
        }
        check_date(&next, now_unix_secs, max_clock_skew_secs)?;
        self.check_files(&index)?;
        let deployments = self.read_deployments(&index, parse)?;
        Ok(Verdict::Newer(VerifiedSet::new(next, deployments)))
    }

    pub(super) fn check_sizes(&self) -> Result<(), ManifestError> {
        if self.index.len() > INDEX_BYTES_MAX {
            return Err(ManifestError::IndexTooLarge {
                found: self.index.len(),
                max: INDEX_BYTES_MAX,
            });
        }
        if self.files.len() > FILES_MAX {
            return Err(ManifestError::TooManyFiles {
                found: self.files.len(),
            });
        }
        let mut set_bytes = 0;
        for (path, bytes) in &self.files {
            let found = bytes.len() as u64;
            if found > FILE_BYTES_MAX {
                let path = path.clone();
                return Err(ManifestError::FileTooLarge { path, found });
            }
            set_bytes += found;
        }
        if set_bytes > SET_BYTES_MAX {
            return Err(ManifestError::SetTooLarge { found: set_bytes });
        }
        Ok(())
    }

    fn check_signature(&self, keys: &[VerifyingKey]) -> Result<(), ManifestError> {
        let text = str::from_utf8(&self.signature).map_err(|_| ManifestError::MalformedSignature)?;
        // A line end belongs to the file, not to the signature.
        let text = text.strip_suffix('\n').unwrap_or(text);
        let signature = hex::decode(text).ok_or(ManifestError::MalformedSignature)?;
        let signed = |key: &VerifyingKey| Domain::ManifestIndex.verifies(key, &[&self.index], &signature);
        if keys.iter().any(signed) {
            Ok(())
        } else {
            Err(ManifestError::BadSignature)
        }
    }

    /// Proves that the files are still those of the index, whose signature was proved before.
    pub fn check_unchanged(&self) -> Result<(), ManifestError> {
        self.check_sizes()?;
        let index = self.read_index()?;
        self.check_files(&index)
    }

    /// The paths that the index names, with their sizes: what is to be fetched before anything is proved. None where it
    /// cannot be read or names what it may not.
    pub fn listed(&self) -> Option<Vec<(String, u64)>> {
        let index = self.read_index().ok()?;
        let fine = index.files.iter().all(|file| check_path(&file.path).is_ok());
        let files = index.files.into_iter().map(|file| (file.path, file.size_bytes));
        fine.then(|| files.collect())
    }

    fn read_index(&self) -> Result<ManifestIndex, ManifestError> {
        serde_json::from_slice(&self.index).map_err(|error| {
            let cause = IndexReadError(error.to_string());
            ManifestError::MalformedIndex { cause }
        })
    }

    /// The set holds the files of the index, all of them, nothing else, byte for byte.
    fn check_files(&self, index: &ManifestIndex) -> Result<(), ManifestError> {
        if index.files.len() > FILES_MAX {
            return Err(ManifestError::TooManyFiles {
                found: index.files.len(),
            });
        }
        let mut listed: BTreeMap<&str, &ManifestFile> = BTreeMap::new();
        for file in &index.files {
            check_path(&file.path)?;
            let path = || file.path.clone();
            if listed.insert(&file.path, file).is_some() {
                return Err(ManifestError::DuplicatePath { path: path() });
            }
            let Some(bytes) = self.files.get(&file.path) else {
                return Err(ManifestError::MissingFile { path: path() });
            };
            let found = bytes.len() as u64;
            if found != file.size_bytes {
                return Err(ManifestError::WrongSize {
                    path: path(),
                    expected: file.size_bytes,
                    found,
                });
            }
            if FileHash::of(bytes) != file.blake3 {
                return Err(ManifestError::WrongHash { path: path() });
            }
        }
        match self.files.keys().find(|path| !listed.contains_key(path.as_str())) {
            Some(extra) => Err(ManifestError::ExtraFile { path: extra.clone() }),
            None => Ok(()),
        }
    }

    fn read_deployments(
        &self,
        index: &ManifestIndex,
        parse: ParseManifest<'_>,
    ) -> Result<BTreeMap<DeploymentName, Arc<DeploymentSpec>>, ManifestError> {
        let mut deployments = BTreeMap::new();
        let mut defined_in: BTreeMap<DeploymentName, &str> = BTreeMap::new();
        for ManifestFile { path, .. } in &index.files {
            let bytes = self.files.get(path).map(Vec::as_slice).unwrap_or_default();
            let text = str::from_utf8(bytes).map_err(|_| ManifestError::NotText { path: path.clone() })?;
            let spec = parse(path, text).map_err(|findings| ManifestError::InvalidDeployment {
                path: path.clone(),
                findings,
            })?;
            if let Some(other) = defined_in.insert(spec.deployment.clone(), path) {
                return Err(ManifestError::DuplicateDeployment {
                    deployment: spec.deployment.to_string(),
                    path: path.clone(),
                    other: other.into(),
                });
            }
            deployments.insert(spec.deployment.clone(), Arc::new(spec));
        }
        Ok(deployments)
    }
}

/// A set takes the place of the one in force only with a higher version, so that an old set, however well
/// signed, never comes back. Its date may lie before the other's by no more than clocks differ.
fn check_succession(
    next: &ManifestVersion,
    previous: &ManifestVersion,
    skew_secs: u32,
) -> Result<(), ManifestError> {
    if next.version < previous.version {
        return Err(ManifestError::Older {
            found: next.version,
            previous: previous.version,
        });
    }
    if next.version == previous.version {
        return Err(ManifestError::SameVersionOtherContent {
            version: next.version,
        });
    }
    let earliest = previous.created_unix_secs.saturating_sub(i64::from(skew_secs));
    if next.created_unix_secs < earliest {
        return Err(ManifestError::BackDated {
            found: next.version,
            previous: previous.version,
            behind_secs: previous.created_unix_secs.abs_diff(next.created_unix_secs),
            allowed_secs: skew_secs,
        });
    }
    Ok(())
}

fn check_date(next: &ManifestVersion, now_unix_secs: i64, skew_secs: u32) -> Result<(), ManifestError> {
    let latest = now_unix_secs.saturating_add(i64::from(skew_secs));
    if next.created_unix_secs > latest {
        return Err(ManifestError::FutureDated {
            ahead_secs: next.created_unix_secs.abs_diff(now_unix_secs),
            allowed_secs: skew_secs,
        });
    }
    Ok(())
}
