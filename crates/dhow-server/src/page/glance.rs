//! One look at the whole state for all open pages together: it is repeated when the state has changed, and not so often
//! that it costs more than a fortieth of a core.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dhow_core::ids::Revision;

use super::limits::GLANCE_SHARE;
use crate::plane::services::{Overview, ServiceManager};

/// The last look.
#[derive(Debug)]
struct Taken {
    overview: Arc<Overview>,
    revision: Revision,
    at: Instant,
    cost: Duration,
}

/// Keeps the last look. Whoever comes while one is taken waits for it.
#[derive(Debug, Default)]
pub(super) struct Glances {
    last: Mutex<Option<Taken>>,
}

impl Glances {
    /// The cluster in numbers, as of now or of a moment ago. May take a while: call it where blocking is allowed.
    pub fn look(&self, manager: &ServiceManager) -> Arc<Overview> {
        // What is kept is replaced whole, so a holder that panicked left one that can be read.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = manager.state().revision;
        if let Some(taken) = last.as_ref() {
            let age = taken.at.elapsed();
            let is_soon = age < taken.cost * GLANCE_SHARE;
            // What a service waits for changes with the plan alone, which follows the state within a second.
            let is_same = taken.revision == revision && age < Duration::from_secs(1);
            if is_soon || is_same {
                return Arc::clone(&taken.overview);
            }
        }
        let at = Instant::now();
        let overview = Arc::new(manager.listed(|listings| listings.overview()));
        *last = Some(Taken {
            overview: Arc::clone(&overview),
            revision,
            at,
            cost: at.elapsed(),
        });
        overview
    }
}
