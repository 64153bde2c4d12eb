//! Volumes on a real disk: filled once, copied and put back whole or not at all.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::record::{Content, VolumeFolder};
use super::*;

struct World {
    dir: TempDir,
    volumes: Volumes,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let volumes = Volumes::new(dir.path().join("volumes"));
        Self { dir, volumes }
    }

    fn make(&self, name: &str) -> PathBuf {
        self.volumes.make("shop", name, None).unwrap()
    }

    /// What an image has: a file of another owner where the tests are root, links, a private folder.
    fn image(&self) -> PathBuf {
        let root = self.dir.path().join("image");
        fs::create_dir_all(root.join("private/deep")).unwrap();
        fs::write(root.join("index.html"), "hello").unwrap();
        fs::hard_link(root.join("index.html"), root.join("again.html")).unwrap();
        symlink("/etc/passwd", root.join("link")).unwrap();
        fs::write(root.join("private/deep/key"), "secret").unwrap();
        fs::set_permissions(root.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::set_permissions(root.join("private/deep/key"), fs::Permissions::from_mode(0o4640)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(root.join("private/deep/key"), Some(1234), Some(5678)).unwrap();
            std::os::unix::fs::chown(root.join("private/deep/key"), Some(1234), Some(5678)).unwrap();
            fs::set_permissions(root.join("private/deep/key"), fs::Permissions::from_mode(0o4640)).unwrap();
        }
        fs::set_permissions(&root, fs::Permissions::from_mode(0o750)).unwrap();
        root
    }

    fn fill(&self, volume: &Path, image: &Path) -> Result<(), VolumeError> {
        fill(
            volume,
            Some(Covered {
                path: image,
                copies: true,
            }),
        )
    }

    fn restore(&self, name: &str, bytes: Vec<u8>) -> Result<(), VolumeError> {
        let cancelled = AtomicBool::new(false);
        self.volumes
            .restore("shop", name, Cursor::new(bytes), &cancelled, Vec::new)
    }

    fn archive(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.volumes.archive("shop", name, &mut bytes).unwrap();
        bytes
    }
}

/// Names, kinds, modes, owners, contents and links of all in a folder.
fn shown(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let found = fs::symlink_metadata(&path).unwrap();
            let what = if found.is_dir() {
                waiting.push(path.clone());
                String::new()
            } else if found.file_type().is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else {
                format!("{} names: {}", found.nlink(), fs::read_to_string(&path).unwrap())
            };
            lines.push(format!(
                "{} {:o} {}:{} {} {what}",
                path.strip_prefix(folder).unwrap().display(),
                found.mode(),
                found.uid(),
                found.gid(),
                found.mtime(),
            ));
        }
    }
    lines.sort();
    lines
}

fn content(volume: &Path) -> Content {
    VolumeFolder::of(volume).unwrap().record().unwrap().content
}

#[test]
fn a_new_volume_gets_what_the_image_has_and_only_once() {
    let world = World::new();
    let (volume, image) = (world.make("data"), world.image());
    world.fill(&volume, &image).unwrap();
    assert_eq!(shown(&volume), shown(&image));
    let (made, covered) = (fs::metadata(&volume).unwrap(), fs::metadata(&image).unwrap());
    assert_eq!((made.mode(), made.uid()), (covered.mode(), covered.uid()));
    // What was taken away stays away, also after another start.
    fs::remove_dir_all(volume.join("private")).unwrap();
    fs::remove_file(volume.join("index.html")).unwrap();
    fs::remove_file(volume.join("again.html")).unwrap();
    fs::remove_file(volume.join("link")).unwrap();
    world.make("data");
    world.fill(&volume, &image).unwrap();
    assert_eq!(shown(&volume), Vec::<String>::new());
    assert!(!VolumeFolder::of(&volume).unwrap().filling().exists());
}

