//! Processes that end without a word. The child is this test program, started again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use dhow_driver::image::{Images, PruneOptions};

use super::builder::{Compression, TestImage, large_layer, layer};
use super::registry::{Fault, TestRegistry, hold};
use super::support::{TestStore, content, options_for, parse, pull};

const DIR: &str = "DHOW_TEST_CHILD_DIR";
const REFERENCE: &str = "DHOW_TEST_CHILD_REFERENCE";

/// Does nothing unless it is the child of a test below.
#[tokio::test]
async fn child() {
    let (Some(dir), Ok(reference)) = (std::env::var_os(DIR), std::env::var(REFERENCE)) else {
        return;
    };
    let images = Images::open(options_for(dir.as_ref())).unwrap();
    let image = pull(&images, &reference).await.unwrap();
    println!("pulled {}", image.digest());
    // Holds the image, and with it the lease, until it is killed.
    std::future::pending::<()>().await;
}

/// Killed when dropped, whatever becomes of the test.
struct ChildGuard(Child);

impl ChildGuard {
    fn start(store: &TestStore, reference: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child", "--nocapture"])
            .env(DIR, store.path())
            .env(REFERENCE, reference)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn wait_for_line(&mut self, part: &str) {
        let stdout = BufReader::new(self.0.stdout.as_mut().unwrap());
        assert!(
            stdout.lines().any(|line| line.unwrap().contains(part)),
            "the child ended without `{part}`"
        );
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_in_the_middle_of_a_transfer() {
    let registry = TestRegistry::start().await;
    let big = large_layer("big", 400_000);
    let image = TestImage::new(vec![layer(&[("a", "1")], Compression::Gzip), big.clone()]);
    let reference = registry.push("app", "1", &image);
    let (hold, mut holder) = hold();
    registry.fault(big.digest(), Fault::HoldAfter(200_000, hold), 1);
    let store = TestStore::new();
    let child = ChildGuard::start(&store, &reference);
    holder.reached.recv().await.unwrap();
    child.kill();
    let images = store.open();
    assert_eq!(
        store.names("sessions").len(),
        2,
        "the dead session is gone, the own is there"
    );
    assert!(images.find(&parse(&reference)).await.unwrap().is_none());
    let pulled = pull(&images, &reference).await.unwrap();
    assert_eq!(
        (content(&pulled, "a").as_deref(), pulled.size_bytes()),
        (Some("1"), 400_001)
    );
    store.assert_tidy();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_the_dead_hold_nothing() {
    let registry = TestRegistry::start().await;
    let image = TestImage::new(vec![layer(&[("a", "1")], Compression::Gzip)]);
    let reference = registry.push("app", "1", &image);
    let store = TestStore::new();
    let mut child = ChildGuard::start(&store, &reference);
    child.wait_for_line("pulled");
    let images = store.open();
    assert_eq!(
        images.prune(&PruneOptions::default()).await.unwrap().images,
        [],
        "the child holds it"
    );
    child.kill();
    assert_eq!(
        images.prune(&PruneOptions::default()).await.unwrap().images,
        [image.digest()]
    );
    assert!(store.names("layers/sha256").is_empty());
}

#[tokio::test]
async fn a_transfer_is_taken_up_where_a_dead_process_left_it() {
    let registry = TestRegistry::start().await;
    let big = large_layer("big", 300_000);
    let reference = registry.push("app", "1", &TestImage::new(vec![big.clone()]));
    let store = TestStore::new();
    let images = store.open();
    let partial = store
        .path()
        .join(format!("partial/sha256-{}", big.digest().hex()));
    fs::write(&partial, &big.blob[..120_000]).unwrap();
    pull(&images, &reference).await.unwrap();
    let asked = registry.requests(big.digest());
    assert_eq!(asked.len(), 1);
    assert!(asked[0].ends_with("bytes=120000-"), "{asked:?}");
    store.assert_tidy();
}

#[tokio::test]
async fn a_spoiled_leftover_costs_one_more_transfer() {
    for leftover in [vec![7; 120_000], vec![7; 900_000]] {
        let registry = TestRegistry::start().await;
        let big = large_layer("big", 300_000);
        let reference = registry.push("app", "1", &TestImage::new(vec![big.clone()]));
        let store = TestStore::new();
        let images = store.open();
        let partial = store
            .path()
            .join(format!("partial/sha256-{}", big.digest().hex()));
        fs::write(&partial, &leftover).unwrap();
        let started = images.pull(&parse(&reference));
        let progress = started.progress();
        started.wait().await.unwrap();
        assert_eq!(progress.borrow().done_bytes, big.blob.len() as u64);
        let asked = registry.requests(big.digest());
        assert!(!asked.last().unwrap().contains("bytes="), "{asked:?}");
        store.assert_tidy();
    }
}

/// Kills a pull at every stage that the registry can see, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment() {
    let rounds = if std::env::var_os("DHOW_TEST_LONG").is_some() {
        60
    } else {
        3
    };
    let registry = TestRegistry::start().await;
    let layers: Vec<_> = (0..4)
        .map(|n| large_layer(&format!("f{n}"), 60_000 + n))
        .collect();
    let image = TestImage::new(layers.clone());
    let reference = registry.push("app", "1", &image);
    let store = TestStore::new();
    for round in 0..rounds {
        let (hold, mut holder) = hold();
        // The moment is when the registry has sent so much of one of the layers.
        let layer = &layers[round % layers.len()];
        registry.fault(
            layer.digest(),
            Fault::HoldAfter((round * 7_919) % 60_000, hold),
            1,
        );
        let child = ChildGuard::start(&store, &reference);
        holder.reached.recv().await.unwrap();
        child.kill();
        let images = store.open();
        let pulled = pull(&images, &reference).await.unwrap();
        for (number, dir) in pulled.layer_dirs().iter().rev().enumerate() {
            assert_eq!(
                fs::metadata(dir.join(format!("f{number}"))).unwrap().len(),
                60_000 + number as u64
            );
        }
        store.assert_tidy();
        drop(pulled);
        assert_eq!(images.prune(&PruneOptions::default()).await.unwrap().layers, 4);
    }
}
