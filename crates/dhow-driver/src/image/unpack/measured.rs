//! A stream that is hashed and counted while it is read, stops at a limit, and notices cancellation.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{LimitKind, UnpackError};
use crate::image::digest::{Digest, DigestHasher};

const DRAIN_BYTES: usize = 64 << 10;

/// A reader that hashes and counts what goes through it.
pub(super) struct Measured<'a, R> {
    inner: R,
    hasher: DigestHasher,
    max_bytes: u64,
    cancelled: &'a AtomicBool,
}

impl<'a, R: Read> Measured<'a, R> {
    pub fn new(inner: R, max_bytes: u64, cancelled: &'a AtomicBool) -> Self {
        Self {
            inner,
            hasher: DigestHasher::default(),
            max_bytes,
            cancelled,
        }
    }

    /// Reads to the end and returns the digest of the whole stream.
    pub fn finish(mut self) -> Result<Digest, UnpackError> {
        let mut rest = vec![0; DRAIN_BYTES];
        loop {
            match self.read(&mut rest) {
                Ok(0) => return Ok(self.hasher.finish()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(UnpackError::reading(error)),
            }
        }
    }
}

impl<R: Read> Read for Measured<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::other(UnpackError::Cancelled));
        }
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        if self.hasher.size_bytes() > self.max_bytes {
            let too_large = UnpackError::TooLarge {
                kind: LimitKind::Bytes,
                limit: self.max_bytes,
            };
            return Err(io::Error::other(too_large));
        }
        Ok(count)
    }
}
