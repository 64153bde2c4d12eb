//! Changes in words: what of them is an event, of which kind, and what it says.

use dhow_core::change::{
    Change, ClusterChange, DeploymentChange, LeftOut, NodeChange, ReplicaChange, ServiceChange, StopCause,
};
use dhow_core::command::{RolloutAction, ScaleChange, StopReason};
use dhow_core::ids::{DeploymentName, Generation, NodeId, ReplicaKey, Revision, ServiceId, ServiceName};
use dhow_core::mirror::RolloutId;
use dhow_core::replica::{Machine, ReplicaEvent, ReplicaState};
use dhow_core::state::{Drain, RunOutcome, State, Wanted};

use super::{Event, EventKind};
use crate::clock::shown_utc;

/// How the end of a run is told that did not do its work.
const RUN_FAILED: &str = "has failed";
const RUN_LATE: &str = "was not done by its deadline";

/// Whether an event says that a run did not do its work.
pub fn is_failed_run(event: &Event) -> bool {
    let said = event.message.as_deref().unwrap_or_default();
    event.kind == EventKind::RunEnded && (said.ends_with(RUN_FAILED) || said.ends_with(RUN_LATE))
}

/// The event of a change, where it is one. Its author and its rollout are not in it yet.
pub(super) fn event(state: &State, change: &Change<'_>) -> Option<Event> {
    match change {
        Change::Cluster(change) => Some(cluster(change)),
        Change::Node(node, change) => self::node(*node, change),
        Change::Deployment(name, change) => Some(deployment(state, name, change)),
        Change::Service(id, change) => service(state, *id, change),
        Change::Replica(key, node, change) => replica(state, key, *node, change),
        Change::Refused(_) => None,
    }
}

/// The rollout that an event is a part of: its beginning and its end, and what happens to replicas between.
pub(super) fn rollout_of(state: &State, event: &Event) -> Option<String> {
    let deployment = state.deployment(event.deployment.as_ref()?)?;
    let is_its_own = matches!(
        event.kind,
        EventKind::Deployed
            | EventKind::RolledBack
            | EventKind::Released
            | EventKind::Stable
            | EventKind::Failed
            | EventKind::Reverting
            | EventKind::RevertFailed
            | EventKind::RolloutPromoted
            | EventKind::RolloutPaused
            | EventKind::RolloutResumed
            | EventKind::CanaryJudged
    );
    let is_part = event.replica.is_some() && deployment.is_under_way();
    let id = RolloutId {
        deployment: deployment.name.clone(),
        revision: deployment.revision,
    };
    (is_its_own || is_part).then(|| id.to_string())
}

fn cluster(change: &ClusterChange<'_>) -> Event {
    match change {
        ClusterChange::Created { cluster_id } => {
            Event::new(EventKind::ClusterCreated).with_message(format!("cluster {cluster_id}"))
        }
        ClusterChange::TermBegan { leader } => Event::new(EventKind::LeaderChanged).with_node(*leader),
        ClusterChange::FeatureLevelRaised { level } => {
            Event::new(EventKind::FeatureLevelRaised).with_message(format!("level {level}"))
        }
        ClusterChange::WorkerTokenIssued { uses_allowed } => {
            Event::new(EventKind::TokenIssued).with_message(counted(u64::from(*uses_allowed), "use"))
        }
        ClusterChange::WorkerTokenRevoked => Event::new(EventKind::TokenRevoked),
        ClusterChange::WorkerCaRotated => Event::new(EventKind::WorkerCaRotated),
        ClusterChange::ApiTokenIssued { id, token } => {
            Event::new(EventKind::TokenIssued).with_message(format!("{id}, of {}", token.name))
        }
        ClusterChange::ApiTokenRevoked { id } => {
            Event::new(EventKind::TokenRevoked).with_message(id.as_ref())
        }
        ClusterChange::SecretSet { name } => Event::new(EventKind::SecretSet).with_message(name.as_ref()),
        ClusterChange::SecretRemoved { name } => {
            Event::new(EventKind::SecretRemoved).with_message(name.as_ref())
        }
        ClusterChange::SourceSet { name, settings } => {
            Event::new(EventKind::SourceSet).with_message(format!("{name}: {}", settings.place()))
        }
        ClusterChange::SourceRemoved { name } => {
            Event::new(EventKind::SourceRemoved).with_message(name.as_ref())
        }
        ClusterChange::NotifySet { name, settings } => {
            Event::new(EventKind::NotifySet).with_message(format!("{name}: {}", settings.shown))
        }
        ClusterChange::NotifyRemoved { name } => {
            Event::new(EventKind::NotifyRemoved).with_message(name.as_ref())
        }
        ClusterChange::ManifestsTaken {
            source,
            version,
            deployments,
            commit,
        } => {
            let of = source.map(|name| format!("{name}: ")).unwrap_or_default();
            let deployments = counted(*deployments as u64, "deployment");
            let at = commit.map(|commit| format!(" at {commit}")).unwrap_or_default();
            let message = format!("{of}version {version}{at}, {deployments}");
            Event::new(EventKind::ManifestsTaken).with_message(message)
        }
    }
}

