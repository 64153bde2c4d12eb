//! The service manager itself: it picks the state, the clock and the nodes that an answer needs; the files beside it
//! make the answers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dhow_core::command::Refused;
use dhow_core::ids::{DeploymentName, NodeId};
use dhow_core::replica::ReplicaState;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::{Deployment, State};
use dhow_core::time::ClusterTime;
use dhow_wire::api::{CronStatus, DeploymentPlan, Explanation, HistoryEntry, Progress, RolloutStatus};
use dhow_wire::{ClusterStatus, DeploymentStatus, NodeStatus, ReplicaStatus, ServiceHealthSummary};

use super::cluster::ClusterIdentity;
use super::listings::Listings;
use super::progress::Pulls;
use super::replicas::ReplicaFilter;
use super::select::NoSuchName;
use super::{cluster, deployment, live, progress};
use crate::clock::Clock;
use crate::net::node_door::NodeDoor;
use crate::plane::log::Leadership;
use crate::plane::past::Moment;
use crate::plane::runtime::{ClusterTimer, Observed, RuntimeView};

/// A node that has not said by then how far its pulls are is left out: the next look asks again.
const PULLS_TIMEOUT: Duration = Duration::from_millis(400);
/// Nodes that one look asks for their pulls.
const PULLS_NODES_MAX: usize = 16;

/// Answers the API's questions about deployments, services, replicas and nodes from the newest state; cheap to clone.
#[derive(Clone)]
pub struct ServiceManager {
    view: RuntimeView,
    clock: Arc<dyn Clock>,
    door: Arc<dyn NodeDoor>,
    identity: ClusterIdentity,
    timer: Arc<Mutex<ClusterTimer>>,
    /// What this server was started with.
    began: ClusterTime,
}

impl ServiceManager {
    pub fn new(
        view: RuntimeView,
        clock: Arc<dyn Clock>,
        door: Arc<dyn NodeDoor>,
        identity: ClusterIdentity,
    ) -> Self {
        let began = view.state().time;
        let timer = ClusterTimer::new(began, clock.monotonic_ms());
        Self {
            began,
            view,
            clock,
            door,
            identity,
            timer: Arc::new(Mutex::new(timer)),
        }
    }

