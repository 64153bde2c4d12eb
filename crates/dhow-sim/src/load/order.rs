//! What the script tells a worker to do.

use serde::{Deserialize, Serialize};

/// What the script wants of one worker at the moment: to live, or to fail in a certain way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// It joins, keeps its session and runs what it is told.
    Live,
    /// Its connection is reset and it stays away: the machine was switched off and its neighbour said so.
    Reset,
    /// It neither reads nor writes any more, and nothing is closed: the process hangs.
    Hang,
    /// The network takes nothing from it and brings nothing to it; it goes on as if it did.
    CutOff,
    /// It has a session and does not read what it is told.
    ReadNothing,
}

impl Order {
    /// Whether it tries to have a session.
    pub fn has_session(self) -> bool {
        match self {
            Self::Live | Self::ReadNothing | Self::CutOff => true,
            Self::Reset | Self::Hang => false,
        }
    }

    /// Whether what it runs counts for the cluster.
    pub fn counts(self) -> bool {
        match self {
            Self::Live | Self::ReadNothing => true,
            Self::Reset | Self::Hang | Self::CutOff => false,
        }
    }
}