/// A number of things, as people say it.
fn counted(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

fn node(node: NodeId, change: &NodeChange) -> Option<Event> {
    let kind = match change {
        NodeChange::Joined => EventKind::NodeJoined,
        NodeChange::Lost => EventKind::NodeLost,
        NodeChange::Back => EventKind::NodeBack,
        NodeChange::Drain(Drain::No) => EventKind::NodeUndrained,
        NodeChange::Drain(Drain::Draining { .. }) => EventKind::NodeDraining,
        NodeChange::Drain(Drain::Drained { .. }) => EventKind::NodeDrained,
        NodeChange::Labelled => EventKind::NodeLabelled,
        NodeChange::Removed => EventKind::NodeRemoved,
        NodeChange::Inventory { replicas } => {
            let event = Event::new(EventKind::Inventory).with_node(node);
            return Some(event.with_message(counted(*replicas as u64, "replica")));
        }
        NodeChange::Renewed | NodeChange::AssignmentChanged => return None,
    };
    Some(Event::new(kind).with_node(node))
}

fn deployment(state: &State, name: &DeploymentName, change: &DeploymentChange<'_>) -> Event {
    let of = |kind| Event::new(kind).with_deployment(name);
    let ended = |kind, service, cause| ended(state, name, kind, (service, cause));
    match change {
        DeploymentChange::Deployed {
            revision,
            author,
            brings_back,
        } => {
            let kind = match brings_back {
                Some(_) => EventKind::RolledBack,
                None => EventKind::Deployed,
            };
            of(kind).with_message(format!("revision {revision} by {author}"))
        }
        DeploymentChange::Scaled { changes } => of(EventKind::Scaled).with_message(scaled(changes)),
        DeploymentChange::RestartAsked { service } => Event {
            service: service.cloned(),
            ..of(EventKind::RestartAsked)
        },
        DeploymentChange::StopAsked { service, author } => Event {
            service: service.cloned(),
            ..of(EventKind::StopAsked).with_message(format!("by {author}"))
        },
        DeploymentChange::StartAsked { service, author } => Event {
            service: service.cloned(),
            ..of(EventKind::StartAsked).with_message(format!("by {author}"))
        },
        DeploymentChange::RemovalAsked => of(EventKind::RemovalAsked),
        DeploymentChange::Removed => of(EventKind::Removed),
        DeploymentChange::Conflicted { revision, author } => of(EventKind::Conflicted).with_message(format!(
            "revision {revision} by {author} was written on the other side of a divided cluster and does not apply"
        )),
        DeploymentChange::Stable { revision } => {
            of(EventKind::Stable).with_message(format!("revision {revision}"))
        }
        DeploymentChange::Reverting { service, cause, .. } => ended(EventKind::Reverting, *service, *cause),
        DeploymentChange::Failed { service, cause, .. } => ended(EventKind::Failed, *service, *cause),
        DeploymentChange::RevertFailed { service, cause, .. } => ended(EventKind::RevertFailed, *service, *cause),
        DeploymentChange::Steered {
            action,
            service,
            author,
        } => Event {
            service: service.cloned(),
            ..of(steered(*action)).with_message(format!("by {author}"))
        },
        DeploymentChange::Held { changes, span, by } => {
            of(EventKind::ScaleHeld).with_message(format!("{} for {span}, by {by}", scaled(changes)))
        }
        DeploymentChange::HoldEnded { services, by } => {
            of(EventKind::ScaleHoldEnded).with_message(format!("{}, by {by}", listed(services)))
        }
        DeploymentChange::HeldBack { revision, cause } => of(EventKind::HeldBack).with_message(format!(
            "revision {revision} was just this and was taken back: {cause}"
        )),
        DeploymentChange::Suspended { suspension } => of(EventKind::SourceSuspended).with_message(format!(
            "until {} by {}",
            shown_utc(suspension.until_unix_secs),
            suspension.author
        )),
        DeploymentChange::SuspensionOver => of(EventKind::SuspensionOver),
    }
}

/// How a revision came to its end, and the service that was at fault.
fn ended(
    state: &State,
    name: &DeploymentName,
    kind: EventKind,
    (service, cause): (Option<ServiceId>, Option<&std::sync::Arc<str>>),
) -> Event {
    let event = match service {
        Some(id) => Event {
            deployment: Some(name.clone()),
            ..of_service(state, kind, id)
        },
        None => Event::new(kind).with_deployment(name),
    };
    Event {
        message: cause.map(|cause| cause.to_string()),
        ..event
    }
}

fn listed(services: &[ServiceName]) -> String {
    let names: Vec<&str> = services.iter().map(|name| name.as_str()).collect();
    names.join(", ")
}

fn steered(action: RolloutAction) -> EventKind {
    match action {
        RolloutAction::Promote => EventKind::RolloutPromoted,
        RolloutAction::Pause => EventKind::RolloutPaused,
        RolloutAction::Resume => EventKind::RolloutResumed,
        // It is told as the revert that it is.
        RolloutAction::Abort => EventKind::Reverting,
    }
}

fn scaled(changes: &[ScaleChange]) -> String {
    let one = |change: &ScaleChange| match &change.role {
        Some(role) => format!("{}/{role} to {}", change.service, change.replicas),
        None => format!("{} to {}", change.service, change.replicas),
    };
    changes.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn service(state: &State, id: ServiceId, change: &ServiceChange<'_>) -> Option<Event> {
    let of = |kind| of_service(state, kind, id);
    match change {
        ServiceChange::Released { without } => Some(Event {
            message: without.map(|without| without.to_string()),
            ..of(EventKind::Released)
        }),
        ServiceChange::CronFired { scheduled_unix_secs } => {
            let run = format!("the run of {}", shown_utc(*scheduled_unix_secs));
            Some(of(EventKind::CronFired).with_message(run))
        }
        ServiceChange::RunBegan { run, due_unix_secs } => {
            let whose = match due_unix_secs {
                Some(due) => format!("run {run}, due at {}", shown_utc(*due)),
                None => format!("run {run}, asked for"),
            };
            Some(of(EventKind::CronFired).with_message(whose))
        }
        ServiceChange::RunLeftOut { due_unix_secs, why } => {
            let why = match why {
                LeftOut::Missed => "no server could start it in time".to_owned(),
                LeftOut::UnderWay { run } => format!("run {run} has not ended"),
                LeftOut::TooMany { runs } => format!("{runs} runs are under way"),
            };
            let due = shown_utc(*due_unix_secs);
            Some(of(EventKind::RunLeftOut).with_message(format!("what was due at {due}: {why}")))
        }
        ServiceChange::RunEnded { run, outcome } => {
            let how = match outcome {
                RunOutcome::Done => "is done",
                RunOutcome::Failed => RUN_FAILED,
                RunOutcome::Late => RUN_LATE,
                RunOutcome::Replaced => "made room for the next one",
                RunOutcome::Stopped => "was stopped",
            };
            Some(of(EventKind::RunEnded).with_message(format!("run {run} {how}")))
        }
        ServiceChange::JobLate => {
            let what = "it was not done by its deadline and is ended";
            Some(of(EventKind::JobLate).with_message(what))
        }
        ServiceChange::SettingsAdopted => Some(of(EventKind::SettingsAdopted)),
        ServiceChange::CanaryJudged(judgement) => {
            Some(of(EventKind::CanaryJudged).with_message(judgement.to_string()))
        }
        ServiceChange::Resized { resize, called } => {
            Some(of(EventKind::Resized).with_message(resize.words(called)))
        }
        ServiceChange::GenerationOpened | ServiceChange::Removed => None,
    }
}

fn replica(state: &State, key: &ReplicaKey, node: NodeId, change: &ReplicaChange<'_>) -> Option<Event> {
    let of = |kind| of_replica(state, kind, key).with_node(node);
    match change {
        ReplicaChange::Placed => Some(of(EventKind::ReplicaPlaced)),
        ReplicaChange::StopAsked(why) => {
            let message = stop_reason(state, key, *why);
            Some(Event {
                message,
                ..of(EventKind::ReplicaStopAsked)
            })
        }
        ReplicaChange::Reported(event) => {
            let (kind, message) = reported(event)?;
            Some(Event { message, ..of(kind) })
        }
        // Those of reports are told together, and how an inventory finds replicas is in its own event.
        ReplicaChange::Diverged(_) | ReplicaChange::Observed(_) => None,
        ReplicaChange::LeftOut(_)
        | ReplicaChange::TriesSettings
        | ReplicaChange::Late(_)
        | ReplicaChange::Lost
        | ReplicaChange::Removed => None,
    }
}

fn stop_reason(state: &State, key: &ReplicaKey, cause: StopCause) -> Option<String> {
    let why = match cause {
        StopCause::Planned(why) => why,
        StopCause::Late => return Some("its work was not done by its deadline".into()),
        StopCause::Stopped => return Some("its service was stopped".into()),
        StopCause::NextRun => return Some("the next run of its schedule takes its place".into()),
        StopCause::CleanSlate => return Some("its deployment had failed and was asked for again".into()),
        StopCause::Unknown => return None,
    };
    let words = match why {
        StopReason::ScaledDown => "scaled down",
        StopReason::Replaced if keeps_earlier(state, key) => "an earlier one keeps its place",
        StopReason::Replaced => "replaced by a newer one",
        StopReason::Draining => "its node is being drained",
        StopReason::Removed => "its service was removed",
        StopReason::NodeUnfit => "its node does not fit it any more",
        StopReason::NodeLost => "its node is lost and another one has its place",
        StopReason::FailsThere => "it keeps failing there, so another node is tried",
        StopReason::Displaced { by } => match state.service(by) {
            Some(service) => return Some(format!("{} is more important and needs the room", service.key)),
            None => "a more important service needs the room",
        },
    };
    Some(words.to_owned())
}

/// Whether the place goes back to a replica that was there before, as after a revert or a drain that was called off.
fn keeps_earlier(state: &State, key: &ReplicaKey) -> bool {
    let of_place = |generation| ReplicaKey {
        generation: Generation(generation),
        ..*key
    };
    let all = state.replicas.range(of_place(0)..=of_place(u32::MAX));
    let last = all.filter(|(other, replica)| *other != key && replica.wanted == Wanted::Run);
    last.map(|(other, _)| other.generation)
        .max()
        .is_some_and(|kept| kept < key.generation)
}

/// What a node reports of a replica.
fn reported(event: &ReplicaEvent) -> Option<(EventKind, Option<String>)> {
    let (kind, message) = match event {
        ReplicaEvent::PullBegan => (EventKind::ReplicaPulling, None),
        ReplicaEvent::StartBegan => (EventKind::ReplicaStarting, None),
        ReplicaEvent::Started { pid } => (EventKind::ReplicaStarted, Some(format!("pid {pid}"))),
        ReplicaEvent::BecameHealthy => (EventKind::ReplicaHealthy, None),
        ReplicaEvent::BecameUnhealthy { message } => (EventKind::ReplicaUnhealthy, Some(message.to_string())),
        ReplicaEvent::Ended { exit, oom: false } => (EventKind::ReplicaEnded, Some(exit.to_string())),
        ReplicaEvent::Ended { exit, oom: true } => {
            (EventKind::ReplicaEnded, Some(format!("{exit}, out of memory")))
        }
        ReplicaEvent::CouldNotStart { message } => {
            (EventKind::ReplicaCouldNotStart, Some(message.to_string()))
        }
        ReplicaEvent::StopBegan => (EventKind::ReplicaStopping, None),
        ReplicaEvent::Adopted { pid } => (EventKind::ReplicaAdopted, Some(format!("pid {pid}"))),
        ReplicaEvent::SettingsPassed { .. } => (EventKind::SettingsPassed, None),
        ReplicaEvent::SettingsFailed { message, .. } => {
            (EventKind::SettingsFailed, Some(message.to_string()))
        }
        ReplicaEvent::RanSteadily | ReplicaEvent::NodeLost => return None,
    };
    Some((kind, message))
}

/// A replica that is found in another state than before, by the kind of the last thing that must have happened to it.
pub(super) fn observed(state: &State, key: &ReplicaKey, node: NodeId, machine: &Machine) -> Option<Event> {
    let (kind, message) = match machine.state {
        ReplicaState::Pending | ReplicaState::Lost => return None,
        ReplicaState::Pulling => (EventKind::ReplicaPulling, None),
        ReplicaState::Starting => (EventKind::ReplicaStarting, None),
        ReplicaState::Running if machine.healthy => (EventKind::ReplicaHealthy, None),
        ReplicaState::Running => {
            let pid = machine.pid.map(|pid| format!("pid {pid}"));
            (EventKind::ReplicaStarted, pid)
        }
        ReplicaState::Stopping => (EventKind::ReplicaStopping, None),
        ReplicaState::Backoff | ReplicaState::Exited | ReplicaState::Failed => {
            (EventKind::ReplicaEnded, machine.trouble())
        }
    };
    let event = of_replica(state, kind, key).with_node(node);
    Some(Event { message, ..event })
}

/// What is said of a report that does not fit the mirror.
pub(super) fn diverged(state: &State, first: &ReplicaKey, events: u64) -> String {
    let whose = match (state.replica_name(first), state.replicas.get(first)) {
        (Some(name), Some(replica)) => format!("{name}, which is {} here", replica.machine.state.word()),
        (Some(name), None) => name.to_string(),
        (None, _) => "a replica of a service that is gone".to_owned(),
    };
    let these = match events {
        1 => "one event does".to_owned(),
        many => format!("{many} events do"),
    };
    format!(
        "{these} not fit what the cluster knows, the first of {whose}; the node is asked for all that it has"
    )
}

/// What is said of earlier ones that were not told.
pub(super) fn untold(reports: u64) -> String {
    match reports {
        0 => String::new(),
        1 => " (one more report since the last time)".to_owned(),
        many => format!(" ({many} more reports since the last time)"),
    }
}

/// The note before what was found in a state that came as a whole.
pub(super) fn installed(before: Revision, after: Revision, told: usize, untold: usize) -> Event {
    let more = match untold {
        0 => String::new(),
        untold => format!(", {untold} more are not told"),
    };
    Event::new(EventKind::Gap).with_message(format!(
        "the state of another server, at revision {after}, took the place of this one's, at revision {before}: what \
         happened in between is not known; {told} differences follow{more}"
    ))
}

fn of_service(state: &State, kind: EventKind, id: ServiceId) -> Event {
    let service = state.service(id);
    Event {
        deployment: service.map(|service| service.key.deployment.clone()),
        service: service.map(|service| service.key.service.clone()),
        ..Event::new(kind)
    }
}

fn of_replica(state: &State, kind: EventKind, key: &ReplicaKey) -> Event {
    let name = state.replica_name(key);
    Event {
        replica: name.map(|name| name.id()),
        generation: Some(key.generation),
        ..of_service(state, kind, key.service)
    }
}
