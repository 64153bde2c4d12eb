//! Layers as an attacker would make them.

use std::fs;
use std::io::{Cursor, Write};
use std::sync::atomic::AtomicBool;

use tar::EntryType;

use super::super::tree::Resolver;
use super::super::*;
use super::{privilege, unpack_bytes, unpacked};
use crate::image::test_tar::TestTar;

#[track_caller]
fn refused(tar: TestTar, why: EntryRefusal) {
    assert_eq!(unpacked(tar).refusal(), why);
}

fn tar() -> TestTar {
    TestTar::new()
}

#[test]
fn paths_that_lead_out_are_refused() {
    refused(tar().file("../outside", "x"), EntryRefusal::ParentComponent);
    refused(tar().file("a/../../outside", "x"), EntryRefusal::ParentComponent);
    refused(tar().file("/outside", "x"), EntryRefusal::AbsolutePath);
    refused(
        tar().pax("path", b"../outside").file("a", "x"),
        EntryRefusal::ParentComponent,
    );
    refused(tar().pax("path", b"a\0b").file("a", "x"), EntryRefusal::NulByte);
    refused(tar().file("./", "x"), EntryRefusal::RootNotDirectory);
    refused(tar().symlink(".", "/"), EntryRefusal::RootNotDirectory);
}

#[test]
fn links_that_lead_out_are_refused() {
    refused(
        tar().symlink("up", "..").file("up/outside", "x"),
        EntryRefusal::ThroughLink,
    );
    refused(
        tar().symlink("up", "/").file("up/outside", "x"),
        EntryRefusal::ThroughLink,
    );
    let twice = tar().symlink("up", "..").symlink("via", "up");
    refused(twice.dir("via/x", 0o755), EntryRefusal::ThroughLink);
    refused(
        tar().symlink("up", "..").file("up/.wh.outside", ""),
        EntryRefusal::ThroughLink,
    );
    refused(
        tar().symlink("up", "..").file("up/.wh..wh..opq", ""),
        EntryRefusal::ThroughLink,
    );
    refused(
        tar().symlink("loop", "loop").file("loop/x", ""),
        EntryRefusal::ThroughLink,
    );
    refused(
        tar().symlink("no", "where").file("no/x", ""),
        EntryRefusal::ParentNotDirectory,
    );
    refused(
        tar().file("f", "").file("f/x", ""),
        EntryRefusal::ParentNotDirectory,
    );
}

#[test]
fn hard_links_that_lead_out_or_nowhere_are_refused() {
    refused(tar().hard_link("h", "../outside"), EntryRefusal::HardLinkOutside);
    refused(tar().hard_link("h", "/outside"), EntryRefusal::HardLinkOutside);
    refused(
        tar().symlink("up", "..").hard_link("h", "up/outside"),
        EntryRefusal::HardLinkOutside,
    );
    refused(tar().hard_link("h", "missing"), EntryRefusal::HardLinkMissing);
    refused(
        tar().dir("d", 0o755).hard_link("h", "d"),
        EntryRefusal::HardLinkToDirectory,
    );
    refused(tar().hard_link("h", "."), EntryRefusal::HardLinkToDirectory);
}

#[test]
fn links_cannot_be_used_to_nest_without_end() {
    let nested = |from: &str| format!("{from}/{}", ["d"; 100].join("/")).into_bytes();
    let dir = |tar: TestTar, from: &str| tar.pax("path", &nested(from)).dir("d", 0o755);
    let link = |tar: TestTar, name: &str, to: &str| tar.pax("linkpath", &nested(to)).symlink(name, "");
    let twice = dir(link(dir(tar(), "a"), "b", "a"), "b");
    refused(dir(link(twice, "c", "b"), "c"), EntryRefusal::PathTooLong);
}

#[test]
fn entries_that_make_no_sense_are_refused() {
    refused(tar().file(".wh...", ""), EntryRefusal::WhiteoutName);
    refused(tar().file(".wh..", ""), EntryRefusal::WhiteoutName);
    refused(tar().file(".wh.", ""), EntryRefusal::WhiteoutName);
    refused(
        tar().pax("GNU.sparse.major", b"1").file("s", "x"),
        EntryRefusal::PaxSparse,
    );
    refused(
        tar().pax("uid", b"5000000000").file("s", "x"),
        EntryRefusal::OwnerOutOfRange,
    );
    refused(
        tar().entry("x", EntryType::new(b'Q'), 0, b"", ""),
        EntryRefusal::UnknownType(b'Q'),
    );
}

#[test]
fn links_are_never_written_through() {
    let layer = unpacked(
        TestTar::new()
            .symlink("l", "../outside")
            .file("l", "replaced the link"),
    );
    layer.meta();
    assert_eq!(layer.text("l"), "replaced the link");
    // A hard link to a symbolic link is another name of that link, not of what it points at.
    let layer = unpacked(
        TestTar::new()
            .symlink("l", "../outside")
            .hard_link("h", "l")
            .file("h", "new"),
    );
    layer.meta();
    assert_eq!(layer.text("h"), "new");
    // A link that stays inside may be gone through, as other tools do.
    let layer = unpacked(
        TestTar::new()
            .dir("usr/lib/", 0o755)
            .symlink("lib", "usr/lib")
            .file("lib/x", "in"),
    );
    layer.meta();
    assert_eq!(layer.text("usr/lib/x"), "in");
}

