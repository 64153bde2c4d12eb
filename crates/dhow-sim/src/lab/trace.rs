//! What happened, in words: what scenario files show.

use std::fmt;

use dhow_core::command::{
    AgentCommand, ClusterCommand, Command, DeploymentCommand, NodeCommand, Outcome, PlanCommand, Refused,
    StopReason,
};
use dhow_core::ids::{NodeId, ReplicaKey, ServiceId, Slot};
use dhow_core::replica::ReplicaEvent;
use dhow_core::state::State;
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

/// A command in words, made before it is applied: what it is about may be gone afterwards.
pub(super) struct Told {
    lines: Vec<(Option<Slot>, String)>,
    /// Whether a refusal needs to say of what: a user's command stands above its answer, a plan's does not.
    names_refused: bool,
}

impl Told {
    pub(super) fn of(state: &State, command: &Command) -> Self {
        let (lines, names_refused) = match command {
            Command::Cluster(command) => (whole(cluster(command)), false),
            Command::Node(command) => (whole(node(command)), false),
            Command::Deployment(_) => (Vec::new(), false),
            Command::Plan(command) => (plan(state, command), true),
            Command::Agent(command) => (agent(state, command), true),
        };
        Self { lines, names_refused }
    }

    /// What came of it.
    pub(super) fn with(self, command: &Command, outcome: &Result<Outcome, Refused>) -> Vec<String> {
        match outcome {
            Err(refused) if self.names_refused => self
                .lines
                .iter()
                .map(|(_, line)| format!("refused: {line}: {refused}"))
                .collect(),
            Err(refused) => vec![format!("refused: {refused}")],
            Ok(Outcome::Placed { left_out, .. }) => {
                let why = |slot: &Option<Slot>| {
                    let found = left_out.iter().find(|(left, _)| Some(*left) == *slot);
                    found.map(|(_, stale)| *stale)
                };
                let line = |(slot, line): &(Option<Slot>, String)| match why(slot) {
                    Some(stale) => format!("left out: {line}: {stale}"),
                    None => line.clone(),
                };
                self.lines.iter().map(line).collect()
            }
            Ok(outcome) => {
                let answer = answer(command, outcome);
                self.lines
                    .into_iter()
                    .map(|(_, line)| line)
                    .chain(answer)
                    .collect()
            }
        }
    }
}

fn whole(line: Option<String>) -> Vec<(Option<Slot>, String)> {
    line.map(|line| (None, line)).into_iter().collect()
}

fn id(state: &State, key: &ReplicaKey) -> String {
    match state.replica_name(key) {
        Some(name) => format!("{name}#{}", key.generation),
        None => format!("a replica of service {}, which is gone,", key.service),
    }
}

fn service(state: &State, id: ServiceId) -> String {
    state
        .service(id)
        .map_or_else(|| format!("service {id}"), |service| service.key.to_string())
}

fn cluster(command: &ClusterCommand) -> Option<String> {
    match command {
        ClusterCommand::TermBegan { leader, .. } => Some(format!("node {leader} leads")),
        ClusterCommand::Bootstrap { .. }
        | ClusterCommand::IssueToken { .. }
        | ClusterCommand::RevokeToken { .. }
        | ClusterCommand::UseToken { .. }
        | ClusterCommand::SetSecret { .. }
        | ClusterCommand::RemoveSecret { .. }
        | ClusterCommand::IssueApiToken { .. }
        | ClusterCommand::RevokeApiToken { .. }
        | ClusterCommand::RotateWorkerCa { .. }
        | ClusterCommand::RaiseFeatureLevel { .. }
        | ClusterCommand::KeepServerIds { .. }
        | ClusterCommand::SetSource { .. }
        | ClusterCommand::RemoveSource { .. } => None,
    }
}