#[test]
fn a_copy_that_was_interrupted_is_never_taken_for_a_whole_one() {
    let world = World::new();
    let (volume, image) = (world.make("data"), world.image());
    let place = VolumeFolder::of(&volume).unwrap();
    // Killed while the copy was made: what is there of it is thrown away.
    fs::create_dir(place.filling()).unwrap();
    fs::write(place.filling().join("half"), "ha").unwrap();
    world.fill(&volume, &image).unwrap();
    assert_eq!(shown(&volume), shown(&image));

    // Killed while it was moved in: the rest follows, although the volume is not empty.
    let volume = world.make("moved");
    let place = VolumeFolder::of(&volume).unwrap();
    super::copy::copy_tree(&image, &{
        fs::create_dir(place.filling()).unwrap();
        place.filling()
    })
    .unwrap();
    let mut record = place.record().unwrap();
    record.content = Content::Moving;
    place.keep(&record).unwrap();
    fs::rename(place.filling().join("link"), volume.join("link")).unwrap();
    world.fill(&volume, &image).unwrap();
    assert_eq!(shown(&volume), shown(&image));
    assert_eq!(content(&volume), Content::Own);

    // Killed before the record said that all was moved.
    record.content = Content::Moving;
    place.keep(&record).unwrap();
    world.fill(&volume, &image).unwrap();
    assert_eq!(content(&volume), Content::Own);
}

#[test]
fn what_is_in_a_volume_already_is_left_alone() {
    let world = World::new();
    let (volume, image) = (world.make("data"), world.image());
    fs::write(volume.join("mine"), "mine").unwrap();
    world.fill(&volume, &image).unwrap();
    assert_eq!(fs::read_dir(&volume).unwrap().count(), 1);
    // Without a copy it has the owner and the mode of what it covers, and may be filled by another service later.
    let volume = world.make("bare");
    fill(
        &volume,
        Some(Covered {
            path: &image,
            copies: false,
        }),
    )
    .unwrap();
    assert_eq!(fs::metadata(&volume).unwrap().mode() & 0o7777, 0o750);
    assert_eq!(shown(&volume), Vec::<String>::new());
    assert_eq!(content(&volume), Content::None);
}

#[test]
fn an_archive_brings_back_what_was_there() {
    let world = World::new();
    let (volume, image) = (world.make("data"), world.image());
    world.fill(&volume, &image).unwrap();
    let long = "d".repeat(120);
    fs::create_dir_all(volume.join(&long).join(&long)).unwrap();
    fs::write(volume.join(&long).join(&long).join("file"), "deep").unwrap();
    fs::write(volume.join(".wh.kept"), "no whiteout").unwrap();
    let is_marked = rustix::fs::setxattr(
        volume.join("index.html"),
        "user.colour",
        b"blue\n\0x",
        rustix::fs::XattrFlags::empty(),
    )
    .is_ok();
    let before = shown(&volume);
    let bytes = world.archive("data");
    fs::write(volume.join("later"), "gone again").unwrap();
    world.restore("data", bytes.clone()).unwrap();
    assert_eq!(shown(&volume), before);
    assert_eq!(fs::metadata(&volume).unwrap().mode() & 0o7777, 0o750);
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(volume.join("index.html"), "user.colour", &mut value);
    assert_eq!(length.is_ok(), is_marked);
    if let Ok(length) = length {
        assert_eq!(&value[..length], b"blue\n\0x");
    }
    // And where nothing was.
    world.volumes.remove("shop", "data", Vec::new).unwrap();
    assert!(!volume.exists());
    world.restore("data", bytes).unwrap();
    assert_eq!(shown(&volume), before);
    // An image does not come into it any more.
    assert_eq!(content(&volume), Content::Own);
}

fn tar(build: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    build(&mut builder);
    builder.into_inner().unwrap()
}

fn entry(builder: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, link: &str, data: &[u8]) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(data.len() as u64);
    header.set_device_major(1).unwrap();
    header.set_device_minor(3).unwrap();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

