//! Pulls that succeed, some of them against resistance.

use dhow_driver::image::{ExposedPort, Platform, PortProtocol, PullPhase};
use serde_json::json;

use super::builder::{Compression, DOCKER_LIST, OCI_INDEX, TestImage, large_layer, layer, list};
use super::registry::{Fault, TestRegistry};
use super::support::{TestStore, content, parse, pull};

fn two_layers() -> TestImage {
    TestImage::new(vec![
        layer(
            &[("etc/", ""), ("etc/a", "lower"), ("etc/b", "only below")],
            Compression::Gzip,
        ),
        layer(&[("etc/", ""), ("etc/a", "upper")], Compression::Zstd),
    ])
}

#[tokio::test]
async fn an_image_is_pulled_once_and_found_again() {
    let registry = TestRegistry::start().await;
    let image = two_layers();
    let reference = registry.push("team/app", "1", &image);
    let store = TestStore::new();
    let images = store.open();
    assert!(images.find(&parse(&reference)).await.unwrap().is_none());
    let started = images.pull(&parse(&reference));
    let progress = started.progress();
    let pulled = started.wait().await.unwrap();
    let seen = *progress.borrow();
    let total: u64 = image.layers.iter().map(|layer| layer.blob.len() as u64).sum();
    assert_eq!(
        (seen.phase, seen.done_bytes, seen.total_bytes),
        (PullPhase::Complete, total, total)
    );
    assert_eq!((seen.layers_done, seen.layers_total), (2, 2));
    assert_eq!(pulled.digest(), image.digest());
    assert_eq!(content(&pulled, "etc/a").as_deref(), Some("upper"));
    assert_eq!(content(&pulled, "etc/b").as_deref(), Some("only below"));
    assert_eq!(pulled.config().cmd, ["/bin/sh"]);
    store.assert_tidy();
    let before = registry.requests("").len();
    let found = images.find(&parse(&reference)).await.unwrap().unwrap();
    assert_eq!(found.digest(), image.digest());
    assert_eq!(registry.requests("").len(), before, "finding asks nobody");
    pull(&images, &reference).await.unwrap();
    assert_eq!(
        registry.requests("/blobs/").len(),
        3,
        "two layers and a configuration, once"
    );
    drop((images, pulled, found));
    let again = store.open();
    assert_eq!(
        again.find(&parse(&reference)).await.unwrap().unwrap().digest(),
        image.digest()
    );
}

#[tokio::test]
async fn resolving_pins_one_digest_while_the_tag_moves() {
    let registry = TestRegistry::start().await;
    let old = TestImage::new(vec![layer(&[("v", "old")], Compression::Gzip)]);
    let new = TestImage::new(vec![layer(&[("v", "new")], Compression::Gzip)]);
    let reference = parse(&registry.push("app", "1", &old));
    let store = TestStore::new();
    let images = store.open();
    let digest = images.resolve(&reference).await.unwrap();
    assert_eq!(digest, old.digest());
    assert!(
        registry.requests("GET /v2/app/").is_empty(),
        "the tag alone is enough to resolve"
    );
    registry.push("app", "1", &new);
    let pinned = reference.pinned(digest);
    let pulled = images.pull(&pinned).wait().await.unwrap();
    assert_eq!(content(&pulled, "v").as_deref(), Some("old"));
    assert_eq!(images.resolve(&pinned).await.unwrap(), digest);
    let moved = images.pull(&reference).wait().await.unwrap();
    assert_eq!(content(&moved, "v").as_deref(), Some("new"));
    // A pinned image that is here needs no registry any more.
    drop(registry);
    assert_eq!(images.pull(&pinned).wait().await.unwrap().digest(), digest);
}

#[tokio::test]
async fn a_registry_that_tells_no_digest_is_asked_for_the_manifest() {
    let registry = TestRegistry::start().await;
    registry.hide_digests();
    let image = two_layers();
    let reference = parse(&registry.push("app", "1", &image));
    let store = TestStore::new();
    assert_eq!(store.open().resolve(&reference).await.unwrap(), image.digest());
}

#[tokio::test]
async fn lists_lead_to_this_platform_in_both_spellings() {
    let host = Platform::host();
    for (kind, tag) in [(OCI_INDEX, "oci"), (DOCKER_LIST, "docker")] {
        let registry = TestRegistry::start().await;
        let ours = two_layers().in_docker_form();
        let other = TestImage::new(vec![layer(&[("x", "other")], Compression::Gzip)]);
        registry.push("app", "ours", &ours);
        let bytes = list(
            kind,
            &[(&other, "linux", "s390x"), (&ours, "linux", &host.architecture)],
        );
        let reference = registry.push_manifest("app", tag, kind, &bytes);
        let store = TestStore::new();
        let images = store.open();
        let pulled = pull(&images, &reference).await.unwrap();
        assert_eq!(
            pulled.digest(),
            dhow_driver::image::Digest::of(&bytes),
            "the list is what is pinned"
        );
        assert_eq!(content(&pulled, "etc/a").as_deref(), Some("upper"));
    }
}

