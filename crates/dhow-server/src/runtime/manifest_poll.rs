//! The manifest poll: follows a directory of signed deployment files. Only a set that was proven against the
//! trusted key leaves this task, because only such a set can be made into the input; a refused one is told once
//! for each reason and changes nothing.
//!
//! What is in force is read from the state, so that a restart, another leader or a set that the state refused are
//! all the same: as long as the directory has something newer, it is sent.

mod dir;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dhow_core::state::ManifestVersion;
use dhow_wire::manifest::{FileHash, ManifestError, Verdict};
use dhow_wire::parse_deployment;
use ed25519_dalek::VerifyingKey;

use super::error::InboxError;
use super::event::Event;
use super::event_log::EventLogSender;
use super::inbox::WeakInputSender;
use super::input::ReducerInput;
use super::limits::{MANIFEST_POLL_MS, REFUSALS_REMEMBERED_MAX};
use super::shutdown::ShutdownToken;
use super::view::RuntimeView;
use crate::clock::Clock;
use dir::{ReadSetError, read_index, read_set};

/// Where signed deployment files come from, and whom to trust.
#[derive(Clone, Debug)]
pub struct ManifestSource {
    pub dir: PathBuf,
    pub key: VerifyingKey,
    /// How far the clocks of this host and of the one that signs may differ.
    pub max_clock_skew_secs: u32,
    pub poll_ms: u64,
}

impl ManifestSource {
    /// A directory with the usual limits: clocks may differ by five minutes.
    pub fn new(dir: PathBuf, key: VerifyingKey) -> Self {
        Self {
            dir,
            key,
            max_clock_skew_secs: 300,
            poll_ms: MANIFEST_POLL_MS,
        }
    }
}

/// Why a directory brought nothing.
#[derive(Debug, thiserror::Error)]
enum PollError {
    #[error("the set of manifests in {dir} was refused", dir = dir.display())]
    Refused {
        dir: PathBuf,
        #[source]
        cause: ManifestError,
    },
    #[error("the set of manifests in {dir} cannot be read", dir = dir.display())]
    Unreadable {
        dir: PathBuf,
        #[source]
        cause: ReadSetError,
    },
    #[error("the reading of the manifests was cut off")]
    CutOff,
}

/// The task.
pub(super) struct ManifestPoll {
    source: Arc<ManifestSource>,
    view: RuntimeView,
    input: WeakInputSender,
    event_log: EventLogSender,
    clock: Arc<dyn Clock>,
    /// Reasons that were told since the directory was last sound.
    told: BTreeSet<String>,
}

impl ManifestPoll {
    pub fn new(
        source: ManifestSource,
        view: RuntimeView,
        input: WeakInputSender,
        event_log: EventLogSender,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            source: Arc::new(source),
            view,
            input,
            event_log,
            clock,
            told: BTreeSet::new(),
        }
    }

    /// Runs until the reducer has ended.
    pub async fn run(mut self, mut token: ShutdownToken) {
        loop {
            let polled = tokio::select! {
                biased;
                () = token.ended() => return,
                polled = self.poll() => polled,
            };
            match polled {
                Ok(()) => {}
                Err(InboxError::Full) => tracing::debug!("the manifests wait for room in the inbox"),
                Err(InboxError::Closed) => return,
            }
            let at_ms = self.clock.monotonic_ms().saturating_add(self.source.poll_ms);
            tokio::select! {
                biased;
                () = token.ended() => return,
                () = self.clock.sleep_until_monotonic(at_ms) => {}
            }
        }
    }

    /// Looks once. Only the leader's poll looks at all: others could not put anything in force.
    async fn poll(&mut self) -> Result<(), InboxError> {
        if !self.view.leadership().is_here {
            return Ok(());
        }
        let in_force = self.view.state().manifests;
        let now_unix_secs = self.clock.wall_unix_ms().div_euclid(1_000);
        let source = Arc::clone(&self.source);
        let looked = tokio::task::spawn_blocking(move || look(&source, in_force.as_ref(), now_unix_secs));
        match looked.await.unwrap_or(Err(PollError::CutOff)) {
            Ok(Verdict::Unchanged) => {
                self.told.clear();
                Ok(())
            }
            Ok(Verdict::Newer(set)) => {
                self.told.clear();
                self.input.try_send(ReducerInput::ManifestSetUpdated(set))
            }
            Err(error) => {
                self.tell(&error);
                Ok(())
            }
        }
    }

    fn tell(&mut self, error: &PollError) {
        use std::error::Error;
        let reason = match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        if self.told.len() >= REFUSALS_REMEMBERED_MAX {
            self.told.clear();
        }
        if self.told.insert(error.key().unwrap_or_else(|| reason.clone())) {
            tracing::warn!(error = error as &dyn Error, "manifests are not followed");
            self.event_log.note(Event::alarm(reason));
        }
    }
}

impl PollError {
    /// What makes two reasons the same where the text differs: a date in the future comes nearer at every look.
    fn key(&self) -> Option<String> {
        match self {
            Self::Refused {
                cause: ManifestError::FutureDated { .. },
                ..
            } => Some("future".to_owned()),
            Self::Refused { .. } | Self::Unreadable { .. } | Self::CutOff => None,
        }
    }
}

/// Reads and proves what the directory has. A set whose index is the one in force is not read any further.
fn look(
    source: &ManifestSource,
    in_force: Option<&ManifestVersion>,
    now_unix_secs: i64,
) -> Result<Verdict, PollError> {
    let dir = || source.dir.clone();
    let unreadable = |cause| PollError::Unreadable { dir: dir(), cause };
    let mut set = read_index(&source.dir).map_err(unreadable)?;
    let is_in_force = in_force.is_some_and(|known| known.index_hash == *FileHash::of(&set.index).as_bytes());
    if !is_in_force {
        set = read_set(&source.dir, set).map_err(unreadable)?;
    }
    set.verify(
        &source.key,
        in_force,
        now_unix_secs,
        source.max_clock_skew_secs,
        &parse,
    )
    .map_err(|cause| PollError::Refused { dir: dir(), cause })
}

/// A signed file means the same on every server, so nothing of a server's environment enters it.
fn parse(path: &str, text: &str) -> Result<dhow_core::spec::DeploymentSpec, String> {
    let name = Path::new(path)
        .file_name()
        .map_or(path.into(), |name| name.to_string_lossy());
    parse_deployment(text, &name, &|_| None).map_err(|findings| findings.to_string())
}
