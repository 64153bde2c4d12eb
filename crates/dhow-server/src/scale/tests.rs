//! What a desk does with requests.

mod settings;

use std::sync::Arc;

use dhow_core::assignment::{Assignment, replicas};
use dhow_core::ids::Revision;
use dhow_core::spec::{ImageSpec, ServiceSpec};
use dhow_wire::{InternalScaleRequest, ScaleAssignment};

use super::held::digest_of;
use super::*;
use crate::storage::Storage;

fn spec(image: &str) -> ServiceSpec {
    ServiceSpec {
        image: Some(ImageSpec::named(image)),
        ..ServiceSpec::default()
    }
}

struct Bench {
    dir: tempfile::TempDir,
    promised: u64,
    storage: Storage,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            promised: 0,
            storage: Storage::default(),
        }
    }

    fn desk(&self) -> ScaleDesk {
        let promised = self.promised;
        ScaleDesk::open(DeskOptions {
            path: self.dir.path().join("desk.json"),
            known_spec: Arc::new(|_| None),
            promised: Arc::new(move || promised),
            storage: self.storage.clone(),
        })
        .unwrap()
    }
}

/// The replicas and their images, by service.
fn told(update: &Assignment) -> Vec<String> {
    let services = update.services.iter().map(|(service, roles)| {
        let replicas = replicas(service, roles).map(|(name, alike)| {
            let image = alike.spec.image.as_ref().unwrap();
            format!("{}@{}={}", name.id(), name.generation, image.name)
        });
        let replicas: Vec<_> = replicas.collect();
        match replicas.is_empty() {
            true => format!("-{service}"),
            false => replicas.join(" "),
        }
    });
    services.collect()
}

#[tokio::test]
async fn a_count_means_the_default_role_and_a_changed_image_rolls() {
    let bench = Bench::new();
    let desk = bench.desk();
    let first = desk.next_update(None).await;
    assert!(first.whole && first.services.is_empty());
    let unknown = desk.take(InternalScaleRequest::new("web", 2)).await;
    assert!(matches!(unknown, Err(ScaleRefused::NoSpec { .. })));
    desk.take(InternalScaleRequest::new("web", 2).with_spec(spec("web:1")))
        .await
        .unwrap();
    let update = desk.next_update(Some(first.revision)).await;
    assert_eq!(told(&update), ["web-default-0@1=web:1 web-default-1@1=web:1"]);
    desk.take(InternalScaleRequest::new("web", 1)).await.unwrap();
    let update = desk.next_update(Some(update.revision)).await;
    assert_eq!(told(&update), ["web-default-0@1=web:1"]);
    desk.take(InternalScaleRequest::new("web", 1).with_spec(spec("web:2")))
        .await
        .unwrap();
    let update = desk.next_update(Some(update.revision)).await;
    assert_eq!(told(&update), ["web-default-0@2=web:2"]);
    desk.take(InternalScaleRequest::new("web", 0)).await.unwrap();
    let update = desk.next_update(Some(update.revision)).await;
    assert_eq!(told(&update), ["-default/web"]);
    desk.take(InternalScaleRequest::new("web", 1)).await.unwrap();
    let update = desk.next_update(Some(update.revision)).await;
    assert_eq!(told(&update), ["web-default-0@2=web:2"], "the last known spec");
}

#[tokio::test]
async fn what_was_told_survives_and_is_told_whole() {
    let bench = Bench::new();
    let request = InternalScaleRequest::new("web", 1)
        .with_spec(spec("web:1"))
        .with_epoch(4);
    bench.desk().take(request).await.unwrap();
    let desk = bench.desk();
    for last in [None, Some(Revision(77))] {
        let update = desk.next_update(last).await;
        assert!(update.whole);
        assert_eq!(told(&update), ["web-default-0@1=web:1"]);
    }
    assert_eq!(desk.listing().epoch, 4);
}

#[tokio::test]
async fn an_older_epoch_is_refused() {
    let mut bench = Bench::new();
    let request = |epoch| {
        InternalScaleRequest::new("web", 1)
            .with_spec(spec("web:1"))
            .with_epoch(epoch)
    };
    bench.desk().take(request(5)).await.unwrap();
    let late = bench.desk().take(request(4)).await;
    assert!(matches!(late, Err(ScaleRefused::OldEpoch { epoch: 4, seen: 5 })));
    bench.promised = 8;
    let late = bench.desk().take(request(7)).await;
    assert!(matches!(late, Err(ScaleRefused::OldEpoch { epoch: 7, seen: 8 })));
    bench.desk().take(request(8)).await.unwrap();
}

