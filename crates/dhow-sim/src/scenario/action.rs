//! What a command of a scenario asks for.

use dhow_core::command::ScaleChange;
use dhow_core::ids::{DeploymentName, DeploymentRevision, NodeId, Revision, ServiceName};
use dhow_core::spec::TimeSpan;

use super::node_shape::NodeShape;
use crate::lab::Behaviour;

/// One command of a scenario, parsed.
#[derive(Clone, Debug)]
pub(super) enum Action {
    AddNodes {
        count: u64,
        shape: NodeShape,
    },
    Nodes,
    Ps {
        all: bool,
    },
    Status,
    History(DeploymentName),
    Explain(DeploymentName, ServiceName),
    Deploy,
    /// The file as it was last deployed, changed by the lines below the command.
    Redeploy(DeploymentName),
    Manifests {
        version: u64,
        source: Option<String>,
    },
    /// Lets time pass and tells what happened.
    Run(TimeSpan),
    /// Lets time pass and tells nothing.
    Wait(TimeSpan),
    Image {
        name: String,
        behaviour: Behaviour,
        /// Only there, where it is named.
        node: Option<NodeId>,
    },
    Node(NodeId, NodeAction),
    Scale {
        deployment: DeploymentName,
        change: ScaleChange,
    },
    Restart {
        deployment: DeploymentName,
        service: Option<ServiceName>,
    },
    Rollback {
        deployment: DeploymentName,
        to: Option<DeploymentRevision>,
    },
    Remove(DeploymentName),
    RememberPlan,
    ApplyRememberedPlan,
    Cron(DeploymentName, ServiceName),
    Token(TokenAction),
    Check,
}

/// What happens to one node.
#[derive(Clone, Debug)]
pub(super) enum NodeAction {
    Cut,
    PowerOff,
    Back,
    BackWithLedger,
    LoseLedger,
    Drain,
    DrainWith {
        deadline: Option<TimeSpan>,
        ignore_system: bool,
    },
    Undrain,
    Label {
        key: String,
        value: Option<String>,
    },
    Remove,
    Lead,
    Assignments {
        since: Revision,
    },
}

/// What a scenario does with a token of workers.
#[derive(Clone, Debug)]
pub(super) enum TokenAction {
    Issue { name: String, uses: u32, ttl: TimeSpan },
    Use { name: String, key: String },
    Revoke { name: String },
}
