//! Where a service's replicas kept failing: the next ones go there last.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, Slot, Template};
use crate::spec::TimeSpan;
use crate::time::ClusterTime;

/// A replica that kept failing on a node and was moved away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOn {
    pub slot: Slot,
    pub node: NodeId,
    pub template: Template,
    pub at: ClusterTime,
}

impl FailedOn {
    /// A node that was mended is trusted again after so long.
    pub const REMEMBERED: TimeSpan = TimeSpan::from_secs(3_600);

    pub fn is_recent(&self, now: ClusterTime) -> bool {
        self.forgotten() > now
    }

    /// From when on it no longer counts.
    pub fn forgotten(&self) -> ClusterTime {
        self.at.after(Self::REMEMBERED)
    }
}
