//! A moment of the past, as it is asked for: made on a thread that may block, and remembered for the next question about
//! it.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use dhow_core::ids::Revision;
use dhow_core::plan::{PlanCache, PlanReport, plan_next};
use dhow_core::state::State;
use dhow_wire::api::PastMoment;

use super::error::PastError;
use super::{Past, read};

/// States that are remembered: people look at a moment with several verbs, and compare two.
const MOMENTS_MAX: usize = 4;

/// Replicas of all of them together, at about a kilobyte each; the newest is remembered however large it is.
const REPLICAS_MAX: usize = 100_000;

/// Which moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Revision(Revision),
    /// The last revision that there was by then.
    UnixMs(i64),
}

/// A state of the past with what its plan would have left undone.
#[derive(Debug)]
pub struct Moment {
    pub state: Arc<State>,
    pub report: Arc<PlanReport>,
    /// What the wall clock said; none where nobody knows.
    pub unix_ms: Option<i64>,
}

impl Moment {
    /// Its place in the log and its time.
    pub fn told(&self) -> PastMoment {
        PastMoment {
            revision: self.state.revision.0,
            unix_ms: self.unix_ms,
        }
    }

    pub(super) fn of(state: State) -> Self {
        let report = plan_next(&state, &mut PlanCache::default(), state.time).report;
        Self {
            unix_ms: state.clock_marks.wall_unix_ms(state.time),
            report: Arc::new(report),
            state: Arc::new(state),
        }
    }
}

/// The last ones that were asked for, the newest in front.
#[derive(Debug, Default)]
pub struct Cache(VecDeque<Arc<Moment>>);

impl Cache {
    fn get(&mut self, revision: Revision) -> Option<Arc<Moment>> {
        let place = self.0.iter().position(|known| known.state.revision == revision)?;
        let found = self.0.remove(place)?;
        self.0.push_front(Arc::clone(&found));
        Some(found)
    }

    fn put(&mut self, moment: &Arc<Moment>) {
        self.0
            .retain(|known| known.state.revision != moment.state.revision);
        self.0.push_front(Arc::clone(moment));
        let mut replicas = 0;
        let fits = |known: &Arc<Moment>| {
            replicas += known.state.replicas.len();
            replicas <= REPLICAS_MAX
        };
        let kept = self
            .0
            .iter()
            .map(fits)
            .take(MOMENTS_MAX)
            .take_while(|fits| *fits)
            .count();
        self.0.truncate(kept.max(1));
    }
}

impl Past {
    /// The cluster as it was at a moment that is in the window.
    pub async fn at(&self, when: When) -> Result<Arc<Moment>, PastError> {
        let index = self.index();
        if let When::Revision(revision) = when
            && let Some(known) = self.remembered(revision)
            && index.chapter_of(revision).is_ok()
        {
            return Ok(known);
        }
        let Ok(_place) = self.parts.builds.try_acquire() else {
            return Err(PastError::Busy);
        };
        let made = tokio::task::spawn_blocking(move || read::state_at(&index, when).map(Moment::of)).await;
        let moment = Arc::new(made.unwrap_or(Err(PastError::CutOff))?);
        let mut moments = self.parts.moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.put(&moment);
        Ok(moment)
    }

    fn remembered(&self, revision: Revision) -> Option<Arc<Moment>> {
        // What a holder that panicked left is whole moments, some of which may be missing.
        let mut moments = self.parts.moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.get(revision)
    }
}
