//! Layers as they should be; `hostile` has those that an attacker would make.

mod hostile;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tar::EntryType;
use tempfile::TempDir;

use super::*;
use crate::image::test_tar::{TestTar, is_root};

/// A layer in a directory of its own, beside a file that must stay as it is.
struct Unpacked {
    dir: TempDir,
    meta: Result<LayerMeta, UnpackError>,
}

impl Unpacked {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("fs").join(name)
    }

    #[track_caller]
    fn meta(&self) -> &LayerMeta {
        self.meta.as_ref().unwrap()
    }

    #[track_caller]
    fn refusal(&self) -> EntryRefusal {
        match &self.meta {
            Err(UnpackError::Refused { why, .. }) => *why,
            other => panic!("refused, not {other:?}"),
        }
    }

    #[track_caller]
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

fn privilege() -> Privilege {
    if rustix::process::geteuid().is_root() {
        Privilege::Root
    } else {
        Privilege::BestEffort
    }
}

fn unpack_bytes(bytes: Vec<u8>, diff_id: Digest, limits: &UnpackLimits) -> Unpacked {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("outside"), "untouched").unwrap();
    let target = dir.path().join("fs");
    fs::create_dir(&target).unwrap();
    let cancelled = AtomicBool::new(false);
    let job = UnpackJob {
        limits,
        privilege: privilege(),
        diff_id,
        cancelled: &cancelled,
    };
    let meta = unpack(Box::new(Cursor::new(bytes)), &target, &job);
    assert_eq!(
        fs::read_to_string(dir.path().join("outside")).unwrap(),
        "untouched"
    );
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        2,
        "nothing was made beside the layer"
    );
    Unpacked { dir, meta }
}

fn unpacked(tar: TestTar) -> Unpacked {
    let bytes = tar.finish();
    let diff_id = Digest::of(&bytes);
    unpack_bytes(bytes, diff_id, &UnpackLimits::default())
}

