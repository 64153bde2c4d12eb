//! What the store promises to those who share it, and after a crash.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;

use tempfile::TempDir;

use super::*;
use crate::image::config::ImageConfig;
use crate::image::test_tar::TestTar;
use crate::image::unpack::{Privilege, UnpackError, UnpackJob, UnpackLimits, unpack};

const CHILD_DIR: &str = "DHOW_TEST_STORE_CHILD";

fn opened() -> (TempDir, Arc<Store>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    (dir, Arc::new(store))
}

fn layer_bytes() -> Vec<u8> {
    (0..64)
        .fold(TestTar::new(), |tar, n| tar.file(&format!("f{n}"), "content"))
        .finish()
}

fn make(store: &Store, reader: impl Read + Send + 'static) -> Result<LayerMeta, UnpackError> {
    let root = rustix::process::geteuid().is_root();
    let job = UnpackJob {
        limits: &UnpackLimits::default(),
        privilege: if root {
            Privilege::Root
        } else {
            Privilege::BestEffort
        },
        diff_id: Digest::of(&layer_bytes()),
        cancelled: &AtomicBool::new(false),
    };
    store.make_layer(&job.diff_id, |target| unpack(Box::new(reader), target, &job))
}

fn record(layers: &[Digest]) -> ImageRecord {
    let layers = layers.iter().map(|diff_id| LayerRecord {
        diff_id: *diff_id,
        size_bytes: 1,
        opaque_root: false,
    });
    ImageRecord {
        version: RECORD_VERSION,
        manifest: Digest::of(b"m"),
        config_digest: Digest::of(b"c"),
        config: ImageConfig::default(),
        layers: layers.collect(),
        fixes: Vec::new(),
    }
}

/// Does nothing unless it is the child of the test below.
#[tokio::test]
async fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let store = Store::open(dir.as_ref()).unwrap();
    let diff_id = Digest::of(&layer_bytes());
    let _lock = store.locks.acquire(LockKind::Layer, &diff_id).await.unwrap();
    let lease = Arc::new(store).lease();
    lease.protect([diff_id]).unwrap();
    let store = Store::open(dir.as_ref()).unwrap();
    // Half of the layer, then a word to the parent, then nothing for ever.
    let bytes = layer_bytes();
    let half = std::io::Cursor::new(bytes[..bytes.len() / 2].to_vec());
    let _ = make(&store, half.chain(Stuck));
}

/// Says that all before it was read, and never gives anything.
struct Stuck;

impl Read for Stuck {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        println!("half unpacked");
        // The parent keeps the other end open and writes nothing.
        std::io::stdin().read(&mut [0])
    }
}

struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn killed_in_the_middle_of_a_layer() {
    let (dir, store) = opened();
    drop(store);
    let root = dir.path().join("store");
    let spawned = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "image::store::tests::child", "--nocapture"])
        .env(CHILD_DIR, &root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = ChildGuard(spawned.unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("half unpacked")));
    let sessions = |dir: &Path| fs::read_dir(dir.join("sessions")).unwrap().count();
    let live = Store::open(&root).unwrap();
    let diff_id = Digest::of(&layer_bytes());
    assert!(
        live.leased().unwrap().contains(&diff_id),
        "a live process's lease holds"
    );
    assert!(live.layer_meta(&diff_id).unwrap().is_none());
    assert_eq!(
        sessions(&root),
        6,
        "two of the child, one of ours, each a directory and a lock"
    );
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert!(
        live.leased().unwrap().is_empty(),
        "a dead process's lease does not"
    );
    drop(live);
    let store = Store::open(&root).unwrap();
    assert_eq!(sessions(&root), 2, "only ours is left");
    // The lock that died with the child is free, and the layer is made from the beginning.
    let lock = store.locks.acquire(LockKind::Layer, &diff_id).await.unwrap();
    assert_eq!(
        make(&store, std::io::Cursor::new(layer_bytes())).unwrap().entries,
        64
    );
    drop(lock);
    assert_eq!(fs::read_dir(store.layer_fs(&diff_id)).unwrap().count(), 64);
    assert_eq!(fs::read_dir(root.join("locks")).unwrap().count(), 0);
}

#[test]
fn a_layer_that_fails_leaves_nothing() {
    let (dir, store) = opened();
    let bytes = layer_bytes();
    let half = std::io::Cursor::new(bytes[..bytes.len() / 2].to_vec());
    assert!(matches!(
        make(&store, half),
        Err(UnpackError::Malformed { .. } | UnpackError::WrongDiffId { .. })
    ));
    assert_eq!(fs::read_dir(store.tmp_dir()).unwrap().count(), 0);
    assert!(store.layers().unwrap().is_empty());
    drop(store);
    assert_eq!(
        fs::read_dir(dir.path().join("store/sessions")).unwrap().count(),
        0,
        "closing tidies up"
    );
}

