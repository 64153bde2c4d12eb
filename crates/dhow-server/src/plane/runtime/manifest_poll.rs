//! The manifest poll: follows sources of signed deployment files. Only a set that was proven against a trusted
//! key leaves this task, because only such a set can be made into the input; a refused one is told once for each
//! reason and changes nothing.
//!
//! Directories are looked at one after the other. What is elsewhere is looked at by tasks of its own, so that a server that
//! hangs holds nobody else up. What is in force is read from the state, so that a restart, another leader or a set that the
//! state refused are all the same: as long as a source has something newer, it is sent.

mod dir;
mod dir_look;
mod elsewhere;
mod hooks;
mod judge;
mod sources;
mod timetable;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dhow_core::state::State;
use dhow_wire::manifest::{ManifestError, Verdict};
use tokio::task::{JoinError, JoinSet};

use super::error::InboxError;
use super::event::Event;
use super::event_log::EventLogSender;
use super::inbox::WeakInputSender;
use super::input::ReducerInput;
use super::limits::{REFUSALS_REMEMBERED_MAX, REMOTE_LOOKS_MAX};
use super::shutdown::ShutdownToken;
use super::view::RuntimeView;
use crate::clock::Clock;
use timetable::Timetable;

pub use dir::{ReadSetError, read_manifest_files};
pub use hooks::{HookProof, HookRefused};
pub use judge::{Purpose, SourceError};
pub use sources::{LastLook, ManifestSource, ManifestSources, WaitingSet};

/// What a look came to.
type Looked = (Arc<str>, Result<Verdict, SourceError>);

/// The task.
pub(super) struct ManifestPoll {
    sources: Arc<ManifestSources>,
    view: RuntimeView,
    input: WeakInputSender,
    event_log: EventLogSender,
    clock: Arc<dyn Clock>,
    /// Reasons that were told since a source was last sound.
    told: BTreeMap<Arc<str>, BTreeSet<String>>,
    /// Looks at what is elsewhere that are under way.
    looks: JoinSet<Looked>,
    timetable: Timetable,
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
            looks: JoinSet::new(),
            timetable: Timetable::default(),
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
            if !goes_on(polled) {
                return;
            }
            let mut at_ms = None;
            loop {
                let took = tokio::select! {
                    biased;
                    () = token.ended() => return,
                    Some(looked) = self.looks.join_next_with_id(), if !self.looks.is_empty() => self.took(looked),
                    () = self.sources.hooks.called() => Ok(()),
                    waited = wait(&self.view, &self.sources, &*self.clock, &mut at_ms) => match waited {
                        Some(()) => break,
                        None => return,
                    },
                };
                if !goes_on(took) {
                    return;
                }
                self.begin_looks();
            }
        }
    }

    /// Looks once at every directory, and begins to look at what is elsewhere. Only the leader's poll looks at all:
    /// others could not put anything in force.
    async fn poll(&mut self) -> Result<(), InboxError> {
        let state = self.view.state();
        // Below that level nobody could take a set.
        if !self.view.leadership().is_here || state.feature_level < 2 {
            return Ok(());
        }
        let all = self.sources.all(&state);
        self.told
            .retain(|name, _| all.iter().any(|source| source.name == *name));
        for source in all.into_iter().filter(|source| !source.is_elsewhere()) {
            let name = Arc::clone(&source.name);
            let now_unix_secs = self.now_unix_secs();
            let looked = self.sources.look(&state, source, Purpose::Follow, now_unix_secs);
            let looked = looked.await;
            self.take(name, looked)?;
        }
        self.begin_looks();
        Ok(())
    }

    /// Begins to look at what is elsewhere and due: some at a time.
    fn begin_looks(&mut self) {
        let state = self.view.state();
        if !self.view.leadership().is_here {
            return;
        }
        let (now_ms, now_unix_secs) = (self.clock.monotonic_ms(), self.now_unix_secs());
        let all = self.sources.all(&state);
        let elsewhere = all.into_iter().filter(ManifestSource::is_elsewhere);
        let elsewhere: BTreeMap<Arc<str>, ManifestSource> =
            elsewhere.map(|source| (source.name.clone(), source)).collect();
        self.timetable.keep(|name| elsewhere.contains_key(name));
        for name in self.sources.hooks.take() {
            self.timetable.called(&name, now_ms);
        }
        for (name, source) in elsewhere {
            if self.looks.len() >= REMOTE_LOOKS_MAX {
                return;
            }
            if source.is_owed(&state, now_unix_secs) {
                self.timetable.called(&name, now_ms);
            }
            if !self.timetable.is_due(&name, now_ms) {
                continue;
            }
            let (sources, state, of) = (Arc::clone(&self.sources), Arc::clone(&state), name.clone());
            let look = async move {
                let looked = sources.look(&state, source, Purpose::Follow, now_unix_secs).await;
                (of, looked)
            };
            let task = self.looks.spawn(look);
            self.timetable.begin(name, task.id(), now_ms);
        }
    }

    fn took(&mut self, looked: Result<(tokio::task::Id, Looked), JoinError>) -> Result<(), InboxError> {
        match looked {
            Ok((task, (name, looked))) => {
                self.timetable.end(task);
                self.take(name, looked)
            }
            Err(error) => {
                self.timetable.end(error.id());
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a look at a source has failed"
                );
                Ok(())
            }
        }
    }

    fn take(&mut self, name: Arc<str>, looked: Result<Verdict, SourceError>) -> Result<(), InboxError> {
        match looked {
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

    fn now_unix_secs(&self) -> i64 {
        self.clock.wall_unix_ms().div_euclid(1_000)
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

/// Whether the task has still something to do.
fn goes_on(took: Result<(), InboxError>) -> bool {
    match took {
        Ok(()) => true,
        Err(InboxError::Full) => {
            tracing::debug!("the manifests wait for room in the inbox");
            true
        }
        Err(InboxError::Closed) => false,
    }
}

/// Until the next look at directories: some seconds, or until there is a source at all. None where the reducer has ended.
/// Asked again, it is the same moment.
async fn wait(
    view: &RuntimeView,
    sources: &ManifestSources,
    clock: &dyn Clock,
    at_ms: &mut Option<u64>,
) -> Option<()> {
    let mut states = view.states();
    let followed = |state: &Arc<State>| !sources.all(state).is_empty();
    states.wait_for(followed).await.ok()?;
    let at_ms = *at_ms.get_or_insert_with(|| clock.monotonic_ms().saturating_add(sources.poll_ms));
    clock.sleep_until_monotonic(at_ms).await;
    Some(())
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
        | SourceError::Elsewhere { .. }
        | SourceError::Rewritten { .. }
        | SourceError::NotTaken { .. }
        | SourceError::CutOff => None,
    }
}
