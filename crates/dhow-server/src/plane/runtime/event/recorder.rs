//! From what `step` says to records of the event log and to the nodes that must hear of it. It listens while an entry
//! is applied; the reducer hands both on once the state that has them is published.

use std::collections::BTreeSet;
use std::sync::Arc;

use dhow_core::change::{Change, ChangeSink, ClusterChange, NodeChange, ReplicaChange, compare};
use dhow_core::command::{AgentCommand, ClusterCommand, Command, Entry, Outcome, Refused};
use dhow_core::ids::{NodeId, ReplicaKey};
use dhow_core::state::{Session, State};
use dhow_core::step::step;

use super::doubts::{Doubt, ReportDoubts};
use super::words;
use super::{Event, EventKind, EventRecord};
use crate::plane::runtime::limits::INSTALLED_EVENTS_MAX;

/// Gathers what applied entries give to tell.
#[derive(Debug, Default)]
pub struct EventRecorder {
    pub records: Vec<Arc<EventRecord>>,
    /// Nodes that are to do something else than before.
    pub woken: BTreeSet<NodeId>,
    doubts: ReportDoubts,
}

impl EventRecorder {
    /// Applies an entry: the one place of the server that calls `step` on the cluster's state. Whoever else listens
    /// is told the same; `()` is nobody.
    pub fn apply<S: ChangeSink>(
        &mut self,
        state: &mut State,
        entry: &Entry,
        wall_unix_ms: Option<i64>,
        other: &mut S,
    ) -> Result<Outcome, Refused> {
        let mut of_entry = OfEntry {
            recorder: self,
            other,
            entry,
            wall_unix_ms,
            part: 0,
            author: None,
            diverged: None,
        };
        let result = step(state, entry, &mut of_entry);
        of_entry.tell_diverged(state);
        result
    }
}

/// Listens to one entry.
struct OfEntry<'a, S> {
    recorder: &'a mut EventRecorder,
    other: &'a mut S,
    entry: &'a Entry,
    wall_unix_ms: Option<i64>,
    /// The number of the next event.
    part: u32,
    /// Looked for when the first event needs it.
    author: Option<Option<String>>,
    diverged: Option<Diverged>,
}

/// What a report says that cannot have happened.
struct Diverged {
    first: ReplicaKey,
    events: u64,
}

impl<S: ChangeSink> ChangeSink for OfEntry<'_, S> {
    fn tell(&mut self, state: &State, change: Change<'_>) {
        self.other.tell(state, change);
        wake(&mut self.recorder.woken, state, &change);
        match change {
            Change::Replica(key, _, ReplicaChange::Diverged(_)) => {
                let first = Diverged {
                    first: key,
                    events: 0,
                };
                self.diverged.get_or_insert(first).events += 1;
            }
            Change::Refused(refused) => self.tell_refused(state, refused),
            Change::Cluster(_)
            | Change::Node(..)
            | Change::Deployment(..)
            | Change::Service(..)
            | Change::Replica(..) => {
                if let Some(event) = words::event(state, &change) {
                    self.record(state, event);
                }
            }
        }
    }
}

impl<S> OfEntry<'_, S> {
    fn record(&mut self, state: &State, event: Event) {
        let author = self.author.get_or_insert_with(|| author(state, self.entry));
        let event = Event {
            rollout: words::rollout_of(state, &event),
            author: author.clone(),
            ..event
        };
        self.recorder.records.push(Arc::new(EventRecord {
            revision: state.revision,
            part: self.part,
            time_ms: state.time,
            wall_unix_ms: self.wall_unix_ms,
            event,
        }));
        self.part += 1;
    }

    /// Makes an event of a refused report. A refused write makes none: its caller gets the answer.
    fn tell_refused(&mut self, state: &State, refused: &Refused) {
        if let Command::Agent(command) = &self.entry.command
            && !is_first_word(state, refused)
            && let Doubt::Told { untold } = self.recorder.doubts.doubt(node_of(command), state.time)
        {
            let message = format!("{refused}{}", words::untold(untold));
            let event = Event::new(EventKind::ReportRefused).with_node(node_of(command));
            self.record(state, event.with_message(message));
        }
    }

    /// Comes behind what did happen, so that the places of those events do not depend on it.
    fn tell_diverged(&mut self, state: &State) {
        let Some(Diverged { first, events }) = self.diverged.take() else {
            return;
        };
        if let Command::Agent(command) = &self.entry.command
            && let Doubt::Told { untold } = self.recorder.doubts.doubt(node_of(command), state.time)
        {
            let message = format!(
                "{}{}",
                words::diverged(state, &first, events),
                words::untold(untold)
            );
            let event = Event::new(EventKind::ReportDiverged).with_node(node_of(command));
            self.record(state, event.with_message(message));
        }
    }
}

