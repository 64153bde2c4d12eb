//! What a desk does with requests.

mod settings;

use std::sync::Arc;

use dhow_core::assignment::replicas;
use dhow_core::spec::{ImageSpec, ServiceSpec};
use dhow_wire::{InternalScaleRequest, ScaleAssignment};

use super::held::digest_of;
use super::*;
use crate::plane::storage::Storage;

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

/// The replicas that are in force and their images, by service, where the cluster knows none of them.
fn told(desk: &ScaleDesk) -> Vec<String> {
    let in_force = desk.by_hand(|_| false);
    let services = in_force.iter().map(|(service, roles)| {
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
    let unknown = desk.take(InternalScaleRequest::new("web", 2)).await;
    assert!(matches!(unknown, Err(ScaleRefused::NoSpec { .. })));
    desk.take(InternalScaleRequest::new("web", 2).with_spec(spec("web:1")))
        .await
        .unwrap();
    assert_eq!(told(&desk), ["web-default-0@1=web:1 web-default-1@1=web:1"]);
    desk.take(InternalScaleRequest::new("web", 1)).await.unwrap();
    assert_eq!(told(&desk), ["web-default-0@1=web:1"]);
    desk.take(InternalScaleRequest::new("web", 1).with_spec(spec("web:2")))
        .await
        .unwrap();
    assert_eq!(told(&desk), ["web-default-0@2=web:2"]);
    desk.take(InternalScaleRequest::new("web", 0)).await.unwrap();
    assert_eq!(told(&desk), ["-default/web"]);
    desk.take(InternalScaleRequest::new("web", 1)).await.unwrap();
    assert_eq!(told(&desk), ["web-default-0@2=web:2"], "the last known spec");
}

#[tokio::test]
async fn what_people_asked_for_survives_and_what_a_leader_asked_for_is_listed() {
    let bench = Bench::new();
    let by_hand = InternalScaleRequest::new("web", 1).with_spec(spec("web:1"));
    bench.desk().take(by_hand).await.unwrap();
    let request = InternalScaleRequest::new("api", 1).with_spec(spec("api:1"));
    let desk = bench.desk();
    desk.take(request.with_epoch(4)).await.unwrap();
    assert_eq!(told(&desk), ["api-default-0@1=api:1", "web-default-0@1=web:1"]);
    let desk = bench.desk();
    assert_eq!(told(&desk), ["web-default-0@1=web:1"]);
    assert!(desk.by_hand(|_| true).is_empty(), "the cluster knows better");
    let listing = desk.listing();
    let listed: Vec<_> = listing
        .services
        .iter()
        .map(|held| (held.service.as_str(), held.epoch))
        .collect();
    assert_eq!((listing.epoch, listing.derives), (4, true));
    assert_eq!(listed, [("api", Some(4)), ("web", None)]);
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
async fn a_damaged_desk_is_put_aside_and_begins_anew() {
    let bench = Bench::new();
    let path = bench.dir.path().join("desk.json");
    std::fs::write(&path, "{\"epoch\":4,\"serv").unwrap();
    let desk = bench.desk();
    let aside = bench.dir.path().join("desk.json.unreadable-1");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "{\"epoch\":4,\"serv");
    assert!(told(&desk).is_empty());
    desk.take(InternalScaleRequest::new("web", 1).with_spec(spec("web:1")))
        .await
        .unwrap();
    assert_eq!(told(&bench.desk()), ["web-default-0@1=web:1"]);
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
    assert_eq!(told(&desk), both);
    assert_eq!(told(&bench.desk()), both);
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
