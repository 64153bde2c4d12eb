//! Mounting, which needs root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use dhow_driver::image::{Image, Rootfs, RootfsError, RootfsOptions};

use super::builder::{Compression, TestImage, TestLayer, layer, packed, write_layout};
use super::support::{TestStore, is_root, pull};

const WRITABLE: RootfsOptions = RootfsOptions { read_only: false };
const READ_ONLY: RootfsOptions = RootfsOptions { read_only: true };

async fn imported(store: &TestStore, layers: Vec<TestLayer>) -> Image {
    let image = TestImage::new(layers);
    let dir = store.dir.path().join("layout");
    write_layout(&dir, &[("1", &image)]);
    pull(&store.open(), &format!("oci:{}:1", dir.display()))
        .await
        .unwrap()
}

/// Removes what was mounted even if the test fails in between.
struct Mounted(Option<Rootfs>);

impl Mounted {
    fn at(image: &Image, dir: &Path, options: RootfsOptions) -> Self {
        Self(Some(Rootfs::mount(image, dir, options).unwrap()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.as_ref().unwrap().path().join(name)
    }

    #[track_caller]
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(dir)).unwrap();
        let mut names: Vec<_> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(rootfs) = self.0.take() {
            Rootfs::clear(rootfs.path().parent().unwrap()).unwrap();
        }
    }
}

#[tokio::test]
async fn layers_are_stacked_and_writes_stay_with_the_replica() {
    if !is_root("layers_are_stacked_and_writes_stay_with_the_replica") {
        return;
    }
    let store = TestStore::new();
    let image = imported(
        &store,
        vec![
            layer(
                &[
                    ("d/", ""),
                    ("d/a", "1"),
                    ("d/b", "2"),
                    ("e/", ""),
                    ("e/x", "3"),
                    ("f", "4"),
                ],
                Compression::Gzip,
            ),
            layer(
                &[
                    ("d/", ""),
                    ("d/.wh.a", ""),
                    ("e/", ""),
                    ("e/.wh..wh..opq", ""),
                    ("e/y", "5"),
                ],
                Compression::Gzip,
            ),
            layer(&[("f", "6"), ("d/", ""), ("d/b", "7")], Compression::Zstd),
        ],
    )
    .await;
    let (one, two) = (store.dir.path().join("one"), store.dir.path().join("two"));
    let first = Mounted::at(&image, &one, WRITABLE);
    let second = Mounted::at(&image, &two, WRITABLE);
    assert_eq!(
        (first.names("d"), first.names("e")),
        (vec!["b".to_owned()], vec!["y".to_owned()])
    );
    assert_eq!((first.text("d/b"), first.text("f")), ("7".into(), "6".into()));
    fs::write(first.path("f"), "changed").unwrap();
    fs::remove_file(first.path("d/b")).unwrap();
    assert_eq!((second.text("f"), second.text("d/b")), ("6".into(), "7".into()));
    // A restarted daemon finds it, a reboot takes the mount away, what was written is there again.
    let found = Rootfs::load(&one).unwrap().unwrap();
    assert_eq!(
        (found.image(), found.is_mounted().unwrap()),
        (image.digest(), true)
    );
    found.unmount().unwrap();
    found.unmount().unwrap();
    assert!(!found.is_mounted().unwrap());
    let again = Rootfs::mount(&image, &one, WRITABLE).unwrap();
    assert_eq!(
        again,
        Rootfs::mount(&image, &one, WRITABLE).unwrap(),
        "mounting twice mounts once"
    );
    assert_eq!(first.text("f"), "changed");
    let other = imported(&store, vec![layer(&[("other", "")], Compression::Gzip)]).await;
    for (image, options) in [(&other, WRITABLE), (&image, READ_ONLY)] {
        let error = Rootfs::mount(image, &one, options).unwrap_err();
        assert!(matches!(error, RootfsError::Another { .. }), "{error:?}");
    }
    drop(first);
    assert_eq!(fs::read_dir(&one).unwrap().count(), 0, "nothing is left");
    assert!(Rootfs::load(&one).unwrap().is_none());
}

