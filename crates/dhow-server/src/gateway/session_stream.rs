//! What a node is told over its session, in order: that it is open, what it has to know of services, everything that it is to
//! run or what changed, and every change.

use std::collections::VecDeque;
use std::sync::Arc;

use dhow_core::assignment::assignment_since;
use dhow_core::directory::Interest;
use dhow_core::ids::{NodeId, Revision};
use dhow_core::state::{Drain, State};
use dhow_wire::grpc::proto::session_event::Event;
use dhow_wire::grpc::proto::{self, SessionEvent};
use dhow_wire::grpc::{Refusal, SpecReader, to_parts};
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use tonic::Status;

use super::node_gateway::GatewayState;
use super::sessions::{SessionGuard, Word};
use super::told_directory::ToldDirectory;
use crate::clock::Clock;
use crate::net::tunnels::{Attachment, TunnelNumber};

/// What a node asks for with its session.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// What it has.
    pub last: Option<Revision>,
    pub takes_directory: bool,
    /// Which services beside its own it is to be told of, until it says something else for this opening.
    pub interest: Interest,
    pub opening: u64,
    /// What the servers knew when it said what it is.
    pub feature_level: u32,
}

/// The server's side of one session: the stream of what the server sends the node until the session ends.
pub(super) struct SessionStream {
    inner: Arc<GatewayState>,
    node: NodeId,
    guard: SessionGuard,
    /// The level of the cluster when the node said what it is: what that level does not have was not kept.
    feature_level: u32,
    /// The term in which this server leads, where only a leader takes sessions: the session ends with it.
    term: Option<u64>,
    terms: watch::Receiver<Option<u64>>,
    changes: watch::Receiver<Revision>,
    /// What it has been told of services, where it asks for that.
    directory: Option<ToldDirectory>,
    /// What the node is asked to dial back for, where it does that.
    dials: Option<Attachment>,
    /// The last wake-up was for the directory alone.
    only_directory: bool,
    /// What the node has.
    last: Option<Revision>,
    reader: SpecReader,
    /// Whether the node was told to end once it is drained.
    drain_told: bool,
    /// At most the parts of one assignment.
    waiting: VecDeque<Event>,
    is_over: bool,
}

impl SessionStream {
    pub fn new(
        inner: Arc<GatewayState>,
        node: NodeId,
        guard: SessionGuard,
        (asked, dials): (Asked, Option<Attachment>),
    ) -> Self {
        let takes_directory = asked.takes_directory && inner.options.carries_assignments;
        let directory = takes_directory.then(|| {
            let directories = inner.options.view.directories();
            ToldDirectory::new(directories.follow(node, asked.opening, asked.interest))
        });
        Self {
            directory,
            dials,
            only_directory: false,
            reader: match asked.takes_directory {
                true => SpecReader::Current,
                false => SpecReader::BeforeCallers,
            },
            term: inner.options.leases.term(),
            terms: inner.options.leases.terms(),
            changes: inner.options.view.node_changes(node),
            inner,
            node,
            guard,
            last: asked.last,
            feature_level: asked.feature_level,
            drain_told: false,
            waiting: VecDeque::new(),
            is_over: false,
        }
    }

