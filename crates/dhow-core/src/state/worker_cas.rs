//! The CAs of the workers by generation. Every server makes them from the cluster's key; only which of them count is
//! here.

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

/// The newest makes certificates. Those before it are believed for as long as a certificate of theirs may be good for
/// something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCaGenerations {
    /// How often it was replaced.
    pub rotations: u32,
    /// The second until which each replaced generation is believed.
    #[serde(deserialize_with = "crate::maps::read")]
    pub retired: OrdMap<u32, i64>,
}

impl WorkerCaGenerations {
    /// Generations count from 1.
    pub fn newest(&self) -> u32 {
        self.rotations.saturating_add(1)
    }

    /// Those before the newest that are believed, the latest first.
    pub fn older(&self, now_unix_secs: i64) -> Vec<u32> {
        let believed = self.retired.iter().filter(|(_, until)| **until > now_unix_secs);
        believed.map(|(generation, _)| *generation).rev().collect()
    }
}
