//! Other servers of a cluster that are configured on this very machine: those that run, and those whose files lie beside
//! the file of this one. Asked for what an error tells people to type, and for nothing else.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use dhow_wire::document::INPUT_MAX_BYTES;
use dhow_wire::{ClusterMode, ConfigSources, DaemonConfig, load_config};

use super::Args;
use crate::cli::{Cli, Command};
use crate::client::default_data_dir;

/// The most files and processes that the check looks at; on a host with more it finds fewer neighbours.
const LOOKED_AT_MAX: usize = 10_000;

/// What a process was started with, as the kernel shows it.
const STARTED_BYTES_MAX: u64 = 256 * 1024;

/// The key files of the other servers of this cluster, by their ids, as far as they are found. Blocks.
pub fn key_files(own: &DaemonConfig) -> BTreeMap<u64, PathBuf> {
    let mut found = BTreeMap::new();
    let running = processes();
    let own_process = running.iter().find(|process| process.is_self);
    let beside = own_process.map(Process::beside).unwrap_or_default();
    let configs = running.iter().filter_map(Process::config);
    for config in configs.chain(beside.iter().filter_map(|file| config_in(file))) {
        if let Some(id) = neighbour(&own.cluster, &config.cluster) {
            found.entry(id).or_insert(config.cluster_key_file);
        }
    }
    found
}

/// The id of another server of the same cluster.
fn neighbour(own: &ClusterMode, other: &ClusterMode) -> Option<u64> {
    use ClusterMode::{Raft, Static, WorkerTier};
    let (own_id, id, is_same) = match (own, other) {
        (
            Raft { node_id, peers, .. },
            Raft {
                node_id: id,
                peers: others,
                ..
            },
        ) => (*node_id, *id, peers == others),
        (
            Static { node_id, peers, .. },
            Static {
                node_id: id,
                peers: others,
                ..
            },
        ) => (*node_id, *id, peers == others),
        (
            WorkerTier { node_id, peers, .. },
            WorkerTier {
                node_id: id,
                peers: others,
                ..
            },
        ) => ((*node_id)?, (*id)?, !peers.is_empty() && peers == others),
        (ClusterMode::SingleNode {} | Raft { .. } | Static { .. } | WorkerTier { .. }, _) => return None,
    };
    (is_same && id != own_id).then_some(id)
}

/// A process of this user's that may be a daemon.
struct Process {
    folder: PathBuf,
    args: Args,
    environment: BTreeMap<OsString, OsString>,
    is_self: bool,
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit));
    pids.take(LOOKED_AT_MAX)
        .filter_map(|entry| process(&entry.path()))
        .collect()
}

fn process(path: &Path) -> Option<Process> {
    let owner = fs::metadata(path).ok()?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return None;
    }
    let words = words_of(&path.join("cmdline"))?;
    let cli = Cli::try_parse_from(words).ok()?;
    let Command::Daemon(args) = cli.command else {
        return None;
    };
    let environment = words_of(&path.join("environ")).unwrap_or_default();
    let pairs = environment.iter().filter_map(|word| {
        let at = word.as_bytes().iter().position(|byte| *byte == b'=')?;
        let (name, value) = word.as_bytes().split_at(at);
        Some((
            OsStr::from_bytes(name).into(),
            OsStr::from_bytes(&value[1..]).into(),
        ))
    });
    Some(Process {
        folder: fs::read_link(path.join("cwd")).ok()?,
        args,
        environment: pairs.collect(),
        is_self: path.file_name()? == std::process::id().to_string().as_str(),
    })
}

fn words_of(path: &Path) -> Option<Vec<OsString>> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(STARTED_BYTES_MAX)
        .read_to_end(&mut bytes)
        .ok()?;
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    Some(words.map(|word| OsStr::from_bytes(word).to_owned()).collect())
}

impl Process {
    /// Its file, from its own folder on.
    fn file(&self) -> Option<PathBuf> {
        let named = self.environment.get(OsStr::new("DHOW_CONFIG")).map(PathBuf::from);
        let file = self.args.config.clone().or(named)?;
        Some(self.folder.join(file))
    }

    fn config(&self) -> Option<DaemonConfig> {
        let text = text_of(&self.file()?)?;
        let config = load_config(&ConfigSources {
            file: Some(("", &text)),
            env: &|name| self.environment.get(OsStr::new(name)).cloned(),
            flags: &self.args.flags(),
            default_data_dir: &default_data_dir(),
        });
        let mut config = config.ok()?;
        config.cluster_key_file = self.folder.join(&config.cluster_key_file);
        Some(config)
    }

    /// Files in the same folder, and those of the same name in the folders beside it.
    fn beside(&self) -> Vec<PathBuf> {
        let Some(file) = self.file() else {
            return Vec::new();
        };
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            return Vec::new();
        };
        let same_folder = entries(folder);
        let folders = folder.parent().map(entries).unwrap_or_default();
        let same_name = folders.into_iter().map(|beside| beside.join(name));
        same_folder.into_iter().chain(same_name).collect()
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    all.take(LOOKED_AT_MAX).map(|entry| entry.path()).collect()
}

fn config_in(file: &Path) -> Option<DaemonConfig> {
    let text = text_of(file)?;
    let config = load_config(&ConfigSources {
        file: Some(("", &text)),
        env: &|_| None,
        flags: &[],
        default_data_dir: &default_data_dir(),
    });
    // Whoever starts it may stand anywhere.
    config.ok().filter(|config| config.cluster_key_file.is_absolute())
}

/// Of a plain file of this user's that nobody else can write to: what it says is typed by people.
fn text_of(path: &Path) -> Option<String> {
    let is_plain = fs::symlink_metadata(path).ok()?.is_file();
    let file = is_plain.then(|| File::open(path).ok()).flatten()?;
    let found = file.metadata().ok()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if !is_own || found.len() > INPUT_MAX_BYTES as u64 {
        return None;
    }
    let mut text = String::new();
    file.take(INPUT_MAX_BYTES as u64).read_to_string(&mut text).ok()?;
    // No other file is a server's configuration, and most are none.
    (text.contains("cluster") && text.contains("peers")).then_some(text)
}