#[tokio::test]
async fn a_read_only_root_takes_no_writes() {
    if !is_root("a_read_only_root_takes_no_writes") {
        return;
    }
    let store = TestStore::new();
    let image = imported(&store, vec![layer(&[("a", "1")], Compression::Gzip)]).await;
    let mounted = Mounted::at(&image, &store.dir.path().join("replica"), READ_ONLY);
    assert_eq!(mounted.text("a"), "1");
    let refused = fs::write(mounted.path("b"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[tokio::test]
async fn many_layers_long_paths_and_strange_names() {
    if !is_root("many_layers_long_paths_and_strange_names") {
        return;
    }
    // Layers repeat, and the store lies where no option string could name it as it is.
    let outer = tempfile::tempdir().unwrap();
    let strange = outer.path().join("a:b,c\\d").join("long".repeat(50));
    fs::create_dir_all(&strange).unwrap();
    let store = TestStore {
        dir: tempfile::tempdir_in(strange).unwrap(),
    };
    let dir = store.dir.path().join("layout");
    let mut layers: Vec<_> = (0..140)
        .map(|n| {
            layer(
                &[("top", &n.to_string()), (&format!("f{n}"), "x")],
                Compression::None,
            )
        })
        .collect();
    layers.push(layers[7].clone());
    let image = TestImage::new(layers);
    write_layout(&dir, &[("1", &image)]);
    // A path with a colon cannot be written in a reference with a tag; without one it can.
    let image = pull(&store.open(), &format!("oci:{}", dir.display()))
        .await
        .unwrap();
    for options in [WRITABLE, READ_ONLY] {
        let mounted = Mounted::at(&image, &store.dir.path().join("replica"), options);
        assert_eq!(mounted.names("").len(), 141);
        assert_eq!(mounted.text("top"), "7", "the repeated layer is on top");
    }
}

#[tokio::test]
async fn images_with_no_layers_and_with_an_opaque_root() {
    if !is_root("images_with_no_layers_and_with_an_opaque_root") {
        return;
    }
    let store = TestStore::new();
    let empty = imported(&store, vec![]).await;
    for options in [WRITABLE, READ_ONLY] {
        let mounted = Mounted::at(&empty, &store.dir.path().join("replica"), options);
        assert_eq!(mounted.names(""), Vec::<String>::new());
    }
    let hiding = imported(
        &store,
        vec![
            layer(&[("a", "1")], Compression::None),
            layer(&[(".wh..wh..opq", ""), ("b", "2")], Compression::None),
        ],
    )
    .await;
    let mounted = Mounted::at(&hiding, &store.dir.path().join("replica"), WRITABLE);
    assert_eq!(mounted.names(""), ["b"]);
}

/// A layer with full control over modes and owners.
fn detailed(entries: &[(&str, u32, u64)]) -> TestLayer {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, mode, owner) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(*mode);
        header.set_uid(*owner);
        header.set_gid(*owner);
        header.set_size(0);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        builder.append_data(&mut header, name, std::io::empty()).unwrap();
    }
    packed(builder.into_inner().unwrap(), Compression::Gzip)
}

#[tokio::test]
async fn directories_that_a_layer_only_implies_keep_their_attributes() {
    if !is_root("directories_that_a_layer_only_implies_keep_their_attributes") {
        return;
    }
    let store = TestStore::new();
    let image = imported(
        &store,
        vec![
            detailed(&[
                ("./", 0o711, 5),
                ("tmp/", 0o1777, 0),
                ("home/", 0o755, 0),
                ("home/u/", 0o700, 1000),
                ("gone/", 0o700, 9),
            ]),
            // No entries for the directories above the files.
            detailed(&[
                ("tmp/x", 0o644, 0),
                ("home/u/deep/y", 0o644, 1000),
                (".wh.gone", 0, 0),
            ]),
            detailed(&[("gone/z", 0o644, 0)]),
        ],
    )
    .await;
    for options in [WRITABLE, READ_ONLY] {
        let mounted = Mounted::at(&image, &store.dir.path().join("replica"), options);
        let attributes = |name: &str| {
            let meta = fs::metadata(mounted.path(name)).unwrap();
            (meta.permissions().mode() & 0o7777, meta.uid())
        };
        assert_eq!(attributes(""), (0o711, 5));
        assert_eq!(attributes("tmp"), (0o1777, 0));
        assert_eq!(attributes("home"), (0o755, 0));
        assert_eq!(attributes("home/u"), (0o700, 1000));
        assert_eq!(
            attributes("home/u/deep"),
            (0o755, 0),
            "nobody says anything about it"
        );
        assert_eq!(
            attributes("gone"),
            (0o755, 0),
            "what was deleted gives nothing on"
        );
        assert!(mounted.path("tmp/x").exists() && mounted.path("home/u/deep/y").exists());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_mounts_at_once_from_many_threads() {
    if !is_root("many_mounts_at_once_from_many_threads") {
        return;
    }
    let store = TestStore::new();
    let image = imported(&store, vec![layer(&[("a", "1")], Compression::Gzip)]).await;
    let before = std::env::current_dir().unwrap();
    let tasks: Vec<_> = (0..32)
        .map(|number| {
            let (image, dir) = (image.clone(), store.dir.path().join(format!("replica-{number}")));
            tokio::task::spawn_blocking(move || {
                let mounted = Mounted::at(&image, &dir, WRITABLE);
                fs::write(mounted.path("own"), number.to_string()).unwrap();
                assert_eq!(mounted.names(""), ["a", "own"]);
                assert_eq!(mounted.text("own"), number.to_string());
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(std::env::current_dir().unwrap(), before);
}

#[tokio::test]
async fn a_place_where_no_overlay_can_be_says_so() {
    if !is_root("a_place_where_no_overlay_can_be_says_so") {
        return;
    }
    let store = TestStore::new();
    let image = imported(&store, vec![layer(&[("a", "1")], Compression::Gzip)]).await;
    let outer = Mounted::at(&image, &store.dir.path().join("outer"), WRITABLE);
    // The inner one would write onto an overlay.
    let inner = outer.path("inner");
    let error = Rootfs::mount(&image, &inner, WRITABLE).unwrap_err();
    assert!(matches!(error, RootfsError::Mount { .. }), "{error:?}");
    assert!(error.to_string().contains("ext4 and xfs do"), "{error}");
}
