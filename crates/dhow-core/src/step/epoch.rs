//! The beginning of an epoch of a static cluster: the first entry of it, applied to the newest copy that its leader has
//! found.

use crate::command::Refused;
use crate::ids::{Revision, Term};
use crate::state::State;
use crate::time::ClusterTime;

/// Begins an epoch above the revision and the time of every copy that was found: so both only ever go forward, at every
/// peer.
pub(super) fn begin(
    state: &mut State,
    epoch: Term,
    revision: Revision,
    time: ClusterTime,
) -> Result<(), Refused> {
    if epoch < state.term {
        return Err(Refused::OldTerm {
            proposed: epoch,
            current: state.term,
        });
    }
    state.branch.begin(epoch, state.time);
    state.term = epoch;
    state.revision = state.revision.max(revision.next());
    state.time = state.time.max(time);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{ClusterCommand, Command, Entry};
    use crate::step::step;

    fn began(state: &mut State, epoch: u64, revision: u64, time: u64) -> Result<(), Refused> {
        let entry = Entry {
            term: Term(epoch),
            time: state.time,
            request: None,
            command: Command::Cluster(ClusterCommand::EpochBegan {
                revision: Revision(revision),
                time: ClusterTime(time),
            }),
        };
        step(state, &entry, &mut ()).map(drop)
    }

    #[test]
    fn an_epoch_begins_above_every_copy() {
        let mut state = State {
            term: Term(3),
            revision: Revision(40),
            time: ClusterTime(1_000),
            ..State::default()
        };
        began(&mut state, 5, 70, 900).unwrap();
        assert_eq!((state.term, state.revision), (Term(5), Revision(71)));
        assert_eq!(state.time, ClusterTime(1_000));
        began(&mut state, 7, 10, 2_000).unwrap();
        assert_eq!((state.term, state.revision), (Term(7), Revision(72)));
        assert_eq!(state.time, ClusterTime(2_000));
        // Each epoch is kept with the time of the copy that it began from.
        let origins: Vec<_> = state
            .branch
            .origins
            .iter()
            .map(|(epoch, from)| (epoch.0, from.0))
            .collect();
        assert_eq!(origins, [(5, 1_000), (7, 1_000)]);
    }

    #[test]
    fn an_epoch_below_the_copys_is_refused() {
        let mut state = State {
            term: Term(8),
            ..State::default()
        };
        let refused = began(&mut state, 7, 70, 900).unwrap_err();
        assert!(matches!(refused, Refused::OldTerm { .. }), "{refused}");
        assert_eq!((state.term, state.revision), (Term(8), Revision(1)));
        assert!(state.branch.origins.is_empty());
    }
}
