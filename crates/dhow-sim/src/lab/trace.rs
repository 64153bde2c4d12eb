//! What happened, in words: what scenario files show.

use dhow_core::command::{
    AgentCommand, ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, Outcome, PlanCommand,
    Refused, StopReason,
};
use dhow_core::ids::{ReplicaKey, ServiceId};
use dhow_core::replica::ReplicaEvent;
use dhow_core::spec::TimeSpan;
use dhow_core::state::State;

use super::Lab;

/// Notes what an entry did.
pub(super) fn note(lab: &mut Lab, entry: &Entry, outcome: &Result<Outcome, Refused>) {
    let lines = match outcome {
        Ok(outcome) => words(&lab.state, &entry.command, outcome),
        Err(refused) => vec![format!("refused: {refused}")],
    };
    let at = TimeSpan::from_millis(entry.time.0);
    lab.trace
        .extend(lines.into_iter().map(|line| format!("{at:>7}  {line}")));
}

fn id(state: &State, key: &ReplicaKey) -> String {
    let name = state.replica_name(key).map(|name| name.to_string());
    format!(
        "{}#{}",
        name.unwrap_or_else(|| format!("{key:?}")),
        key.generation
    )
}

fn service(state: &State, id: ServiceId) -> String {
    state
        .service(id)
        .map_or_else(|| format!("service {id}"), |service| service.key.to_string())
}

fn words(state: &State, command: &Command, outcome: &Outcome) -> Vec<String> {
    match command {
        Command::Cluster(command) => cluster(command).into_iter().collect(),
        Command::Node(command) => node(command).into_iter().collect(),
        Command::Deployment(command) => deployment(command, outcome).into_iter().collect(),
        Command::Plan(command) => plan(state, command, outcome),
        Command::Agent(command) => agent(state, command),
    }
}

fn cluster(command: &ClusterCommand) -> Option<String> {
    match command {
        ClusterCommand::TermBegan { leader } => Some(format!("node {leader} leads")),
        ClusterCommand::Bootstrap { .. }
        | ClusterCommand::IssueToken { .. }
        | ClusterCommand::RevokeToken { .. }
        | ClusterCommand::UseToken { .. }
        | ClusterCommand::SetSecret { .. }
        | ClusterCommand::RemoveSecret { .. } => None,
    }
}

fn node(command: &NodeCommand) -> Option<String> {
    match command {
        NodeCommand::Lost { node } => Some(format!("node {node} is lost")),
        NodeCommand::Back { node } => Some(format!("node {node} is back")),
        NodeCommand::Remove { node } => Some(format!("node {node} is removed")),
        NodeCommand::Register { .. } | NodeCommand::SetDrain { .. } | NodeCommand::Label { .. } => None,
    }
}

fn deployment(command: &DeploymentCommand, outcome: &Outcome) -> Option<String> {
    let Outcome::Deployed { revision, changed } = outcome else {
        return None;
    };
    let name = match command {
        DeploymentCommand::Deploy { spec, .. } => &spec.deployment,
        DeploymentCommand::Scale { deployment, .. }
        | DeploymentCommand::Restart { deployment, .. }
        | DeploymentCommand::Remove { deployment }
        | DeploymentCommand::Rollback { deployment, .. } => deployment,
        DeploymentCommand::ApplyManifests { .. } => return None,
    };
    let change = if *changed { "" } else { ", nothing changed" };
    Some(format!("{name} is at revision {revision}{change}"))
}

fn plan(state: &State, command: &PlanCommand, outcome: &Outcome) -> Vec<String> {
    match command {
        PlanCommand::Place {
            service,
            generation,
            placements,
        } => placements
            .iter()
            .filter(|placement| !is_left_out(outcome, placement))
            .map(|placement| {
                let key = ReplicaKey {
                    service: *service,
                    slot: placement.slot,
                    generation: *generation,
                };
                format!("place {} on node {}", id(state, &key), placement.node)
            })
            .collect(),
        PlanCommand::Stop { replicas, why, .. } => replicas
            .iter()
            .map(|key| format!("stop {} ({})", id(state, key), reason(state, why)))
            .collect(),
        PlanCommand::Forget { replicas } => replicas
            .iter()
            .map(|key| format!("forget {}", id(state, key)))
            .collect(),
        PlanCommand::ForgetService { service } => vec![format!("service {service} is gone")],
        PlanCommand::OpenGeneration { service: id, .. } => {
            vec![format!("a new generation of {}", service(state, *id))]
        }
        PlanCommand::Release {
            service: id, without, ..
        } => {
            let without = without
                .as_ref()
                .map(|text| format!(", {text}"))
                .unwrap_or_default();
            vec![format!("{} may start{without}", service(state, *id))]
        }
        PlanCommand::MarkStable { deployment, revision } => {
            vec![format!("{deployment} revision {revision} is stable")]
        }
        PlanCommand::Fail {
            deployment,
            revision,
            cause,
            ..
        } => {
            vec![format!("{deployment} revision {revision} is given up: {cause}")]
        }
        PlanCommand::DrainFinished { node } => vec![format!("node {node} is drained")],
        PlanCommand::CronFired { service: id, .. } => {
            vec![format!("a run of {} is due", service(state, *id))]
        }
    }
}

fn is_left_out(outcome: &Outcome, placement: &dhow_core::command::Placement) -> bool {
    match outcome {
        Outcome::Placed { left_out, .. } => left_out.iter().any(|(slot, _)| *slot == placement.slot),
        Outcome::Done | Outcome::Deployed { .. } | Outcome::Registered { .. } | Outcome::Reported { .. } => {
            false
        }
    }
}

fn reason(state: &State, why: &StopReason) -> String {
    match why {
        StopReason::ScaledDown => "scaled down".into(),
        StopReason::Replaced => "replaced".into(),
        StopReason::Draining => "its node drains".into(),
        StopReason::Removed => "removed".into(),
        StopReason::Displaced { by } => format!("displaced by {}", service(state, *by)),
        StopReason::NodeUnfit => "its node no longer fits".into(),
    }
}

fn agent(state: &State, command: &AgentCommand) -> Vec<String> {
    let AgentCommand::Report { events, .. } = command else {
        return Vec::new();
    };
    events
        .iter()
        .filter_map(|event| {
            let what = match &event.event {
                ReplicaEvent::BecameHealthy => "is healthy".into(),
                ReplicaEvent::BecameUnhealthy { message } => format!("is unhealthy: {message}"),
                ReplicaEvent::Ended { exit, .. } => exit.to_string(),
                ReplicaEvent::CouldNotStart { message } => format!("could not start: {message}"),
                ReplicaEvent::PullBegan
                | ReplicaEvent::StartBegan
                | ReplicaEvent::Started { .. }
                | ReplicaEvent::RanSteadily
                | ReplicaEvent::StopBegan
                | ReplicaEvent::Adopted { .. }
                | ReplicaEvent::NodeLost => return None,
            };
            Some(format!("{} {what}", id(state, &event.replica)))
        })
        .collect()
}
