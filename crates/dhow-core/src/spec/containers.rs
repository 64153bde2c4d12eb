//! What a deployment file says of containers that came with feature level 5: volumes that are only read, names of hosts
//! that are services, and the ports of an image beside others.

use super::{DeploymentSpec, ServiceSpec, Storage};

/// What a host may be in `extra_hosts` in place of an address: the machine that the container runs on.
pub const HOST_GATEWAY: &str = "host-gateway";

/// Before the name of a service of the same deployment in `extra_hosts`, in place of an address.
pub const SERVICE_MARK: char = '@';

impl DeploymentSpec {
    /// Whether it has rules of containers that came with feature level 5.
    pub fn needs_container_rules(&self) -> bool {
        self.services
            .values()
            .any(|service| service.has_container_rules())
    }
}

impl ServiceSpec {
    fn has_container_rules(&self) -> bool {
        let is_read = |storage: &Storage| matches!(storage, Storage::Named { read_only: true, .. });
        let is_named = |entry: &String| {
            let address = host_entry(entry).map(|(_, address)| address);
            address.is_some_and(|address| address == HOST_GATEWAY || address.starts_with(SERVICE_MARK))
        };
        self.image_ports.is_some()
            || self.storage.iter().any(is_read)
            || self.extra_hosts.iter().any(is_named)
    }
}

/// An entry of `extra_hosts` as its name and what stands for it; an address may have colons itself.
pub fn host_entry(entry: &str) -> Option<(&str, &str)> {
    let (name, address) = entry.split_once([':', '='])?;
    let plain = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    Some((name, plain.unwrap_or(address)))
}
