//! Which branch of a cluster's history a state is on, for clusters without consensus: two halves that cannot reach
//! each other may both go on, and must know afterwards what each of them did.
//!
//! `step` counts the changes that people made; whoever begins an epoch notes where it began. Nothing is planned by it.

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::ids::Term;
use crate::time::ClusterTime;

/// What a state knows of the history that it is of. Static peers compare it when two halves meet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Branch {
    /// Changes that people asked for since the cluster began. A half without such a change never wins over one with
    /// some.
    pub edits: u64,
    /// The newest epochs, each with the time of the copy that it began from.
    #[serde(deserialize_with = "crate::maps::read")]
    pub origins: OrdMap<Term, ClusterTime>,
}

impl Branch {
    /// Epochs that are remembered: halves that were apart for more than so many changes of the leader are compared
    /// in full.
    pub const ORIGINS_MAX: usize = 64;

    /// An epoch begins from a copy of this time.
    pub fn begin(&mut self, epoch: Term, from: ClusterTime) {
        self.origins.insert(epoch, from);
        while self.origins.len() > Self::ORIGINS_MAX {
            self.origins = self.origins.without_min().1;
        }
    }

    /// Whether the newest epoch has begun by this term: the copy that it began from was of an older one.
    pub fn has_begun_in(&self, term: Term) -> bool {
        self.origins.get_max().is_none_or(|(epoch, _)| *epoch <= term)
    }

    /// The last epoch that both have had.
    pub(crate) fn last_common(&self, other: &Self) -> Option<Term> {
        let shared = self.origins.iter().rev();
        let mut shared = shared.filter(|(epoch, from)| other.origins.get(*epoch) == Some(*from));
        shared.next().map(|(epoch, _)| *epoch)
    }

    /// When this branch left an epoch, where it has.
    pub(crate) fn left(&self, epoch: Term) -> Option<ClusterTime> {
        let later = self.origins.range(epoch.next()..).next();
        later.map(|(_, from)| *from)
    }
}
