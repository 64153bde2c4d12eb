//! The files of one replica: there before it starts, and replaced under it while it runs.

use std::sync::Arc;
use std::time::Duration;

use dhow_core::ids::ReplicaName;
use dhow_core::spec::ServiceSpec;
use dhow_driver::driver::{Driver, StopSignal, error_chain};
use tokio::time::sleep;

use super::{Context, Runner};
use crate::files::{FilesError, Placed};
use crate::limits::FILES_RETRY;

/// Files that a running replica is to see.
pub(super) struct FilesDue {
    spec: Arc<ServiceSpec>,
    /// After a failure.
    pause: Duration,
}

impl FilesDue {
    /// The same once more, after a pause.
    pub fn later(self) -> Self {
        Self {
            pause: FILES_RETRY,
            ..self
        }
    }

    /// Replaces what differs and tells the program. May be dropped and called again: a signal may then come twice.
    pub async fn settle(
        &self,
        context: &Context,
        driver: &dyn Driver,
        name: &ReplicaName,
    ) -> Result<(), String> {
        sleep(self.pause).await;
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
        let spec = self.showing().filter(|spec| spec.has_files())?;
        Some(FilesDue {
            spec,
            pause: Duration::ZERO,
        })
    }

    /// Its files before a start. Whatever it had to be told it reads now.
    pub(super) async fn files_for_start(&self) -> Result<Placed, FilesError> {
        let Some(spec) = self.showing() else {
            return Ok(Placed::default());
        };
        let files = &self.context.files;
        let placed = files.place(&self.name, &spec, &*self.context.session).await?;
        files.told(&self.name, &spec).await?;
        Ok(placed)
    }
}