#[tokio::test]
async fn every_compression_and_the_configuration_arrive() {
    let registry = TestRegistry::start().await;
    let image = TestImage::with_config(
        vec![
            layer(&[("a", "1")], Compression::None),
            layer(&[("b", "2")], Compression::Gzip),
            layer(&[("c", "3")], Compression::Zstd),
        ],
        json!({
            "Env": ["A=1", "B=2"], "Entrypoint": ["/init"], "Cmd": ["run"], "WorkingDir": "/srv",
            "User": "app:www", "ExposedPorts": { "8080/tcp": {} }, "Volumes": { "/data": {} },
            "StopSignal": "SIGINT", "Labels": { "l": "v" },
        }),
    );
    let reference = registry.push("app", "1", &image);
    let store = TestStore::new();
    let pulled = pull(&store.open(), &reference).await.unwrap();
    let config = pulled.config();
    assert_eq!(
        (config.env.len(), config.entrypoint.len(), config.cmd.len()),
        (2, 1, 1)
    );
    assert_eq!(
        (config.working_dir.as_str(), config.user.as_str()),
        ("/srv", "app:www")
    );
    assert_eq!(
        config.exposed_ports,
        [ExposedPort {
            port: 8080,
            protocol: PortProtocol::Tcp
        }]
    );
    assert_eq!(
        (config.volumes.as_slice(), config.stop_signal.as_deref()),
        (&["/data".into()][..], Some("SIGINT"))
    );
    assert_eq!(
        ["a", "b", "c"].map(|name| content(&pulled, name).unwrap()),
        ["1", "2", "3"]
    );
    assert_eq!(pulled.size_bytes(), 3);
}

#[tokio::test]
async fn broken_connections_are_resumed() {
    let registry = TestRegistry::start().await;
    let big = large_layer("big", 300_000);
    let image = TestImage::new(vec![big.clone()]);
    let reference = registry.push("app", "1", &image);
    // Progress starts the count anew: more breaks than attempts in a row are allowed.
    registry.fault(big.digest(), Fault::BreakAfter(40_000), 5);
    let store = TestStore::new();
    let started = store.open().pull(&parse(&reference));
    let progress = started.progress();
    let pulled = started.wait().await.unwrap();
    assert_eq!(pulled.size_bytes(), 300_000);
    let asked = registry.requests(big.digest());
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert!(asked[1..].iter().all(|line| line.contains("bytes=")), "{asked:?}");
    assert_eq!(progress.borrow().done_bytes, big.blob.len() as u64);
    store.assert_tidy();
}

#[tokio::test]
async fn a_registry_without_ranges_is_asked_for_the_whole_again() {
    let registry = TestRegistry::start().await;
    let big = large_layer("big", 100_000);
    let reference = registry.push("app", "1", &TestImage::new(vec![big.clone()]));
    registry.fault(big.digest(), Fault::BreakAfter(30_000), 1);
    registry.fault(big.digest(), Fault::IgnoreRange, 1);
    let store = TestStore::new();
    let started = store.open().pull(&parse(&reference));
    let progress = started.progress();
    started.wait().await.unwrap();
    assert_eq!(registry.requests(big.digest()).len(), 2);
    assert_eq!(
        progress.borrow().done_bytes,
        big.blob.len() as u64,
        "what came twice counts once"
    );
}

#[tokio::test]
async fn wrong_bytes_after_a_resume_get_one_clean_attempt() {
    let registry = TestRegistry::start().await;
    let big = large_layer("big", 100_000);
    let reference = registry.push("app", "1", &TestImage::new(vec![big.clone()]));
    registry.fault(big.digest(), Fault::BreakAfter(30_000), 1);
    registry.fault(big.digest(), Fault::WrongBytes, 1);
    let store = TestStore::new();
    pull(&store.open(), &reference).await.unwrap();
    let asked = registry.requests(big.digest());
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(!asked[2].contains("bytes="), "{asked:?}");
}

#[tokio::test]
async fn passing_trouble_is_waited_out() {
    let registry = TestRegistry::start().await;
    let image = two_layers();
    let reference = registry.push("app", "1", &image);
    for part in ["/manifests/1", "/manifests/sha256", "/blobs/"] {
        registry.fault(part, Fault::Status(503), 1);
        registry.fault(part, Fault::Status(429), 1);
    }
    let store = TestStore::new();
    pull(&store.open(), &reference).await.unwrap();
}

#[tokio::test]
async fn layers_with_the_same_content_are_shared_between_images() {
    let registry = TestRegistry::start().await;
    let base = layer(&[("base", "shared")], Compression::Gzip);
    // The same content, compressed otherwise: another blob, the same layer.
    let same = layer(&[("base", "shared")], Compression::Zstd);
    let one = registry.push("one", "1", &TestImage::new(vec![base.clone()]));
    let two = registry.push(
        "two",
        "1",
        &TestImage::new(vec![same.clone(), layer(&[("x", "")], Compression::Gzip)]),
    );
    let store = TestStore::new();
    let images = store.open();
    pull(&images, &one).await.unwrap();
    pull(&images, &two).await.unwrap();
    assert!(registry.requests(same.digest()).is_empty());
    assert_eq!(store.names("layers/sha256").len(), 2);
}

#[tokio::test]
async fn transferred_layers_are_not_kept_beside_unpacked_ones() {
    let registry = TestRegistry::start().await;
    let reference = registry.push("app", "1", &two_layers());
    let store = TestStore::new();
    pull(&store.open(), &reference).await.unwrap();
    assert_eq!(
        store.names("blobs/sha256").len(),
        2,
        "the manifest and the configuration"
    );
}