/// A node that was never heard before is asked for all that it has, and nobody doubts it.
fn is_first_word(state: &State, refused: &Refused) -> bool {
    let Refused::Incarnation { node, .. } = refused else {
        return false;
    };
    let node = state.node(*node);
    node.is_some_and(|node| node.session == Session::default())
}

fn node_of(command: &AgentCommand) -> NodeId {
    match command {
        AgentCommand::Report { node, .. } | AgentCommand::Inventory { node, .. } => *node,
    }
}

/// Notes the node that must hear of a change.
fn wake(woken: &mut BTreeSet<NodeId>, state: &State, change: &Change<'_>) {
    let (node, change) = match change {
        Change::Node(node, change) => (node, change),
        // What a node says of itself and could not be kept is to be said again.
        Change::Cluster(ClusterChange::Created { .. } | ClusterChange::FeatureLevelRaised { .. }) => {
            woken.extend(state.nodes.keys().copied());
            return;
        }
        Change::Cluster(_)
        | Change::Deployment(..)
        | Change::Service(..)
        | Change::Replica(..)
        | Change::Refused(_) => return,
    };
    match change {
        NodeChange::Joined | NodeChange::Removed | NodeChange::Drain(_) | NodeChange::AssignmentChanged => {
            woken.insert(*node);
        }
        NodeChange::Renewed
        | NodeChange::Lost
        | NodeChange::Back
        | NodeChange::Labelled
        | NodeChange::Inventory { .. } => {}
    }
}

/// Who asked for it; none for what the cluster does by itself. Every request of the API names its caller.
fn author(state: &State, entry: &Entry) -> Option<String> {
    match &entry.command {
        Command::Cluster(ClusterCommand::UseToken { nonce, .. }) => {
            return Some(format!("worker token {nonce}"));
        }
        Command::Cluster(_) | Command::Node(_) | Command::Deployment(_) => {}
        Command::Plan(_) | Command::Agent(_) => return None,
    }
    let principal = &entry.request.as_ref()?.request.principal;
    // A name is for people, the id is what counts.
    let id = principal.strip_prefix("token ");
    let token = id.and_then(|id| Some((id, state.api_tokens.get(id)?)));
    Some(match token {
        Some((id, token)) => format!("token {} ({id})", token.name),
        None => principal.to_string(),
    })
}

/// What differs in a state that came as a whole: a note of the gap, what was found, and whom it concerns.
pub(in crate::plane::runtime) fn installed(
    before: &State,
    after: &State,
    wall_unix_ms: i64,
) -> (Vec<Arc<EventRecord>>, BTreeSet<NodeId>) {
    let mut found = Differences::default();
    compare(before, after, &mut found);
    let gap = words::installed(before.revision, after.revision, found.events.len(), found.untold);
    let record = |(part, event)| {
        Arc::new(EventRecord {
            revision: after.revision,
            part,
            time_ms: after.time,
            wall_unix_ms: Some(wall_unix_ms),
            event,
        })
    };
    let events = std::iter::once(gap).chain(found.events);
    ((0u32..).zip(events).map(record).collect(), found.woken)
}

/// What differs between two states of one cluster, as events, and how many more there are than are told.
pub fn differences(before: &State, after: &State) -> (Vec<Event>, usize) {
    let mut found = Differences::default();
    compare(before, after, &mut found);
    (found.events, found.untold)
}

/// Listens to a comparison.
#[derive(Default)]
struct Differences {
    events: Vec<Event>,
    /// Those beyond the limit.
    untold: usize,
    woken: BTreeSet<NodeId>,
}

impl ChangeSink for Differences {
    fn tell(&mut self, state: &State, change: Change<'_>) {
        wake(&mut self.woken, state, &change);
        let event = match change {
            Change::Replica(key, node, ReplicaChange::Observed(machine)) => {
                words::observed(state, &key, node, machine)
            }
            Change::Cluster(_)
            | Change::Node(..)
            | Change::Deployment(..)
            | Change::Service(..)
            | Change::Replica(..)
            | Change::Refused(_) => words::event(state, &change),
        };
        match event {
            Some(_) if self.events.len() >= INSTALLED_EVENTS_MAX => self.untold += 1,
            Some(event) => self.events.push(event),
            None => {}
        }
    }
}
