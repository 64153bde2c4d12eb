//! Whether others can dial this worker. It asks its servers to try, and says of itself what they found: then other nodes call
//! it through its servers, and these have it dial back for logs and commands.
//!
//! What was found is kept on disk, so that a restart begins with it and nothing changes for callers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dhow_agent::session::grpc::{Errand, GrpcSession, SessionStanding};
use dhow_core::directory::REVERSE;
use dhow_core::state::NodeInfo;
use dhow_disk::Outlives;

/// Below the data directory.
const FILE: &str = "worker/reverse";
/// How often it is tried anew: a firewall may have been opened, or closed.
const TRY_EVERY: Duration = Duration::from_secs(600);
/// Before the verdict is changed it is asked once more: a server that was just busy says nothing about the network.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// Servers that do not answer, or are of an older version, change nothing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The task that finds out how this worker is reached.
pub struct Reachability {
    /// What the worker says where it can be dialled.
    info: NodeInfo,
    file: PathBuf,
    is_reverse: bool,
}

impl Reachability {
    /// With what was found before.
    pub fn open(data_dir: &Path, info: NodeInfo) -> Self {
        let file = data_dir.join(FILE);
        let is_reverse = file.exists();
        Self {
            info,
            file,
            is_reverse,
        }
    }

    /// What the worker says of itself now.
    pub fn said(&self) -> NodeInfo {
        match self.is_reverse {
            true => reversed(self.info.clone()),
            false => self.info.clone(),
        }
    }

    /// Asks once a session is there, and again from time to time; never ends.
    pub async fn watch(mut self, session: Arc<GrpcSession>, errand: Errand) -> std::convert::Infallible {
        let Some(api_addr) = self.info.api_addr.clone() else {
            return std::future::pending().await;
        };
        let mut standing = session.standing();
        loop {
            let is_open = |standing: &SessionStanding| matches!(standing, SessionStanding::Open { .. });
            // The session lives as long as this is asked.
            let _ = standing.wait_for(is_open).await;
            if let Some(why) = self.differs(&errand, &api_addr).await {
                tokio::time::sleep(TRY_AGAIN).await;
                if self.differs(&errand, &api_addr).await.is_some() {
                    self.change(&why).await;
                    session.say(self.said());
                }
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
    }

    /// Whether the servers find something else than this worker says, and what.
    async fn differs(&self, errand: &Errand, api_addr: &str) -> Option<String> {
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, errand.reach(api_addr)).await;
        let found = asked.ok()?.ok()?;
        match (found, self.is_reverse) {
            (Ok(()), true) => Some("a server has dialled it".into()),
            (Err(why), false) => Some(why),
            (Ok(()), false) | (Err(_), true) => None,
        }
    }

    async fn change(&mut self, why: &str) {
        self.is_reverse = !self.is_reverse;
        match self.is_reverse {
            true => tracing::warn!(
                why,
                "no server can dial this worker: it is called through its servers from now on. `network.mesh_addr` says so \
                 for good, or names an address at which others reach it"
            ),
            false => tracing::info!(
                why,
                "this worker can be dialled, and is called directly from now on"
            ),
        }
        let (file, is_reverse) = (self.file.clone(), self.is_reverse);
        let written = tokio::task::spawn_blocking(move || write(&file, is_reverse)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "how this worker is reached is not on disk: after a restart it is found out anew");
        }
    }
}

/// The same node as one that nobody can dial.
pub fn reversed(info: NodeInfo) -> NodeInfo {
    NodeInfo {
        mesh_addr: Some(REVERSE.into()),
        ..info
    }
}

/// Blocks.
fn write(file: &Path, is_reverse: bool) -> std::io::Result<()> {
    if !is_reverse {
        return match std::fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        };
    }
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    dhow_disk::replace(file, b"", Outlives::PowerCut)
}
