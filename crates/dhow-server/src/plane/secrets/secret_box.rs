//! Seals and unseals values.

use std::fmt;
use std::path::Path;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use super::key_file::{self, KEY_BYTES, KeyFileError};
use crate::net::keys::ClusterKey;

/// The form of a sealed value: this byte, the nonce, the ciphertext with its tag.
const FORM: u8 = 1;

/// The key with which a server seals the values of secrets before they enter the log, and unseals them for nodes.
pub struct SecretBox {
    key: LessSafeKey,
    /// Tells equal values apart from others without saying what they are.
    print_key: [u8; KEY_BYTES],
}

/// Why a value could not be sealed or unsealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("this host gives no random numbers")]
    NoRandom,
    #[error("the value cannot be sealed")]
    Seal,
    #[error("the value was sealed by a newer version")]
    Form,
    #[error("the value cannot be unsealed: it was sealed with another key, for another name, or is damaged")]
    Unseal,
}

impl fmt::Debug for SecretBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBox")
    }
}

impl SecretBox {
    /// Opens the key in a directory, or makes one. Blocks.
    pub fn open(dir: &Path) -> Result<Self, KeyFileError> {
        Ok(Self::new(key_file::open(dir)?))
    }

    /// The box that every server of a cluster has.
    pub fn from_cluster_key(key: &ClusterKey) -> Self {
        Self::new(*key.secrets_key())
    }

    fn new(key: [u8; KEY_BYTES]) -> Self {
        let print_key = blake3::derive_key("dhow 1 fingerprints of secrets", &key);
        let sealing = blake3::derive_key("dhow 1 sealing of secrets", &key);
        // The key has the length that the algorithm wants, which is the only thing that is checked.
        let unbound = UnboundKey::new(&CHACHA20_POLY1305, &sealing).expect("a key of 32 bytes");
        Self {
            key: LessSafeKey::new(unbound),
            print_key,
        }
    }

    /// The name goes in as associated data: a value cannot be passed off as another's.
    pub fn seal(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| SealError::NoRandom)?;
        let mut bytes = value.to_vec();
        let aad = Aad::from(name.as_bytes());
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes)
            .map_err(|_| SealError::Seal)?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + bytes.len());
        sealed.push(FORM);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&bytes);
        Ok(sealed)
    }

    pub fn unseal(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (form, rest) = sealed.split_first().ok_or(SealError::Unseal)?;
        if *form != FORM {
            return Err(SealError::Form);
        }
        let (nonce, bytes) = rest.split_first_chunk::<NONCE_LEN>().ok_or(SealError::Unseal)?;
        let mut bytes = bytes.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let aad = Aad::from(name.as_bytes());
        let opened = self.key.open_in_place(nonce, aad, &mut bytes);
        opened.map(|value| value.to_vec()).map_err(|_| SealError::Unseal)
    }

    /// The same for the same value, and useless without the key: what a retried request is known by.
    pub fn fingerprint(&self, value: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.print_key, value).as_bytes()
    }
}