/// One request must not shut the real leader out.
#[tokio::test]
async fn an_epoch_far_ahead_is_refused_until_the_node_has_heard_of_it() {
    let mut bench = Bench::new();
    let request = |epoch| {
        InternalScaleRequest::new("web", 1)
            .with_spec(spec("web:1"))
            .with_epoch(epoch)
    };
    bench.desk().take(request(5)).await.unwrap();
    for epoch in [u64::MAX, 5 + (1 << 21) + 1] {
        let far = bench.desk().take(request(epoch)).await;
        assert!(
            matches!(far, Err(ScaleRefused::FarEpoch { seen: 5, .. })),
            "{far:?}"
        );
    }
    bench.desk().take(request(6)).await.unwrap();
    bench.desk().take(request(6 + (1 << 20))).await.unwrap();
    bench.promised = 1_800_000_000;
    bench.desk().take(request(1_800_000_001)).await.unwrap();
}

#[tokio::test]
async fn what_leads_sends_and_what_is_held_have_one_digest() {
    let bench = Bench::new();
    let desk = bench.desk();
    let mut request = InternalScaleRequest::with_assignments(
        "web",
        vec![
            ScaleAssignment::new("default", vec![3, 1]).with_generation(1),
            ScaleAssignment::new("default", vec![1]).with_generation(2),
        ],
    )
    .with_spec(spec("web:2"));
    request.specs.insert(1, Arc::new(spec("web:1")));
    request.specs.insert(2, Arc::new(spec("web:2")));
    desk.take(request.clone()).await.unwrap();
    assert_eq!(desk.listing().services[0].digest, digest_of(&request));
    desk.take(InternalScaleRequest::new("web", 0)).await.unwrap();
    assert_eq!(
        desk.listing().services[0].digest,
        digest_of(&InternalScaleRequest::default())
    );
}

#[tokio::test]
async fn a_damaged_desk_is_put_aside_and_ends_nothing() {
    let bench = Bench::new();
    let path = bench.dir.path().join("desk.json");
    std::fs::write(&path, "{\"epoch\":4,\"serv").unwrap();
    let desk = bench.desk();
    let aside = bench.dir.path().join("desk.json.unreadable-1");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "{\"epoch\":4,\"serv");
    let first = desk.next_update(None).await;
    assert!(!first.whole, "what was told before is not known");
    desk.take(InternalScaleRequest::new("web", 1).with_spec(spec("web:1")))
        .await
        .unwrap();
    let update = desk.next_update(Some(first.revision)).await;
    assert_eq!(told(&update), ["web-default-0@1=web:1"]);
    assert!(bench.desk().next_update(None).await.whole);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_disk_and_memory_alike() {
    let bench = Bench::new();
    let desk = bench.desk();
    let request = |replicas| InternalScaleRequest::new("web", replicas).with_spec(spec("web:1"));
    let mut taking = Box::pin(desk.take(request(1)));
    // Polled once, so that it has begun, and then dropped.
    std::future::poll_fn(|context| {
        let _ = taking.as_mut().poll(context);
        std::task::Poll::Ready(())
    })
    .await;
    drop(taking);
    // The next one waits for the one before, whoever still wants its answer.
    desk.take(InternalScaleRequest::new("api", 1).with_spec(spec("api:1")))
        .await
        .unwrap();
    let both = ["api-default-0@1=api:1", "web-default-0@1=web:1"];
    assert_eq!(told(&desk.next_update(None).await), both);
    assert_eq!(told(&bench.desk().next_update(None).await), both);
}

#[tokio::test]
async fn a_desk_whose_directory_is_gone_takes_nothing() {
    let bench = Bench::new();
    let desk = bench.desk();
    let request = || InternalScaleRequest::new("web", 1).with_spec(spec("web:1"));
    assert!(bench.storage.set_gone(true));
    let refused = desk.take(request()).await;
    assert!(matches!(refused, Err(ScaleRefused::StorageGone)), "{refused:?}");
    assert!(bench.storage.set_gone(false));
    desk.take(request()).await.unwrap();
}

#[tokio::test]
async fn a_leader_that_asks_twice_and_tells_nothing_has_confirmed_the_desk() {
    let bench = Bench::new();
    let desk = bench.desk();
    let confirmed = desk.confirmed();
    desk.listing();
    desk.take(InternalScaleRequest::new("web", 1).with_spec(spec("web:1")))
        .await
        .unwrap();
    desk.listing();
    assert!(!*confirmed.borrow(), "it had something to tell");
    desk.listing();
    assert!(*confirmed.borrow());
    assert!(!*bench.desk().confirmed().borrow(), "each start asks anew");
}
