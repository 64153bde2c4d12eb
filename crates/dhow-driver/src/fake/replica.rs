//! One fake replica: what it was told and since when.

use std::collections::BTreeMap;

use tokio::sync::watch;
use tokio::time::Instant;

use super::script::Script;
use crate::driver::{Exit, ReplicaStatus, Running};
use crate::logs::MemoryLog;

/// A replica of a fake host.
#[derive(Debug)]
pub(super) struct FakeReplica {
    pub pid: u32,
    pub started: Instant,
    pub script: Script,
    pub env: BTreeMap<String, String>,
    pub log: MemoryLog,
    /// When and how a call of the driver or of the test ends the replica. The script's own end is not in here.
    pub end: watch::Sender<Option<(Instant, Exit)>>,
}

impl FakeReplica {
    /// The earliest end that is known, past or to come.
    pub fn next_end(&self) -> Option<(Instant, Exit)> {
        let scripted = self.script.exit.map(|(after, exit)| (self.started + after, exit));
        let decided = *self.end.borrow();
        match (scripted, decided) {
            (Some(scripted), Some(decided)) => Some(if scripted.0 <= decided.0 {
                scripted
            } else {
                decided
            }),
            (scripted, decided) => scripted.or(decided),
        }
    }

    pub fn status(&self, now: Instant) -> ReplicaStatus {
        match self.next_end() {
            Some((at, exit)) if at <= now => ReplicaStatus::Ended(exit),
            Some(_) | None => ReplicaStatus::Running(self.running()),
        }
    }

    pub fn running(&self) -> Running {
        Running {
            pid: self.pid,
            started_unix_ms: 0,
            notices: Vec::new(),
        }
    }

    pub fn is_healthy(&self, now: Instant) -> bool {
        let age = now.duration_since(self.started);
        age >= self.script.healthy_after && self.script.unhealthy_after.is_none_or(|until| age < until)
    }

    /// Decides on an end; an earlier one that was decided on before stays.
    pub fn decide(&self, at: Instant, exit: Exit) {
        self.end.send_if_modified(|end| {
            let earlier = end.is_none_or(|(before, _)| at < before);
            if earlier {
                *end = Some((at, exit));
            }
            earlier
        });
    }
}