#[test]
fn layers_of_an_earlier_boot_count_only_with_a_record() {
    let (_dir, store) = opened();
    let diff_id = Digest::of(&layer_bytes());
    make(&store, std::io::Cursor::new(layer_bytes())).unwrap();
    assert!(store.sound_layer(&diff_id).unwrap().is_some());
    let mut later = Store::open(store.dirs.index().parent().unwrap()).unwrap();
    later.boot = "another boot".to_owned();
    assert!(
        later.sound_layer(&diff_id).unwrap().is_none(),
        "nothing says that it was synced"
    );
    // Making it again replaces what may be spoiled.
    fs::write(store.layer_fs(&diff_id).join("f0"), "spoiled").unwrap();
    make(&later, std::io::Cursor::new(layer_bytes())).unwrap();
    assert_eq!(
        fs::read_to_string(store.layer_fs(&diff_id).join("f0")).unwrap(),
        "content"
    );
    assert!(store.sound_layer(&diff_id).unwrap().is_none());
    later
        .write_record(&Digest::of(b"image"), &record(&[diff_id]))
        .unwrap();
    assert!(
        store.sound_layer(&diff_id).unwrap().is_some(),
        "a record vouches for it"
    );
    fs::write(store.layer_dir(&diff_id).join(LAYER_META), "").unwrap();
    assert!(
        store.sound_layer(&diff_id).unwrap().is_none(),
        "an empty file is what a power cut leaves"
    );
}

#[test]
fn blobs_are_checked_whenever_they_are_read() {
    let (_dir, store) = opened();
    let digest = Digest::of(b"blob");
    assert_eq!(store.read_blob(&digest).unwrap(), None);
    store.write_blob(&digest, b"blob").unwrap();
    assert_eq!(
        store.read_blob(&digest).unwrap().as_deref(),
        Some(b"blob".as_slice())
    );
    fs::write(store.blob_path(&digest), b"spoiled").unwrap();
    assert_eq!(store.read_blob(&digest).unwrap(), None);
}

#[test]
fn the_index_survives_many_writers() {
    let (dir, store) = opened();
    let reference = |n: usize| format!("app{n}:1").parse().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let root = dir.path().join("store");
            scope.spawn(move || {
                let store = Store::open(&root).unwrap();
                for n in 0..8 {
                    let (reference, digest) = (reference(writer * 8 + n), Digest::of(&[n as u8]));
                    store
                        .change_references(|index| index.set(&reference, digest))
                        .unwrap();
                }
            });
        }
    });
    let index = store.references().unwrap();
    assert!((0..32).all(|n| index.get(&reference(n)) == Some(Digest::of(&[(n % 8) as u8]))));
    store
        .change_references(|index| index.remove_image(&Digest::of(&[3])))
        .unwrap();
    assert_eq!(store.references().unwrap().of_image(&Digest::of(&[3])), []);
    assert_eq!(store.references().unwrap().of_image(&Digest::of(&[4])).len(), 4);
}

#[test]
fn a_damaged_index_is_named() {
    let (dir, store) = opened();
    let path = dir.path().join("store/index.json");
    fs::write(&path, "{").unwrap();
    let error = store.references().unwrap_err();
    assert!(
        matches!(&error, StoreError::Damaged { path: named, .. } if named.ends_with("index.json")),
        "{error:?}"
    );
}

#[test]
fn nobody_else_can_enter() {
    let (dir, _store) = opened();
    let mode = fs::metadata(dir.path().join("store"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn stacks_are_cut_at_opaque_roots_and_repeats() {
    let layers = [b"a", b"b", b"c"].map(|bytes| Digest::of(bytes));
    let [a, b, c] = layers;
    assert_eq!(record(&[a, b, c]).stack(), [c, b, a]);
    assert_eq!(record(&[a, b, a, c]).stack(), [c, a, b]);
    let mut cut = record(&[a, b, c]);
    cut.layers[1].opaque_root = true;
    assert_eq!(cut.stack(), [c, b]);
    assert_eq!(record(&[a, b, a]).size_bytes(), 2, "a repeated layer counts once");
}

#[tokio::test]
async fn locks_of_one_digest_exclude_and_of_others_do_not() {
    let (_dir, store) = opened();
    let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
    let held = store.locks.acquire(LockKind::Layer, &a).await.unwrap();
    let _other = store.locks.acquire(LockKind::Layer, &b).await.unwrap();
    let _kind = store.locks.acquire(LockKind::Blob, &a).await.unwrap();
    let again = store.locks.acquire(LockKind::Layer, &a);
    tokio::pin!(again);
    let polled =
        std::future::poll_fn(|context| std::task::Poll::Ready(again.as_mut().poll(context).is_ready()));
    assert!(!polled.await);
    drop(held);
    again.await.unwrap();
}
