//! One number for a whole state: equal states have equal hashes on every server.

use std::fmt;

use super::State;
use crate::stored::Writing;

/// The hash of a whole state. Servers compare it, and so do laws and tests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateHash([u8; 32]);

impl StateHash {
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl State {
    /// Over the binary form of the state's feature level, which is the same for equal states because every map is
    /// ordered, and the same on servers of different versions.
    pub fn hash(&self) -> StateHash {
        let mut hasher = blake3::Hasher::new();
        let written = postcard::to_io(&Writing::new(self.form(), self), &mut hasher).is_ok();
        // Writing into a hasher cannot fail, and every type of the state has a binary form.
        debug_assert!(written, "the state has a binary form");
        StateHash(*hasher.finalize().as_bytes())
    }
}
