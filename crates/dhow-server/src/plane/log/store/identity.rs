//! The identity of a store: drawn once when it is created, part of every checksum afterwards.

use std::fmt;

/// Sixteen random bytes that tell one store's files from another's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StoreId([u8; StoreId::BYTES]);

impl StoreId {
    /// Length on disk.
    pub const BYTES: usize = 16;

    /// A new identity from the system's randomness.
    pub fn random() -> Self {
        StoreId(rand::random())
    }

    /// An identity read from a file, or fixed by a test.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        StoreId(bytes)
    }

    /// The bytes as they stand on disk.
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
