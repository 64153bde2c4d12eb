//! Clears what daemons before this one left half-made.

use std::collections::BTreeSet;
use std::path::Path;

use dhow_core::ids::ReplicaName;

use crate::driver::{Cause, ExitKind, ReplicaStatus, UnknownExit, error_chain};
use crate::shim::record::LOG_DIR;
use crate::shim::strays;

use super::{ContainerDriver, LEAF_PREFIX, container_id};

impl ContainerDriver {
    /// Lets go of what ended replicas hold, removes starts that were cut off, and all that belongs to no
    /// replica any more. What runs or is being started is left alone. Blocks.
    pub(super) fn sweep_all(&self) -> Result<(), Cause> {
        let names = self.inner.dirs.names()?;
        for name in &names {
            // One folder that cannot be cleared concerns its own replica, whose start or removal meets it again.
            if let Err(error) = self.sweep_replica(name) {
                tracing::warn!(replica = %name, error = %error_chain(&error), "what an earlier daemon left of a container cannot be cleared");
            }
        }
        let others = self.clear_groups()?;
        // Named before the listing, so that a start that begins now is not mistaken for a leftover.
        let (known, leftover) = (self.known_ids()?, self.leftover_ids()?);
        let mut cleared = leftover
            .into_iter()
            .filter(|id| !known.contains(id) && !others.contains(id));
        cleared.try_for_each(|id| self.clear_id(&id, &self.known_ids()?))?;
        self.inner.network.clear_devices()
    }

    /// Ends what runs and has no folder any more. Gives the ids of what runs and may be another daemon's.
    fn clear_groups(&self) -> Result<BTreeSet<String>, Cause> {
        let mut others = BTreeSet::new();
        for leaf in self.inner.cgroups.leaves() {
            let Some(id) = leaf.strip_prefix(LEAF_PREFIX) else {
                continue;
            };
            if self.known_ids()?.contains(id) {
                continue;
            }
            let group = self.inner.cgroups.runtime_group(&leaf);
            if !strays::clear(&group, &leaf).map_err(Cause::Cgroup)? {
                others.insert(id.to_owned());
            }
        }
        Ok(others)
    }

    fn sweep_replica(&self, name: &ReplicaName) -> Result<(), Cause> {
        // Another caller starts it, or its shim lives.
        let Some(_lock) = self.inner.dirs.lock_if_free(name)? else {
            return Ok(());
        };
        let exit = match self.inner.dirs.status(name) {
            Ok(ReplicaStatus::Ended(exit)) => exit,
            // Without a record of who runs it, and with the lock in our hands, nobody does.
            Ok(ReplicaStatus::Starting) => crate::driver::Exit::unknown(UnknownExit::StartInterrupted),
            Ok(ReplicaStatus::Running(_)) | Err(Cause::NoSuchReplica) => return Ok(()),
            Err(error) => return Err(error),
        };
        if exit.kind == ExitKind::Unknown(UnknownExit::SupervisorKilled) {
            // Its workload may run on; whoever stops, starts or removes it ends that too.
            return Ok(());
        }
        self.release(name, &self.group(name)?)?;
        let cut_off = exit.kind == ExitKind::Unknown(UnknownExit::StartInterrupted);
        if cut_off && !has_logs(&self.inner.dirs.dir(name).join(LOG_DIR)) {
            super::volatile::remove_tree(&self.inner.dirs.dir(name))?;
        }
        Ok(())
    }

    fn known_ids(&self) -> Result<BTreeSet<String>, Cause> {
        Ok(self.inner.dirs.names()?.iter().map(container_id).collect())
    }

    fn leftover_ids(&self) -> Result<Vec<String>, Cause> {
        let mut ids = self.inner.volatile.ids()?;
        ids.extend(self.inner.network.ids()?);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Clears what an id without a folder has left. A folder that has appeared since shows that the replica is being
    /// started.
    fn clear_id(&self, id: &str, known: &BTreeSet<String>) -> Result<(), Cause> {
        if known.contains(id) {
            return Ok(());
        }
        self.inner.volatile.forget(id)?;
        self.inner.network.disconnect(id)
    }
}

fn has_logs(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}
