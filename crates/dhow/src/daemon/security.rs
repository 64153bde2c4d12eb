//! The cluster's key, and what may be bound without one.

use std::net::SocketAddr;

use anyhow::Context;
use dhow_core::ids::NodeId;
use dhow_server::clock::Clock;
use dhow_server::keys::{ClusterKey, NodeTls};
use dhow_wire::DaemonConfig;

/// What this server proves itself with.
pub struct Security {
    pub key: ClusterKey,
    pub tls: NodeTls,
}

/// Reads the key; none where there is no file. Without one only loopback addresses are taken.
pub fn read(config: &DaemonConfig, node: NodeId, clock: &dyn Clock) -> anyhow::Result<Option<Security>> {
    // The CA of the workers is made of the key, so that a worker tier has one on loopback too.
    if !config.cluster_key_file.exists() && !config.cluster.is_worker_tier_server() {
        return Ok(None);
    }
    let key = ClusterKey::read_file(&config.cluster_key_file)?;
    let now_unix_secs = clock.wall_unix_ms().div_euclid(1_000);
    let tls = NodeTls::new(&key, node, now_unix_secs).context("this server's certificate cannot be made")?;
    Ok(Some(Security { key, tls }))
}

/// Refuses addresses that others could reach where nothing proves who they are.
pub fn check_addresses(config: &DaemonConfig, addrs: &[SocketAddr]) -> anyhow::Result<()> {
    for addr in addrs {
        anyhow::ensure!(
            addr.ip().is_loopback(),
            "{addr} is not a loopback address, and there is no cluster key: make one with `dhow cluster keygen`, put \
             it into {} on every server with mode 0600, and start again",
            config.cluster_key_file.display()
        );
    }
    Ok(())
}
