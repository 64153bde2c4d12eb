//! What was comes back as it was, from whatever the disk and the log have left of it.

mod support;

use std::path::PathBuf;

use dhow_core::ids::Revision;
use dhow_core::state::State;
use proptest::prelude::*;

use super::read::state_at;
use super::replay::{Replay, ReplayEnd, ReplayError, replay};
use super::*;
use support::World;

fn whole(world: &World) -> Replay {
    Replay {
        path: world.options.dir.clone(),
        until: None,
        across: false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The law of the past: any revision in the window gives the state, and with it the answers, that it gave then.
    #[test]
    fn any_revision_in_the_window_is_as_it_was(script in prop::collection::vec(any::<u8>(), 1..60)) {
        let mut world = World::new();
        for (number, action) in script.iter().enumerate() {
            world.act(*action);
            if number % 3 == 0 {
                world.catch_up();
            }
            if number % 17 == 16 {
                world.reopen();
            }
        }
        world.catch_up();
        let index = world.past.index();
        prop_assert_eq!(&index.problem, &None);
        prop_assert_eq!(index.last(), Some(world.state.revision));
        for (revision, then) in &world.seen {
            let found = state_at(&index, When::Revision(*revision)).unwrap();
            prop_assert!(found == redact::state(then), "revision {}", revision);
            prop_assert_eq!(support::answers(found), support::answers(then.clone()));
        }
        let replayed = replay(&whole(&world), &mut |_, _, _| {}).unwrap();
        prop_assert_eq!((replayed.last, replayed.end), (world.state.revision, ReplayEnd::All));
        prop_assert_eq!(replayed.hash, redact::state(&world.state).hash());
    }
}

#[test]
fn the_values_of_secrets_are_not_in_it() {
    let mut world = World::new();
    let value = b"sealed-value-of-a-secret".repeat(40);
    world.set_secret("db-password", &value);
    world.catch_up();
    world.set_secret("db-password", b"another-sealed-value-of-it");
    world.act(2);
    world.catch_up();
    assert!(
        world.past.index().chapters.len() > 1,
        "it is in states and in entries"
    );
    for chapter in &world.past.index().chapters {
        let (mut reader, state) = read::Reader::open(&chapter.path).unwrap();
        assert!(state.secrets.values().all(|secret| secret.sealed.is_empty()));
        while let Some((_, entries)) = reader.next(Revision(u64::MAX)).unwrap() {
            for entry in entries {
                assert!(!format!("{:?}", entry.command).contains(&format!("{:?}", b"sealed")[1..20]));
            }
        }
    }
    let then = state_at(&world.past.index(), When::Revision(Revision(3))).unwrap();
    assert_eq!(
        then.secrets["db-password"].version, 1,
        "its name and its version are"
    );
    assert!(then.secrets["db-password"].sealed.is_empty());
}

#[test]
fn what_a_crash_left_of_the_end_is_written_again() {
    let mut world = World::new();
    (0..9).for_each(|_| world.act(1));
    world.catch_up();
    world.act(1);
    world.catch_up();
    let newest = world.past.index().chapters.last().unwrap().path.clone();
    let whole_file = std::fs::read(&newest).unwrap();
    for cut in 1..12 {
        std::fs::write(&newest, &whole_file[..whole_file.len() - cut]).unwrap();
        world.reopen();
        world.catch_up();
        assert_eq!(
            world.past.index().last(),
            Some(world.state.revision),
            "cut by {cut}"
        );
        assert_eq!(world.past.index().gaps().count(), 0);
        assert_eq!(std::fs::read(&newest).unwrap(), whole_file, "cut by {cut}");
    }
}

#[test]
fn a_damaged_chapter_is_told_and_its_neighbours_are_as_good_as_ever() {
    let mut world = World::new();
    (0..30).for_each(|_| {
        world.act(1);
        world.catch_up();
    });
    let index = world.past.index();
    let [first, second, third, ..] = index.chapters.as_slice() else {
        panic!("{index:?}");
    };
    let mut bytes = std::fs::read(&second.path).unwrap();
    // Inside its state.
    bytes[60] ^= 1;
    std::fs::write(&second.path, &bytes).unwrap();
    let at = |revision| state_at(&index, When::Revision(revision)).map(|state| state.revision);
    let inside = second.first.next();
    assert!(matches!(at(inside), Err(PastError::Damaged { .. })));
    let before = Revision(first.last.0 - 1);
    assert_eq!(at(before).unwrap(), before);
    assert_eq!(at(third.last).unwrap(), third.last);
    std::fs::write(&second.path, b"nothing").unwrap();
    let (from, to) = (first.last.next(), Revision(third.first.0 - 1));
    world.reopen();
    world.catch_up();
    assert!(second.path.with_extension("unreadable").exists());
    let gap = state_at(&world.past.index(), When::Revision(inside));
    assert!(matches!(gap, Err(PastError::Gap { .. })), "{from} to {to}");
    assert_eq!(world.past.index().gaps().collect::<Vec<_>>(), [(from, to)]);
    let replayed = replay(&whole(&world), &mut |_, _, _| {}).unwrap();
    assert!(matches!(replayed.end, ReplayEnd::Gap { .. }), "{replayed:?}");
}

#[test]
fn what_the_log_forgot_before_it_was_written_is_a_gap() {
    let mut world = World::new();
    (0..5).for_each(|_| world.act(1));
    world.catch_up();
    let before = world.state.revision;
    (0..7).for_each(|_| world.act(1));
    world.snapshot();
    let begun_again = world.state.revision;
    (0..3).for_each(|_| world.act(1));
    world.snapshot();
    world.act(1);
    world.catch_up();
    let index = world.past.index();
    assert_eq!(index.last(), Some(world.state.revision));
    let gaps: Vec<_> = index.gaps().collect();
    assert_eq!(gaps.len(), 1);
    let (from, to) = gaps[0];
    assert_eq!(from, before.next());
    assert!(to >= begun_again);
    let asked = state_at(&index, When::Revision(from));
    assert!(matches!(asked, Err(PastError::Gap { .. })), "{asked:?}");
    assert_eq!(state_at(&index, When::Revision(before)).unwrap().revision, before);
    let later = Revision(world.state.revision.0 + 1);
    assert!(matches!(
        state_at(&index, When::Revision(later)),
        Err(PastError::Ahead { .. })
    ));
}

#[test]
fn a_time_is_the_last_revision_that_there_was_by_then() {
    let mut world = World::new();
    world.begin_term(1_000_000);
    (0..20).for_each(|_| world.act(1));
    // An hour without a server.
    world.begin_term(5_000_000);
    (0..20).for_each(|_| world.act(1));
    world.catch_up();
    let index = world.past.index();
    let wall = |state: &State| state.clock_marks.wall_unix_ms(state.time);
    for unix_ms in (1_000_000..5_300_000).step_by(7_919) {
        let found = state_at(&index, When::UnixMs(unix_ms)).unwrap();
        let expected = world
            .seen
            .iter()
            .rev()
            .find(|(_, then)| wall(then).is_some_and(|at| at <= unix_ms));
        assert_eq!(found.revision, *expected.unwrap().0, "at {unix_ms}");
    }
}

#[test]
fn the_oldest_goes_first_and_the_newest_stays() {
    let mut world = World::new();
    world.begin_term(1_000_000);
    (0..40).for_each(|_| {
        world.act(1);
        world.catch_up();
    });
    let index = world.past.index();
    assert!(index.chapters.len() > 5);
    world.options.bytes_max = index.bytes() / 2;
    world.reopen();
    world.catch_up();
    let kept = world.past.index();
    assert!(kept.bytes() <= world.options.bytes_max, "{kept:?}");
    assert_eq!(kept.last(), index.last());
    let first = kept.first().unwrap().first;
    let before = state_at(&kept, When::Revision(Revision(first.0 - 1)));
    assert!(matches!(before, Err(PastError::Before { .. })));
    assert_eq!(state_at(&kept, When::Revision(first)).unwrap().revision, first);
    world.options.window_ms = 1;
    world.now_unix_ms = i64::MAX;
    world.reopen();
    world.catch_up();
    assert_eq!(world.past.index().chapters.len(), 1);
}

#[test]
fn a_replay_stops_where_the_feature_level_changes_and_where_the_state_is_another() {
    let mut world = World::new();
    (0..3).for_each(|_| world.act(1));
    let before = world.state.revision;
    world.raise_level();
    (0..9).for_each(|_| {
        world.act(1);
        world.catch_up();
    });
    let asked = whole(&world);
    let stopped = replay(&asked, &mut |_, _, _| {}).unwrap();
    assert_eq!(stopped.last, before);
    let (from, to) = (State::FEATURE_LEVEL - 1, State::FEATURE_LEVEL);
    assert_eq!(stopped.end, ReplayEnd::FeatureLevel { from, to });
    let across = Replay {
        across: true,
        ..asked
    };
    let mut told = 0;
    let went_on = replay(&across, &mut |_, _, _| told += 1).unwrap();
    assert_eq!(
        (went_on.last, went_on.end),
        (world.state.revision, ReplayEnd::All)
    );
    assert_eq!(told, world.state.revision.0);
    assert!(went_on.compared > 0);
    let until = Replay {
        until: Some(Revision(2)),
        ..across.clone()
    };
    let ended = replay(&until, &mut |_, _, _| {}).unwrap();
    assert_eq!((ended.last, ended.end), (Revision(2), ReplayEnd::Until));
    // A chapter that somebody has written by other rules.
    let last: PathBuf = world.past.index().chapters.last().unwrap().path.clone();
    let mut forged = world.state.clone();
    forged.revision = world.past.index().chapters.last().unwrap().first;
    forged.deployments.clear();
    chapter::Chapter::begin(last.parent().unwrap(), &forged, Default::default(), None).unwrap();
    let diverged = replay(&across, &mut |_, _, _| {});
    assert!(
        matches!(diverged, Err(ReplayError::Diverged { .. })),
        "{diverged:?}"
    );
}

#[tokio::test]
async fn moments_are_remembered_and_few_are_made_at_a_time() {
    let mut world = World::new();
    (0..12).for_each(|_| world.act(1));
    world.catch_up();
    let when = |revision| When::Revision(Revision(revision));
    let one = world.past.at(when(5)).await.unwrap();
    let again = world.past.at(when(5)).await.unwrap();
    assert!(Arc::ptr_eq(&one, &again));
    assert_eq!(one.told().revision, 5);
    let places = world.past.parts.builds.try_acquire_many(2).unwrap();
    assert!(matches!(world.past.at(when(6)).await, Err(PastError::Busy)));
    assert!(world.past.at(when(5)).await.is_ok(), "nothing has to be made");
    drop(places);
    for revision in 6..12 {
        world.past.at(when(revision)).await.unwrap();
    }
    let anew = world.past.at(when(5)).await.unwrap();
    assert!(!Arc::ptr_eq(&one, &anew) && one.state == anew.state);
}
