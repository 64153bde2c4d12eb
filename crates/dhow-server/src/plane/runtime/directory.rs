//! The directory of services beside the state: a task brings its index up to date after entries were applied, and wakes
//! the nodes that a change concerns, by what they run or because they have asked for it. Changes are taken together: what
//! happens within 50 ms goes as one, and where many nodes were woken just now, within half a second or a whole one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dhow_core::directory::{
    Concerned, Directory, DirectoryChange, DirectoryIndex, Interest, InterestBook, ToldListings, Touched,
    WordOfInterest,
};
use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::State;
use tokio::sync::{Notify, watch};

use super::limits::{
    DIRECTORY_LOAD_MS, DIRECTORY_LOAD_NODES_MAX, DIRECTORY_QUIET_NODES_MAX, DIRECTORY_STORM_MS,
};
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
    interests: Interests,
}

/// What the nodes with a session here have asked for; clones are the same. At most one place per node.
#[derive(Clone, Debug, Default)]
struct Interests {
    book: Arc<Mutex<InterestBook>>,
    sessions: Arc<AtomicU64>,
}

impl Interests {
    fn book(&self) -> MutexGuard<'_, InterestBook> {
        // Every change is whole before the lock is given back, unless memory is out.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directories {
    /// All that a node is told that reads its own state, by this state and the newest index.
    pub fn of(&self, state: &State, node: NodeId) -> Directory {
        let index = self.index.borrow().clone();
        index.directory(state, node, &Interest::All)
    }

    /// A node begins to follow its directory with this opening, and wants this.
    pub fn follow(&self, node: NodeId, opening: u64, interest: Interest) -> DirectoryFollower {
        let changes = self.wakeups.subscribe(node);
        let session = self.interests.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        self.interests.book().begin(node, session, opening, interest);
        DirectoryFollower {
            directories: self.clone(),
            node,
            session,
            changes,
            told: ToldListings::default(),
        }
    }

    /// A node that follows its directory here wants this from now on; false where it does not, or not with this opening.
    pub fn want(&self, node: NodeId, word: WordOfInterest, interest: Interest) -> bool {
        let is_here = self.interests.book().set(node, word, interest);
        if is_here {
            let revision = Revision(0);
            self.wakeups.wake(&[(node, revision)].into());
        }
        is_here
    }
}

/// One node's directory, followed by whoever tells it.
#[derive(Debug)]
pub struct DirectoryFollower {
    directories: Directories,
    node: NodeId,
    session: u64,
    changes: watch::Receiver<Revision>,
    told: ToldListings,
}

impl DirectoryFollower {
    /// What the node has to hear now; it counts as told.
    pub fn look(&mut self, state: &State) -> DirectoryChange {
        self.changes.borrow_and_update();
        let interest = self.directories.interests.book().of(self.node);
        let index = self.directories.index.borrow().clone();
        self.told.look(&index, state, self.node, &interest)
    }

    /// Waits until something concerns the node that happened after the last look; false at the end.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

impl Drop for DirectoryFollower {
    fn drop(&mut self) {
        self.directories.interests.book().end(self.node, self.session);
    }
}

/// The task that keeps the index.
pub(super) struct DirectoryTask {
    touched: TouchedSince,
    states: watch::Receiver<Arc<State>>,
    clock: Arc<dyn Clock>,
    index: watch::Sender<Arc<DirectoryIndex>>,
    wakeups: NodeWakeups,
    interests: Interests,
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
        let (wakeups, interests) = (NodeWakeups::default(), Interests::default());
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
            interests: interests.clone(),
        };
        let task = Self {
            touched,
            states,
            clock,
            index: sender,
            wakeups,
            interests,
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
            let pause_ms = if woken <= DIRECTORY_QUIET_NODES_MAX {
                0
            } else if woken <= DIRECTORY_LOAD_NODES_MAX {
                DIRECTORY_LOAD_MS
            } else {
                DIRECTORY_STORM_MS
            };
            busy_until_ms = self.clock.monotonic_ms().saturating_add(pause_ms);
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
        let (index, mut concerned) = refreshed.await.ok()?;
        self.index.send_replace(Arc::new(index));
        // After the index is there: who asks from now on finds it.
        self.interests.book().add_to(&mut concerned);
        let Concerned { all, nodes, .. } = concerned;
        Some(match all {
            true => self.wakeups.wake_all(revision),
            false => {
                let nodes = nodes.into_iter().map(|node| (node, revision)).collect();
                self.wakeups.wake(&nodes)
            }
        })
    }
}
