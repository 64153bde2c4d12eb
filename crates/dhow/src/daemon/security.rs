//! The cluster's key, without which no server of a cluster starts.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Context;
use dhow_core::ids::NodeId;
use dhow_server::clock::Clock;
use dhow_server::net::keys::{ClusterKey, NodeTls};
use dhow_wire::{ClusterMode, DaemonConfig};

use crate::commands::daemon::neighbours;

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
    let file = std::path::absolute(&config.cluster_key_file);
    let file = file.unwrap_or_else(|_| config.cluster_key_file.clone());
    let others = others(&config.cluster, node);
    let here = others.iter().filter(|(_, ip)| is_here(*ip)).map(|(id, _)| *id);
    let here: Vec<u64> = here.collect();
    let known = match here.is_empty() {
        true => BTreeMap::new(),
        false => neighbours::key_files(config),
    };
    let commands = Commands {
        program: program(),
        file: &file,
        has_key: known.values().find(|key| key.exists()).cloned(),
    };
    let mut text = format!(
        "this server has no cluster key at {}: the servers of a cluster prove with it who they are, on loopback addresses \
         too. Type this, and start all servers again; what runs keeps running meanwhile.\n",
        file.display()
    );
    let mut unknown = Vec::new();
    commands.own(&mut text);
    for (id, ip) in &others {
        match (here.contains(id), known.get(id)) {
            (true, Some(key)) => commands.copy(&mut text, key),
            (true, None) => unknown.push(id.to_string()),
            (false, _) => commands.send(&mut text, *ip),
        }
    }
    if !unknown.is_empty() {
        // Once this one runs, they find its key.
        let _ = writeln!(
            text,
            "The configuration of server {} was not found on this machine: start this server first, then that one, which \
             says what to type for it.",
            unknown.join(" and of server ")
        );
    }
    text.push_str("On a server that has the file already nothing has to be done but to start it again.");
    text
}

/// The lines of a shell. Writing into a text cannot fail.
struct Commands<'a> {
    program: String,
    file: &'a Path,
    /// Of another server on this machine: another key would be another cluster.
    has_key: Option<PathBuf>,
}

impl Commands<'_> {
    fn own(&self, text: &mut String) {
        make_folder(text, "", self.file);
        let file = quoted(self.file);
        let _ = match &self.has_key {
            Some(key) => writeln!(text, "  cp -p {} {file}", quoted(key)),
            None => writeln!(text, "  (umask 077; {} cluster keygen > {file})", self.program),
        };
    }

    fn copy(&self, text: &mut String, to: &Path) {
        if to == self.file || self.has_key.as_deref() == Some(to) {
            return;
        }
        make_folder(text, "", to);
        let _ = writeln!(text, "  cp -p {} {}", quoted(self.file), quoted(to));
    }

    fn send(&self, text: &mut String, ip: IpAddr) {
        let host = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let file = quoted(self.file);
        make_folder(text, &format!("ssh {ip} "), self.file);
        let _ = writeln!(text, "  scp -p {file} {host}:{file}");
    }
}

fn make_folder(text: &mut String, before: &str, file: &Path) {
    if let Some(folder) = file.parent() {
        let _ = writeln!(text, "  {before}mkdir -p -m 700 {}", quoted(folder));
    }
}

/// One word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// What a shell of this user starts this binary with.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else {
        return "dhow".into();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("dhow"));
    let first = found.find(|program| program.is_file());
    match first.and_then(|program| program.canonicalize().ok()) == own.canonicalize().ok() {
        true => "dhow".into(),
        false => quoted(&own),
    }
}

/// Whether an address is one of this machine's: another one's cannot be listened at.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || TcpListener::bind((ip, 0)).is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_one_word_for_a_shell() {
        assert_eq!(
            quoted(Path::new("/var/lib/dhow/cluster.key")),
            "/var/lib/dhow/cluster.key"
        );
        assert_eq!(quoted(Path::new("/a b/it's")), "'/a b/it'\\''s'");
    }

    #[test]
    fn servers_elsewhere_get_the_file_by_a_command_for_each() {
        let commands = Commands {
            program: "dhow".into(),
            file: Path::new("/k/cluster.key"),
            has_key: None,
        };
        let mut text = String::new();
        commands.own(&mut text);
        commands.send(&mut text, "10.0.0.2".parse().unwrap());
        commands.send(&mut text, "fd00::2".parse().unwrap());
        commands.copy(&mut text, Path::new("/k/cluster.key"));
        let typed = [
            "  mkdir -p -m 700 /k",
            "  (umask 077; dhow cluster keygen > /k/cluster.key)",
            "  ssh 10.0.0.2 mkdir -p -m 700 /k",
            "  scp -p /k/cluster.key 10.0.0.2:/k/cluster.key",
            "  ssh fd00::2 mkdir -p -m 700 /k",
            "  scp -p /k/cluster.key [fd00::2]:/k/cluster.key",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), typed);
    }
}