#[test]
fn files_links_modes_and_times_are_kept() {
    let layer = unpacked(
        TestTar::new()
            .dir("./", 0o711)
            .dir("a/", 0o750)
            .file("a/f", "content")
            .hard_link("a/hard", "a/f")
            .symlink("a/soft", "/etc/passwd")
            .entry("a/set", EntryType::Regular, 0o4755, b"x", "")
            .entry("pipe", EntryType::Fifo, 0o600, b"", "")
            .pax("path", "long/".repeat(60).as_bytes())
            .pax("mtime", b"5.25")
            .dir("ignored", 0o700),
    );
    let meta = layer.meta();
    assert_eq!((meta.entries, meta.size_bytes), (8, 8));
    assert_eq!(meta.root.unwrap().mode, 0o711);
    assert_eq!(layer.text("a/hard"), "content");
    assert_eq!(
        fs::metadata(layer.path("a/f")).unwrap().ino(),
        fs::metadata(layer.path("a/hard")).unwrap().ino()
    );
    assert_eq!(
        fs::read_link(layer.path("a/soft")).unwrap(),
        Path::new("/etc/passwd")
    );
    let mode = |name: &str| {
        fs::symlink_metadata(layer.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!((mode("a"), mode("a/f"), mode("a/set")), (0o750, 0o644, 0o4755));
    let time = |name: &str| fs::symlink_metadata(layer.path(name)).unwrap().mtime();
    assert_eq!(
        (time("a"), time("a/f"), time("a/soft")),
        (1_000_000_000, 1_000_000_000, 1_000_000_000)
    );
    assert!(
        fs::symlink_metadata(layer.path("pipe"))
            .unwrap()
            .file_type()
            .is_fifo()
    );
    let long = fs::metadata(layer.path(&"long/".repeat(60))).unwrap();
    assert_eq!((long.mtime(), long.mtime_nsec()), (5, 250_000_000));
}

#[test]
fn owners_devices_and_attributes_are_kept_as_root() {
    if !is_root("owners_devices_and_attributes_are_kept_as_root") {
        return;
    }
    // A capability with a line end inside, which readers that split at line ends lose.
    let capability = [1, 0, 0, 2, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let layer = unpacked(
        TestTar::new()
            .header("f", EntryType::Regular, "", b"", |header| {
                header.set_uid(1000);
                header.set_gid(2000);
                header.set_mode(0o6755);
            })
            .pax("uid", b"3000000")
            .pax("SCHILY.xattr.security.capability", &capability)
            .pax("SCHILY.xattr.user.note", b"hello")
            .pax("SCHILY.xattr.trusted.overlay.redirect", b"/../../etc")
            .pax("SCHILY.xattr.user.overlay.opaque", b"y")
            .file("g", "x")
            .header("null", EntryType::Char, "", b"", |header| {
                header.set_device_major(1).unwrap();
                header.set_device_minor(3).unwrap();
            })
            .header("disk", EntryType::Block, "", b"", |header| {
                header.set_device_major(8).unwrap();
                header.set_device_minor(1).unwrap();
            }),
    );
    layer.meta();
    let f = fs::metadata(layer.path("f")).unwrap();
    assert_eq!((f.uid(), f.gid(), f.mode() & 0o7777), (1000, 2000, 0o6755));
    assert_eq!(fs::metadata(layer.path("g")).unwrap().uid(), 3_000_000);
    let xattrs = xattrs(&layer.path("g"));
    assert_eq!(
        xattrs.keys().collect::<Vec<_>>(),
        ["security.capability", "user.note"]
    );
    assert_eq!(xattrs["security.capability"], capability);
    let null = fs::metadata(layer.path("null")).unwrap();
    assert_eq!(
        (null.file_type().is_char_device(), null.rdev()),
        (true, rustix::fs::makedev(1, 3))
    );
    assert!(
        fs::metadata(layer.path("disk"))
            .unwrap()
            .file_type()
            .is_block_device()
    );
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = [0; 1024];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    let names = String::from_utf8(names[..length].to_vec()).unwrap();
    let value = |name: &str| {
        let mut value = [0; 1024];
        let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        value[..length].to_vec()
    };
    let kept = names
        .split_terminator('\0')
        .filter(|name| *name != "security.selinux");
    kept.map(|name| (name.to_owned(), value(name))).collect()
}

#[test]
fn whiteouts_become_what_overlayfs_understands() {
    let layer = unpacked(
        TestTar::new()
            .file("a/.wh.gone", "")
            .file("b/.wh..wh..opq", "")
            .file("b/.wh..wh.plnk", "")
            // Deleted below and made anew here, in both orders.
            .file(".wh.new", "")
            .dir("new/", 0o755)
            .dir("kept/", 0o755)
            .file(".wh.kept", "")
            .file(".wh.implied", "")
            .file("implied/x", "")
            .file("file", "here")
            .file(".wh.file", ""),
    );
    layer.meta();
    let is_whiteout = |name: &str| {
        let meta = fs::symlink_metadata(layer.path(name)).unwrap();
        meta.file_type().is_char_device() && meta.rdev() == 0
    };
    assert!(is_whiteout("a/gone"));
    for opaque in ["b", "new", "kept", "implied"] {
        assert!(is_opaque(&layer.path(opaque)), "{opaque}");
    }
    assert!(!is_opaque(&layer.path("a")));
    assert_eq!(fs::read_dir(layer.path("b")).unwrap().count(), 0);
    assert_eq!(layer.text("file"), "here");
    assert_eq!(layer.meta().implied_dirs, ["a", "b", "implied"]);
    assert!(!layer.meta().opaque_root);
    assert!(
        unpacked(TestTar::new().file(".wh..wh..opq", ""))
            .meta()
            .opaque_root
    );
}

#[test]
fn later_entries_replace_earlier_ones() {
    let layer = unpacked(
        TestTar::new()
            .file("a", "first")
            .file("a", "second")
            .symlink("l", "a")
            .file("l", "no longer a link")
            .file("d/deep/f", "")
            .file("d", "now a file")
            .file("e", "a file")
            .dir("e", 0o755)
            .file("self", "same")
            .hard_link("self", "self"),
    );
    layer.meta();
    assert_eq!(
        (layer.text("a"), layer.text("l")),
        ("second".into(), "no longer a link".into())
    );
    assert_eq!(
        (layer.text("d"), layer.text("self")),
        ("now a file".into(), "same".into())
    );
    assert!(layer.path("e").is_dir());
}

#[test]
fn every_compression_is_recognised() {
    let tar = TestTar::new().file("f", "content").finish();
    let gzip = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    // Some tools write a layer as several gzip members.
    let members = [gzip(&tar[..700]), gzip(&tar[700..])].concat();
    let skippable = [
        &[0x53, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9][..],
        &zstd::encode_all(&*tar, 1).unwrap(),
    ]
    .concat();
    for bytes in [
        tar.clone(),
        gzip(&tar),
        members,
        zstd::encode_all(&*tar, 3).unwrap(),
        skippable,
    ] {
        let layer = unpack_bytes(bytes, Digest::of(&tar), &UnpackLimits::default());
        assert_eq!((layer.text("f").as_str(), layer.meta().entries), ("content", 1));
    }
}

#[test]
fn damage_is_noticed() {
    let tar = TestTar::new().file("f", "content").file("g", "more");
    let bytes = tar.finish();
    let diff_id = Digest::of(&bytes);
    let default = UnpackLimits::default();
    let damage = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut damaged = bytes.clone();
        change(&mut damaged);
        unpack_bytes(damaged, diff_id, &default).meta.unwrap_err()
    };
    let wrong = |error: UnpackError| matches!(error, UnpackError::WrongDiffId { .. });
    assert!(wrong(damage(&|bytes| bytes[512] ^= 1)), "a byte of a file");
    assert!(wrong(damage(&|bytes| bytes.push(0))), "a byte behind the end");
    assert!(wrong(damage(&|bytes| bytes.clear())), "nothing at all");
    assert!(
        matches!(damage(&|bytes| bytes[0] ^= 1), UnpackError::Malformed { .. }),
        "a header"
    );
    assert!(
        matches!(
            damage(&|bytes| bytes.truncate(515)),
            UnpackError::Malformed { .. }
        ),
        "the middle of data"
    );
    assert!(
        matches!(
            damage(&|bytes| bytes.truncate(100)),
            UnpackError::Malformed { .. }
        ),
        "the first header"
    );
    let gzip = damage(&|bytes| *bytes = vec![0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(
        matches!(gzip, UnpackError::Read { .. } | UnpackError::Malformed { .. }),
        "{gzip:?}"
    );
    let dangling = TestTar::new()
        .entry("x", EntryType::XHeader, 0, b"13 path=abcd\n", "")
        .finish();
    let error = unpack_bytes(dangling, diff_id, &default).meta.unwrap_err();
    assert!(matches!(error, UnpackError::Malformed { .. }), "{error:?}");
}

#[test]
fn cancelling_stops_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let limits = UnpackLimits::default();
    let cancelled = AtomicBool::new(true);
    let job = UnpackJob {
        limits: &limits,
        privilege: privilege(),
        diff_id: Digest::of(b""),
        cancelled: &cancelled,
    };
    let bytes = TestTar::new().file("f", "x").finish();
    let ended = unpack(Box::new(Cursor::new(bytes)), dir.path(), &job);
    assert!(matches!(ended, Err(UnpackError::Cancelled)), "{ended:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_end_may_come_without_a_mark() {
    let whole = TestTar::new().dir("/", 0o755).file("f", "content").cut();
    let unpadded = whole[..512 + 512 + "content".len()].to_vec();
    for bytes in [whole, unpadded] {
        let diff_id = Digest::of(&bytes);
        let layer = unpack_bytes(bytes, diff_id, &UnpackLimits::default());
        assert_eq!((layer.text("f").as_str(), layer.meta().entries), ("content", 2));
    }
}

#[test]
fn sparse_files_keep_their_holes() {
    const SIZE: u64 = 64 << 20;
    let sparse = |change: &dyn Fn(&mut tar::GnuHeader)| {
        TestTar::new().header("s", EntryType::GNUSparse, "", &[7; 1024], |header| {
            let gnu = header.as_gnu_mut().unwrap();
            octal(&mut gnu.sparse[0].offset, 512);
            octal(&mut gnu.sparse[0].numbytes, 512);
            octal(&mut gnu.sparse[1].offset, SIZE - 512);
            octal(&mut gnu.sparse[1].numbytes, 512);
            octal(&mut gnu.realsize, SIZE);
            change(gnu);
        })
    };
    let layer = unpacked(sparse(&|_| {}).file("after", "x"));
    layer.meta();
    let meta = fs::metadata(layer.path("s")).unwrap();
    assert_eq!(meta.len(), SIZE);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    let content = fs::read(layer.path("s")).unwrap();
    assert_eq!(content.iter().filter(|byte| **byte == 7).count(), 1024);
    assert_eq!(
        (content[511], content[512], content[SIZE as usize - 1]),
        (0, 7, 7)
    );
    assert_eq!(layer.text("after"), "x");
    let overlapping = sparse(&|gnu| octal(&mut gnu.sparse[1].offset, 600));
    assert!(matches!(
        unpacked(overlapping).meta,
        Err(UnpackError::Malformed { .. })
    ));
    let beyond = sparse(&|gnu| octal(&mut gnu.realsize, 600));
    assert!(matches!(
        unpacked(beyond).meta,
        Err(UnpackError::Malformed { .. })
    ));
    let endless = (0..4_000).fold(sparse(&|gnu| gnu.isextended[0] = 1).cut(), |mut bytes, _| {
        let mut block = [0; 512];
        block[504] = 1;
        bytes.splice(512..512, block);
        bytes
    });
    let layer = unpack_bytes(endless, Digest::of(b""), &UnpackLimits::default());
    assert!(matches!(
        layer.meta,
        Err(UnpackError::TooLarge {
            kind: LimitKind::SparseParts,
            ..
        })
    ));
}

fn octal(field: &mut [u8; 12], value: u64) {
    field.copy_from_slice(format!("{value:011o}\0").as_bytes());
}
