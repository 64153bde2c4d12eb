//! That people have stopped a service: nothing of it runs until somebody starts it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Service;
use crate::ids::Slot;
use crate::time::ClusterTime;

/// Since when a service is stopped, and by whom. What it is to have stays as it is: revision, counts, volumes, ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    pub at: ClusterTime,
    /// For people; nothing is decided by it.
    pub wall_unix_secs: i64,
    pub by: Arc<str>,
}

impl Service {
    /// Whether nothing of it is to run, whatever its counts say: it goes, or people have stopped it.
    pub fn is_off(&self) -> bool {
        self.removing || self.stopped.is_some()
    }

    /// Whether the slot's finished work stays to be seen while the service is stopped, and counts when it is started.
    pub(super) fn keeps_stopped(&self, slot: Slot) -> bool {
        let works = self.spec().is_some_and(|spec| spec.runs_to_completion());
        let of_job = self.runs.is_empty() && self.is_counted(slot);
        works && (of_job || self.run_of(slot).is_some())
    }

    /// Whether the slot is one of those that the counts ask for.
    pub(super) fn is_counted(&self, slot: Slot) -> bool {
        let base = self.cron_base;
        slot.index >= base && slot.index - base < self.count(slot.role)
    }
}
