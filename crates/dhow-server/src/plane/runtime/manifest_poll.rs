//! The manifest poll: follows directories of signed deployment files. Only a set that was proven against a trusted
//! key leaves this task, because only such a set can be made into the input; a refused one is told once for each
//! reason and changes nothing.
//!
//! What is in force is read from the state, so that a restart, another leader or a set that the state refused are
//! all the same: as long as a directory has something newer, it is sent.

mod dir;
mod dir_look;
mod judge;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::state::State;
use dhow_wire::manifest::{ManifestError, Verdict};

use super::error::InboxError;
use super::event::Event;
use super::event_log::EventLogSender;
use super::inbox::WeakInputSender;
use super::input::ReducerInput;
use super::limits::REFUSALS_REMEMBERED_MAX;
use super::shutdown::ShutdownToken;
use super::view::RuntimeView;
use crate::clock::Clock;

pub use dir::{ReadSetError, read_manifest_files};
pub use judge::{Purpose, SourceError};
pub use sources::{LastLook, ManifestSource, ManifestSources, WaitingSet};

/// The task.
pub(super) struct ManifestPoll {
    sources: Arc<ManifestSources>,
    view: RuntimeView,
    input: WeakInputSender,
    event_log: EventLogSender,
    clock: Arc<dyn Clock>,
    /// Reasons that were told since a source was last sound.
    told: BTreeMap<Arc<str>, BTreeSet<String>>,
}

impl ManifestPoll {
    pub fn new(
        sources: Arc<ManifestSources>,
        view: RuntimeView,
        input: WeakInputSender,
        event_log: EventLogSender,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            sources,
            view,
            input,
            event_log,
            clock,
            told: BTreeMap::new(),
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
            let waited = tokio::select! {
                biased;
                () = token.ended() => return,
                waited = self.wait() => waited,
            };
            if waited.is_none() {
                return;
            }
        }
    }

    /// Until the next look: some seconds, or until there is a source at all. None where the reducer has ended.
    async fn wait(&self) -> Option<()> {
        let mut states = self.view.states();
        let followed = |state: &Arc<State>| !self.sources.all(state).is_empty();
        states.wait_for(followed).await.ok()?;
        let at_ms = self.clock.monotonic_ms().saturating_add(self.sources.poll_ms);
        self.clock.sleep_until_monotonic(at_ms).await;
        Some(())
    }

    /// Looks once at every source. Only the leader's poll looks at all: others could not put anything in force.
    async fn poll(&mut self) -> Result<(), InboxError> {
        let state = self.view.state();
        // Below that level nobody could take a set.
        if !self.view.leadership().is_here || state.feature_level < 2 {
            return Ok(());
        }
        let all = self.sources.all(&state);
        self.told
            .retain(|name, _| all.iter().any(|source| source.name == *name));
        for source in all {
            self.look(&state, source).await?;
        }
        Ok(())
    }

    async fn look(&mut self, state: &State, source: ManifestSource) -> Result<(), InboxError> {
        let name = Arc::clone(&source.name);
        let now_unix_secs = self.clock.wall_unix_ms().div_euclid(1_000);
        match self
            .sources
            .look(state, source, Purpose::Follow, now_unix_secs)
            .await
        {
            Ok(Verdict::Unchanged) => {
                self.told.remove(&name);
                Ok(())
            }
            Ok(Verdict::Newer(set)) => {
                self.told.remove(&name);
                self.input.try_send(ReducerInput::ManifestSetUpdated(set))
            }
            Err(error) => {
                self.tell(name, &error);
                Ok(())
            }
        }
    }

    fn tell(&mut self, name: Arc<str>, error: &SourceError) {
        let reason = error.reason();
        let told = self.told.entry(name).or_default();
        if told.len() >= REFUSALS_REMEMBERED_MAX {
            told.clear();
        }
        if told.insert(key(error).unwrap_or_else(|| reason.clone())) {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "manifests are not followed"
            );
            self.event_log.note(Event::alarm(reason));
        }
    }
}

/// What makes two reasons the same where the text differs: a date in the future comes nearer at every look, and one in the
/// past goes away.
fn key(error: &SourceError) -> Option<String> {
    match error {
        SourceError::Refused {
            cause: ManifestError::FutureDated { .. },
            ..
        } => Some("future".to_owned()),
        SourceError::Refused {
            cause: ManifestError::Stale { version, .. },
            ..
        } => Some(format!("stale {version}")),
        SourceError::Refused { .. }
        | SourceError::Unreadable { .. }
        | SourceError::NotTaken { .. }
        | SourceError::CutOff => None,
    }
}