#[test]
fn hostile_and_broken_archives_change_nothing() {
    let world = World::new();
    let volume = world.make("data");
    fs::write(volume.join("mine"), "mine").unwrap();
    let outside = world.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let before = shown(&volume);
    let out = outside.display().to_string();
    let hostile: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "a path that climbs out",
            tar(|t| entry(t, EntryType::Regular, "../../outside/x", "", b"x")),
            "climbs out",
        ),
        (
            "an absolute path",
            tar(|t| entry(t, EntryType::Regular, &format!("{out}/x"), "", b"x")),
            "absolute path",
        ),
        (
            "through a link",
            tar(|t| {
                entry(t, EntryType::Symlink, "l", &out, b"");
                entry(t, EntryType::Regular, "l/x", "", b"x");
            }),
            "symbolic link",
        ),
        (
            "a link to outside",
            tar(|t| entry(t, EntryType::Link, "l", "../../outside/secret", b"")),
            "hard link",
        ),
        (
            "a device",
            tar(|t| entry(t, EntryType::Char, "null", "", b"")),
            "is a device",
        ),
        ("no archive", b"hello".repeat(1_000), "cannot be unpacked"),
        ("nothing", Vec::new(), "end mark"),
        (
            "cut off after an entry",
            tar(|t| entry(t, EntryType::Regular, "a", "", b"x"))[..1024].to_vec(),
            "end mark",
        ),
        (
            "cut off in an entry",
            tar(|t| entry(t, EntryType::Regular, "a", "", b"x"))[..512].to_vec(),
            "cannot be unpacked",
        ),
    ];
    for (what, bytes, why) in hostile {
        let error = world.restore("data", bytes).unwrap_err();
        assert!(error.to_string().contains(why), "{what}: {error}");
        assert_eq!(shown(&volume), before, "{what}");
        assert!(!VolumeFolder::of(&volume).unwrap().restoring().exists(), "{what}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{what}");
    }
    // What an earlier daemon left when it was killed does not disturb.
    fs::create_dir(VolumeFolder::of(&volume).unwrap().restoring()).unwrap();
    let bytes = tar(|t| entry(t, EntryType::Regular, "a", "", b"x"));
    world.restore("data", bytes).unwrap();
    assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "x");
}

#[test]
fn volumes_are_listed_and_removed() {
    let world = World::new();
    let volume = world.make("data");
    fs::write(volume.join("big"), vec![1; 100_000]).unwrap();
    world.make("other");
    let listed = world.volumes.list().unwrap();
    let names: Vec<&str> = listed.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["data", "other"]);
    assert!(
        listed[0].used_bytes >= 100_000 && !listed[0].is_larger,
        "{listed:?}"
    );
    assert!(listed[0].created_unix_secs.is_some() && listed[0].used_unix_secs.is_some());
    let used = world
        .volumes
        .remove("shop", "data", || vec!["web-default-0".into()]);
    assert!(
        matches!(&used, Err(VolumeError::InUse { users }) if users.len() == 1),
        "{used:?}"
    );
    assert!(world.volumes.has("shop", "data").unwrap());
    world.volumes.remove("shop", "data", Vec::new).unwrap();
    assert!(!world.volumes.has("shop", "data").unwrap());
    assert!(matches!(
        world.volumes.remove("shop", "data", Vec::new),
        Err(VolumeError::NotHere(_))
    ));
    let left: Vec<_> = fs::read_dir(world.dir.path().join("volumes/shop"))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 3, "the other one with its record and lock: {left:?}");
    for bad in ["..", ".data", "a/b", ""] {
        assert!(
            matches!(
                world.volumes.remove("shop", bad, Vec::new),
                Err(VolumeError::BadName(_))
            ),
            "{bad}"
        );
        assert!(
            matches!(world.volumes.make(bad, "x", None), Err(VolumeError::BadName(_))),
            "{bad}"
        );
    }
}

#[test]
fn a_size_is_held_or_refused_by_name() {
    let world = World::new();
    let made = world.volumes.make("shop", "sized", Some(1 << 20));
    match support(world.dir.path()) {
        dhow_core::spec::VolumeSupport::Sized => {
            // Who may overrule limits, as the tests may, is held to none: the container driver takes that right away.
            made.unwrap();
            assert_eq!(world.volumes.list().unwrap()[0].limit_bytes, Some(1 << 20));
            world.volumes.remove("shop", "sized", Vec::new).unwrap();
        }
        _ => {
            let why = made.unwrap_err();
            assert!(matches!(why, VolumeError::NoSizes { .. }), "{why}");
        }
    }
}
