//! What a command of a scenario asks for: a verb of the product, or something that happens to the cluster.

use clap::Parser;
use dhow_cli::target::NamedTarget;
use dhow_cli::{
    cron, deploy, explain, history, node, plan, ps, rebalance, restart, rm, rollback, rollout, scale, start,
    status, stop,
};
use dhow_core::command::ApplyReason;
use dhow_core::ids::{DeploymentName, NodeId, Revision};
use dhow_core::rollout::Figures;
use dhow_core::scaler::Load;
use dhow_core::spec::TimeSpan;

use super::node_shape::NodeShape;
use crate::lab::Behaviour;

/// One command of a scenario, parsed.
pub(super) enum Action {
    Verb(Box<Verb>),
    AddNodes {
        count: u64,
        shape: NodeShape,
    },
    /// The file as it was last deployed, changed by the lines below the command.
    Redeploy {
        name: DeploymentName,
        force: bool,
    },
    Manifests(ManifestAction),
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
    RememberPlan,
    ApplyRememberedPlan,
    Due {
        target: NamedTarget,
        /// The same moment once more.
        again: bool,
    },
    /// What the balancers have counted since the canary of a service began.
    Calls {
        service: NamedTarget,
        figures: Figures,
    },
    /// What nodes tell of an adaptive service from now on.
    Load {
        service: NamedTarget,
        load: Load,
    },
    Token(TokenAction),
    Check,
}

/// The verbs of the command line that a scenario may use, with their own arguments.
#[derive(Parser)]
#[command(name = "dhow", no_binary_name = true, disable_help_subcommand = true)]
pub(super) enum Verb {
    Deploy(deploy::Args),
    Plan(plan::Args),
    Status(status::Args),
    Ps(ps::Args),
    Scale(scale::Args),
    Stop(stop::Args),
    Start(start::Args),
    Rebalance(rebalance::Args),
    Restart(restart::Args),
    Rm(rm::Args),
    History(history::Args),
    Rollback(rollback::Args),
    Rollout(rollout::Args),
    Explain(explain::Args),
    Node(node::Args),
    Cron(cron::Args),
}

/// What happens to one node, beside what people do with it.
pub(super) enum NodeAction {
    Cut,
    PowerOff,
    Back,
    BackWithLedger,
    LoseLedger,
    Lead,
    Assignments { since: Revision },
}

/// A signed set that is put in force.
pub(super) struct ManifestAction {
    pub version: u64,
    pub source: Option<String>,
    pub commit: Option<String>,
    pub why: ApplyReason,
}

/// What a scenario does with a token of workers.
pub(super) enum TokenAction {
    Issue { name: String, uses: u32, ttl: TimeSpan },
    Use { name: String, key: String },
    Revoke { name: String },
}
