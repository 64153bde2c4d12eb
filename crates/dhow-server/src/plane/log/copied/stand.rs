//! What a peer is at the moment: what it has promised, and whether it leads.

use crate::plane::log::Leadership;

/// What this peer has promised, and whether it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    /// Nothing of a lower epoch is taken. On disk before it counts.
    pub promised: u64,
    pub role: Role,
    /// About to end: it does not lead any more.
    pub leaving: bool,
}

/// Whether a peer leads or follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Following { leader: Option<u64> },
    Leading,
}

impl Stand {
    /// The epoch in which this peer leads.
    pub fn leads_in(&self) -> Option<u64> {
        match self.role {
            Role::Leading => Some(self.promised),
            Role::Following { .. } => None,
        }
    }

    pub fn leadership(&self, own: u64) -> Leadership {
        let leader = match self.role {
            Role::Leading => Some(own),
            Role::Following { leader } => leader,
        };
        Leadership {
            term: self.promised,
            leader,
            is_here: self.role == Role::Leading,
        }
    }
}
