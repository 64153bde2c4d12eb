//! The drivers of this node by the kind of workload they run.

use std::sync::Arc;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::{Runtime, ServiceSpec};
use dhow_driver::driver::{Driver, DriverResult, ReplicaStatus};
use dhow_driver::image::Logins;

/// Cheap to clone.
#[derive(Clone)]
pub struct Drivers {
    pub process: Arc<dyn Driver>,
    /// Present even where containers cannot run: it then says why.
    pub container: Arc<dyn Driver>,
    /// Where the images' credentials come from: the agent fills it.
    pub logins: Logins,
}

impl Drivers {
    /// One driver for everything: for tests and simulations.
    pub fn same(driver: Arc<dyn Driver>) -> Self {
        Self {
            process: Arc::clone(&driver),
            container: driver,
            logins: Logins::default(),
        }
    }

    /// The driver that a spec asks for.
    pub fn of(&self, spec: &ServiceSpec) -> &Arc<dyn Driver> {
        match spec.runtime() {
            Runtime::Process => &self.process,
            Runtime::Container => &self.container,
        }
    }

    /// Everything that exists on this host, with the driver that has it.
    pub async fn list(&self) -> DriverResult<Vec<Found>> {
        let mut found = Vec::new();
        for driver in self.all() {
            for (name, status) in driver.list().await? {
                found.push(Found {
                    name,
                    status,
                    driver: Arc::clone(driver),
                });
            }
        }
        Ok(found)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<dyn Driver>> {
        let container = (!Arc::ptr_eq(&self.process, &self.container)).then_some(&self.container);
        std::iter::once(&self.process).chain(container)
    }

    /// The driver that has a replica of this name, if any does.
    pub async fn having(&self, name: &ReplicaName) -> Option<Arc<dyn Driver>> {
        for driver in self.all() {
            if driver.inspect(name).await.is_ok() {
                return Some(Arc::clone(driver));
            }
        }
        None
    }
}

/// A replica that a driver has.
pub struct Found {
    pub name: ReplicaName,
    pub status: ReplicaStatus,
    pub driver: Arc<dyn Driver>,
}
