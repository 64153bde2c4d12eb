//! What happened, in words: what scenario files show. Made from what `step` says while it applies an entry, and from
//! the answer that it gives.

use std::fmt;

use dhow_core::change::{
    Change, ChangeSink, ClusterChange, DeploymentChange, NodeChange, ReplicaChange, ServiceChange,
};
use dhow_core::command::{
    AgentCommand, ClusterCommand, Command, DeploymentCommand, Entry, Outcome, PlanCommand, Refused,
    StopReason,
};
use dhow_core::ids::{DeploymentName, NodeId, ReplicaKey, ServiceId};
use dhow_core::replica::ReplicaEvent;
use dhow_core::state::{Drain, State};
use dhow_core::time::ClusterTime;

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    pub at: ClusterTime,
    pub text: String,
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.at.0 + 50) / 100;
        let at = format!("{}.{}s", tenths / 10, tenths % 10);
        write!(f, "{at:>8}  {}", self.text)
    }
}

/// Listens to one entry.
pub(super) struct EntryTrace<'a> {
    entry: &'a Entry,
    lines: Vec<String>,
}

impl<'a> EntryTrace<'a> {
    pub(super) fn of(entry: &'a Entry) -> Self {
        Self {
            entry,
            lines: Vec::new(),
        }
    }

    /// The lines of the changes that `step` told, and of the answer to the command.
    pub(super) fn lines(self, outcome: &Result<Outcome, Refused>) -> Vec<TraceLine> {
        let answer = outcome
            .as_ref()
            .ok()
            .and_then(|outcome| answer(&self.entry.command, outcome));
        let lines = self.lines.into_iter().chain(answer);
        lines
            .map(|text| TraceLine {
                at: self.entry.time,
                text,
            })
            .collect()
    }
}

