//! Replacing files: the order of its steps, and what is left where one of them fails.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;

use super::*;

const FILE: &str = "kept.json";

fn files(dir: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        })
        .collect();
    files.sort();
    files
}

fn only(text: &str) -> Vec<(String, String)> {
    vec![(FILE.to_owned(), text.to_owned())]
}

#[test]
fn what_outlives_a_power_cut_is_synced_before_it_has_its_name_and_its_name_after() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = Dir::open(temporary.path()).unwrap();
    for (outlives, expected) in [
        (
            Outlives::PowerCut,
            &[Step::Write, Step::SyncFile, Step::Name, Step::SyncDir][..],
        ),
        (Outlives::Process, &[Step::Write, Step::Name]),
    ] {
        let steps = RefCell::new(Vec::new());
        let note = |step| {
            steps.borrow_mut().push(step);
            Ok(())
        };
        dir.put(OsStr::new(FILE), b"new", outlives, Destination::MayBeTaken, &note)
            .unwrap();
        assert_eq!(*steps.borrow(), expected);
        assert_eq!(files(temporary.path()), only("new"));
    }
}

#[test]
fn a_step_that_fails_leaves_the_old_file_or_the_new_one_and_nothing_else() {
    for failing in [Step::Write, Step::SyncFile, Step::Name, Step::SyncDir] {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open(temporary.path()).unwrap();
        dir.replace(FILE, b"old", Outlives::PowerCut).unwrap();
        let fail = |step| match step == failing {
            true => Err(io::Error::from(Errno::NOSPC)),
            false => Ok(()),
        };
        let name = OsStr::new(FILE);
        dir.put(name, b"new", Outlives::PowerCut, Destination::MayBeTaken, &fail)
            .unwrap_err();
        let left = match failing {
            Step::Write | Step::SyncFile | Step::Name => "old",
            Step::SyncDir => "new",
        };
        assert_eq!(files(temporary.path()), only(left), "{failing:?}");
    }
}

#[test]
fn what_a_killed_writer_left_beside_is_no_hindrance() {
    let temporary = tempfile::tempdir().unwrap();
    let outside = temporary.path().join("outside");
    std::fs::write(&outside, "mine").unwrap();
    std::fs::create_dir(temporary.path().join("in")).unwrap();
    std::os::unix::fs::symlink(&outside, temporary.path().join("in/kept.json.new")).unwrap();
    let path = temporary.path().join("in").join(FILE);
    crate::replace(&path, b"new", Outlives::PowerCut).unwrap();
    assert_eq!(files(&temporary.path().join("in")), only("new"));
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "mine");
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_file_that_must_not_exist_is_never_replaced() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join(FILE);
    crate::create(&path, b"first").unwrap();
    let error = crate::create(&path, b"second").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(files(temporary.path()), only("first"));
}

#[test]
fn a_handle_means_its_directory_whatever_stands_at_its_path() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("life");
    std::fs::create_dir(&path).unwrap();
    let first = Dir::open(&path).unwrap();
    std::fs::remove_dir(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(first.is_removed());
    let error = first.replace(FILE, b"late", Outlives::Process).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(files(&path).is_empty());
    assert!(!Dir::open(&path).unwrap().is_removed());
}

#[test]
fn files_of_a_directory_are_read_listed_and_removed() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = Dir::open(temporary.path()).unwrap();
    let below = dir.make_dir("below").unwrap();
    below.replace(FILE, b"1", Outlives::Process).unwrap();
    let again = dir.make_dir("below").unwrap();
    assert_eq!(again.path(), temporary.path().join("below"));
    assert_eq!(again.names().unwrap(), [OsStr::new(FILE)]);
    assert_eq!(again.read(FILE).unwrap().as_deref(), Some(b"1".as_slice()));
    again.rename(FILE, "other").unwrap();
    assert_eq!(again.read(FILE).unwrap(), None);
    again.remove("other").unwrap();
    again.remove("other").unwrap();
    assert!(again.names().unwrap().is_empty());
}

#[test]
fn a_file_can_be_written_elsewhere_before_it_has_its_name() {
    let temporary = tempfile::tempdir().unwrap();
    let (passing, place) = (temporary.path().join("tmp"), temporary.path().join("in"));
    std::fs::create_dir(&passing).unwrap();
    std::fs::create_dir(&place).unwrap();
    for (outlives, text) in [(Outlives::PowerCut, "1"), (Outlives::Process, "2")] {
        crate::replace_through(
            &passing.join("file-0"),
            &place.join(FILE),
            text.as_bytes(),
            outlives,
        )
        .unwrap();
        assert_eq!(files(&place), only(text));
        assert!(files(&passing).is_empty());
    }
    let nowhere = temporary.path().join("none").join(FILE);
    crate::replace_through(&passing.join("file-0"), &nowhere, b"3", Outlives::PowerCut).unwrap_err();
    assert!(files(&passing).is_empty(), "nothing of it is left");
}
