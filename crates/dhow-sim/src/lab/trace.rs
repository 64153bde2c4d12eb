//! What happened: the records of the event log as a server makes them, and beside them what no event tells and only
//! whoever simulates a cluster looks for.

use std::fmt;
use std::sync::Arc;

use dhow_core::change::{Change, ChangeSink, ReplicaChange, ServiceChange};
use dhow_core::command::{AgentCommand, Command, Entry, JobCommand, PlanCommand, Refused};
use dhow_core::ids::{NodeId, ReplicaKey, ServiceId};
use dhow_core::state::{Session, State};
use dhow_core::time::ClusterTime;
use dhow_server::plane::runtime::{EventKind, EventRecord};
use dhow_wire::api::EventDocument;

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    pub at: ClusterTime,
    pub what: Happened,
}

/// What a line of the trace tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    Event(Arc<EventRecord>),
    /// What no event tells.
    Aside(String),
}

impl TraceLine {
    /// Whether it is one of the steps between the placement of a replica and its health, or between the order to end
    /// and the end.
    pub fn is_step(&self) -> bool {
        match &self.what {
            Happened::Event(record) => matches!(
                record.event.kind,
                EventKind::ReplicaPulling
                    | EventKind::ReplicaStarting
                    | EventKind::ReplicaStarted
                    | EventKind::ReplicaStopping
            ),
            Happened::Aside(_) => false,
        }
    }

    /// What happened: an event in the words of `dhow events`, anything else in brackets.
    pub fn text(&self) -> String {
        match &self.what {
            Happened::Event(record) => match document(record) {
                Ok(event) => dhow_cli::events::what(&event, false),
                Err(error) => format!("an event that no client can read: {error}"),
            },
            Happened::Aside(text) => format!("({text})"),
        }
    }
}

/// The record as a client of the API reads it.
fn document(record: &EventRecord) -> serde_json::Result<EventDocument> {
    serde_json::from_value(serde_json::to_value(record)?)
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.at.0 + 50) / 100;
        let at = format!("{}.{}s", tenths / 10, tenths % 10);
        write!(f, "{at:>8}  {}", self.text())
    }
}

/// Whether an entry is the first word of a node that has nothing, which is what everybody expects of a new one.
pub(super) fn is_first_word(state: &State, entry: &Entry) -> bool {
    let Command::Agent(AgentCommand::Inventory { node, replicas, .. }) = &entry.command else {
        return false;
    };
    let known = state.node(*node);
    replicas.is_empty() && known.is_some_and(|node| node.session == Session::default() && node.is_empty())
}

/// Listens to one entry for what no event tells.
pub(super) struct Asides<'a> {
    command: &'a Command,
    pub lines: Vec<String>,
}

impl<'a> Asides<'a> {
    pub(super) fn of(entry: &'a Entry) -> Self {
        Self {
            command: &entry.command,
            lines: Vec::new(),
        }
    }
}

impl ChangeSink for Asides<'_> {
    fn tell(&mut self, state: &State, change: Change<'_>) {
        match change {
            Change::Service(id, ServiceChange::Removed) => {
                self.lines.push(format!("{} is gone", service_name(state, id)));
            }
            Change::Replica(key, node, change) => self.lines.extend(replica(state, &key, node, &change)),
            Change::Refused(refused) => self.lines.extend(refusal(state, self.command, refused)),
            Change::Cluster(_) | Change::Node(..) | Change::Deployment(..) | Change::Service(..) => {}
        }
    }
}

fn replica_id(state: &State, key: &ReplicaKey) -> String {
    match state.replica_name(key) {
        Some(name) => format!("{name}#{}", key.generation),
        None => format!("a replica of service {}, which is gone,", key.service),
    }
}

fn service_name(state: &State, id: ServiceId) -> String {
    state
        .service(id)
        .map_or_else(|| format!("service {id}"), |service| service.key.to_string())
}

fn replica(state: &State, key: &ReplicaKey, node: NodeId, change: &ReplicaChange<'_>) -> Option<String> {
    let id = replica_id(state, key);
    match change {
        ReplicaChange::LeftOut(stale) => Some(format!("left out: {}: {stale}", placing(state, key, node))),
        ReplicaChange::TriesSettings => Some(format!("{id} tries its new settings")),
        ReplicaChange::Late(event) => {
            let whose = match state.replicas.get(key) {
                Some(replica) => format!("which is on node {} by now", replica.node),
                None => "which nobody asks for any more".into(),
            };
            Some(format!(
                "late: node {node} reports {:?} of {id}, {whose}",
                event.kind()
            ))
        }
        ReplicaChange::Placed
        | ReplicaChange::StopAsked(_)
        | ReplicaChange::Reported(_)
        | ReplicaChange::Diverged(_)
        | ReplicaChange::Observed(_)
        | ReplicaChange::Lost
        | ReplicaChange::Removed => None,
    }
}

fn placing(state: &State, key: &ReplicaKey, node: NodeId) -> String {
    format!("place {} on node {node}", replica_id(state, key))
}

/// What was asked for stands above its refusal; of a plan it has to be said what was refused. A refused report is an
/// event.
fn refusal(state: &State, command: &Command, refused: &Refused) -> Vec<String> {
    let what = match command {
        Command::Agent(_) => return Vec::new(),
        Command::Cluster(_) | Command::Node(_) | Command::Deployment(_) => {
            return vec![format!("refused: {refused}")];
        }
        Command::Plan(PlanCommand::Place {
            service,
            generation,
            placements,
        }) => {
            let key = |slot| ReplicaKey {
                service: *service,
                slot,
                generation: *generation,
            };
            let places = placements
                .iter()
                .map(|placement| placing(state, &key(placement.slot), placement.node));
            return places.map(|what| format!("refused: {what}: {refused}")).collect();
        }
        Command::Plan(command) => attempt(state, command),
    };
    vec![format!("refused: {what}: {refused}")]
}

/// What a plan wanted.
fn attempt(state: &State, command: &PlanCommand) -> String {
    let of = |what: &str, id: &ServiceId| format!("{what} of {}", service_name(state, *id));
    match command {
        PlanCommand::Place { service, .. } => of("place replicas", service),
        PlanCommand::Stop { service, .. } => of("stop replicas", service),
        PlanCommand::Forget { replicas } => format!("forget {} replicas", replicas.len()),
        PlanCommand::ForgetService { service } => of("the end", service),
        PlanCommand::OpenGeneration { service, .. } => of("a new generation", service),
        PlanCommand::Release { service, .. } => of("the start", service),
        PlanCommand::MarkStable { deployment, revision } => {
            format!("{deployment} revision {revision} is stable")
        }
        PlanCommand::Fail {
            deployment, revision, ..
        } => format!("{deployment} revision {revision} is given up"),
        PlanCommand::DrainFinished { node } => format!("node {node} is drained"),
        PlanCommand::CronFired { service, .. } => {
            format!("a run of {} is due", service_name(state, *service))
        }
        PlanCommand::Job(JobCommand::Due { service, .. }) => {
            format!("a run of {} is due", service_name(state, *service))
        }
        PlanCommand::Job(JobCommand::Late { service, .. }) => of("the deadline", service),
        PlanCommand::TrySettings { service, .. } => of("a trial of the new settings", service),
        PlanCommand::JudgeCanary { service, .. } => of("a judgement of the canary", service),
        PlanCommand::Resize { service, resize, .. } => of(
            &format!("the change from {} to {} replicas", resize.from, resize.to),
            service,
        ),
        PlanCommand::AdoptSettings { service, .. } => {
            format!("the new settings of {} count", service_name(state, *service))
        }
    }
}
