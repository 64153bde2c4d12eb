//! What a table says of services that this node is told of only when somebody here asks for them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use dhow_core::directory::INTERESTS_MAX;
use dhow_core::ids::{DeploymentName, ServiceName};

use super::{TableError, at_most, text};

/// Services that were given up and whose addresses still answer: a listener each, a quarter of what a table may have.
pub const ASLEEP_MAX: usize = 1024;

/// A service by its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WantedService {
    pub deployment: String,
    pub service: String,
}

/// Services of other deployments than this node's own, which it is told of on demand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDemand {
    /// Deployments of this node's replicas: all of their services are in the table.
    #[serde(default)]
    pub own: Vec<String>,
    /// In the table because somebody here has asked for them.
    #[serde(default)]
    pub asked: Vec<WantedService>,
    /// In the table without backends: they were given up, and whoever calls one brings it back.
    #[serde(default)]
    pub asleep: Vec<WantedService>,
    /// Asked for, and not there.
    #[serde(default)]
    pub absent: Vec<WantedService>,
    /// There are no deployments of these names.
    #[serde(default)]
    pub absent_deployments: Vec<String>,
}

impl WantedService {
    /// Whether a service can have these names.
    pub fn can_be(&self) -> bool {
        DeploymentName::new(&self.deployment).is_ok() && ServiceName::new(&self.service).is_ok()
    }

    /// The service of a route's id.
    pub fn of_route(id: &str) -> Option<Self> {
        let (deployment, rest) = id.split_once('/')?;
        let (service, _) = rest.split_once('/')?;
        Some(Self {
            deployment: deployment.to_owned(),
            service: service.to_owned(),
        })
    }
}

impl OnDemand {
    pub(super) fn sleeping(&self) -> BTreeSet<(&str, &str)> {
        let asleep = self.asleep.iter();
        asleep
            .map(|service| (service.deployment.as_str(), service.service.as_str()))
            .collect()
    }

    pub(super) fn check(&self) -> Result<(), TableError> {
        at_most("services that are asked for", self.asked.len(), INTERESTS_MAX)?;
        at_most("services that are not there", self.absent.len(), INTERESTS_MAX)?;
        at_most(
            "deployments that are not there",
            self.absent_deployments.len(),
            INTERESTS_MAX,
        )?;
        at_most("sleeping services", self.asleep.len(), ASLEEP_MAX)?;
        let named = self.asked.iter().chain(&self.asleep).chain(&self.absent);
        for service in named {
            text("the deployment", &service.deployment)?;
            text("the service", &service.service)?;
        }
        Ok(())
    }
}
