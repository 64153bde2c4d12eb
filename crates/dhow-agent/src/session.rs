//! What an agent and the control plane say to each other. [`grpc::GrpcSession`] is the session of every node, whether
//! its control plane is in the same process or across a network. A node of a static cluster takes its orders from its
//! own copy of the state in place of its session.

pub mod grpc;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dhow_core::assignment::Assignment;
use dhow_core::directory::{Directory, DirectoryChange};
use dhow_core::ids::{Revision, ServiceKey};
pub use dhow_core::mirror::{OpenRollout, ReportAnswer, ReportBody, RolloutId};
use dhow_core::usage::NodeUsage;
use dhow_wire::grpc::MeshPass;
use tokio::sync::watch;

use crate::files::{FileContents, FileKey};
use crate::highest::Highest;

pub type SessionFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SessionError>> + Send + 'a>>;

/// The agent's way to the control plane. Calls may be dropped at any time.
pub trait Session: Send + Sync + 'static {
    /// Hands in a report; answered once it is durable.
    fn report(&self, report: Report) -> SessionFuture<'_, ReportAnswer>;

    /// Says that the node lives, what it runs and which rollouts it knows.
    fn heartbeat(&self, beat: Heartbeat) -> SessionFuture<'_, HeartbeatAnswer>;

    /// What the node uses now; told with the next heartbeat, and forgotten where newer figures come first. Where it is
    /// urgent, the heartbeat comes at once.
    fn usage(&self, usage: NodeUsage, is_urgent: bool);

    /// Follows whether anybody who decides has heard the last heartbeat.
    fn heard(&self) -> watch::Receiver<bool>;

    /// The values of secrets, by name.
    fn secrets<'a>(&'a self, names: &'a [String]) -> SessionFuture<'a, BTreeMap<String, String>>;

    /// Contents of files that replicas of this node see: as many as one answer holds, at least one.
    fn files<'a>(&'a self, wanted: &'a [FileKey]) -> SessionFuture<'a, FileContents>;

    /// How often the control plane wants to hear of the node.
    fn pace(&self) -> watch::Receiver<Pace>;

    /// The least time between two reports of changes: what happens in between goes together. The first one goes at
    /// once.
    fn report_gap(&self) -> Duration;
}

/// Where an agent's assignments and its directory come from: its session, or in a static cluster the node's own copy of
/// the state. Calls may be dropped at any time.
pub trait Orders: Send + Sync + 'static {
    /// Waits until there is something newer than `last`, and tells it; everything at once where there is no last.
    fn assignments(&self, last: Option<Revision>) -> SessionFuture<'_, Assignment>;

    /// Takes the highest order that the node has acted on.
    fn acted_on(&self, highest: &Highest);

    /// Follows what the node is told of services; none before the first word. What an assignment's replicas may call is
    /// there before the assignment is.
    fn directory(&self) -> watch::Receiver<Option<Arc<KnownDirectory>>>;

    /// The services of other deployments that the node wants to be told of from now on. Whoever tells of all that may be
    /// called need not hear it.
    fn want(&self, _services: &BTreeSet<ServiceKey>) {}
}

/// What the node knows of services, and who it is to the proxies of other nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownDirectory {
    pub directory: Directory,
    pub pass: MeshPass,
}

impl KnownDirectory {
    /// Takes in what was told; what is not said anew stays.
    pub fn follow(&mut self, change: DirectoryChange, pass: MeshPass) {
        self.directory.apply(change);
        self.pass.ticket = pass.ticket.or(self.pass.ticket.take());
        self.pass.ticket_key = pass.ticket_key.or(self.pass.ticket_key);
        self.pass.believed_cas = pass.believed_cas.or(self.pass.believed_cas.take());
    }
}

/// What the control plane last said about heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The node is heard at least once in this time; 0 before the first word.
    pub ttl_secs: u32,
    /// Counts the sessions that were opened: with each one the node takes its place in the window anew.
    pub session: u64,
    /// Counts the heartbeats that were asked for at once.
    pub urgent: u64,
    /// The control plane goes by the load of services, and wants to hear of it often.
    pub follows_load: bool,
}

/// What a node reports to the control plane: events or an inventory, and the rollouts that it knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The rollouts that the node works on or has prepared for, the newest first.
    pub rollouts: Vec<RolloutId>,
    pub incarnation: u64,
    pub body: ReportBody,
}

/// A heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    /// What the node runs, in one short text.
    pub digest: String,
    /// The rollouts that it works on or has prepared for, the newest first.
    pub rollouts: Vec<RolloutId>,
}

/// What a heartbeat is answered with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeartbeatAnswer {
    /// It had given the node up, or knows nothing of this life of it: it wants to hear everything.
    pub inventory_wanted: bool,
    /// It believes something else of the node, and has its events up to this one: it wants to hear them again from this
    /// one on.
    pub replay_from: Option<u64>,
    /// Rollouts that are open for the node and that it did not name.
    pub open: Vec<OpenRollout>,
}

/// Why a call over a session brought nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Try again after a pause.
    #[error("the control plane does not answer: {0}")]
    Unavailable(String),
    /// The control plane has not what the agent asked for, or does not give it.
    #[error("{0}")]
    Refused(String),
}
