//! Everything that can be sent to the reducer. Committed entries, leadership and results of plans come to it on
//! ways of their own, so that they never wait behind a full inbox.

use std::sync::Arc;

use dhow_core::command::{Command, Outcome, RequestId};
use dhow_core::ids::{NodeId, Revision};
use dhow_core::mirror::{OpenRollout, RolloutId};
use dhow_core::state::State;
use dhow_wire::manifest::VerifiedSet;
use tokio::sync::oneshot;

pub use dhow_core::mirror::ReportBody;

use super::error::WriteError;

/// One input of the reducer's inbox.
#[derive(Debug)]
pub enum ReducerInput {
    /// What happened on a node.
    HostEvent {
        host: NodeId,
        /// The rollout that the node is working on, where it names one.
        rollout_id: Option<RolloutId>,
        event: HostReport,
    },
    /// A newer set of signed manifests. The type cannot be made without checking the signatures.
    ManifestSetUpdated(VerifiedSet),
    /// A node is alive. Its lease was renewed before this was sent.
    HeartbeatReceived {
        host: NodeId,
        rollout_id: Option<RolloutId>,
        /// What the node says it runs, as [`dhow_core::mirror::digest_of`] makes it.
        current_digest: Option<String>,
        /// When it came, in monotonic milliseconds of this server's clock.
        at: u64,
        reply: oneshot::Sender<HeartbeatReply>,
    },
    /// Time to look whether there is something to plan.
    PlanTick,
    /// A change that somebody asks for.
    Write(WriteRequest),
    /// The state as it is applied here when the reducer comes to it.
    Read { reply: oneshot::Sender<Arc<State>> },
}

/// What a heartbeat is answered with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeartbeatReply {
    /// What the node says it runs differs from the mirror, which has its events up to this number: it sends them
    /// again from this one on, this one included. Where that does not help it sends an inventory.
    pub replay_from: Option<u64>,
    /// The node names no rollout while these are open for it: it seems to have lost its memory.
    pub bootstrap_rollouts: Vec<OpenRollout>,
}

/// A change and who asks for it.
#[derive(Debug)]
pub struct WriteRequest {
    pub command: Command,
    /// Makes a retry safe.
    pub request: Option<RequestId>,
    /// Answered after the change is durable and applied, or refused.
    pub reply: oneshot::Sender<Result<Applied, WriteError>>,
}

/// A write that is durable and applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The state's revision after it.
    pub revision: Revision,
    pub outcome: Outcome,
}

/// What a node reports of itself.
#[derive(Debug)]
pub struct HostReport {
    /// Which life of the node's ledger speaks.
    pub incarnation: u64,
    pub body: ReportBody,
    /// Answered once the report is durable and applied: before that the node forgets nothing.
    pub ack: oneshot::Sender<Result<ReportAck, WriteError>>,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportAck {
    /// Everything up to here is durable: the ledger may forget it.
    pub durable_seq: u64,
    /// Something reported cannot have happened to the mirror: the node should send an inventory.
    pub inventory_wanted: bool,
}
