//! How well a replica lies on its node, by the questions of placement in their order, so that two places can be compared.

use std::cmp::Ordering;

use crate::placement::{Fullness, Look};

/// A replica on a node. The greater it is, the worse it lies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Standing {
    lead: Lead,
    fullness: Fullness,
}

/// What a move is worth by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lead {
    /// It breaks a rule where it is.
    breaks: bool,
    /// What its zone has beside it, in relation to what it is to have.
    zone: (u64, bool),
    /// Wishes for labels and neighbours that the node meets, upside down.
    unliked: u32,
    /// The service's replicas on the node beside it.
    beside: u32,
}

impl Standing {
    pub(super) fn new(look: Look, breaks: bool) -> Self {
        Self {
            lead: Lead {
                breaks,
                zone: look.zone,
                unliked: u32::MAX - look.liked,
                beside: look.beside,
            },
            fullness: look.fullness,
        }
    }

    /// Whether a replica is worth being started anew here rather than staying there. Where only room is to be gained,
    /// it has to be a tenth of what there is.
    pub(super) fn is_worth_a_move(&self, there: &Self) -> bool {
        match self.lead.cmp(&there.lead) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.fullness.is_clearly_below(&there.fullness),
        }
    }
}
