//! The keys that sign sets, as text.

use std::collections::BTreeMap;

use ed25519_dalek::{SigningKey, VerifyingKey};

use super::error::ManifestError;
use super::received::ReceivedSet;
use super::sign::sign_set;
use crate::hex::{self, hex_bytes};

hex_bytes! {
    /// The public half: who may sign.
    ManifestKey, 32
}

impl ManifestKey {
    /// None where these bytes are no key.
    pub fn verifying(&self) -> Option<VerifyingKey> {
        VerifyingKey::from_bytes(&self.0)
            .ok()
            .filter(|key| !key.is_weak())
    }
}

/// The secret half: signs sets.
pub struct ManifestSigner(SigningKey);

impl ManifestSigner {
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// One line of text, for a file that only its owner reads.
    pub fn text(&self) -> String {
        format!("{}\n", hex::encode(self.0.as_bytes()))
    }

    /// From its text; none where it is anything else.
    pub fn from_text(text: &str) -> Option<Self> {
        hex::decode(text.trim_end()).map(Self::from_seed)
    }

    pub fn public(&self) -> ManifestKey {
        ManifestKey(self.0.verifying_key().to_bytes())
    }

    /// Makes the index of these files, by path, and signs it.
    pub fn sign(
        &self,
        version: u64,
        created_unix_secs: i64,
        files: BTreeMap<String, Vec<u8>>,
    ) -> Result<ReceivedSet, ManifestError> {
        sign_set(&self.0, version, created_unix_secs, files)
    }
}
