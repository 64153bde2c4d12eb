//! Many at once.

use std::sync::Arc;

use dhow_driver::image::PullProgress;
use tokio::task::JoinSet;

use super::builder::{Compression, TestImage, large_layer, layer};
use super::registry::{Fault, TestRegistry, hold};
use super::support::{TestStore, content, parse, pull};

const PULLS: usize = 20;

fn image() -> TestImage {
    TestImage::new(vec![
        large_layer("big", 200_000),
        layer(&[("a", "1")], Compression::Gzip),
        layer(&[("b", "2")], Compression::Zstd),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_pulls_fetch_each_blob_once() {
    let registry = Arc::new(TestRegistry::start().await);
    let image = image();
    let tags = ["1", "2", "3", "4"].map(|tag| registry.push("app", tag, &image));
    let store = TestStore::new();
    // Two handles know nothing of each other, as two processes would not.
    let handles = [store.open(), store.open()];
    let mut pulls = JoinSet::new();
    for number in 0..PULLS {
        let images = handles[number % 2].clone();
        let reference = tags[number % tags.len()].clone();
        pulls.spawn(async move { pull(&images, &reference).await.unwrap() });
    }
    let mut pulled = Vec::new();
    while let Some(image) = pulls.join_next().await {
        pulled.push(image.unwrap());
    }
    assert_eq!(pulled.len(), PULLS);
    for (digest, _) in image.blobs() {
        assert_eq!(registry.requests(digest).len(), 1, "{digest}");
    }
    assert_eq!(
        registry
            .requests(format!("GET /v2/app/manifests/{}", image.digest()))
            .len(),
        1
    );
    for image in pulled {
        assert_eq!(
            (content(&image, "a").unwrap(), content(&image, "b").unwrap()),
            ("1".into(), "2".into())
        );
    }
    store.assert_tidy();
}

#[tokio::test]
async fn a_slow_image_holds_nobody_else_up() {
    let registry = TestRegistry::start().await;
    let slow = TestImage::new(vec![large_layer("slow", 100_000)]);
    let slow_reference = registry.push("slow", "1", &slow);
    let quick_reference = registry.push("quick", "1", &image());
    let (hold, mut holder) = hold();
    registry.fault(slow.layers[0].digest(), Fault::HoldAfter(10_000, hold), 1);
    let store = TestStore::new();
    let images = store.open();
    let waiting = images.pull(&parse(&slow_reference));
    holder.reached.recv().await.unwrap();
    pull(&images, &quick_reference).await.unwrap();
    holder.lift();
    waiting.wait().await.unwrap();
    store.assert_tidy();
}

#[tokio::test]
async fn those_who_want_the_same_share_progress_and_failure() {
    let registry = TestRegistry::start().await;
    let image = image();
    let reference = parse(&registry.push("app", "1", &image));
    let layer = image.layers[0].digest();
    let (hold, mut holder) = hold();
    registry.fault(layer, Fault::HoldAfter(10_000, hold), 1);
    registry.fault(layer, Fault::Status(500), usize::MAX);
    let store = TestStore::new();
    let images = store.open();
    let (first, second) = (images.pull(&reference), images.pull(&reference));
    holder.reached.recv().await.unwrap();
    let total: u64 = image.layers.iter().map(|layer| layer.blob.len() as u64).sum();
    let seen = |progress: &PullProgress| progress.total_bytes == total;
    first.progress().wait_for(seen).await.unwrap();
    assert_eq!(second.progress().borrow().total_bytes, total);
    // The blob is taken away in the middle: both learn it from the same attempts.
    registry.remove_blob(layer);
    drop(first);
    holder.lift();
    second.wait().await.unwrap();
    assert_eq!(registry.requests(layer).len(), 1);
}

#[tokio::test]
async fn one_failure_serves_all_who_waited_for_it() {
    let registry = TestRegistry::start().await;
    let image = image();
    let reference = parse(&registry.push("app", "1", &image));
    registry.fault(image.layers[0].digest(), Fault::Status(500), usize::MAX);
    let store = TestStore::new();
    let images = store.open();
    let waiting: Vec<_> = (0..PULLS).map(|_| images.pull(&reference)).collect();
    for pull in waiting {
        pull.wait().await.unwrap_err();
    }
    assert_eq!(
        registry.requests(image.layers[0].digest()).len(),
        3,
        "three attempts, not three for each"
    );
}

#[tokio::test]
async fn a_pull_that_nobody_wants_ends_and_can_be_taken_up_again() {
    let registry = TestRegistry::start().await;
    let image = image();
    let reference = parse(&registry.push("app", "1", &image));
    let (hold, mut holder) = hold();
    registry.fault(image.layers[0].digest(), Fault::HoldAfter(10_000, hold), 1);
    let store = TestStore::new();
    let images = store.open();
    let abandoned = images.pull(&reference);
    holder.reached.recv().await.unwrap();
    drop(abandoned);
    images.pull(&reference).wait().await.unwrap();
    store.assert_tidy();
}