fn node(command: &NodeCommand) -> Option<String> {
    match command {
        NodeCommand::Lost { node } => Some(format!("node {node} is lost")),
        NodeCommand::Back { node } => Some(format!("node {node} is back")),
        NodeCommand::Remove { node } => Some(format!("node {node} is removed")),
        NodeCommand::Register { .. }
        | NodeCommand::SetDrain { .. }
        | NodeCommand::Drain { .. }
        | NodeCommand::Label { .. }
        | NodeCommand::TellsGenerations { .. }
        | NodeCommand::InternalTokenShown { .. } => None,
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

fn plan(state: &State, command: &PlanCommand) -> Vec<(Option<Slot>, String)> {
    let line = match command {
        PlanCommand::Place {
            service,
            generation,
            placements,
        } => {
            let line = |placement: &dhow_core::command::Placement| {
                let key = ReplicaKey {
                    service: *service,
                    slot: placement.slot,
                    generation: *generation,
                };
                let text = format!("place {} on node {}", id(state, &key), placement.node);
                (Some(placement.slot), text)
            };
            return placements.iter().map(line).collect();
        }
        PlanCommand::Stop { replicas, why, .. } => {
            let line = |key: &ReplicaKey| format!("stop {} ({})", id(state, key), reason(state, why));
            return replicas.iter().map(|key| (None, line(key))).collect();
        }
        PlanCommand::Forget { replicas } => {
            let line = |key: &ReplicaKey| format!("forget {}", id(state, key));
            return replicas.iter().map(|key| (None, line(key))).collect();
        }
        PlanCommand::ForgetService { service: id } => format!("{} is gone", service(state, *id)),
        PlanCommand::OpenGeneration { service: id, .. } => {
            format!("a new generation of {}", service(state, *id))
        }
        PlanCommand::Release {
            service: id, without, ..
        } => {
            let without = without
                .as_ref()
                .map(|text| format!(" {text}"))
                .unwrap_or_default();
            format!("{} may start{without}", service(state, *id))
        }
        PlanCommand::MarkStable { deployment, revision } => {
            format!("{deployment} revision {revision} is stable")
        }
        PlanCommand::Fail {
            deployment,
            revision,
            cause,
            ..
        } => {
            format!("{deployment} revision {revision} is given up: {cause}")
        }
        PlanCommand::DrainFinished { node } => format!("node {node} is drained"),
        PlanCommand::CronFired { service: id, .. } => format!("a run of {} is due", service(state, *id)),
        PlanCommand::TrySettings { replicas, .. } => {
            let line = |key: &ReplicaKey| format!("{} tries its new settings", id(state, key));
            return replicas.iter().map(|key| (None, line(key))).collect();
        }
        PlanCommand::AdoptSettings { service: id, .. } => {
            format!("the new settings of {} count", service(state, *id))
        }
    };
    whole(Some(line))
}

fn reason(state: &State, why: &StopReason) -> String {
    match why {
        StopReason::ScaledDown => "scaled down".into(),
        StopReason::Replaced => "replaced".into(),
        StopReason::Draining => "its node drains".into(),
        StopReason::Removed => "removed".into(),
        StopReason::Displaced { by } => format!("displaced by {}", service(state, *by)),
        StopReason::NodeUnfit => "its node no longer fits".into(),
        StopReason::NodeLost => "its node is lost".into(),
        StopReason::FailsThere => "it keeps failing there".into(),
    }
}

fn agent(state: &State, command: &AgentCommand) -> Vec<(Option<Slot>, String)> {
    let (node, events) = match command {
        AgentCommand::Report { node, events, .. } => (*node, events),
        AgentCommand::Inventory { node, replicas, .. } => {
            let known = state.node(*node).is_some_and(|node| !node.is_empty());
            let all = match replicas.len() {
                // Nothing is what everybody expects of a new node.
                0 if !known => return Vec::new(),
                0 => "that it has nothing".into(),
                1 => "the one replica that it has".into(),
                many => format!("the {many} replicas that it has"),
            };
            return whole(Some(format!("node {node} reports {all}")));
        }
    };
    events
        .iter()
        .filter_map(|event| {
            let what = match &event.event {
                ReplicaEvent::BecameHealthy => "is healthy".into(),
                ReplicaEvent::BecameUnhealthy { message } => format!("is unhealthy: {message}"),
                ReplicaEvent::Ended { exit, .. } => exit.to_string(),
                ReplicaEvent::CouldNotStart { message } => format!("could not start: {message}"),
                ReplicaEvent::SettingsPassed { .. } => "passes its new settings".into(),
                ReplicaEvent::SettingsFailed { message, .. } => {
                    format!("does not pass its new settings: {message}")
                }
                ReplicaEvent::PullBegan
                | ReplicaEvent::StartBegan
                | ReplicaEvent::Started { .. }
                | ReplicaEvent::RanSteadily
                | ReplicaEvent::StopBegan
                | ReplicaEvent::Adopted { .. }
                | ReplicaEvent::NodeLost => return None,
            };
            let late = late(state, node, &event.replica);
            Some((None, format!("{} {what}{late}", id(state, &event.replica))))
        })
        .collect()
}

/// News of a replica that the cluster no longer has on that node.
fn late(state: &State, node: NodeId, key: &ReplicaKey) -> String {
    match state.replicas.get(key) {
        Some(replica) if replica.node == node => String::new(),
        Some(replica) => format!(
            " on node {node}, where it is not any more: it is on node {}",
            replica.node
        ),
        None => format!(" on node {node}, which nobody asks for any more"),
    }
}
