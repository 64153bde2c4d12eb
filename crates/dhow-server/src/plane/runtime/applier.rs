//! The applier: the only task that executes what follows from applied entries. Today that is waking those who wait
//! for a node's assignment; what else an applied entry asks of this process belongs here too.

use std::collections::BTreeMap;

use dhow_core::ids::{NodeId, Revision};
use tokio::sync::mpsc;

use super::shutdown::ShutdownToken;
use super::wakeups::NodeWakeups;

/// What follows from a batch of applied entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Nodes whose assignment has changed, and the revision of the change.
    pub wake: BTreeMap<NodeId, Revision>,
}

impl Effects {
    pub fn is_empty(&self) -> bool {
        self.wake.is_empty()
    }

    /// Takes in later effects: of two wake-ups of a node the later one is enough.
    pub fn merge(&mut self, later: Effects) {
        self.wake.extend(later.wake);
    }
}

/// Runs until the reducer has ended and everything that it asked for is done.
pub(super) async fn run(
    mut effects: mpsc::Receiver<Effects>,
    wakeups: NodeWakeups,
    mut token: ShutdownToken,
) {
    loop {
        tokio::select! {
            biased;
            next = effects.recv() => match next {
                Some(next) => execute(&next, &wakeups),
                None => return,
            },
            () = token.ended() => break,
        }
    }
    while let Ok(next) = effects.try_recv() {
        execute(&next, &wakeups);
    }
}

fn execute(effects: &Effects, wakeups: &NodeWakeups) {
    wakeups.wake(&effects.wake);
}
