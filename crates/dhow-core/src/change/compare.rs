//! What differs between two states, told as changes. Only for a state that came as a whole, from another server: what
//! happened in between is not known, nor in which order. Of what the state does not say why it is gone, tokens for
//! example, nothing is told.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::{
    Change, ChangeSink, ClusterChange, DeploymentChange, NodeChange, ReplicaChange, ServiceChange, StopCause,
};
use crate::ids::{NodeId, ReplicaKey};
use crate::replica::{Machine, ReplicaState};
use crate::state::{Deployment, Node, Phase, Replica, RevisionOutcome, State, Wanted};

/// Tells what is other in `after` than in `before`. The work is proportional to both where they share nothing.
pub fn compare(before: &State, after: &State, sink: &mut dyn ChangeSink) {
    cluster(before, after, sink);
    each(&before.nodes, &after.nodes, |id, old, new| {
        node(before, after, *id, (old, new), sink);
    });
    each(&before.deployments, &after.deployments, |_, old, new| {
        deployment(before, after, (old, new), sink);
    });
    each(&before.services, &after.services, |id, _, new| {
        if new.is_none() {
            sink.tell(before, Change::Service(*id, ServiceChange::Removed));
        }
    });
    each(&before.replicas, &after.replicas, |key, old, new| {
        replica(before, after, *key, (old, new), sink);
    });
}

/// Goes through what was added, removed and changed.
fn each<K: Ord, V: PartialEq>(
    before: &OrdMap<K, Arc<V>>,
    after: &OrdMap<K, Arc<V>>,
    mut found: impl FnMut(&K, Option<&V>, Option<&V>),
) {
    for item in before.diff(after) {
        match item {
            DiffItem::Add(key, new) => found(key, None, Some(new)),
            DiffItem::Remove(key, old) => found(key, Some(old), None),
            DiffItem::Update {
                old: (key, old),
                new: (_, new),
            } => found(key, Some(old), Some(new)),
        }
    }
}

fn cluster(before: &State, after: &State, sink: &mut dyn ChangeSink) {
    if before.cluster_id.is_none()
        && let Some(cluster_id) = &after.cluster_id
    {
        let created = ClusterChange::Created { cluster_id };
        sink.tell(after, Change::Cluster(created));
    } else if before.feature_level < after.feature_level {
        let level = after.feature_level;
        let raised = ClusterChange::FeatureLevelRaised { level };
        sink.tell(after, Change::Cluster(raised));
    }
    each(&before.secrets, &after.secrets, |name, _, new| {
        let change = match new {
            Some(_) => ClusterChange::SecretSet { name },
            None => ClusterChange::SecretRemoved { name },
        };
        sink.tell(after, Change::Cluster(change));
    });
    each(&before.notify, &after.notify, |name, old, new| {
        let (old, new) = (old.map(|old| &old.settings), new.map(|new| &new.settings));
        let change = match new {
            Some(settings) if old != new => ClusterChange::NotifySet { name, settings },
            Some(_) => return,
            None => ClusterChange::NotifyRemoved { name },
        };
        sink.tell(after, Change::Cluster(change));
    });
    each(&before.sources, &after.sources, |name, old, new| {
        let (old, new) = (
            old.and_then(|old| old.settings.as_ref()),
            new.and_then(|new| new.settings.as_ref()),
        );
        let change = match (old, new) {
            (_, Some(settings)) if old != new => ClusterChange::SourceSet { name, settings },
            (Some(_), None) => ClusterChange::SourceRemoved { name },
            (_, Some(_)) | (None, None) => return,
        };
        sink.tell(after, Change::Cluster(change));
    });
}

fn node(
    before: &State,
    after: &State,
    id: NodeId,
    (old, new): (Option<&Node>, Option<&Node>),
    sink: &mut dyn ChangeSink,
) {
    let Some(new) = new else {
        sink.tell(before, Change::Node(id, NodeChange::Removed));
        return;
    };
    let mut tell = |change| sink.tell(after, Change::Node(id, change));
    let fresh;
    let old = match old {
        Some(old) => old,
        None => {
            tell(NodeChange::Joined);
            // A worker that speaks the plain form has said so with its first word.
            fresh = Node {
                is_plain: new.is_plain,
                ..Node::new(id, Arc::clone(&new.info), new.eligibility)
            };
            &fresh
        }
    };
    if old.info != new.info || old.is_plain != new.is_plain {
        tell(NodeChange::Renewed);
    }
    match (old.is_ready(), new.is_ready()) {
        (true, false) => tell(NodeChange::Lost),
        (false, true) => tell(NodeChange::Back),
        (true, true) | (false, false) => {}
    }
    if old.drain != new.drain {
        tell(NodeChange::Drain(new.drain));
    }
    if old.set_labels != new.set_labels {
        tell(NodeChange::Labelled);
    }
    if old.assignments.revision != new.assignments.revision {
        tell(NodeChange::AssignmentChanged);
    }
}

