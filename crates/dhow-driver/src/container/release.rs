//! Letting go of what a container had on the host: processes, mounts, network, group, the runtime's memory.

use dhow_core::ids::ReplicaName;

use crate::cgroup::Group;
use crate::driver::{Cause, Exit, ReplicaStatus};
use crate::image::Rootfs;
use crate::shim::stop::blocking;

use super::volatile::remove_tree;
use super::{ContainerDriver, bundle, container_id, leaf};

impl ContainerDriver {
    /// The group that a replica was started in; for one without a record, the one it would get.
    pub(super) fn group(&self, name: &ReplicaName) -> Result<Group, Cause> {
        let recorded = self.inner.dirs.spec(name)?.and_then(|record| record.group);
        Ok(recorded.unwrap_or_else(|| self.inner.cgroups.runtime_group(&leaf(name))))
    }

    /// Lets go of everything but the replica's folder with its records and logs. Nothing being there is fine.
    /// Call it with the replica's lock held, when its shim is gone. Blocks.
    pub(super) fn release(&self, name: &ReplicaName, group: &Group) -> Result<(), Cause> {
        let id = container_id(name);
        group.kill_and_wait().map_err(Cause::Cgroup)?;
        self.inner.volatile.forget(&id)?;
        let dir = self.inner.dirs.dir(name);
        Rootfs::clear(&dir).map_err(|error| Cause::Rootfs(Box::new(error)))?;
        remove_tree(&dir.join(bundle::NAMES_DIR))?;
        self.inner.network.disconnect(&id)?;
        group.remove().map_err(Cause::Cgroup)
    }

    /// Lets go what a replica that has ended still holds; whoever hears of its end first calls it. A caller that is
    /// just starting or removing the replica does this itself.
    pub(super) async fn release_ended(&self, name: &ReplicaName) -> Result<(), Cause> {
        let (driver, name) = (self.clone(), name.clone());
        blocking(move || {
            let Some(_lock) = driver.inner.dirs.lock_ended(&name)? else {
                return Ok(());
            };
            match driver.inner.dirs.status(&name) {
                Ok(ReplicaStatus::Ended(_)) => driver.release(&name, &driver.group(&name)?),
                Ok(ReplicaStatus::Starting | ReplicaStatus::Running(_)) | Err(Cause::NoSuchReplica) => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// The end is what the caller asked about: the driver says in the log what it could not let go, and a start, a
    /// removal or the next daemon tries again.
    pub(super) async fn after_end(&self, name: &ReplicaName, exit: Exit) -> Exit {
        if let Err(error) = self.release_ended(name).await {
            tracing::warn!(replica = %name, error = %crate::driver::error_chain(&error), "not all of an ended container could be let go");
        }
        exit
    }
}
