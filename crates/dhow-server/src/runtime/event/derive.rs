//! From an applied entry to events. What the entry changed is seen from its outcome and from a few things that
//! are noted before it is applied; an entry that changed nothing is no event.

use dhow_core::command::{
    AgentCommand, AgentEvent, ClusterCommand, Command, DeploymentCommand, Entry, NodeCommand, Outcome,
    Placement, PlanCommand, StopReason,
};
use dhow_core::ids::{NodeId, ReplicaKey, ServiceId, Slot};
use dhow_core::mirror::RolloutId;
use dhow_core::replica::ReplicaEvent;
use dhow_core::state::{Drain, Phase, State};

use super::{Event, EventKind};

/// What must be known of the state before an entry is applied.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Before {
    /// A retried request that has its answer already: applying it changes nothing.
    is_repeat: bool,
    /// Where a worker joins: the nodes that there are.
    nodes: usize,
    node_is_known: bool,
    node_is_ready: bool,
    /// The last event of the node that was applied.
    node_seq: u64,
    /// Of a report's events: whether the replica was the node's.
    is_own: Vec<bool>,
}

impl Before {
    pub fn of(state: &State, entry: &Entry) -> Self {
        let request = entry.request.as_ref();
        let mut before = Self {
            is_repeat: request.is_some_and(|id| state.requests.contains_key(&id.request)),
            nodes: state.nodes.len(),
            ..Self::default()
        };
        if let Some(node) = node_of(&entry.command).and_then(|node| state.node(node)) {
            before.node_is_known = true;
            before.node_is_ready = node.is_ready();
            before.node_seq = node.session.seq;
        }
        if let Command::Agent(AgentCommand::Report { node, events, .. }) = &entry.command {
            let is_own = |event: &AgentEvent| {
                state
                    .replicas
                    .get(&event.replica)
                    .is_some_and(|replica| replica.node == *node)
            };
            before.is_own = events.iter().map(is_own).collect();
        }
        before
    }

    /// The events of the entry, given the state and the outcome after it, each with its rollout.
    pub fn events(&self, state: &State, entry: &Entry, outcome: &Outcome) -> Vec<Event> {
        let mut events = self.plain_events(state, entry, outcome);
        for event in &mut events {
            event.rollout = rollout_of(state, event);
        }
        events
    }

    fn plain_events(&self, state: &State, entry: &Entry, outcome: &Outcome) -> Vec<Event> {
        if self.is_repeat || matches!(outcome, Outcome::Deployed { changed: false, .. }) {
            return Vec::new();
        }
        let mut events: Vec<Event> = match &entry.command {
            Command::Cluster(command) => self.cluster(state, command, outcome).into_iter().collect(),
            Command::Node(command) => self.node(state, command).into_iter().collect(),
            Command::Deployment(command) => vec![deployment(command, outcome)],
            Command::Plan(command) => plan(state, command, outcome),
            Command::Agent(command) => self.agent(state, command, outcome),
        };
        if let Some(author) = author(state, entry) {
            for event in &mut events {
                event.author = Some(author.clone());
            }
        }
        events
    }

    fn cluster(&self, state: &State, command: &ClusterCommand, outcome: &Outcome) -> Option<Event> {
        let event = match command {
            ClusterCommand::Bootstrap { cluster_id, .. } => {
                Event::new(EventKind::ClusterCreated).with_message(format!("cluster {cluster_id}"))
            }
            ClusterCommand::TermBegan { leader, .. } => {
                Event::new(EventKind::LeaderChanged).with_node(*leader)
            }
            ClusterCommand::IssueToken { uses_allowed, .. } => {
                Event::new(EventKind::TokenIssued).with_message(format!("{uses_allowed} uses"))
            }
            ClusterCommand::RevokeToken { .. } => Event::new(EventKind::TokenRevoked),
            ClusterCommand::UseToken { .. } => match outcome {
                Outcome::Registered { node } if state.nodes.len() > self.nodes => {
                    Event::new(EventKind::NodeJoined).with_node(*node)
                }
                Outcome::Registered { .. }
                | Outcome::Done
                | Outcome::Deployed { .. }
                | Outcome::Placed { .. }
                | Outcome::Reported { .. } => return None,
            },
            ClusterCommand::SetSecret { name, .. } => {
                Event::new(EventKind::SecretSet).with_message(name.as_ref())
            }
            ClusterCommand::RemoveSecret { name } => {
                Event::new(EventKind::SecretRemoved).with_message(name.as_ref())
            }
            ClusterCommand::IssueApiToken { id, token } => {
                Event::new(EventKind::TokenIssued).with_message(format!("{id}, of {}", token.name))
            }
            ClusterCommand::RevokeApiToken { id } => {
                Event::new(EventKind::TokenRevoked).with_message(id.as_ref())
            }
            ClusterCommand::RotateWorkerCa { .. } => Event::new(EventKind::WorkerCaRotated),
            ClusterCommand::RaiseFeatureLevel { level } => {
                Event::new(EventKind::FeatureLevelRaised).with_message(format!("level {level}"))
            }
            ClusterCommand::KeepServerIds { .. } => return None,
            ClusterCommand::SetSource { name, settings } => {
                Event::new(EventKind::SourceSet).with_message(format!("{name}: {}", settings.dir))
            }
            ClusterCommand::RemoveSource { name } => {
                Event::new(EventKind::SourceRemoved).with_message(name.as_ref())
            }
        };
        Some(event)
    }