fn deployment(
    before: &State,
    after: &State,
    (old, new): (Option<&Deployment>, Option<&Deployment>),
    sink: &mut dyn ChangeSink,
) {
    let Some(new) = new else {
        if let Some(old) = old {
            sink.tell(before, Change::Deployment(&old.name, DeploymentChange::Removed));
        }
        return;
    };
    let mut tell = |change| sink.tell(after, Change::Deployment(&new.name, change));
    let is_other = old.is_none_or(|old| old.revision != new.revision);
    if let Some(record) = new
        .current()
        .filter(|_| is_other && new.phase != Phase::Reverting)
    {
        tell(match record.outcome {
            RevisionOutcome::Conflicted => DeploymentChange::Conflicted {
                revision: new.revision,
                author: &record.author,
            },
            RevisionOutcome::Rolling
            | RevisionOutcome::Good
            | RevisionOutcome::Superseded
            | RevisionOutcome::Reverted { .. }
            | RevisionOutcome::Failed { .. } => DeploymentChange::Deployed {
                revision: new.revision,
                author: &record.author,
                brings_back: record.brings_back,
            },
        });
    }
    if let Some(suspension) = &new.suspended
        && old.and_then(|old| old.suspended.as_ref()) != Some(suspension)
    {
        tell(DeploymentChange::Suspended { suspension });
    }
    if is_other || old.is_none_or(|old| old.phase != new.phase) {
        phase(new, &mut tell);
    }
}

/// What it means that a deployment has come to its phase.
fn phase<'a>(new: &'a Deployment, tell: &mut dyn FnMut(DeploymentChange<'a>)) {
    let is_good = new
        .current()
        .is_some_and(|record| record.outcome == RevisionOutcome::Good);
    match new.phase {
        Phase::Stable | Phase::Reverted if is_good => tell(DeploymentChange::Stable {
            revision: new.revision,
        }),
        Phase::Deploying | Phase::Stable | Phase::Reverted => {}
        Phase::Reverting => {
            let earlier = new.history.range(..new.revision).next_back();
            tell(DeploymentChange::Reverting {
                revision: earlier.map_or(new.revision, |(revision, _)| *revision),
                service: None,
                cause: earlier.and_then(|(_, record)| cause(&record.outcome)),
            });
        }
        Phase::Failed => tell(DeploymentChange::Failed {
            revision: new.revision,
            service: None,
            cause: new.current().and_then(|record| cause(&record.outcome)),
        }),
        Phase::RevertFailed => tell(DeploymentChange::RevertFailed {
            revision: new.revision,
            service: None,
            cause: new.current().and_then(|record| cause(&record.outcome)),
        }),
        Phase::Removing => tell(DeploymentChange::RemovalAsked),
    }
}

fn cause(outcome: &RevisionOutcome) -> Option<&Arc<str>> {
    match outcome {
        RevisionOutcome::Reverted { cause, .. } | RevisionOutcome::Failed { cause } => Some(cause),
        RevisionOutcome::Rolling
        | RevisionOutcome::Good
        | RevisionOutcome::Superseded
        | RevisionOutcome::Conflicted => None,
    }
}

fn replica(
    before: &State,
    after: &State,
    key: ReplicaKey,
    (old, new): (Option<&Replica>, Option<&Replica>),
    sink: &mut dyn ChangeSink,
) {
    let Some(new) = new else {
        if let Some(old) = old {
            sink.tell(before, Change::Replica(key, old.node, ReplicaChange::Removed));
        }
        return;
    };
    let mut tell = |change| sink.tell(after, Change::Replica(key, new.node, change));
    let (fresh, was_wanted) = (Machine::default(), old.map_or(Wanted::Run, |old| old.wanted));
    if old.is_none() {
        tell(ReplicaChange::Placed);
    }
    if was_wanted == Wanted::Run && new.wanted == Wanted::Stop {
        tell(ReplicaChange::StopAsked(StopCause::Unknown));
    }
    let seen = |machine: &Machine| (machine.state, machine.healthy, machine.restarts);
    let was = old.map_or(&fresh, |old| &old.machine);
    match (seen(was) != seen(&new.machine), new.machine.state) {
        (true, ReplicaState::Lost) => tell(ReplicaChange::Lost),
        (
            true,
            ReplicaState::Pending
            | ReplicaState::Pulling
            | ReplicaState::Starting
            | ReplicaState::Running
            | ReplicaState::Backoff
            | ReplicaState::Stopping
            | ReplicaState::Exited
            | ReplicaState::Failed,
        ) => tell(ReplicaChange::Observed(&new.machine)),
        (false, _) => {}
    }
}
