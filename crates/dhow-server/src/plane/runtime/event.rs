//! The event log's records: what happened, told for people and for tools that follow along. They are made from what
//! `step` says of applied entries and are never read back by anything that decides.

mod doubts;
mod id;
mod kind;
mod recorder;
mod words;

use dhow_core::ids::{DeploymentName, Generation, NodeId, Revision, ServiceName};
use dhow_core::time::ClusterTime;
use serde::{Deserialize, Serialize};

pub use id::{BadEventId, EventId};
pub use kind::EventKind;
pub use recorder::EventRecorder;
pub use recorder::differences;
pub(super) use recorder::installed;
pub use words::is_failed_run;

/// What happened, and to whom. Short names, because the file holds 200,000 of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<DeploymentName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The replica's id inside its deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// The rollout that it is a part of, `deployment@revision`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// In words, where the kind does not say all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who asked for it; none for what the cluster does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}

impl Event {
    pub fn new(kind: EventKind) -> Self {
        Self {
            kind,
            deployment: None,
            service: None,
            replica: None,
            generation: None,
            node_id: None,
            rollout: None,
            message: None,
            author: None,
        }
    }

    /// Something that is not in the log: an alarm that people should see.
    pub fn alarm(message: impl Into<String>) -> Self {
        Self::new(EventKind::Alarm).with_message(message)
    }

    pub fn with_deployment(mut self, deployment: &DeploymentName) -> Self {
        self.deployment = Some(deployment.clone());
        self
    }

    pub fn with_node(mut self, node: NodeId) -> Self {
        self.node_id = Some(node);
        self
    }

    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
}

/// An event with its place in the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// The revision of the entry it came from; of the last one before it, where it came from none.
    pub revision: Revision,
    /// Counts the events of one revision.
    #[serde(default)]
    pub part: u32,
    pub time_ms: ClusterTime,
    /// When this server applied it, as its wall clock said. Absent where the event was made again from the log after a
    /// restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_unix_ms: Option<i64>,
    #[serde(flatten)]
    pub event: Event,
}

impl EventRecord {
    pub fn id(&self) -> EventId {
        EventId {
            revision: self.revision,
            part: self.part,
        }
    }
}
