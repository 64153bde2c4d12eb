//! The one key that the servers of a cluster share.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::SigningKey;
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use super::error::ClusterKeyError;

const KEY_BYTES: usize = 32;
/// Tells what the line is, and how to read the rest.
pub(super) const PREFIX: &str = "dhowkey1.";
/// The prefix, 43 characters of base64 and blanks around them; whatever is longer is no key.
const FILE_BYTES_MAX: u64 = 256;

/// Whoever has it is a server of the cluster. Every use has a key of its own, derived from it.
#[derive(Clone)]
pub struct ClusterKey(Zeroizing<[u8; KEY_BYTES]>);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

impl ClusterKey {
    pub fn generate() -> Result<Self, ClusterKeyError> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new()
            .fill(&mut *key)
            .map_err(|_| ClusterKeyError::NoRandom)?;
        Ok(Self(key))
    }

    /// From its line; blanks and a line end around it are those of the file that it came from.
    pub fn parse(text: &str) -> Result<Self, ClusterKeyError> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(ClusterKeyError::Empty);
        }
        let encoded = text.strip_prefix(PREFIX).ok_or(ClusterKeyError::Form)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| ClusterKeyError::Damaged)?;
        let key = <[u8; KEY_BYTES]>::try_from(bytes.as_slice()).map_err(|_| ClusterKeyError::Damaged)?;
        Ok(Self(Zeroizing::new(key)))
    }

    /// The line of its file. It goes there and nowhere else.
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut line = Zeroizing::new(String::with_capacity(FILE_BYTES_MAX as usize));
        line.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(self.0.as_slice(), &mut line);
        line
    }

    /// Reads the file, which must be its owner's alone. Blocks.
    pub fn read_file(path: &Path) -> Result<Self, ClusterKeyError> {
        let failed = |action| {
            move |cause| ClusterKeyError::Io {
                action,
                path: path.to_owned(),
                cause,
            }
        };
        let file = File::open(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => ClusterKeyError::Missing {
                path: path.to_owned(),
            },
            _ => failed("open")(cause),
        })?;
        let found = file.metadata().map_err(failed("look at"))?;
        let own = nix::unistd::geteuid().as_raw();
        if found.uid() != own && found.uid() != 0 {
            return Err(ClusterKeyError::Owner {
                path: path.to_owned(),
                owner: found.uid(),
                own,
            });
        }
        if found.permissions().mode() & 0o077 != 0 {
            return Err(ClusterKeyError::Open {
                path: path.to_owned(),
            });
        }
        // Of its final size from the start: a buffer that grows leaves copies behind.
        let mut text = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX as usize + 1));
        file.take(FILE_BYTES_MAX)
            .read_to_end(&mut text)
            .map_err(failed("read"))?;
        let parsed = std::str::from_utf8(&text).map_err(|_| ClusterKeyError::Form);
        parsed
            .and_then(Self::parse)
            .map_err(|cause| ClusterKeyError::File {
                path: path.to_owned(),
                cause: Box::new(cause),
            })
    }

    /// A key for one use. Knowing it tells nothing about the others.
    fn derive(&self, context: &str, part: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(self.0.as_slice());
        hasher.update(part);
        Zeroizing::new(*hasher.finalize().as_bytes())
    }

    pub(super) fn cluster_ca_seed(&self) -> Zeroizing<[u8; KEY_BYTES]> {
        self.derive("dhow 1 CA of the servers", &[])
    }

    pub(super) fn worker_ca_seed(&self, generation: u32) -> Zeroizing<[u8; KEY_BYTES]> {
        self.derive("dhow 1 CA of the workers", &generation.to_le_bytes())
    }

    /// What seals the secrets of the cluster.
    pub(crate) fn secrets_key(&self) -> Zeroizing<[u8; KEY_BYTES]> {
        self.derive("dhow 1 secrets of the cluster", &[])
    }

    /// What signs the tokens of workers that speak JSON.
    pub fn internal_token_key(&self) -> Zeroizing<[u8; KEY_BYTES]> {
        self.derive("dhow 1 internal tokens of workers", &[])
    }

    /// What signs the tickets that nodes show to each other.
    pub fn ticket_key(&self) -> SigningKey {
        SigningKey::from_bytes(&self.derive("dhow 1 tickets of nodes", &[]))
    }

    /// What signs the tokens with which workers join.
    pub fn worker_token_key(&self) -> SigningKey {
        SigningKey::from_bytes(&self.derive("dhow 1 bootstrap tokens of workers", &[]))
    }
}
