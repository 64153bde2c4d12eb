//! Cluster time: milliseconds that only the log moves. Every entry carries it (the last committed plus the
//! leader's monotonic elapsed), so that `step` needs no clock and every server agrees. Not wall time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::spec::TimeSpan;

/// A moment of the cluster's own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterTime(pub u64);

impl ClusterTime {
    /// A moment `span` later; stays at the end of time instead of wrapping.
    pub fn after(self, span: TimeSpan) -> Self {
        Self(self.0.saturating_add(span.as_millis()))
    }

    /// How long it has been since `earlier`; zero where that lies ahead.
    pub fn since(self, earlier: ClusterTime) -> TimeSpan {
        TimeSpan::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for ClusterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", TimeSpan::from_millis(self.0))
    }
}
