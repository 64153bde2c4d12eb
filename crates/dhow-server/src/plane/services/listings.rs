//! The listings of the API, each made from one state and from what is passed in with it: no clock, no lock, no node is
//! asked. The service manager makes them for callers; scenarios make them of a simulated cluster, so that both show the
//! same.

use std::sync::Arc;

use dhow_core::command::Refused;
use dhow_core::dry_run::dry_run;
use dhow_core::ids::{NodeId, ReplicaKey};
use dhow_core::plan::PlanReport;
use dhow_core::spec::DeploymentSpec;
use dhow_core::state::{Deployment, Node, Service, State};
use dhow_core::time::ClusterTime;
use dhow_wire::api::{CronStatus, DeploymentPlan, Explanation, HistoryEntry, Progress, RolloutStatus};
use dhow_wire::{DeploymentStatus, NodeStatus, ReplicaStatus};

use super::overview::Overview;
use super::progress::Pulls;
use super::replicas::{ReplicaFilter, ReplicaWindow};
use super::select::NoSuchName;
use super::wall_times::WallTimes;
use super::{
    crons, deployment, explain, history, nodes, overview, progress, replicas, rollouts, scaling, select,
};
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
        all.map(|node| self.node_line(node)).collect()
    }

    /// One node, with the services that fail on it.
    pub fn node(&self, id: NodeId) -> Result<NodeStatus, NoSuchName> {
        let node = self.state.node(id).ok_or(NoSuchName::Node(id))?;
        Ok(NodeStatus {
            failures: nodes::failures(self.state, node, self.now),
            ..self.node_line(node)
        })
    }

    /// One node as the listing has it.
    pub(crate) fn node_line(&self, node: &Node) -> NodeStatus {
        nodes::status(
            self.state,
            self.report,
            node,
            self.leadership,
            self.observed,
            self.now,
        )
    }

    /// Everything in numbers, and what is not well with its reason.
    pub(crate) fn overview(&self) -> Overview {
        overview::overview(self.state, self.report)
    }

    /// How a deployment comes along, without what its nodes would have to be asked for.
    pub(crate) fn progress(&self, name: &str) -> Result<Progress, NoSuchName> {
        let known = select::deployment(self.state, name)?;
        Ok(progress::progress(
            self.state,
            self.report,
            known,
            &Pulls::default(),
        ))
    }

    /// Some of the replicas of one service.
    pub(crate) fn replicas_within(&self, service: &Service, window: ReplicaWindow) -> Vec<ReplicaStatus> {
        replicas::within(self.report, service, window, self.observed, &self.times())
    }

    /// A replica on a node as the listing has it.
    pub(crate) fn replica_line(&self, key: &ReplicaKey) -> Option<ReplicaStatus> {
        replicas::one(key, self.observed, &self.times())
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
        status.notes.extend(scaling::notes(&self.times(), known));
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

    /// Schedules by deployment and service, each with so many of its next moments. A deployment or service that is not there
    /// is an error.
    pub fn crons(
        &self,
        deployment: Option<&str>,
        service: Option<&str>,
        next: usize,
    ) -> Result<Vec<CronStatus>, NoSuchName> {
        let known: Vec<&Deployment> = match deployment {
            Some(name) => vec![select::deployment(self.state, name)?],
            None => self.state.deployments.values().map(AsRef::as_ref).collect(),
        };
        let times = self.times();
        let mut found = Vec::new();
        for deployment in known {
            let is_meant = |name: &str| service.is_none_or(|service| service == name);
            let mut names = deployment.services.keys();
            if let Some(service) = service.filter(|_| !names.any(|name| is_meant(name.as_str()))) {
                return Err(NoSuchName::Name(deployment.name.clone(), service.to_owned()));
            }
            let services = deployment::services(self.state, deployment);
            let services = services.filter(|(name, _)| is_meant(name.as_str()));
            found.extend(services.filter_map(|(_, service)| crons::status(&times, service, next)));
        }
        Ok(found)
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
