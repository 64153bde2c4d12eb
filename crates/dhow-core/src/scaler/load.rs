//! What nodes tell of the load of services.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ServiceId;

/// What all nodes together have told of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// What its replicas use, in thousandths of a core.
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    /// Thousandths of a request a second, over all of its endpoints.
    pub requests_milli: u64,
    /// Requests and connections that are under way, those that wait included.
    pub in_flight: u64,
    /// Requests that wait for a first replica.
    pub waiting: u64,
    /// Every node that may know something of it has told so lately. Where one has not, the sums are too small.
    pub is_whole: bool,
}

/// The load of each adaptive service, as the leader has heard it.
pub type LoadBook = BTreeMap<ServiceId, Load>;

impl Load {
    /// Whether nobody wants anything of the service.
    pub fn is_idle(&self) -> bool {
        self.requests_milli == 0 && self.in_flight == 0 && self.waiting == 0
    }
}

/// What a count was decided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    Cpu,
    Memory,
    Rps,
    InFlight,
    /// Requests that somebody has begun, of a service that may have no replica.
    Calls,
    /// The limits of the file.
    Bounds,
}

impl Measure {
    /// An amount of it, in thousandths or in bytes.
    pub fn shown(self, amount: u64) -> String {
        match self {
            Self::Cpu => format!("{} CPU", crate::spec::Cpu(amount)),
            Self::Memory => crate::spec::ByteSize(amount).to_string(),
            Self::Rps => format!("{} requests a second", tenths(amount)),
            Self::InFlight | Self::Calls => format!("{} in flight", tenths(amount)),
            Self::Bounds => amount.to_string(),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Rps => "rps",
            Self::InFlight => "in_flight",
            Self::Calls => "calls",
            Self::Bounds => "bounds",
        })
    }
}

/// Thousandths as a number with at most one digit behind the point.
fn tenths(milli: u64) -> String {
    let tenths = milli / 100;
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        tenth => format!("{}.{tenth}", tenths / 10),
    }
}