impl ChangeSink for EntryTrace<'_> {
    fn tell(&mut self, state: &State, change: Change<'_>) {
        let line = match change {
            Change::Cluster(change) => cluster(&change),
            Change::Node(id, change) => node(state, id, change),
            Change::Deployment(name, change) => deployment(name, &change),
            Change::Service(id, change) => service(state, id, &change),
            Change::Replica(key, node, change) => replica(state, &key, node, &change),
            Change::Refused(refused) => {
                self.lines.extend(refusal(state, &self.entry.command, refused));
                None
            }
        };
        self.lines.extend(line);
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

fn cluster(change: &ClusterChange<'_>) -> Option<String> {
    match change {
        ClusterChange::TermBegan { leader } => Some(format!("node {leader} leads")),
        ClusterChange::Created { .. }
        | ClusterChange::FeatureLevelRaised { .. }
        | ClusterChange::WorkerTokenIssued { .. }
        | ClusterChange::WorkerTokenRevoked
        | ClusterChange::WorkerCaRotated
        | ClusterChange::ApiTokenIssued { .. }
        | ClusterChange::ApiTokenRevoked { .. }
        | ClusterChange::SecretSet { .. }
        | ClusterChange::SecretRemoved { .. }
        | ClusterChange::SourceSet { .. }
        | ClusterChange::SourceRemoved { .. }
        | ClusterChange::ManifestsTaken { .. } => None,
    }
}

fn node(state: &State, id: NodeId, change: NodeChange) -> Option<String> {
    match change {
        NodeChange::Lost => Some(format!("node {id} is lost")),
        NodeChange::Back => Some(format!("node {id} is back")),
        NodeChange::Removed => Some(format!("node {id} is removed")),
        NodeChange::Drain(Drain::Drained { .. }) => Some(format!("node {id} is drained")),
        NodeChange::Inventory { replicas } => {
            let known = state.node(id).is_some_and(|node| !node.is_empty());
            let all = match replicas {
                // Nothing is what everybody expects of a new node.
                0 if !known => return None,
                0 => "that it has nothing".into(),
                1 => "the one replica that it has".into(),
                many => format!("the {many} replicas that it has"),
            };
            Some(format!("node {id} reports {all}"))
        }
        NodeChange::Joined
        | NodeChange::Renewed
        | NodeChange::Drain(Drain::No | Drain::Draining { .. })
        | NodeChange::Labelled
        | NodeChange::AssignmentChanged => None,
    }
}

/// What people ask of a deployment is answered to them, and stands above the answer.
fn deployment(name: &DeploymentName, change: &DeploymentChange<'_>) -> Option<String> {
    match change {
        DeploymentChange::Stable { revision } => Some(format!("{name} revision {revision} is stable")),
        DeploymentChange::Reverting { revision, cause, .. }
        | DeploymentChange::Failed { revision, cause, .. } => {
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            Some(format!("{name} revision {revision} is given up{cause}"))
        }
        DeploymentChange::Deployed { .. }
        | DeploymentChange::Scaled { .. }
        | DeploymentChange::RestartAsked { .. }
        | DeploymentChange::RemovalAsked
        | DeploymentChange::Removed
        | DeploymentChange::Conflicted { .. } => None,
    }
}

fn service(state: &State, id: ServiceId, change: &ServiceChange<'_>) -> Option<String> {
    let name = service_name(state, id);
    Some(match change {
        ServiceChange::Released { without: None } => format!("{name} may start"),
        ServiceChange::Released {
            without: Some(without),
        } => format!("{name} may start {without}"),
        ServiceChange::GenerationOpened => format!("a new generation of {name}"),
        ServiceChange::CronFired => format!("a run of {name} is due"),
        ServiceChange::SettingsAdopted => format!("the new settings of {name} count"),
        ServiceChange::Removed => format!("{name} is gone"),
    })
}

fn replica(state: &State, key: &ReplicaKey, node: NodeId, change: &ReplicaChange<'_>) -> Option<String> {
    let id = replica_id(state, key);
    match change {
        ReplicaChange::Placed => Some(placing(state, key, node)),
        ReplicaChange::LeftOut(stale) => Some(format!("left out: {}: {stale}", placing(state, key, node))),
        ReplicaChange::StopAsked(why) => Some(format!("stop {id} ({})", reason(state, *why))),
        ReplicaChange::TriesSettings => Some(format!("{id} tries its new settings")),
        ReplicaChange::Reported(event) => Some(format!("{id} {}", reported(event)?)),
        ReplicaChange::Late(event) => {
            let late = late(state, node, key);
            Some(format!("{id} {}{late}", reported(event)?))
        }
        ReplicaChange::Diverged(event) => {
            let kind = event.kind();
            Some(format!("node {node} reports {kind:?} of {id}, which cannot be"))
        }
        // What an inventory found stands in one line, and a lost node's too.
        ReplicaChange::Observed(_) | ReplicaChange::Lost | ReplicaChange::Removed => None,
    }
}

fn placing(state: &State, key: &ReplicaKey, node: NodeId) -> String {
    format!("place {} on node {node}", replica_id(state, key))
}

fn reason(state: &State, why: Option<StopReason>) -> String {
    match why {
        None => "asked for again".into(),
        Some(StopReason::ScaledDown) => "scaled down".into(),
        Some(StopReason::Replaced) => "replaced".into(),
        Some(StopReason::Draining) => "its node drains".into(),
        Some(StopReason::Removed) => "removed".into(),
        Some(StopReason::Displaced { by }) => format!("displaced by {}", service_name(state, by)),
        Some(StopReason::NodeUnfit) => "its node no longer fits".into(),
        Some(StopReason::NodeLost) => "its node is lost".into(),
        Some(StopReason::FailsThere) => "it keeps failing there".into(),
    }
}

fn reported(event: &ReplicaEvent) -> Option<String> {
    match event {
        ReplicaEvent::BecameHealthy => Some("is healthy".into()),
        ReplicaEvent::BecameUnhealthy { message } => Some(format!("is unhealthy: {message}")),
        ReplicaEvent::Ended { exit, .. } => Some(exit.to_string()),
        ReplicaEvent::CouldNotStart { message } => Some(format!("could not start: {message}")),
        ReplicaEvent::SettingsPassed { .. } => Some("passes its new settings".into()),
        ReplicaEvent::SettingsFailed { message, .. } => {
            Some(format!("does not pass its new settings: {message}"))
        }
        ReplicaEvent::PullBegan
        | ReplicaEvent::StartBegan
        | ReplicaEvent::Started { .. }
        | ReplicaEvent::RanSteadily
        | ReplicaEvent::StopBegan
        | ReplicaEvent::Adopted { .. }
        | ReplicaEvent::NodeLost => None,
    }
}

/// News of a replica that the cluster no longer has on that node.
fn late(state: &State, node: NodeId, key: &ReplicaKey) -> String {
    match state.replicas.get(key) {
        Some(replica) => format!(
            " on node {node}, where it is not any more: it is on node {}",
            replica.node
        ),
        None => format!(" on node {node}, which nobody asks for any more"),
    }
}

/// A user's command stands above its refusal; of a plan or a report it has to be said what was refused.
fn refusal(state: &State, command: &Command, refused: &Refused) -> Vec<String> {
    let what = match command {
        Command::Cluster(_) | Command::Node(_) | Command::Deployment(_) => {
            return vec![format!("refused: {refused}")];
        }
        Command::Agent(AgentCommand::Report { node, .. } | AgentCommand::Inventory { node, .. }) => {
            format!("a report of node {node}")
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
        PlanCommand::TrySettings { service, .. } => of("a trial of the new settings", service),
        PlanCommand::AdoptSettings { service, .. } => {
            format!("the new settings of {} count", service_name(state, *service))
        }
    }
}

/// What the one who asked is answered.
fn answer(command: &Command, outcome: &Outcome) -> Option<String> {
    match (command, outcome) {
        (Command::Deployment(command), Outcome::Deployed { revision, changed }) => {
            let name = match command {
                DeploymentCommand::Deploy { spec, .. } | DeploymentCommand::RecordConflicted { spec, .. } => {
                    &spec.deployment
                }
                DeploymentCommand::Scale { deployment, .. }
                | DeploymentCommand::Restart { deployment, .. }
                | DeploymentCommand::Remove { deployment }
                | DeploymentCommand::Rollback { deployment, .. } => deployment,
                DeploymentCommand::ApplyManifests { .. } => return None,
            };
            let change = if *changed { "" } else { ", nothing changed" };
            Some(format!("{name} is at revision {revision}{change}"))
        }
        (Command::Cluster(ClusterCommand::UseToken { .. }), Outcome::Registered { node }) => {
            Some(format!("it is node {node}"))
        }
        (
            Command::Cluster(_)
            | Command::Node(_)
            | Command::Deployment(_)
            | Command::Plan(_)
            | Command::Agent(_),
            Outcome::Done
            | Outcome::Deployed { .. }
            | Outcome::Registered { .. }
            | Outcome::Placed { .. }
            | Outcome::Reported { .. },
        ) => None,
    }
}
