//! What the agent of a static peer is told of services: it reads that off its own copy of the state.

use std::sync::{Arc, Mutex, PoisonError};

use dhow_agent::KnownDirectory;
use dhow_core::directory::Interest;
use dhow_core::ids::NodeId;
use dhow_core::state::State;
use dhow_server::clock::Clock;
use dhow_server::gateway::{GivenTicket, TicketIssuer};
use dhow_server::plane::runtime::RuntimeView;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How long before it looks whether the ticket is half over, where nothing else happens.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(60);

/// The node's directory, kept up to date by a task that ends with it.
pub struct DirectoryFeed {
    source: Arc<Source>,
    task: AbortHandle,
}

struct Source {
    node: NodeId,
    view: RuntimeView,
    clock: Arc<dyn Clock>,
    /// None where there are no other nodes.
    tickets: Option<TicketIssuer>,
    given: Mutex<GivenTicket>,
    told: watch::Sender<Option<Arc<KnownDirectory>>>,
}

impl DirectoryFeed {
    /// Call it on a runtime.
    pub fn start(
        node: NodeId,
        view: RuntimeView,
        clock: Arc<dyn Clock>,
        tickets: Option<TicketIssuer>,
    ) -> Self {
        let source = Arc::new(Source {
            node,
            view,
            clock,
            tickets,
            given: Mutex::default(),
            told: watch::Sender::new(None),
        });
        let task = tokio::spawn(follow(Arc::clone(&source)));
        Self {
            source,
            task: task.abort_handle(),
        }
    }

    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<KnownDirectory>>> {
        self.source.told.subscribe()
    }

    /// Brings it up to date: before an assignment is handed out, so that names are there before replicas that use them.
    pub fn refresh(&self) {
        self.source.refresh(&self.source.view.state());
    }
}

impl Drop for DirectoryFeed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Source {
    fn refresh(&self, state: &State) {
        if state.node(self.node).is_none() {
            return;
        }
        let directory = self.view.directories().of(state, self.node);
        let now = self.clock.wall_unix_ms() / 1_000;
        let pass = self.tickets.as_ref().map(|tickets| {
            // A ticket that was not noted is given again.
            let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
            given.due(tickets, state, self.node, now)
        });
        self.told.send_if_modified(|told| {
            let mut next = told.as_deref().cloned().unwrap_or_default();
            next.follow(directory.since(None), pass.unwrap_or_default());
            let is_news = told.as_deref() != Some(&next);
            if is_news {
                *told = Some(Arc::new(next));
            }
            is_news
        });
    }
}

async fn follow(source: Arc<Source>) {
    let directories = source.view.directories();
    let mut changes = directories.follow(source.node, 0, Interest::All);
    loop {
        let state = source.view.state();
        source.refresh(&state);
        tokio::select! {
            is_news = changes.changed() => if !is_news {
                return;
            },
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}
