//! Where each mode keeps its log in the data directory.
//!
//! A daemon opens the log of its own mode alone. Where there is none of it but one of another mode, an empty cluster
//! would begin beside the state that somebody meant: that is refused, and said.

use std::path::{Path, PathBuf};

use dhow_wire::{ClusterMode, DaemonConfig, WorkerTierRole};

use super::raft::RAFT_DIR;
use super::static_mode::STATIC_DIR;

/// A way of keeping a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptLog {
    SingleNode,
    Static,
    Raft,
}

impl KeptLog {
    const ALL: [Self; 3] = [Self::SingleNode, Self::Static, Self::Raft];

    /// The one of this mode; a worker has none.
    pub fn of(mode: &ClusterMode) -> Option<Self> {
        match mode {
            ClusterMode::SingleNode {} => Some(Self::SingleNode),
            ClusterMode::Static { .. } => Some(Self::Static),
            ClusterMode::Raft { .. }
            | ClusterMode::WorkerTier {
                role: WorkerTierRole::Server,
                ..
            } => Some(Self::Raft),
            ClusterMode::WorkerTier {
                role: WorkerTierRole::Worker,
                ..
            } => None,
        }
    }

    pub fn dir(self, data_dir: &Path) -> PathBuf {
        match self {
            Self::SingleNode => data_dir.join("log"),
            Self::Static => data_dir.join(STATIC_DIR).join("log"),
            Self::Raft => data_dir.join(RAFT_DIR),
        }
    }

    /// Whether anything is kept there. What cannot be looked at is told by whoever opens it.
    pub fn is_in(self, data_dir: &Path) -> bool {
        std::fs::read_dir(self.dir(data_dir)).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Whose log it is.
    fn owner(self) -> &'static str {
        match self {
            Self::SingleNode => "a single node",
            Self::Static => "a peer of a `static` cluster",
            Self::Raft => "a server of a raft cluster",
        }
    }
}

/// Refuses a directory that has no log of this mode, but one of another.
pub fn refuse_another(config: &DaemonConfig) -> anyhow::Result<()> {
    let Some(own) = KeptLog::of(&config.cluster) else {
        return Ok(());
    };
    if own.is_in(&config.data_dir) {
        return Ok(());
    }
    let mut others = KeptLog::ALL.into_iter().filter(|other| *other != own);
    let Some(other) = others.find(|other| other.is_in(&config.data_dir)) else {
        return Ok(());
    };
    let found = other.dir(&config.data_dir);
    let found = found.display();
    let way = match own {
        KeptLog::SingleNode => "Start it with the --config that it had, which names its `cluster`",
        KeptLog::Static | KeptLog::Raft => {
            "Start it with the configuration that it had. Where a backup was restored here without --config, restore it \
             again with `dhow cluster restore FILE --config CONFIG`"
        }
    };
    anyhow::bail!(
        "{found} is the log of {}, and the configuration makes this {}: it would begin empty beside it. {way}; if what \
         is there is not needed, move {found} away",
        other.owner(),
        own.owner(),
    );
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use dhow_wire::{ConfigSources, Setting, load_config};

    use super::*;

    const STATIC: &str = "cluster: { mode: static, node_id: 1, peers: [{ id: 1, api_addr: 127.0.0.1:1 }] }";
    const RAFT: &str = "cluster: { mode: raft, node_id: 1, \
                        peers: [{ id: 1, raft_addr: 127.0.0.1:1, api_addr: 127.0.0.1:2 }] }";

    fn config(text: &str, data_dir: &Path) -> DaemonConfig {
        let sources = ConfigSources {
            file: Some(("dhow.yaml", text)),
            env: &|_| None::<OsString>,
            flags: &[(Setting::DataDir, data_dir.as_os_str().to_owned())],
            default_data_dir: "/nowhere",
        };
        load_config(&sources).unwrap()
    }

    #[test]
    fn the_log_of_another_mode_is_not_passed_over() {
        let modes = [
            (KeptLog::SingleNode, "{}"),
            (KeptLog::Static, STATIC),
            (KeptLog::Raft, RAFT),
        ];
        for (has, _) in modes {
            let dir = tempfile::tempdir().unwrap();
            let kept = has.dir(dir.path());
            std::fs::create_dir_all(&kept).unwrap();
            for (own, text) in modes {
                assert!(
                    refuse_another(&config(text, dir.path())).is_ok(),
                    "nothing is in it"
                );
                assert_eq!(KeptLog::of(&config(text, dir.path()).cluster), Some(own));
            }
            std::fs::write(kept.join("segment"), "x").unwrap();
            for (own, text) in modes {
                let looked = refuse_another(&config(text, dir.path()));
                match looked {
                    Ok(()) => assert_eq!(own, has),
                    Err(refused) => {
                        let refused = refused.to_string();
                        assert_ne!(own, has, "{refused}");
                        assert!(refused.contains(kept.to_str().unwrap()), "{refused}");
                        assert!(refused.contains("--config"), "{refused}");
                    }
                }
            }
        }
    }

    #[test]
    fn whoever_has_its_own_log_is_not_held_up_by_another() {
        let dir = tempfile::tempdir().unwrap();
        for kept in KeptLog::ALL {
            let kept = kept.dir(dir.path());
            std::fs::create_dir_all(&kept).unwrap();
            std::fs::write(kept.join("segment"), "x").unwrap();
        }
        for text in ["{}", STATIC, RAFT] {
            refuse_another(&config(text, dir.path())).unwrap();
        }
    }
}
