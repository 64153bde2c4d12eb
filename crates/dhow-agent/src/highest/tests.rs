//! What is older is not acted on, and what was acted on is known after any cut.

use std::sync::Arc;

use dhow_core::ids::{Revision, Term};

use super::*;

fn order(cluster: Option<&str>, term: Option<u64>, revision: u64) -> Assignment {
    Assignment {
        term: term.map(Term),
        cluster: cluster.map(Arc::from),
        ..Assignment::nothing(Revision(revision))
    }
}

fn highest(term: u64, revision: u64) -> Highest {
    Highest {
        cluster: Some("c".into()),
        term,
        revision,
    }
}

#[test]
fn only_what_is_not_older_is_acted_on() {
    let known = highest(6, 120);
    let judged = |cluster, term, revision| known.judge(&order(cluster, term, revision));
    for (term, revision) in [(5, 500), (6, 119), (0, 0)] {
        assert_eq!(
            judged(Some("c"), Some(term), revision),
            Verdict::Older,
            "{term} {revision}"
        );
        assert_eq!(judged(None, Some(term), revision), Verdict::Older);
    }
    assert_eq!(
        judged(Some("c"), Some(6), 120),
        Verdict::Act(None),
        "the same again"
    );
    for (term, revision) in [(6, 121), (7, 1)] {
        let news = Verdict::Act(Some(highest(term, revision)));
        assert_eq!(judged(Some("c"), Some(term), revision), news);
        assert_eq!(
            judged(None, Some(term), revision),
            news,
            "a server that does not say its name"
        );
    }
}

#[test]
fn another_cluster_and_one_that_keeps_count_itself_are_believed() {
    let known = highest(6, 120);
    let other = Highest {
        cluster: Some("d".into()),
        term: 1,
        revision: 2,
    };
    assert_eq!(
        known.judge(&order(Some("d"), Some(1), 2)),
        Verdict::Act(Some(other))
    );
    assert_eq!(known.judge(&order(None, None, 1)), Verdict::Act(None));
}

#[test]
fn it_is_known_again_and_a_cut_write_leaves_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = HighestFile::open(dir.path()).unwrap();
    assert_eq!(*file.highest(), Highest::default());
    for revision in 1..6 {
        file.put(highest(3, revision)).unwrap();
        assert_eq!(
            *HighestFile::open(dir.path()).unwrap().highest(),
            highest(3, revision)
        );
    }
    let path = dir.path().join("highest");
    let whole = std::fs::read(&path).unwrap();
    file.put(highest(4, 1)).unwrap();
    let next = std::fs::read(&path).unwrap();
    let changed: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != next[*at]).collect();
    let first = *changed.first().unwrap();
    for at in changed {
        let mut cut = next.clone();
        cut[at..(first / PLACE_BYTES + 1) * PLACE_BYTES]
            .copy_from_slice(&whole[at..(first / PLACE_BYTES + 1) * PLACE_BYTES]);
        std::fs::write(&path, cut).unwrap();
        let found = HighestFile::open(dir.path()).unwrap().highest().clone();
        assert!(
            [highest(3, 5), highest(4, 1)].contains(&found),
            "cut at {at}: {found:?}"
        );
    }
}

#[test]
fn a_damaged_file_is_begun_anew_and_a_long_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("highest"), [b'x'; 2 * PLACE_BYTES]).unwrap();
    let mut file = HighestFile::open(dir.path()).unwrap();
    assert_eq!(*file.highest(), Highest::default());
    let long = Highest {
        cluster: Some("c".repeat(PLACE_BYTES)),
        ..highest(9, 9)
    };
    assert!(file.put(long).is_err());
    file.put(highest(1, 1)).unwrap();
    assert_eq!(*HighestFile::open(dir.path()).unwrap().highest(), highest(1, 1));
}
