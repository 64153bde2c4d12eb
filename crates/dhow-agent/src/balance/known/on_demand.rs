//! Services of other deployments, which this node is told of when somebody here asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::directory::{Directory, INTERESTS_MAX};
use dhow_core::ids::{DeploymentName, ServiceKey};
use dhow_core::spec::Endpoint;

use super::Known;
use crate::proxy::{ASLEEP_MAX, OnDemand, WantedService};
use crate::session::KnownDirectory;

impl Known {
    /// What this node asks for from now on.
    pub fn want(&mut self, wanted: &BTreeSet<ServiceKey>) {
        let told = self.told.iter().flat_map(|told| told.directory.services.keys());
        let told: BTreeSet<&ServiceKey> = told.collect();
        // What was asked for before and is still told may fall asleep.
        self.asked
            .retain(|key| wanted.contains(key) || told.contains(key));
        self.asked.extend(wanted.iter().cloned());
    }

    /// Whether servers have said that there is no such service, or not for this node.
    pub fn is_absent(&self, service: &ServiceKey) -> bool {
        let told = self.told.as_ref();
        let is_own = self.own_deployments().contains(&service.deployment);
        is_own || told.is_some_and(|told| told.directory.absent.has(service))
    }

    /// Whether servers say only what is asked for.
    pub fn is_by_interest(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.directory.by_interest)
    }

    /// Services whose addresses answered when the daemon before this one ended, though they were told no more.
    pub fn remember_asleep(&mut self, asleep: BTreeMap<ServiceKey, Arc<[Endpoint]>>) {
        self.asleep = asleep;
    }

    pub fn asleep(&self) -> &BTreeMap<ServiceKey, Arc<[Endpoint]>> {
        &self.asleep
    }

    /// Keeps the endpoints of services that were asked for and are told no more: their addresses go on answering. Where
    /// servers have told of everything until now, nobody had to ask, and any of them may be in use.
    pub(super) fn put_to_sleep(&mut self, next: &Arc<KnownDirectory>) {
        let next = &next.directory;
        if let Some(told) = &self.told {
            let told = &told.directory;
            let may_be_used = |key: &ServiceKey| !told.by_interest || self.asked.contains(key);
            let gone = told.services.iter();
            let gone = gone.filter(|(key, _)| may_be_used(key) && !next.services.contains_key(*key));
            for (key, listing) in gone {
                self.asleep.insert(key.clone(), Arc::clone(&listing.endpoints));
            }
        }
        let own = self.own_deployments();
        let is_asleep = |key: &ServiceKey| {
            next.by_interest
                && !next.services.contains_key(key)
                && !next.absent.has(key)
                && !own.contains(&key.deployment)
        };
        self.asleep.retain(|key, _| is_asleep(key));
        while self.asleep.len() > ASLEEP_MAX {
            self.asleep.pop_first();
        }
    }

    fn own_deployments(&self) -> BTreeSet<DeploymentName> {
        let own = self.local.keys().chain(&self.kept);
        own.map(|key| key.deployment.clone()).collect()
    }

    /// What the proxy has to know of it.
    pub(super) fn on_demand(&self) -> Option<OnDemand> {
        let Directory {
            by_interest,
            services,
            absent,
            ..
        } = &self.told.as_ref()?.directory;
        if !by_interest {
            return None;
        }
        let own = self.own_deployments();
        // Of its own deployments too: others here may call them, when the last replica has gone.
        let asked = self.asked.iter().filter(|key| services.contains_key(*key));
        Some(OnDemand {
            asked: asked.take(INTERESTS_MAX).map(named).collect(),
            asleep: self.asleep.keys().map(named).collect(),
            absent: absent.services.iter().map(named).collect(),
            absent_deployments: absent.deployments.iter().map(ToString::to_string).collect(),
            own: own.iter().map(ToString::to_string).collect(),
        })
    }
}

fn named(key: &ServiceKey) -> WantedService {
    WantedService {
        deployment: key.deployment.to_string(),
        service: key.service.to_string(),
    }
}
