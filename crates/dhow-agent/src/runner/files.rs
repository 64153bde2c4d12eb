//! The files of one replica: there before it starts, and replaced under it while it runs.

use std::sync::Arc;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::{Driver, StopSignal, error_chain};
use tokio::time::sleep;

use super::{Context, Runner, message};
use crate::files::{FilesError, Placed};
use crate::limits::FILES_RETRY;

/// Files that a running replica is to see.
pub(super) struct FilesDue {
    spec: Arc<ServiceSpec>,
    /// They could not be shown before: the runner has said why, and waits before it tries again.
    has_failed: bool,
}

impl FilesDue {
    /// Replaces what differs and tells the program. May be dropped and called again: a signal may then come twice.
    pub async fn settle(
        &self,
        context: &Context,
        driver: &dyn Driver,
        name: &ReplicaName,
    ) -> Result<(), String> {
        if self.has_failed {
            sleep(FILES_RETRY).await;
        }
        let placed = context.files.place(name, &self.spec, &*context.session).await;
        let placed = placed.map_err(|error| error_chain(&error))?;
        for signal in &placed.signals {
            let signal = StopSignal::parse(signal).map_err(|error| error_chain(&error))?;
            tracing::info!(replica = %name, %signal, "is told that its files have changed");
            let sent = driver.signal(name, signal).await;
            sent.map_err(|error| error_chain(&error))?;
        }
        let told = context.files.told(name, &self.spec).await;
        told.map_err(|error| error_chain(&error))
    }
}

impl Runner {
    /// What is to be looked at while it runs, where it has files.
    pub(super) fn files_due(&self) -> Option<FilesDue> {
        let spec = self.core.showing().filter(|spec| spec.has_files())?;
        Some(FilesDue {
            spec: Arc::clone(spec),
            has_failed: false,
        })
    }

    /// It does not see them for now: told once, and tried further. What it has seen before goes on to count.
    pub(super) async fn files_failed(&mut self, due: Option<FilesDue>, why: &str) -> Option<FilesDue> {
        let due = due?;
        if !due.has_failed {
            tracing::warn!(replica = %self.name(), why, "does not see its newest files yet");
            let event = self.core.files_failed(message(why));
            self.happen_all(event).await;
        }
        Some(FilesDue {
            has_failed: true,
            ..due
        })
    }

    /// Its files before a start. Whatever it had to be told it reads now.
    pub(super) async fn files_for_start(&self) -> Result<Placed, FilesError> {
        let Some(spec) = self.core.showing() else {
            return Ok(Placed::default());
        };
        let files = &self.context.files;
        let placed = files.place(self.name(), spec, &*self.context.session).await?;
        files.told(self.name(), spec).await?;
        Ok(placed)
    }
}
