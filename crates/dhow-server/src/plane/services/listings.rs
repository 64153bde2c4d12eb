//! The listings of the API, each made from one state and from what is passed in with it: no clock, no lock, no node is
//! asked. The service manager makes them for callers; scenarios make them of a simulated cluster, so that both show the
//! same.

use std::sync::Arc;

use dhow_core::command::Refused;
use dhow_core::dry_run::dry_run;
use dhow_core::ids::NodeId;
use dhow_core::plan::PlanReport;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::{Deployment, State};
use dhow_core::time::ClusterTime;
use dhow_wire::api::{DeploymentPlan, Explanation, HistoryEntry, RolloutStatus};
use dhow_wire::{DeploymentStatus, NodeStatus, ReplicaStatus};

use super::replicas::ReplicaFilter;
use super::select::NoSuchName;
use super::wall_times::WallTimes;
use super::{deployment, explain, history, nodes, replicas, rollouts, select};
use crate::plane::log::Leadership;
use crate::plane::runtime::Observed;

/// One state and the moment at which it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Listings<'a> {
    pub state: &'a State,
    /// What the last plan left undone, and why.
    pub report: &'a PlanReport,
    pub observed: &'a Observed,
    pub leadership: Leadership,
    /// The cluster's time.
    pub now: ClusterTime,
    pub now_unix_ms: i64,
    /// The cluster's time that this server was started with.
    pub began: ClusterTime,
}

impl<'a> Listings<'a> {
    fn times(&self) -> WallTimes<'a> {
        WallTimes {
            state: self.state,
            now: self.now,
            now_unix_ms: self.now_unix_ms,
            began: self.began,
        }
    }

    pub fn nodes(&self) -> Vec<NodeStatus> {
        let all = self.state.nodes.values();
        all.map(|node| {
            nodes::status(
                self.state,
                self.report,
                node,
                self.leadership,
                self.observed,
                self.now,
            )
        })
        .collect()
    }

    /// One node, with the services that fail on it.
    pub fn node(&self, id: NodeId) -> Result<NodeStatus, NoSuchName> {
        let node = self.state.node(id).ok_or(NoSuchName::Node(id))?;
        Ok(NodeStatus {
            failures: nodes::failures(self.state, node, self.now),
            ..nodes::status(
                self.state,
                self.report,
                node,
                self.leadership,
                self.observed,
                self.now,
            )
        })
    }

    pub fn deployments(&self) -> Vec<DeploymentStatus> {
        let all = self.state.deployments.values();
        let now_unix_secs = self.times().now_unix_secs();
        all.map(|known| {
            self.with_gates(
                known,
                deployment::status(self.state, self.observed, known, now_unix_secs),
            )
        })
        .collect()
    }

    /// Says as well where its rollouts wait.
    fn with_gates(&self, known: &Deployment, mut status: DeploymentStatus) -> DeploymentStatus {
        status
            .notes
            .extend(rollouts::notes(self.state, self.report, known));
        status
    }

    /// Every service with a rollout that is under way.
    pub fn rollouts(&self) -> Vec<RolloutStatus> {
        rollouts::list(self.state, self.report)
    }

    pub fn deployment(&self, name: &str) -> Result<DeploymentStatus, NoSuchName> {
        let known = select::deployment(self.state, name)?;
        let now_unix_secs = self.times().now_unix_secs();
        let status = deployment::status(self.state, self.observed, known, now_unix_secs);
        Ok(self.with_gates(known, status))
    }

    pub fn history(&self, name: &str) -> Result<Vec<HistoryEntry>, NoSuchName> {
        Ok(history::history(select::deployment(self.state, name)?))
    }

    pub fn explain(&self, name: &str, what: &str) -> Result<Explanation, NoSuchName> {
        let known = select::deployment(self.state, name)?;
        explain::explain(self.report, self.observed, &self.times(), known, what)
    }

    /// Replicas by deployment, service and slot. A deployment or service that is not there is an error, so that a
    /// slip does not look like an empty cluster.
    pub fn replicas(&self, filter: &ReplicaFilter) -> Result<Vec<ReplicaStatus>, NoSuchName> {
        if let Some(name) = &filter.deployment {
            let known = select::deployment(self.state, name)?;
            if let Some(service) = &filter.service
                && !known.services.keys().any(|known| known.as_str() == service)
            {
                return Err(NoSuchName::Name(known.name.clone(), service.clone()));
            }
        }
        Ok(replicas::list(self.report, filter, self.observed, &self.times()))
    }

    /// What a spec would change.
    pub fn plan(&self, spec: &Arc<DeploymentSpec>) -> Result<DeploymentPlan, Refused> {
        let run = dry_run(self.state, spec)?;
        Ok(DeploymentPlan::of(&spec.deployment, &run))
    }
}
