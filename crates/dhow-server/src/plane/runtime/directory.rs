//! The directory of services beside the state: a task brings its index up to date after entries were applied, and wakes
//! the nodes that a change concerns. Changes are taken together: what happens within 50 ms goes as one, and where many
//! nodes were woken just now, within half a second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::directory::{Concerned, Directory, DirectoryIndex, Touched};
use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::State;
use tokio::sync::{Notify, watch};

use super::limits::{DIRECTORY_LOAD_MS, DIRECTORY_QUIET_NODES_MAX};
use super::shutdown::ShutdownToken;
use super::wakeups::NodeWakeups;
use crate::clock::Clock;

/// What entries have touched and the task has not looked at; clones are the same. It has one place per service and node.
#[derive(Clone, Debug, Default)]
pub(super) struct TouchedSince {
    touched: Arc<Mutex<Touched>>,
    news: Arc<Notify>,
}

impl TouchedSince {
    pub fn add(&self, touched: Touched) {
        if touched.is_empty() {
            return;
        }
        self.lock().merge(touched);
        self.news.notify_one();
    }

    fn take(&self) -> Touched {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Touched> {
        // Merged under the lock; what a holder that panicked left is touched all the same.
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The directories of all nodes as readers see them; cheap to clone.
#[derive(Clone, Debug)]
pub struct Directories {
    index: watch::Receiver<Arc<DirectoryIndex>>,
    wakeups: NodeWakeups,
}

impl Directories {
    /// What a node is told, by this state and the newest index.
    pub fn of(&self, state: &State, node: NodeId) -> Directory {
        let index = self.index.borrow().clone();
        index.directory(state, node)
    }

    /// Waits for changes that concern one node; look at its directory after calling this and before waiting.
    pub fn changes(&self, node: NodeId) -> watch::Receiver<Revision> {
        self.wakeups.subscribe(node)
    }
}

/// The task that keeps the index.
pub(super) struct DirectoryTask {
    touched: TouchedSince,
    states: watch::Receiver<Arc<State>>,
    clock: Arc<dyn Clock>,
    index: watch::Sender<Arc<DirectoryIndex>>,
    wakeups: NodeWakeups,
    /// How long changes are gathered before nodes are told.
    quiet_ms: u64,
}

impl DirectoryTask {
    pub fn new(
        touched: TouchedSince,
        states: watch::Receiver<Arc<State>>,
        clock: Arc<dyn Clock>,
        quiet_ms: u64,
    ) -> (Self, Directories) {
        let (sender, index) = watch::channel(Arc::default());
        let wakeups = NodeWakeups::default();
        // What the state has from before, where it has anything.
        let is_empty = {
            let state = states.borrow();
            state.nodes.is_empty() && state.deployments.is_empty()
        };
        if !is_empty {
            touched.add(Touched::everything());
        }
        let directories = Directories {
            index,
            wakeups: wakeups.clone(),
        };
        let task = Self {
            touched,
            states,
            clock,
            index: sender,
            wakeups,
            quiet_ms,
        };
        (task, directories)
    }

    /// Runs until the reducer has ended.
    pub async fn run(self, mut token: ShutdownToken) {
        // The moment until which many nodes have enough to do with what they were told.
        let mut busy_until_ms = 0;
        loop {
            let turn = async {
                self.touched.news.notified().await;
                let now_ms = self.clock.monotonic_ms();
                let until_ms = now_ms.saturating_add(self.quiet_ms).max(busy_until_ms);
                if until_ms > now_ms {
                    self.clock.sleep_until_monotonic(until_ms).await;
                }
            };
            tokio::select! {
                biased;
                () = token.ended() => return,
                () = turn => {}
            }
            let Some(woken) = self.refresh().await else {
                return;
            };
            if woken > DIRECTORY_QUIET_NODES_MAX {
                busy_until_ms = self.clock.monotonic_ms().saturating_add(DIRECTORY_LOAD_MS);
            }
        }
    }

    /// Takes in what was touched; gives how many nodes were woken, or nothing where the process ends.
    async fn refresh(&self) -> Option<usize> {
        let touched = self.touched.take();
        // After what was touched was taken: the state has all of it.
        let state = self.states.borrow().clone();
        let index = self.index.borrow().clone();
        let revision = state.revision;
        // A whole state takes long, and a service of many replicas some milliseconds.
        let refreshed = tokio::task::spawn_blocking(move || {
            let mut index = index.as_ref().clone();
            let concerned = index.refresh(&state, &touched);
            (index, concerned)
        });
        let (index, concerned) = refreshed.await.ok()?;
        self.index.send_replace(Arc::new(index));
        let Concerned { all, nodes } = concerned;
        Some(match all {
            true => self.wakeups.wake_all(revision),
            false => {
                let nodes = nodes.into_iter().map(|node| (node, revision)).collect();
                self.wakeups.wake(&nodes)
            }
        })
    }
}