#[test]
fn without_openat2_every_link_is_refused() {
    for (tar, why) in [
        (
            TestTar::new().symlink("up", "..").file("up/outside", "x"),
            EntryRefusal::ThroughLink,
        ),
        (
            TestTar::new()
                .dir("in", 0o755)
                .symlink("l", "in")
                .file("l/x", "x"),
            EntryRefusal::ThroughLink,
        ),
        (
            TestTar::new().file("f", "").file("f/x", "x"),
            EntryRefusal::ParentNotDirectory,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let cancelled = AtomicBool::new(false);
        let limits = UnpackLimits::default();
        let job = UnpackJob {
            limits: &limits,
            privilege: privilege(),
            diff_id: Digest::of(b""),
            cancelled: &cancelled,
        };
        let mut writer = LayerWriter::open(dir.path(), &job, Purpose::Layer).unwrap();
        writer.tree_mut().set_resolver(Resolver::Walk);
        let mut archive = TarReader::new(Cursor::new(tar.file("deep/er/file", "y").finish()));
        let refused = loop {
            let entry = archive.next_entry().unwrap().unwrap();
            if let Err(error) = writer.apply(&entry, &mut archive) {
                break error;
            }
        };
        assert!(
            matches!(refused, UnpackError::Refused { why: found, .. } if found == why),
            "{refused:?}"
        );
        let entry = archive.next_entry().unwrap().unwrap();
        writer.apply(&entry, &mut archive).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("deep/er/file")).unwrap(), "y");
    }
}

#[test]
fn limits_hold() {
    let limited = |tar: TestTar, max_entries: u64, max_layer_bytes: u64| {
        let bytes = tar.finish();
        let diff_id = Digest::of(&bytes);
        match unpack_bytes(
            bytes,
            diff_id,
            &UnpackLimits {
                max_entries,
                max_layer_bytes,
            },
        )
        .meta
        {
            Err(UnpackError::TooLarge { kind, .. }) => kind,
            other => panic!("too large, not {other:?}"),
        }
    };
    let many = |count: usize| (0..count).fold(TestTar::new(), |tar, n| tar.file(&format!("f{n}"), ""));
    assert_eq!(limited(many(11), 10, 1 << 20), LimitKind::Entries);
    assert_eq!(limited(many(11), 100, 4_096), LimitKind::Bytes);
    // A size that is declared and never sent.
    let huge = TestTar::new().header("f", EntryType::Regular, "", b"", |header| {
        header.set_size(1 << 40)
    });
    assert_eq!(limited(huge, 10, 1 << 30), LimitKind::Bytes);
    let huge = TestTar::new().header("f", EntryType::XHeader, "", b"", |header| {
        header.set_size(1 << 40)
    });
    assert_eq!(limited(huge, 10, 1 << 30), LimitKind::ExtensionBytes);
    let huge = TestTar::new().header("f", EntryType::GNULongName, "", b"", |header| {
        header.set_size(2 << 20)
    });
    assert_eq!(limited(huge, 10, 1 << 30), LimitKind::ExtensionBytes);
}

#[test]
fn a_small_download_cannot_fill_the_disk() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let header = TestTar::new()
        .header("bomb", EntryType::Regular, "", b"", |header| {
            header.set_size(8 << 20)
        })
        .cut();
    gzip.write_all(&header).unwrap();
    gzip.write_all(&vec![0; 8 << 20]).unwrap();
    let bytes = gzip.finish().unwrap();
    assert!(bytes.len() < 32 << 10);
    let limits = UnpackLimits {
        max_layer_bytes: 1 << 20,
        ..UnpackLimits::default()
    };
    let layer = unpack_bytes(bytes, Digest::of(b""), &limits);
    assert!(matches!(
        layer.meta,
        Err(UnpackError::TooLarge {
            kind: LimitKind::Bytes,
            ..
        })
    ));
}

/// Layers that are damaged in many ways: each ends with a layer or with an error, and never outside of it.
#[test]
fn damaged_layers_end_with_an_error_and_never_a_panic() {
    let rounds = if std::env::var_os("DHOW_TEST_LONG").is_some() {
        5_000
    } else {
        300
    };
    let whole = tar()
        .dir("a/", 0o755)
        .file("a/file", &"content ".repeat(100))
        .symlink("a/link", "../a")
        .hard_link("a/hard", "a/file")
        .file("a/.wh.gone", "")
        .file("a/.wh..wh..opq", "")
        .pax("path", "p".repeat(150).as_bytes())
        .pax("SCHILY.xattr.user.x", b"value")
        .file("short", "x")
        .entry("long", EntryType::GNULongName, 0, "n".repeat(150).as_bytes(), "")
        .file("short", "y")
        .header("sparse", EntryType::GNUSparse, "", &[7; 512], |header| {
            let gnu = header.as_gnu_mut().unwrap();
            super::octal(&mut gnu.sparse[0].offset, 512);
            super::octal(&mut gnu.sparse[0].numbytes, 512);
            super::octal(&mut gnu.realsize, 4_096);
        })
        .finish();
    let limits = UnpackLimits {
        max_entries: 100,
        max_layer_bytes: 1 << 20,
    };
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    for _ in 0..rounds {
        let mut bytes = whole.clone();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            bytes[at] = u8::try_from(random(256)).unwrap();
        }
        bytes.truncate(bytes.len() - random(3) * random(600));
        // Checksums are mended, so that the damage is looked at and not only noticed.
        for header in bytes
            .chunks_exact_mut(512)
            .filter(|block| block[257..262] == *b"ustar")
        {
            header[148..156].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let diff_id = Digest::of(&bytes);
        // The helper checks that nothing was made or changed beside the layer.
        let _ = unpack_bytes(bytes, diff_id, &limits).meta;
    }
}
