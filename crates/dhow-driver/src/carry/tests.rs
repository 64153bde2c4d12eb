//! What is packed comes out as it was, and a hostile stream stays below its folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tar::{Builder, EntryType, Header};

use super::*;

fn packed(path: &Path) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut left_out = |what: &str| panic!("{what} is left out");
    pack(path, &mut stream, &mut left_out).unwrap();
    stream
}

#[test]
fn a_tree_comes_out_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("site");
    fs::create_dir_all(from.join("deep/er")).unwrap();
    fs::write(from.join("index"), "hello").unwrap();
    fs::write(from.join("deep/er/run"), vec![7; 200_000]).unwrap();
    fs::set_permissions(from.join("deep/er/run"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(from.join("deep"), fs::Permissions::from_mode(0o555)).unwrap();
    symlink("/etc/passwd", from.join("out")).unwrap();
    let long = "l".repeat(180);
    fs::write(from.join(&long), "long").unwrap();

    // Under its own name into a folder, under a new one where there is nothing, and its content alone.
    let into = dir.path().join("into");
    fs::create_dir(&into).unwrap();
    let done = unpack(&into, &mut packed(&from).as_slice()).unwrap();
    assert_eq!((done.files, done.bytes), (4, 200_009));
    unpack(&dir.path().join("other"), &mut packed(&from).as_slice()).unwrap();
    let content = dir.path().join("site/.");
    unpack(&dir.path().join("content"), &mut packed(&content).as_slice()).unwrap();
    for place in ["into/site", "other", "content"] {
        let place = dir.path().join(place);
        assert_eq!(fs::read(place.join("index")).unwrap(), b"hello", "{place:?}");
        assert_eq!(fs::read(place.join(&long)).unwrap(), b"long");
        assert_eq!(
            fs::read_link(place.join("out")).unwrap(),
            Path::new("/etc/passwd")
        );
        let run = fs::metadata(place.join("deep/er/run")).unwrap();
        assert_eq!(
            (run.len(), run.mode() & 0o7777),
            (200_000, 0o755),
            "no right is carried"
        );
        assert_eq!(fs::metadata(place.join("deep")).unwrap().mode() & 0o777, 0o555);
    }

    // A file takes the place of a file, and of no folder.
    let index = packed(&from.join("index"));
    fs::write(dir.path().join("one"), "older").unwrap();
    unpack(&dir.path().join("one"), &mut index.as_slice()).unwrap();
    assert_eq!(fs::read(dir.path().join("one")).unwrap(), b"hello");
    let wrong = unpack(&dir.path().join("one"), &mut packed(&from).as_slice()).unwrap_err();
    assert!(matches!(wrong, CarryError::FolderOverFile(_)), "{wrong}");
    let wrong = unpack(&dir.path().join("none/"), &mut index.as_slice()).unwrap_err();
    assert!(matches!(wrong, CarryError::NoFolder(_)), "{wrong}");
    assert!(pack(&from.join("absent"), &mut Vec::new(), &mut |_| {}).is_err());
}

/// An entry whose names nobody has looked at.
fn raw(builder: &mut Builder<Vec<u8>>, kind: EntryType, name: &str, link: &str, data: &[u8]) {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    builder.append(&header, data).unwrap();
}

#[test]
fn a_hostile_stream_writes_nothing_outside() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    let outside_text = outside.display().to_string();
    let absolute = format!("{outside_text}/x");
    let cases: Vec<Vec<(EntryType, &str, &str)>> = vec![
        vec![(EntryType::Regular, "../outside/x", "")],
        vec![(EntryType::Regular, "a/../../outside/x", "")],
        vec![(EntryType::Regular, &absolute, "")],
        vec![
            (EntryType::Symlink, "a", &outside_text),
            (EntryType::Regular, "a/x", ""),
        ],
        vec![
            (EntryType::Symlink, "a", "../outside"),
            (EntryType::Directory, "a/x", ""),
        ],
        vec![
            (EntryType::Directory, "d", ""),
            (EntryType::Link, "d/hard", "../outside/kept"),
        ],
        vec![
            (EntryType::Symlink, "a", &outside_text),
            (EntryType::Link, "hard", "a/kept"),
        ],
        vec![(EntryType::Char, "device", "")],
    ];
    for (number, entries) in cases.iter().enumerate() {
        let target = dir.path().join(format!("target{number}"));
        fs::create_dir(&target).unwrap();
        let mut builder = Builder::new(Vec::new());
        for (kind, name, link) in entries {
            let data: &[u8] = if *kind == EntryType::Regular {
                b"hostile"
            } else {
                b""
            };
            raw(&mut builder, *kind, name, link, data);
        }
        let stream = builder.into_inner().unwrap();
        let refused = unpack(&target, &mut stream.as_slice());
        assert!(refused.is_err(), "case {number} is taken");
        let found: Vec<_> = fs::read_dir(&outside)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        assert_eq!(found, ["kept"], "case {number}");
        assert!(!target.join("hard").exists() && !target.join("d/hard").exists());
    }
    // A link at the place of a file is replaced, and what it leads to stays.
    let target = dir.path().join("target");
    fs::create_dir(&target).unwrap();
    symlink(outside.join("kept"), target.join("x")).unwrap();
    let mut builder = Builder::new(Vec::new());
    raw(&mut builder, EntryType::Regular, "x", "", b"new");
    unpack(&target, &mut builder.into_inner().unwrap().as_slice()).unwrap();
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
    assert_eq!(fs::read(target.join("x")).unwrap(), b"new");
}

/// Other writers put names before an entry in records; and a name has an end.
#[test]
fn names_of_other_writers_are_read_and_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let named = |records: &[u8]| {
        let mut builder = Builder::new(Vec::new());
        raw(&mut builder, EntryType::XHeader, "x", "", records);
        raw(&mut builder, EntryType::Regular, "short", "", b"data");
        builder.into_inner().unwrap()
    };
    let into = dir.path().join("into");
    fs::create_dir(&into).unwrap();
    unpack(
        &into,
        &mut named(b"18 path=other/name\n30 mtime=1700000000.123456789\n").as_slice(),
    )
    .unwrap_err();
    unpack(&into, &mut named(b"19 path=other/name\n").as_slice()).unwrap();
    assert_eq!(fs::read(into.join("other/name")).unwrap(), b"data");
    let refused = unpack(&into, &mut named(b"14 path=../ab\n").as_slice());
    assert!(matches!(refused, Err(CarryError::Outside(_))), "{refused:?}");
    let mut builder = Builder::new(Vec::new());
    raw(
        &mut builder,
        EntryType::GNULongName,
        "x",
        "",
        &vec![b'a'; 1 << 20],
    );
    let refused = unpack(&into, &mut builder.into_inner().unwrap().as_slice());
    assert!(matches!(refused, Err(CarryError::Stream(_))), "{refused:?}");
}

#[test]
fn a_stream_that_is_cut_off_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), vec![1; 100_000]).unwrap();
    let stream = packed(&dir.path().join("file"));
    let into = dir.path().join("copy");
    assert!(unpack(&into, &mut stream[..60_000].as_ref()).is_err());
    assert!(matches!(unpack(&into, &mut [].as_ref()), Err(CarryError::Empty)));
}
