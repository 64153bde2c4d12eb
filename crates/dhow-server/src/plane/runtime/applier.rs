//! The applier: the only task that executes what follows from applied entries. It wakes those who wait for a node's
//! assignment, and hands what was touched to the keeper of the directory; what else an applied entry asks of this
//! process belongs here too.

use std::collections::BTreeMap;

use dhow_core::directory::Touched;
use dhow_core::ids::{NodeId, Revision};
use tokio::sync::mpsc;

use super::directory::TouchedSince;
use super::shutdown::ShutdownToken;
use super::wakeups::NodeWakeups;

/// What follows from a batch of applied entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Nodes whose assignment has changed, and the revision of the change.
    pub wake: BTreeMap<NodeId, Revision>,
    /// Services and nodes of which something in the directory may have changed.
    pub touched: Touched,
}

impl Effects {
    pub fn is_empty(&self) -> bool {
        self.wake.is_empty() && self.touched.is_empty()
    }

    /// Takes in later effects: of two wake-ups of a node the later one is enough.
    pub fn merge(&mut self, later: Effects) {
        self.wake.extend(later.wake);
        self.touched.merge(later.touched);
    }
}

/// Runs until the reducer has ended and everything that it asked for is done.
pub(super) async fn run(
    mut effects: mpsc::Receiver<Effects>,
    wakeups: NodeWakeups,
    touched: TouchedSince,
    mut token: ShutdownToken,
) {
    loop {
        tokio::select! {
            biased;
            next = effects.recv() => match next {
                Some(next) => execute(next, &wakeups, &touched),
                None => return,
            },
            () = token.ended() => break,
        }
    }
    while let Ok(next) = effects.try_recv() {
        execute(next, &wakeups, &touched);
    }
}

fn execute(effects: Effects, wakeups: &NodeWakeups, touched: &TouchedSince) {
    wakeups.wake(&effects.wake);
    touched.add(effects.touched);
}
