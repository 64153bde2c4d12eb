//! How much of a node something offers, uses or asks for. Arithmetic never wraps.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::spec::{ByteSize, Cpu, Resources};

/// CPU in thousandths of a core and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Amount {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl Amount {
    pub const ZERO: Self = Self {
        cpu_milli: 0,
        memory_bytes: 0,
    };

    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    pub fn minus(self, other: Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.saturating_sub(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
        }
    }

    /// Whether `self` is enough for `asked` in every respect.
    pub fn covers(self, asked: Self) -> bool {
        self.cpu_milli >= asked.cpu_milli && self.memory_bytes >= asked.memory_bytes
    }
}

impl From<Resources> for Amount {
    fn from(resources: Resources) -> Self {
        Self {
            cpu_milli: resources.cpu.map_or(0, |cpu| cpu.0),
            memory_bytes: resources.memory.map_or(0, |memory| memory.0),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CPU, {}", Cpu(self.cpu_milli), ByteSize(self.memory_bytes))
    }
}
