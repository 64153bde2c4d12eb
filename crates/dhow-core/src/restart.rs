//! A cluster that begins anew from an earlier state: from a backup, or from what one server of a lost majority has.
//!
//! Nodes, servers and people may have seen more of the cluster than this state knows. What it counts from here on
//! begins far above everything that anybody can have seen, so that nothing new is taken for something old, and what was
//! given away for a while is given away no more. Used by whoever writes such a state, before anybody runs on it.

use std::sync::Arc;

use crate::ids::{NodeId, Term};
use crate::state::State;

/// How far above what is known a new beginning is: a cluster that elected a leader every second and took in a worker
/// every second would take twelve days to come so far after the state was saved.
pub const STRIDE: u64 = 1 << 20;

/// The term that a beginning has, which is the same wherever the same state is begun anew.
pub fn term_above(known: Term) -> Term {
    Term(known.0.saturating_add(STRIDE))
}

/// The first term that anybody votes in: also above that of an earlier beginning from the same state, as long as clocks
/// are roughly right.
pub fn first_term(known: Term, now_unix_secs: i64) -> Term {
    let now = u64::try_from(now_unix_secs).unwrap_or(0);
    term_above(known).max(Term(now))
}

/// Makes a state one to begin anew from. The same state gives the same: each server of a cluster does it for itself.
pub fn begin_anew(state: &mut State) {
    let last = state.last_node_id.0;
    let raised = last.saturating_add(STRIDE).min(NodeId::MAX.0);
    state.skip_node_ids(NodeId(raised.max(last)));
    let nonces: Vec<_> = state.tokens.keys().cloned().collect();
    for nonce in nonces {
        if let Some(token) = state.tokens.get_mut(&nonce) {
            // How often it was used since is not known.
            Arc::make_mut(token).revoked = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use imbl::OrdMap;

    use super::*;
    use crate::invariants;
    use crate::state::Token;

    #[test]
    fn terms_begin_above_everything_that_anybody_has_seen() {
        assert_eq!(first_term(Term(7), 1_800_000_000), Term(1_800_000_000));
        assert_eq!(
            first_term(Term(1_800_000_000), 1_800_000_060),
            Term(1_800_000_000 + STRIDE)
        );
        assert_eq!(first_term(Term(7), -5), Term(7 + STRIDE));
        assert_eq!(first_term(Term(u64::MAX), 5), Term(u64::MAX));
    }

    #[test]
    fn ids_go_on_far_above_and_tokens_of_workers_are_void() {
        let token = Token {
            uses_allowed: 5,
            expires_unix_secs: i64::MAX,
            revoked: false,
            uses: OrdMap::new(),
        };
        let mut state = State {
            last_node_id: NodeId(9),
            ..State::default()
        };
        state.tokens.insert("nonce".into(), Arc::new(token));
        let mut same = state.clone();
        begin_anew(&mut state);
        begin_anew(&mut same);
        assert_eq!(state, same);
        assert_eq!(state.last_node_id, NodeId(9 + STRIDE));
        assert!(state.tokens.values().all(|token| token.revoked));
        assert!(invariants::check(&state).is_empty());
        state.last_node_id = NodeId(NodeId::MAX.0 - 1);
        begin_anew(&mut state);
        assert_eq!(state.last_node_id, NodeId::MAX);
        state.last_node_id = NodeId(u64::MAX);
        begin_anew(&mut state);
        assert_eq!(state.last_node_id, NodeId(u64::MAX), "it never goes back");
    }
}
