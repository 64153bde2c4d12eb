//! Signed sets of deployment files: a directory with an index, `index.json`, and the index's signature,
//! `index.json.sig`. Whoever holds the key decides what the cluster runs; the place that the set lies in need
//! not be trusted.
//!
//! The manifest poll reads a directory into a [`ReceivedSet`] and verifies it; only what comes out, a
//! [`VerifiedSet`], can go on to the reducer. The signature is checked over the bytes as they came, before
//! anything in them is looked at. Nothing here opens a file or follows a link: reading is the caller's.

mod error;
mod index;
mod key;
mod parse;
mod received;
mod sign;
mod verified;
mod written;

pub use error::{IndexReadError, ManifestError};
pub use index::{FileHash, INDEX_BYTES_MAX, ManifestFile, ManifestIndex};
pub use key::{ManifestKey, ManifestSigner};
pub use parse::parse_manifest;
pub use received::{
    FILE_BYTES_MAX, FILES_MAX, INDEX_NAME, ParseManifest, ReceivedSet, SET_BYTES_MAX, SIGNATURE_NAME,
    SIGNATURE_TEXT_BYTES_MAX,
};
pub use verified::{Verdict, VerifiedSet};
pub use written::{SourceProblem, WrittenSource};

#[cfg(test)]
mod tests;
