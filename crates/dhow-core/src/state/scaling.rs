//! What is kept of an adaptive service's count: when it was last changed and by what, and who holds it.

use std::sync::Arc;

use imbl::Vector;
use serde::{Deserialize, Serialize};

use crate::scaler::PastResize;
use crate::time::ClusterTime;

/// What a new leader has to know to go on. A service whose count was never changed has no such thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// When the count was last changed, by the scaler or by a person.
    pub changed: Option<ClusterTime>,
    pub hold: Option<ScaleHold>,
    /// The last changes by the scaler, the newest last.
    pub resizes: Vector<PastResize>,
}

/// A person has said how many replicas there are, for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleHold {
    pub until: ClusterTime,
    pub by: Arc<str>,
}

impl Scaling {
    /// Changes that are kept.
    pub const RESIZES_MAX: usize = 5;

    /// Who holds the count at this time.
    pub fn held(&self, now: ClusterTime) -> Option<&ScaleHold> {
        self.hold.as_ref().filter(|hold| hold.until > now)
    }
}
