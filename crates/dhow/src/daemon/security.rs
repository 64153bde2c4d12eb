//! The cluster's key, without which no server of a cluster starts.

use std::fmt::Write;
use std::net::IpAddr;

use anyhow::Context;
use dhow_core::ids::NodeId;
use dhow_server::clock::Clock;
use dhow_server::keys::{ClusterKey, NodeTls};
use dhow_wire::{ClusterMode, DaemonConfig};

/// What this server proves itself with.
pub struct Security {
    pub key: ClusterKey,
    pub tls: NodeTls,
}

/// Reads the key. A single node may have none; servers of a cluster prove with it who they are, on loopback as anywhere.
pub fn read(config: &DaemonConfig, node: NodeId, clock: &dyn Clock) -> anyhow::Result<Option<Security>> {
    let is_single = matches!(config.cluster, ClusterMode::SingleNode {});
    if !config.cluster_key_file.exists() {
        anyhow::ensure!(is_single, missing(config, node));
        return Ok(None);
    }
    let key = ClusterKey::read_file(&config.cluster_key_file)?;
    let now_unix_secs = clock.wall_unix_ms().div_euclid(1_000);
    let tls = NodeTls::new(&key, node, now_unix_secs).context("this server's certificate cannot be made")?;
    Ok(Some(Security { key, tls }))
}

/// What has to be typed, word for word.
fn missing(config: &DaemonConfig, node: NodeId) -> String {
    let file = config.cluster_key_file.display();
    let folder = config.cluster_key_file.parent();
    let mut text = format!(
        "this server has no cluster key at {file}: the servers of a cluster prove with it who they are, on loopback \
         addresses too. Make one on one server, put the same file on every other one, and start them all again; what \
         runs keeps running meanwhile.\n"
    );
    // Writing into a text cannot fail.
    if let Some(folder) = folder {
        let _ = writeln!(text, "  mkdir -p -m 700 {}", folder.display());
    }
    let _ = writeln!(text, "  (umask 077; dhow cluster keygen > {file})");
    for (id, ip) in others(&config.cluster, node) {
        let _ = match ip.is_loopback() {
            true => writeln!(
                text,
                "  cp -p {file} KEY_FILE_OF_SERVER_{id}   # where `cluster_key_file` of server {id} says; by default \
                 its <data_dir>/cluster/cluster.key"
            ),
            false => writeln!(text, "  scp -p {file} {ip}:{file}   # server {id}"),
        };
    }
    text.push_str("On a server that has the file already nothing has to be done but to start it again.");
    text
}

/// The other servers and where they are.
fn others(mode: &ClusterMode, node: NodeId) -> Vec<(u64, IpAddr)> {
    let all: Vec<(u64, IpAddr)> = match mode {
        ClusterMode::SingleNode {} => Vec::new(),
        ClusterMode::Raft { peers, .. } | ClusterMode::WorkerTier { peers, .. } => {
            peers.iter().map(|peer| (peer.id, peer.api_addr.ip())).collect()
        }
        ClusterMode::Static { peers, .. } => peers.iter().map(|peer| (peer.id, peer.api_addr.ip())).collect(),
    };
    all.into_iter().filter(|(id, _)| *id != node.0).collect()
}
