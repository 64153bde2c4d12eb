//! A new generation of the workers' CA.

use crate::command::Refused;
use crate::maps::retain;
use crate::state::State;

/// Those that nobody believes any more make room.
pub(super) fn rotate(
    state: &mut State,
    now_unix_secs: i64,
    believed_until_unix_secs: i64,
) -> Result<(), Refused> {
    let cas = &mut state.worker_cas;
    let believed = cas.older(now_unix_secs).len();
    if believed >= State::RETIRED_WORKER_CAS_MAX {
        return Err(Refused::NotNow(
            "too many earlier CAs of workers are still believed: wait until one of them has ended",
        ));
    }
    let replaced = cas.newest();
    retain(&mut cas.retired, |_, until| *until > now_unix_secs);
    cas.retired.insert(replaced, believed_until_unix_secs);
    cas.rotations = replaced;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_one_is_believed_for_its_time() {
        let mut state = State::default();
        assert_eq!(
            (state.worker_cas.newest(), state.worker_cas.older(0)),
            (1, vec![])
        );
        rotate(&mut state, 100, 200).unwrap();
        rotate(&mut state, 150, 250).unwrap();
        assert_eq!(state.worker_cas.newest(), 3);
        assert_eq!(state.worker_cas.older(199), [2, 1]);
        assert_eq!(state.worker_cas.older(200), [2]);
        rotate(&mut state, 300, 400).unwrap();
        assert_eq!(
            (state.worker_cas.newest(), state.worker_cas.retired.len()),
            (4, 1)
        );
    }

    #[test]
    fn only_so_many_are_believed_at_a_time() {
        let mut state = State::default();
        for _ in 0..State::RETIRED_WORKER_CAS_MAX {
            rotate(&mut state, 100, 200).unwrap();
        }
        let before = state.clone();
        assert!(matches!(rotate(&mut state, 100, 200), Err(Refused::NotNow(_))));
        assert_eq!(state, before);
        rotate(&mut state, 200, 300).unwrap();
    }
}