    pub fn view(&self) -> &RuntimeView {
        &self.view
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub fn door(&self) -> &Arc<dyn NodeDoor> {
        &self.door
    }

    pub fn identity(&self) -> ClusterIdentity {
        self.identity
    }

    pub fn state(&self) -> Arc<State> {
        self.view.state()
    }

    /// The cluster's time now, as near as this server knows it.
    fn now(&self, state: &State) -> ClusterTime {
        let monotonic_ms = self.clock.monotonic_ms();
        // Both fields are written at once, so a holder that panicked left a timer that can be read.
        let mut timer = self.timer.lock().unwrap_or_else(PoisonError::into_inner);
        timer.committed(state.time, monotonic_ms);
        timer.now(monotonic_ms)
    }

    pub fn cluster(&self) -> ClusterStatus {
        cluster::status(&self.state(), self.identity, self.view.leadership())
    }

    /// The same with the hash of the state. May take a while: call it where blocking is allowed.
    pub fn cluster_with_hash(&self) -> ClusterStatus {
        let state = self.state();
        ClusterStatus {
            state_hash: Some(state.hash().to_string()),
            ..cluster::status(&state, self.identity, self.view.leadership())
        }
    }

    /// Shows a listing of the newest state as it looks at this moment.
    pub(crate) fn listed<T>(&self, show: impl FnOnce(&Listings<'_>) -> T) -> T {
        let state = self.state();
        show(&Listings {
            state: &state,
            report: &self.view.plan_report(),
            observed: self.view.observed(),
            leadership: self.view.leadership(),
            now: self.now(&state),
            now_unix_ms: self.clock.wall_unix_ms(),
            began: self.began,
        })
    }

    /// The same of a moment of the past. What nodes used, and how long their leases ran, is not kept.
    pub(crate) fn listed_at<T>(moment: &Moment, show: impl FnOnce(&Listings<'_>) -> T) -> T {
        let state = &moment.state;
        show(&Listings {
            state,
            report: &moment.report,
            observed: &Observed::default(),
            leadership: Leadership {
                term: state.term.0,
                leader: None,
                is_here: false,
            },
            now: state.time,
            now_unix_ms: moment.unix_ms.unwrap_or(0),
            began: state.time,
        })
    }

    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.listed(|listings| listings.nodes())
    }

    pub fn node(&self, id: NodeId) -> Result<NodeStatus, NoSuchName> {
        self.listed(|listings| listings.node(id))
    }

    pub fn deployments(&self) -> Vec<DeploymentStatus> {
        self.listed(|listings| listings.deployments())
    }

    pub fn deployment(&self, name: &str) -> Result<DeploymentStatus, NoSuchName> {
        self.listed(|listings| listings.deployment(name))
    }

    pub fn rollouts(&self) -> Vec<RolloutStatus> {
        self.listed(|listings| listings.rollouts())
    }

    pub fn history(&self, name: &str) -> Result<Vec<HistoryEntry>, NoSuchName> {
        self.listed(|listings| listings.history(name))
    }

    pub fn crons(
        &self,
        deployment: Option<&str>,
        service: Option<&str>,
        next: usize,
    ) -> Result<Vec<CronStatus>, NoSuchName> {
        self.listed(|listings| listings.crons(deployment, service, next))
    }

    pub fn explain(&self, name: &str, what: &str) -> Result<Explanation, NoSuchName> {
        self.listed(|listings| listings.explain(name, what))
    }

    pub fn replicas(&self, filter: &ReplicaFilter) -> Result<Vec<ReplicaStatus>, NoSuchName> {
        self.listed(|listings| listings.replicas(filter))
    }

    /// The same, each compared with what its node says of it now.
    pub async fn replicas_live(&self, filter: &ReplicaFilter) -> Result<Vec<ReplicaStatus>, NoSuchName> {
        let listed = self.replicas(filter)?;
        let others = live::others(&self.state(), filter);
        Ok(live::compare(self.door.as_ref(), listed, others).await)
    }

    /// What a spec would change. May take a while: call it where blocking is allowed.
    pub fn plan(&self, spec: &Arc<DeploymentSpec>) -> Result<DeploymentPlan, Refused> {
        self.listed(|listings| listings.plan(spec))
    }

    /// Its services, counted.
    pub fn summaries(&self, state: &State, known: &Deployment) -> Vec<ServiceHealthSummary> {
        let now_unix_secs = self.clock.wall_unix_ms().div_euclid(1_000);
        deployment::status(state, self.view.observed(), known, now_unix_secs).services
    }

    /// How a deployment comes along now.
    pub async fn progress(&self, state: &State, known: &Deployment) -> Progress {
        let pulls = self.pulls(state, &known.name).await;
        progress::progress(state, &self.view.plan_report(), known, &pulls)
    }

    /// How far the pulls of a deployment are; nothing of a node that does not answer at once.
    async fn pulls(&self, state: &State, name: &DeploymentName) -> Pulls {
        let ids = state
            .deployment(name)
            .into_iter()
            .flat_map(|known| known.services.values());
        let nodes: BTreeSet<NodeId> = ids
            .flat_map(|id| state.replicas_of(*id))
            .filter(|(_, replica)| replica.machine.state == ReplicaState::Pulling)
            .map(|(_, replica)| replica.node)
            .collect();
        let asked = nodes.into_iter().take(PULLS_NODES_MAX).map(|node| async move {
            let answer = tokio::time::timeout(PULLS_TIMEOUT, self.door.pulls(node)).await;
            answer.ok().and_then(Result::ok).unwrap_or_default()
        });
        let answers = futures_util::future::join_all(asked).await;
        let all = answers.into_iter().flatten();
        all.map(|pull| (pull.replica.clone(), pull)).collect()
    }
}
