//! Removing what is not needed, and nothing else.

use std::collections::BTreeSet;
use std::time::Duration;

use dhow_driver::image::{Digest, ImageError, Images, PruneOptions, PullProgress};
use tokio::task::JoinSet;

use super::builder::{Compression, TestImage, large_layer, layer, write_layout};
use super::registry::{Fault, TestRegistry, hold};
use super::support::{TestStore, content, parse, pull};

fn keeping(in_use: &[Digest]) -> PruneOptions {
    PruneOptions {
        in_use: in_use.iter().copied().collect(),
        unused_for: Duration::ZERO,
    }
}

fn image(base: &str, top: &str) -> TestImage {
    TestImage::new(vec![
        layer(&[("base", base)], Compression::Gzip),
        layer(&[("top", top)], Compression::Gzip),
    ])
}

/// A store with images imported from a layout beside it.
async fn filled(images: &[(&str, &TestImage)]) -> (TestStore, Images, impl Fn(&str) -> String + use<>) {
    let store = TestStore::new();
    let dir = store.dir.path().join("layout");
    write_layout(&dir, images);
    let reference = move |tag: &str| format!("oci:{}:{tag}", dir.display());
    let opened = store.open();
    for (tag, _) in images {
        pull(&opened, &reference(tag)).await.unwrap();
    }
    (store, opened, reference)
}

#[tokio::test]
async fn what_is_in_use_stays_with_all_it_needs() {
    let (one, two, three) = (image("shared", "1"), image("shared", "2"), image("own", "3"));
    let (store, images, reference) = filled(&[("1", &one), ("2", &two), ("3", &three)]).await;
    let listed = images.list().await.unwrap();
    assert_eq!(listed.len(), 3);
    assert!(
        listed
            .iter()
            .all(|image| image.references.len() == 1 && image.layers == 2 && image.size_bytes > 3)
    );
    let report = images.prune(&keeping(&[two.digest()])).await.unwrap();
    assert_eq!(
        report.images.iter().collect::<BTreeSet<_>>(),
        BTreeSet::from([&one.digest(), &three.digest()])
    );
    assert_eq!((report.layers, report.blobs), (3, 4));
    assert!(report.freed_bytes > 0);
    let kept = images.find(&parse(&reference("2"))).await.unwrap().unwrap();
    assert_eq!(content(&kept, "base").as_deref(), Some("shared"));
    assert!(images.find(&parse(&reference("1"))).await.unwrap().is_none());
    drop(kept);
    let report = images.prune(&keeping(&[])).await.unwrap();
    assert_eq!((report.images.len(), report.layers, report.blobs), (1, 2, 2));
    for dir in ["layers/sha256", "blobs/sha256", "images/sha256"] {
        assert!(store.names(dir).is_empty(), "{dir}");
    }
    store.assert_tidy();
}

#[tokio::test]
async fn what_somebody_holds_or_used_lately_stays() {
    let one = image("base", "1");
    let (_store, images, reference) = filled(&[("1", &one)]).await;
    let held = images.find(&parse(&reference("1"))).await.unwrap().unwrap();
    assert_eq!(images.prune(&keeping(&[])).await.unwrap().images, []);
    assert_eq!(content(&held, "top").as_deref(), Some("1"));
    drop(held);
    let lately = PruneOptions {
        unused_for: Duration::from_secs(3600),
        ..PruneOptions::default()
    };
    assert_eq!(images.prune(&lately).await.unwrap().images, []);
    assert_eq!(images.prune(&keeping(&[])).await.unwrap().images, [one.digest()]);
}

#[tokio::test]
async fn removing_by_name() {
    let (one, two) = (image("shared", "1"), image("shared", "2"));
    let (store, images, reference) = filled(&[("a", &one), ("b", &one), ("c", &two)]).await;
    let nobody = BTreeSet::new();
    // One of two names: only the name goes, even while the image is in use.
    let report = images
        .remove(&parse(&reference("a")), &BTreeSet::from([one.digest()]))
        .await
        .unwrap();
    assert_eq!(report.images, []);
    let error = images
        .remove(&parse(&reference("b")), &BTreeSet::from([one.digest()]))
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::InUse { .. }), "{error:?}");
    let held = images.find(&parse(&reference("b"))).await.unwrap().unwrap();
    let error = images.remove(&parse(&reference("b")), &nobody).await.unwrap_err();
    assert!(matches!(error, ImageError::InUse { .. }), "{error:?}");
    drop(held);
    let report = images.remove(&parse(&reference("b")), &nobody).await.unwrap();
    assert_eq!(
        (report.images, report.layers),
        (vec![one.digest()], 1),
        "the shared layer stays"
    );
    let error = images.remove(&parse(&reference("b")), &nobody).await.unwrap_err();
    assert!(matches!(error, ImageError::NotHere { .. }), "{error:?}");
    images
        .remove(&parse(&reference("c")).pinned(two.digest()), &nobody)
        .await
        .unwrap();
    assert!(store.names("layers/sha256").is_empty());
    assert!(images.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_pull_under_way_loses_nothing() {
    let registry = TestRegistry::start().await;
    let slow = large_layer("slow", 100_000);
    let image = TestImage::new(vec![layer(&[("done", "early")], Compression::Gzip), slow.clone()]);
    let reference = registry.push("app", "1", &image);
    let (hold, mut holder) = hold();
    registry.fault(slow.digest(), Fault::HoldAfter(1_000, hold), 1);
    let store = TestStore::new();
    let images = store.open();
    let started = images.pull(&parse(&reference));
    holder.reached.recv().await.unwrap();
    started
        .progress()
        .wait_for(|progress: &PullProgress| progress.layers_done == 1)
        .await
        .unwrap();
    // Another process prunes: it knows of the pull only by what it finds in the store.
    let report = store.open().prune(&keeping(&[])).await.unwrap();
    assert_eq!((report.layers, report.blobs), (0, 0));
    holder.lift();
    let pulled = started.wait().await.unwrap();
    assert_eq!(content(&pulled, "done").as_deref(), Some("early"));
    for (digest, _) in image.blobs() {
        assert_eq!(registry.requests(digest).len(), 1, "{digest}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_and_prunes_at_the_same_time() {
    let rounds = if std::env::var_os("DHOW_TEST_LONG").is_some() {
        400
    } else {
        10
    };
    let all: Vec<_> = (0..4)
        .map(|number| image("shared", &number.to_string()))
        .collect();
    let tagged: Vec<_> = all
        .iter()
        .enumerate()
        .map(|(number, image)| (number.to_string(), image))
        .collect();
    let tagged: Vec<_> = tagged.iter().map(|(tag, image)| (tag.as_str(), *image)).collect();
    let (store, images, reference) = filled(&tagged).await;
    let other = store.open();
    let mut tasks = JoinSet::new();
    for number in 0..all.len() {
        let (images, reference) = (images.clone(), reference(&number.to_string()));
        tasks.spawn(async move {
            for _ in 0..rounds {
                let image = pull(&images, &reference).await.unwrap();
                // Whatever the others remove, an image in hand is whole.
                assert_eq!(content(&image, "base").as_deref(), Some("shared"));
                assert_eq!(content(&image, "top"), Some(number.to_string()));
            }
        });
    }
    tasks.spawn(async move {
        for _ in 0..rounds * 4 {
            other.prune(&keeping(&[])).await.unwrap();
        }
    });
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    images.prune(&keeping(&[])).await.unwrap();
    assert!(store.names("layers/sha256").is_empty());
    store.assert_tidy();
}
