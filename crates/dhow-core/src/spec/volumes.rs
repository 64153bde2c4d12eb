//! What a deployment file says of volumes that came with feature level 6: those that begin empty, that have a size, or that
//! come and go with their replica.

use std::collections::BTreeSet;

use super::{DeploymentSpec, RType, ServiceSpec, Storage, VolumeSupport};

impl DeploymentSpec {
    /// From this feature level on services that share a volume run on one node, and volumes have sizes.
    pub const VOLUMES_SINCE: u32 = 6;

    /// Whether it has rules of volumes that came with feature level 6.
    pub fn needs_volume_rules(&self) -> bool {
        let has_rules = |storage: &Storage| match storage {
            Storage::Named { nocopy, size, .. } => *nocopy || size.is_some(),
            Storage::Ephemeral { .. } => true,
            Storage::Bind { .. } | Storage::Tmpfs { .. } => false,
        };
        let mut storage = self.services.values().flat_map(|service| &service.storage);
        storage.any(has_rules)
    }
}

impl ServiceSpec {
    /// What a node must be able to do for its volumes.
    pub fn volume_support(&self) -> VolumeSupport {
        self.storage.iter().map(Storage::needs).max().unwrap_or_default()
    }

    /// The volumes that bind its replicas to a node. Those of a system service are each node's own.
    pub fn binding_volumes(&self) -> BTreeSet<&str> {
        match self.rtype {
            RType::System => BTreeSet::new(),
            RType::Service | RType::Job | RType::Cron => {
                self.storage.iter().filter_map(Storage::volume).collect()
            }
        }
    }
}