    fn node(&self, state: &State, command: &NodeCommand) -> Option<Event> {
        let (kind, node) = match command {
            NodeCommand::Register { node, .. } if !self.node_is_known => (EventKind::NodeJoined, node),
            NodeCommand::Lost { node } if self.node_is_ready => (EventKind::NodeLost, node),
            NodeCommand::Back { node } if !self.node_is_ready => (EventKind::NodeBack, node),
            NodeCommand::Register { .. }
            | NodeCommand::Lost { .. }
            | NodeCommand::Back { .. }
            | NodeCommand::TellsGenerations { .. }
            | NodeCommand::InternalTokenShown { .. } => return None,
            NodeCommand::SetDrain { node, .. } | NodeCommand::Drain { node, .. } => {
                match state.node(*node)?.drain {
                    Drain::No => (EventKind::NodeUndrained, node),
                    Drain::Draining { .. } => (EventKind::NodeDraining, node),
                    Drain::Drained { .. } => (EventKind::NodeDrained, node),
                }
            }
            NodeCommand::Label { node, .. } => (EventKind::NodeLabelled, node),
            NodeCommand::Remove { node } => (EventKind::NodeRemoved, node),
        };
        Some(Event::new(kind).with_node(*node))
    }

    fn agent(&self, state: &State, command: &AgentCommand, outcome: &Outcome) -> Vec<Event> {
        let (node, events) = match command {
            AgentCommand::Report { node, events, .. } => (*node, events),
            AgentCommand::Inventory { node, replicas, .. } => {
                let message = format!("{} replicas", replicas.len());
                return vec![
                    Event::new(EventKind::Inventory)
                        .with_node(*node)
                        .with_message(message),
                ];
            }
        };
        let durable_seq = match outcome {
            Outcome::Reported { durable_seq, .. } => *durable_seq,
            Outcome::Done
            | Outcome::Deployed { .. }
            | Outcome::Registered { .. }
            | Outcome::Placed { .. } => self.node_seq,
        };
        // What was known before stands at the beginning of a repeated report.
        let fresh = usize::try_from(durable_seq.saturating_sub(self.node_seq)).unwrap_or(usize::MAX);
        let known = events.len().saturating_sub(fresh);
        let own = events
            .iter()
            .zip(&self.is_own)
            .skip(known)
            .filter(|(_, own)| **own);
        own.filter_map(|(event, _)| replica_event(state, node, event))
            .collect()
    }
}

