//! Targets of notices: set, removed, and how far each has been told.

use std::sync::Arc;

use crate::command::{Missing, Refused};
use crate::state::{EventPlace, NotifySettings, NotifyTarget, State};

/// From this level on the cluster tells others.
pub(crate) const SINCE_LEVEL: u32 = 6;

/// A new one is told of what happens from now on; one that is changed goes on where it was.
pub(super) fn set(state: &mut State, name: &Arc<str>, settings: &NotifySettings) -> Result<(), Refused> {
    super::needs_level(state, SINCE_LEVEL)?;
    let known = state.notify.get(name);
    if known.is_none() && state.notify.len() >= State::NOTIFY_MAX {
        return Err(Refused::NotNow(
            "the cluster tells 16 targets, the most that it can",
        ));
    }
    let begin = EventPlace {
        revision: state.revision,
        part: 0,
    };
    let target = NotifyTarget {
        settings: settings.clone(),
        done: known.map_or(begin, |known| known.done),
    };
    state.notify.insert(name.clone(), Arc::new(target));
    Ok(())
}

pub(super) fn remove(state: &mut State, name: &Arc<str>) -> Result<(), Refused> {
    let removed = state.notify.remove(name);
    removed
        .map(drop)
        .ok_or_else(|| Missing::Notify(name.clone()).into())
}

/// It never goes back: a leader that was slow to hear of the next one tells nothing twice.
pub(super) fn told(state: &mut State, name: &Arc<str>, done: EventPlace) -> Result<(), Refused> {
    let known = state.notify.get_mut(name);
    let known = known.ok_or_else(|| Missing::Notify(name.clone()))?;
    if known.done < done {
        Arc::make_mut(known).done = done;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ids::Revision;
    use crate::state::Notice;

    fn settings(shown: &str) -> NotifySettings {
        NotifySettings {
            shown: shown.into(),
            sealed: Arc::from([1, 2, 3]),
            on: BTreeSet::from([Notice::NodeLost]),
        }
    }

    fn place(revision: u64, part: u32) -> EventPlace {
        EventPlace {
            revision: Revision(revision),
            part,
        }
    }

    fn world() -> State {
        State {
            feature_level: SINCE_LEVEL,
            revision: Revision(7),
            ..State::default()
        }
    }

    #[test]
    fn a_target_begins_where_it_is_made_and_goes_on_when_it_is_changed() {
        let (mut state, name): (State, Arc<str>) = (world(), "ops".into());
        set(&mut state, &name, &settings("https://a.example")).unwrap();
        assert_eq!(state.notify[&name].done, place(7, 0));
        told(&mut state, &name, place(9, 2)).unwrap();
        told(&mut state, &name, place(9, 1)).unwrap();
        state.revision = Revision(12);
        set(&mut state, &name, &settings("https://b.example")).unwrap();
        assert_eq!(state.notify[&name].done, place(9, 2));
        assert_eq!(&*state.notify[&name].settings.shown, "https://b.example");
        remove(&mut state, &name).unwrap();
        let missing = Err(Missing::Notify(name.clone()).into());
        assert_eq!(remove(&mut state, &name), missing);
        assert_eq!(told(&mut state, &name, place(10, 0)), missing);
    }

    #[test]
    fn there_are_few_and_none_before_all_servers_know_them() {
        let mut state = world();
        for number in 0..State::NOTIFY_MAX {
            set(
                &mut state,
                &format!("t-{number}").into(),
                &settings("https://a.example"),
            )
            .unwrap();
        }
        let more = set(&mut state, &"more".into(), &settings("https://a.example"));
        assert!(matches!(more, Err(Refused::NotNow(_))));
        set(&mut state, &"t-1".into(), &settings("https://c.example")).unwrap();
        state.feature_level = SINCE_LEVEL - 1;
        let early = set(&mut state, &"t-1".into(), &settings("https://a.example"));
        assert_eq!(early, Err(Refused::FeatureLevel { needed: 6, has: 5 }));
    }
}
