//! The rollouts that the node has prepared for and names in its reports.

use std::collections::VecDeque;

use crate::limits::ROLLOUTS_KNOWN_MAX;
use crate::session::{OpenRollout, RolloutId};

/// The rollouts that the node has prepared for, the newest last, and whether it prepares for others.
#[derive(Default)]
pub(super) struct PreparedRollouts {
    known: VecDeque<RolloutId>,
    is_preparing: bool,
}

impl PreparedRollouts {
    /// Those that it has prepared for, the newest first.
    pub fn known(&self) -> Vec<RolloutId> {
        self.known.iter().rev().cloned().collect()
    }

    /// What is to be prepared for now. One after the other: what is still open then is handed again.
    pub fn prepare(&mut self, open: Vec<OpenRollout>) -> Option<Vec<OpenRollout>> {
        if open.is_empty() || self.is_preparing {
            return None;
        }
        self.is_preparing = true;
        Some(open)
    }

    /// The node has prepared for these. An older revision of the same deployment is over.
    pub fn learn(&mut self, prepared: Vec<RolloutId>) {
        self.is_preparing = false;
        for rollout in prepared {
            self.known.retain(|other| other.deployment != rollout.deployment);
            self.known.push_back(rollout);
            if self.known.len() > ROLLOUTS_KNOWN_MAX {
                self.known.pop_front();
            }
        }
    }
}