/// The rollout that an event is a part of: its beginning and its end, and what happens to replicas between.
fn rollout_of(state: &State, event: &Event) -> Option<String> {
    let deployment = state.deployment(event.deployment.as_ref()?)?;
    let is_its_own = matches!(
        event.kind,
        EventKind::Deployed
            | EventKind::RolledBack
            | EventKind::Released
            | EventKind::Stable
            | EventKind::Failed
            | EventKind::Reverting
    );
    let is_part = event.replica.is_some() && deployment.is_under_way();
    let id = RolloutId {
        deployment: deployment.name.clone(),
        revision: deployment.revision,
    };
    (is_its_own || is_part).then(|| id.to_string())
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

fn node_of(command: &Command) -> Option<NodeId> {
    match command {
        Command::Node(
            NodeCommand::Register { node, .. }
            | NodeCommand::Lost { node }
            | NodeCommand::Back { node }
            | NodeCommand::SetDrain { node, .. }
            | NodeCommand::Drain { node, .. }
            | NodeCommand::Label { node, .. }
            | NodeCommand::Remove { node }
            | NodeCommand::TellsGenerations { node }
            | NodeCommand::InternalTokenShown { node, .. },
        )
        | Command::Agent(AgentCommand::Report { node, .. } | AgentCommand::Inventory { node, .. }) => {
            Some(*node)
        }
        Command::Cluster(_) | Command::Deployment(_) | Command::Plan(_) => None,
    }
}

fn deployment(command: &DeploymentCommand, outcome: &Outcome) -> Event {
    let revision = match outcome {
        Outcome::Deployed { revision, .. } => Some(*revision),
        Outcome::Done | Outcome::Registered { .. } | Outcome::Placed { .. } | Outcome::Reported { .. } => {
            None
        }
    };
    let told = |kind, deployment, by: &str| {
        let message = match revision {
            Some(revision) => format!("revision {revision}{by}"),
            None => by.to_owned(),
        };
        Event::new(kind).with_deployment(deployment).with_message(message)
    };
    match command {
        DeploymentCommand::Deploy { spec, author, .. } => {
            told(EventKind::Deployed, &spec.deployment, &format!(" by {author}"))
        }
        DeploymentCommand::Remove { deployment } => {
            Event::new(EventKind::RemovalAsked).with_deployment(deployment)
        }
        DeploymentCommand::Scale { deployment, changes } => {
            let changes: Vec<String> = changes
                .iter()
                .map(|change| match &change.role {
                    Some(role) => format!("{}/{role} to {}", change.service, change.replicas),
                    None => format!("{} to {}", change.service, change.replicas),
                })
                .collect();
            Event::new(EventKind::Scaled)
                .with_deployment(deployment)
                .with_message(changes.join(", "))
        }
        DeploymentCommand::Restart { deployment, service } => Event {
            service: service.clone(),
            ..Event::new(EventKind::RestartAsked).with_deployment(deployment)
        },
        DeploymentCommand::Rollback {
            deployment, author, ..
        } => told(EventKind::RolledBack, deployment, &format!(" by {author}")),
        DeploymentCommand::ApplyManifests {
            version,
            specs,
            source,
            ..
        } => {
            let of = source
                .as_ref()
                .map(|name| format!("{name}: "))
                .unwrap_or_default();
            let message = format!("{of}version {}, {} deployments", version.version, specs.len());
            Event::new(EventKind::ManifestsTaken).with_message(message)
        }
        DeploymentCommand::RecordConflicted { spec, author, .. } => told(
            EventKind::Conflicted,
            &spec.deployment,
            &format!(" by {author} was written on the other side of a divided cluster and does not apply"),
        ),
    }
}

fn plan(state: &State, command: &PlanCommand, outcome: &Outcome) -> Vec<Event> {
    match command {
        PlanCommand::Place {
            service,
            generation,
            placements,
        } => {
            let key = |slot| ReplicaKey {
                service: *service,
                slot,
                generation: *generation,
            };
            let placed = placements
                .iter()
                .filter(|placement| !is_left_out(outcome, placement.slot));
            let event = |placement: &Placement| {
                of_replica(state, EventKind::ReplicaPlaced, &key(placement.slot)).with_node(placement.node)
            };
            placed.map(event).collect()
        }
        PlanCommand::Stop { replicas, why, .. } => replicas
            .iter()
            .map(|key| {
                of_replica(state, EventKind::ReplicaStopAsked, key).with_message(stop_reason(state, *why))
            })
            .collect(),
        PlanCommand::Release { service, without, .. } => {
            let event = of_service(state, EventKind::Released, *service);
            vec![match without {
                Some(without) => event.with_message(without.as_ref()),
                None => event,
            }]
        }
        PlanCommand::MarkStable { deployment, revision } => vec![
            Event::new(EventKind::Stable)
                .with_deployment(deployment)
                .with_message(format!("revision {revision}")),
        ],
        PlanCommand::Fail {
            deployment,
            service,
            cause,
            ..
        } => {
            let reverting = state
                .deployment(deployment)
                .is_some_and(|deployment| deployment.phase == Phase::Reverting);
            let kind = if reverting {
                EventKind::Reverting
            } else {
                EventKind::Failed
            };
            vec![of_service(state, kind, *service).with_message(cause.as_ref())]
        }
        PlanCommand::DrainFinished { node } => vec![Event::new(EventKind::NodeDrained).with_node(*node)],
        PlanCommand::CronFired { service, .. } => vec![of_service(state, EventKind::CronFired, *service)],
        PlanCommand::AdoptSettings { service, .. } => {
            vec![of_service(state, EventKind::SettingsAdopted, *service)]
        }
        PlanCommand::TrySettings { .. }
        | PlanCommand::Forget { .. }
        | PlanCommand::ForgetService { .. }
        | PlanCommand::OpenGeneration { .. } => Vec::new(),
    }
}

/// Whether a placement was not carried out.
fn is_left_out(outcome: &Outcome, slot: Slot) -> bool {
    match outcome {
        Outcome::Placed { left_out, .. } => left_out.iter().any(|(left_out, _)| *left_out == slot),
        Outcome::Done | Outcome::Deployed { .. } | Outcome::Registered { .. } | Outcome::Reported { .. } => {
            false
        }
    }
}

fn stop_reason(state: &State, why: StopReason) -> String {
    match why {
        StopReason::ScaledDown => "scaled down".to_owned(),
        StopReason::Replaced => "replaced by a newer one".to_owned(),
        StopReason::Draining => "its node is being drained".to_owned(),
        StopReason::Removed => "its service was removed".to_owned(),
        StopReason::NodeUnfit => "its node does not fit it any more".to_owned(),
        StopReason::NodeLost => "its node is lost and another one has its place".to_owned(),
        StopReason::FailsThere => "it keeps failing there, so another node is tried".to_owned(),
        StopReason::Displaced { by } => match state.service(by) {
            Some(service) => format!("{} is more important and needs the room", service.key),
            None => "a more important service needs the room".to_owned(),
        },
    }
}

fn replica_event(state: &State, node: NodeId, told: &AgentEvent) -> Option<Event> {
    let (kind, message) = match &told.event {
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
    let event = of_replica(state, kind, &told.replica).with_node(node);
    Some(Event { message, ..event })
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