    pub fn begin(mut self, opened: proto::Opened) -> BoxStream<'static, Result<SessionEvent, Status>> {
        self.waiting.push_back(Event::Opened(opened));
        let events = stream::unfold(self, |mut session| async move {
            let event = session.next().await?;
            Some((event, session))
        });
        events
            .map(|event| Ok(SessionEvent { event: Some(event) }))
            .boxed()
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            if std::mem::take(&mut self.only_directory) {
                let state = self.inner.options.view.state();
                self.look_for_services(&state);
            } else {
                self.changes.borrow_and_update();
                match self.inner.state_with(self.node).await {
                    Ok(state) => self.look(&state),
                    Err(refusal) => self.end(&refusal),
                }
            }
            if self.waiting.is_empty()
                && let Some(refusal) = self.wait().await
            {
                self.end(&refusal);
            }
        }
    }

    /// Takes from the state what the node has not been told.
    fn look(&mut self, state: &State) {
        let Some(node) = state.node(self.node) else {
            return;
        };
        if state.feature_level > self.feature_level {
            // It says what it is with the next session, and that is kept whole.
            return self.end(&Refusal::Busy);
        }
        let (drain, revision) = (node.drain, state.revision);
        // First, so that names are there before replicas that use them start.
        self.look_for_services(state);
        if self.inner.options.carries_assignments {
            self.look_for_assignments(state);
        }
        let shuts_down = match drain {
            Drain::Draining { shutdown } | Drain::Drained { shutdown } => shutdown,
            Drain::No => false,
        };
        if shuts_down && !self.drain_told {
            self.waiting
                .push_back(Event::Drain(proto::Drain { revision: revision.0 }));
        }
        if self.drain_told && !shuts_down {
            // There is no word for "stay after all": the next session begins without it.
            self.end(&Refusal::Busy);
        }
        self.drain_told = shuts_down;
    }

    fn look_for_services(&mut self, state: &State) {
        // Who is unknown is told so by another word.
        let directory = self
            .directory
            .as_mut()
            .filter(|_| state.node(self.node).is_some());
        let Some(told) = directory else {
            return;
        };
        let options = &self.inner.options;
        let now = options.clock.wall_unix_ms() / 1_000;
        let looked = told.look(state, self.node, (options.tickets.as_ref(), now));
        match looked {
            Ok(parts) => self.waiting.extend(parts.into_iter().map(Event::Directory)),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, node = %self.node, "a directory cannot be sent; this is a bug in Dhow");
            }
        }
    }

    fn look_for_assignments(&mut self, state: &State) {
        let Some(assignment) = assignment_since(state, self.node, self.last) else {
            return;
        };
        match to_parts(&assignment, &self.inner.spec_texts, self.reader) {
            Ok(parts) => self.waiting.extend(parts.into_iter().map(Event::Assignment)),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, node = %self.node, "an assignment cannot be sent; this is a bug in Dhow");
            }
        }
        self.last = Some(assignment.revision);
    }

    /// Waits for news; tells why the session ends, where it does.
    async fn wait(&mut self) -> Option<Refusal> {
        let (term, is_alone) = (self.term, self.inner.holder.is_alone());
        let directory_due = directory_due(&mut self.directory, &*self.inner.options.clock);
        let word = tokio::select! {
            biased;
            () = self.inner.options.end.cancelled() => Word::Over(Refusal::ShuttingDown),
            word = self.guard.word() => word,
            _ = self.terms.wait_for(|now| *now != term), if is_alone => Word::Over(self.inner.not_leader()),
            changed = self.changes.changed() => match changed {
                Ok(()) => Word::Nothing,
                Err(_) => Word::Over(Refusal::ShuttingDown),
            },
            number = next_dial(&mut self.dials) => {
                let number = number.to_vec();
                self.waiting.push_back(Event::DialBack(proto::DialBack { number }));
                Word::Nothing
            }
            () = directory_due => {
                self.only_directory = true;
                Word::Nothing
            }
        };
        match word {
            Word::Nothing => None,
            Word::Move { to } => {
                self.send_to(to);
                None
            }
            Word::Over(why) => Some(why),
        }
    }

    /// A server whose address nobody knows is none to go to.
    fn send_to(&mut self, server: NodeId) {
        if let Some(address) = (self.inner.options.session_address)(server) {
            tracing::debug!(node = %self.node, %server, "a node is sent to the server that it belongs to");
            self.waiting.push_back(Event::Move(proto::Move {
                server_id: server.0,
                address,
            }));
        }
    }

    fn end(&mut self, refusal: &Refusal) {
        self.guard.end_here();
        self.waiting.push_back(Event::Ended(refusal.to_ended()));
        self.is_over = true;
    }
}

async fn next_dial(dials: &mut Option<Attachment>) -> TunnelNumber {
    match dials {
        Some(dials) => dials.next().await,
        None => std::future::pending().await,
    }
}

/// Ends when the node has to be told something of services: what concerns it has changed, or its ticket is half over.
async fn directory_due(directory: &mut Option<ToldDirectory>, clock: &dyn Clock) {
    let Some(told) = directory else {
        return std::future::pending().await;
    };
    let renew_at = told.renew_at_unix_secs();
    let renewal = async {
        let Some(at) = renew_at else {
            return std::future::pending().await;
        };
        let wait_ms = at.saturating_mul(1_000).saturating_sub(clock.wall_unix_ms());
        let wait_ms = u64::try_from(wait_ms).unwrap_or(0);
        let until_ms = clock.monotonic_ms().saturating_add(wait_ms);
        clock.sleep_until_monotonic(until_ms).await;
    };
    tokio::select! {
        is_news = told.follower.changed() => if !is_news {
            // The session ends by another word.
            std::future::pending().await
        },
        () = renewal => {}
    }
}
