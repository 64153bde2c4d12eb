//! Folders that change as a whole, wherever the daemon is killed.

use std::os::unix::fs::MetadataExt;

use dhow_core::spec::{FileMode, FileMount, ImageSpec, OnChange};

use super::*;

/// A container that sees a config, which it is told of, and a secret.
fn spec(config: &[u8], version: u64) -> ServiceSpec {
    ServiceSpec {
        image: Some(ImageSpec::named("web")),
        configs: vec![FileMount {
            source: "app.conf".into(),
            target: Some("/etc/app/app.conf".into()),
            mode: Some(FileMode(0o640)),
            on_change: OnChange::Signal,
            signal: Some("SIGHUP".into()),
            content: Some(ContentHash::of(config)),
            ..FileMount::default()
        }],
        secrets: vec![FileMount {
            source: "key".into(),
            version: Some(version),
            ..FileMount::default()
        }],
        ..ServiceSpec::default()
    }
}

/// A replica's folders below a folder of the test.
struct Shown {
    dir: tempfile::TempDir,
}

impl Shown {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn layout(&self, spec: &ServiceSpec) -> Layout {
        let memory = self.dir.path().join("memory");
        plan::layout(spec, None, &self.dir.path().join("disk"), &|| Ok(memory.clone())).unwrap()
    }

    fn contents(config: &[u8], version: u64) -> FileContents {
        let secret = FileKey::Secret {
            name: "key".into(),
            version,
        };
        let value = format!("key {version}").into_bytes();
        [
            (FileKey::Config(ContentHash::of(config)), config.to_vec()),
            (secret, value),
        ]
        .into()
    }

    /// As a daemon does it, up to where its program is told.
    fn show(&self, config: &[u8], version: u64) -> Placed {
        let layout = self.layout(&spec(config, version));
        let contents = Self::contents(config, version);
        let mut placed = Placed::default();
        for plan in &layout.folders {
            folder::show(plan, &contents).unwrap();
            note(plan, &mut placed).unwrap();
        }
        placed
    }

    fn told(&self, config: &[u8], version: u64) {
        let layout = self.layout(&spec(config, version));
        layout.folders.iter().try_for_each(folder::settle).unwrap();
    }

    fn read(&self, placed: &Placed, target: &str, name: &str) -> String {
        let bind = placed.binds.iter().find(|bind| bind.target == target).unwrap();
        fs::read_to_string(bind.source.join(name)).unwrap()
    }
}

fn hup() -> BTreeSet<String> {
    BTreeSet::from(["SIGHUP".to_owned()])
}

#[test]
fn files_are_seen_with_their_mode_and_apart_by_where_they_may_lie() {
    let shown = Shown::new();
    let placed = shown.show(b"one", 1);
    assert_eq!(placed.signals, BTreeSet::new(), "nothing was there before");
    let targets: Vec<&str> = placed.binds.iter().map(|bind| bind.target.as_str()).collect();
    assert_eq!(targets, ["/etc/app", "/run/secrets"]);
    assert_eq!(shown.read(&placed, "/etc/app", "app.conf"), "one");
    assert_eq!(shown.read(&placed, "/run/secrets", "key"), "key 1");
    let of = |target: &str| {
        &placed
            .binds
            .iter()
            .find(|bind| bind.target == target)
            .unwrap()
            .source
    };
    assert!(of("/etc/app").starts_with(shown.dir.path().join("disk")));
    assert!(of("/run/secrets").starts_with(shown.dir.path().join("memory")));
    let mode = fs::metadata(of("/etc/app").join("app.conf")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o640);
}

#[test]
fn a_file_by_itself_is_the_content_and_no_link() {
    let shown = Shown::new();
    let mut one = spec(b"one", 1);
    one.configs[0].on_change = OnChange::Restart;
    one.configs[0].signal = None;
    let layout = shown.layout(&one);
    let mut placed = Placed::default();
    for plan in &layout.folders {
        folder::show(plan, &Shown::contents(b"one", 1)).unwrap();
        note(plan, &mut placed).unwrap();
    }
    let bind = &placed.binds[0];
    assert_eq!(bind.target, "/etc/app/app.conf");
    assert!(fs::symlink_metadata(&bind.source).unwrap().is_file());
}

#[test]
fn whoever_is_killed_in_between_tells_the_program_later() {
    let shown = Shown::new();
    shown.show(b"one", 1);
    shown.told(b"one", 1);
    // Shown and not told: the next daemon does it, as often as it takes.
    for _ in 0..2 {
        let placed = shown.show(b"two", 1);
        assert_eq!(placed.signals, hup());
        assert_eq!(shown.read(&placed, "/etc/app", "app.conf"), "two");
    }
    shown.told(b"two", 1);
    assert_eq!(shown.show(b"two", 1).signals, BTreeSet::new());
    // Another secret is no news to a program that is told of the config alone.
    assert_eq!(shown.show(b"two", 2).signals, BTreeSet::new());
    shown.told(b"two", 2);
    // Back and forth before anybody was told: it is told once more than it had to be.
    shown.show(b"three", 2);
    assert_eq!(shown.show(b"two", 2).signals, hup());
}

#[test]
fn what_a_killed_daemon_left_half_done_is_done_again() {
    let shown = Shown::new();
    shown.show(b"one", 1);
    shown.told(b"one", 1);
    let layout = shown.layout(&spec(b"two", 1));
    let app = layout.folders.iter().find(|plan| !plan.has_secrets).unwrap();
    // In the middle of writing: the folder still shows what it showed.
    fs::create_dir(app.dir.join("..making")).unwrap();
    fs::write(app.dir.join("..making/app.conf"), "tw").unwrap();
    assert_eq!(fs::read_to_string(app.dir.join("app.conf")).unwrap(), "one");
    // Between the note and the link.
    fs::write(app.dir.join("..pending"), "SIGHUP").unwrap();
    std::os::unix::fs::symlink("..nowhere", app.dir.join("..data.new")).unwrap();
    let placed = shown.show(b"two", 1);
    assert_eq!(
        (
            shown.read(&placed, "/etc/app", "app.conf").as_str(),
            placed.signals
        ),
        ("two", hup())
    );
    shown.told(b"two", 1);
    let names: BTreeSet<String> = fs::read_dir(&app.dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let left = [
        "..data".to_owned(),
        format!("..{}", app.digest),
        "app.conf".to_owned(),
    ];
    assert_eq!(names, BTreeSet::from(left));
}

#[test]
fn what_is_there_is_not_asked_for_again() {
    let shown = Shown::new();
    let layout = shown.layout(&spec(b"one", 1));
    assert_eq!(layout.missing().len(), 2);
    shown.show(b"one", 1);
    assert!(layout.missing().is_empty());
    let missing = shown.layout(&spec(b"one", 2)).missing();
    assert_eq!(missing.len(), 1, "{missing:?}");
}
