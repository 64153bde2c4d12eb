//! What goes wrong, and what is said about it.

use std::fs;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use dhow_driver::image::{
    EntryRefusal, ImageError, Images, Login, Privilege, RegistryTrouble, UnpackError, UnpackLimits,
};

use super::builder::{
    Compression, OCI_INDEX, OCI_MANIFEST, TestImage, TestLayer, large_layer, layer, list, packed,
};
use super::registry::{Fault, TestRegistry};
use super::support::{TestStore, is_root, parse, pull, story};

fn small() -> TestImage {
    TestImage::new(vec![layer(&[("a", "content")], Compression::Gzip)])
}

async fn failure(store: &TestStore, reference: &str) -> ImageError {
    let error = pull(&store.open(), reference).await.unwrap_err();
    let text = story(&error);
    assert!(!text.is_empty());
    error
}

#[tokio::test]
async fn an_image_that_does_not_exist() {
    let registry = TestRegistry::start().await;
    let store = TestStore::new();
    let reference = format!("{}/no/such:1", registry.host);
    let error = failure(&store, &reference).await;
    assert!(matches!(error, ImageError::NotFound { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!(
            "the image {reference} does not exist in registry {}; check its name and tag",
            registry.host
        )
    );
    assert!(matches!(
        store.open().resolve(&parse(&reference)).await,
        Err(ImageError::NotFound { .. })
    ));
    assert_eq!(
        registry.requests("GET /v2/no/such").len(),
        2,
        "it is not asked again and again"
    );
}

#[tokio::test]
async fn a_registry_that_is_down() {
    let store = TestStore::new();
    // A port that was free a moment ago and that nobody listens on.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap();
    drop(listener);
    let error = failure(&store, &format!("{host}/a:1")).await;
    let ImageError::Unreachable { trouble, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*trouble, RegistryTrouble::Refused);
    let text = error.to_string();
    assert!(
        text.contains(&format!("registry {host}")) && text.contains(&format!("{host}/a:1")),
        "{text}"
    );
}

#[tokio::test]
async fn a_registry_whose_name_is_unknown() {
    let store = TestStore::new();
    let error = failure(&store, "no-such-host.invalid/a:1").await;
    // A sandbox without DNS may answer otherwise; it is never taken for a missing image.
    let ImageError::Unreachable { trouble, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(
        matches!(trouble, RegistryTrouble::UnknownHost | RegistryTrouble::TimedOut),
        "{trouble:?}"
    );
}

#[tokio::test]
async fn a_registry_that_keeps_failing() {
    let registry = TestRegistry::start().await;
    let reference = registry.push("app", "1", &small());
    registry.fault("/manifests/sha256", Fault::Status(503), usize::MAX);
    let store = TestStore::new();
    let error = failure(&store, &reference).await;
    assert!(
        matches!(
            error,
            ImageError::RegistryFailed {
                status: 503,
                attempts: 3,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(registry.requests("/manifests/sha256").len(), 3);
}

#[tokio::test]
async fn connections_that_always_break() {
    let registry = TestRegistry::start().await;
    let big = large_layer("big", 100_000);
    let reference = registry.push("app", "1", &TestImage::new(vec![big.clone()]));
    registry.fault(big.digest(), Fault::BreakAfter(0), usize::MAX);
    let store = TestStore::new();
    let error = failure(&store, &reference).await;
    let ImageError::Unreachable { trouble, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*trouble, RegistryTrouble::Broken);
    assert_eq!(registry.requests(big.digest()).len(), 3);
}

#[tokio::test]
async fn wrong_bytes_are_never_used() {
    let registry = TestRegistry::start().await;
    let image = small();
    let reference = registry.push("app", "1", &image);
    let store = TestStore::new();
    for part in [
        "/manifests/sha256".to_owned(),
        "/blobs/".to_owned(),
        image.layers[0].digest().to_string(),
    ] {
        registry.fault(&part, Fault::WrongBytes, 1);
        let error = failure(&store, &reference).await;
        assert!(
            matches!(error, ImageError::WrongDigest { .. }),
            "{part}: {error:?}"
        );
        assert!(error.to_string().contains(&registry.host), "{error}");
        assert_eq!(
            store.names("layers/sha256").len() + store.names("images/sha256").len(),
            0
        );
        store.assert_tidy();
    }
    registry.fault(image.layers[0].digest(), Fault::TooManyBytes, 1);
    let error = failure(&store, &reference).await;
    assert!(matches!(error, ImageError::WrongSize { .. }), "{error:?}");
    // Nothing of all that hinders the next attempt.
    pull(&store.open(), &reference).await.unwrap();
    store.assert_tidy();
}

#[tokio::test]
async fn a_configuration_that_lies_about_a_layer() {
    let registry = TestRegistry::start().await;
    let honest = small();
    let liar = TestImage::of_parts(
        vec![layer(&[("a", "other content")], Compression::Gzip)],
        honest.config.clone(),
        OCI_MANIFEST,
    );
    let store = TestStore::new();
    let error = failure(&store, &registry.push("app", "1", &liar)).await;
    let ImageError::BadLayer {
        source: UnpackError::WrongDiffId { .. },
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert!(store.names("layers/sha256").is_empty());
    store.assert_tidy();
}

#[tokio::test]
async fn hostile_layers_and_bombs() {
    let registry = TestRegistry::start().await;
    let hostile = registry.push("app", "hostile", &TestImage::new(vec![climbing_layer()]));
    let store = TestStore::new();
    let error = failure(&store, &hostile).await;
    let ImageError::BadLayer {
        source: UnpackError::Refused { why, .. },
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(*why, EntryRefusal::ParentComponent);
    assert!(story(&error).contains("../evil"), "{}", story(&error));
    let bomb = TestImage::new(vec![layer(&[("zeros", &"0".repeat(1 << 20))], Compression::Gzip)]);
    let bomb = registry.push("app", "bomb", &bomb);
    let mut options = store.options();
    options.limits = UnpackLimits {
        max_layer_bytes: 64 << 10,
        ..UnpackLimits::default()
    };
    let error = pull(&Images::open(options).unwrap(), &bomb).await.unwrap_err();
    assert!(
        matches!(
            error,
            ImageError::BadLayer {
                source: UnpackError::TooLarge { .. },
                ..
            }
        ),
        "{error:?}"
    );
    assert!(store.names("layers/sha256").is_empty());
    store.assert_tidy();
}

fn climbing_layer() -> TestLayer {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..7].copy_from_slice(b"../evil");
    header.set_size(0);
    header.set_mode(0o644);
    header.set_cksum();
    packed(
        [header.as_bytes().as_slice(), &[0; 1024]].concat(),
        Compression::Gzip,
    )
}

#[tokio::test]
async fn logins() {
    let registry = TestRegistry::start().await;
    let reference = registry.push("app", "1", &small());
    registry.require_token("me", "secret");
    let store = TestStore::new();
    let error = failure(&store, &reference).await;
    let ImageError::Unauthorised { hint, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(hint.contains("no credentials"), "{error}");
    let config = store.dir.path().join("docker-config.json");
    let login = |user: &str, password: &str| {
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        fs::write(
            &config,
            format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, registry.host),
        )
        .unwrap();
    };
    login("me", "wrong");
    let error = failure(&store, &reference).await;
    let ImageError::Unauthorised { hint, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(hint.contains("do not allow"), "{error}");
    assert!(!story(&error).contains("wrong"), "no secret in an error");
    login("me", "secret");
    let images = store.open();
    pull(&images, &reference).await.unwrap();
    let tokens = registry.requests("/token").len();
    let second = registry.push(
        "app",
        "2",
        &TestImage::new(vec![layer(&[("b", "")], Compression::Gzip)]),
    );
    pull(&images, &second).await.unwrap();
    assert_eq!(registry.requests("/token").len(), tokens, "a token is used again");
}

#[tokio::test]
async fn identity_tokens_and_basic_logins() {
    let registry = TestRegistry::start().await;
    let reference = registry.push("app", "1", &small());
    registry.require_token("me", "secret");
    registry.accept_identity("tok123");
    let store = TestStore::new();
    let config = store.dir.path().join("docker-config.json");
    fs::write(
        &config,
        format!(
            r#"{{"auths":{{"{}":{{"identitytoken":"tok123"}}}}}}"#,
            registry.host
        ),
    )
    .unwrap();
    pull(&store.open(), &reference).await.unwrap();
    assert!(!registry.requests("POST /token").is_empty());

    let registry = TestRegistry::start().await;
    let reference = registry.push("app", "1", &small());
    registry.require_basic("me", "secret");
    let store = TestStore::new();
    let config = store.dir.path().join("docker-config.json");
    fs::write(
        &config,
        format!(
            r#"{{"auths":{{"{}":{{"username":"me","password":"secret"}}}}}}"#,
            registry.host
        ),
    )
    .unwrap();
    pull(&store.open(), &reference).await.unwrap();
}

/// What the cluster keeps goes before Docker's file, and counts from the next request on.
#[tokio::test]
async fn logins_of_the_cluster() {
    let registry = TestRegistry::start().await;
    let reference = registry.push("app", "1", &small());
    registry.require_basic("me", "secret");
    let store = TestStore::new();
    let config = store.dir.path().join("docker-config.json");
    let host = &registry.host;
    let text = format!(r#"{{"auths":{{"{host}":{{"username":"me","password":"wrong"}}}}}}"#);
    fs::write(&config, text).unwrap();
    let kept: Arc<Mutex<Option<Login>>> = Arc::default();
    let options = store.options();
    let (source, own) = (Arc::clone(&kept), host.clone());
    options.registries.logins.set(Box::new(move |asked| {
        assert_eq!(asked, own);
        let login = source.lock().unwrap().clone();
        Box::pin(std::future::ready(login))
    }));
    let images = Images::open(options).unwrap();
    images.resolve(&parse(&reference)).await.unwrap_err();
    *kept.lock().unwrap() = Some(Login {
        user: "me".into(),
        password: "secret".into(),
    });
    pull(&images, &reference).await.unwrap();
    images.resolve(&parse(&reference)).await.unwrap();
    *kept.lock().unwrap() = None;
    let error = images.resolve(&parse(&reference)).await.unwrap_err();
    assert!(!story(&error).contains("secret"), "{}", story(&error));
}

#[tokio::test]
async fn what_is_no_image_for_us() {
    let registry = TestRegistry::start().await;
    let store = TestStore::new();
    let foreign = list(
        OCI_INDEX,
        &[(&small(), "windows", "amd64"), (&small(), "unknown", "unknown")],
    );
    let error = failure(&store, &registry.push_manifest("app", "win", OCI_INDEX, &foreign)).await;
    assert!(matches!(error, ImageError::NoPlatform { .. }), "{error:?}");
    assert!(error.to_string().contains("it is for windows/amd64"), "{error}");
    let old = registry.push_manifest("app", "v1", "application/json", br#"{"schemaVersion":1}"#);
    let error = failure(&store, &old).await;
    assert!(matches!(error, ImageError::BadManifest { .. }), "{error:?}");
    let junk = registry.push_manifest("app", "junk", "text/html", b"<html>");
    assert!(matches!(
        failure(&store, &junk).await,
        ImageError::BadManifest { .. }
    ));
    let mut missing = small();
    missing.layers.push(layer(&[("b", "")], Compression::Gzip));
    let missing = TestImage::of_parts(missing.layers, missing.config, OCI_MANIFEST);
    let error = failure(&store, &registry.push("app", "count", &missing)).await;
    assert!(
        story(&error).contains("names 1 layers and the manifest 2"),
        "{}",
        story(&error)
    );
    let image = small();
    let reference = registry.push("app", "gone", &image);
    registry.remove_blob(image.layers[0].digest());
    assert!(matches!(
        failure(&store, &reference).await,
        ImageError::NotFound { .. }
    ));
}

#[tokio::test]
async fn a_disk_that_is_full() {
    if !is_root("a_disk_that_is_full") {
        return;
    }
    let registry = TestRegistry::start().await;
    let store = TestStore::new();
    let small_disk = SmallDisk::mount(&store.path(), "4m");
    // The blob fits and the unpacked layer does not; then not even the blob fits.
    for (tag, size_bytes) in [("unpack", 3 << 20), ("download", 8 << 20)] {
        let reference = registry.push("app", tag, &TestImage::new(vec![large_layer("big", size_bytes)]));
        let error = failure(&store, &reference).await;
        assert!(matches!(error, ImageError::NoRoom { .. }), "{tag}: {error:?}");
        assert!(error.to_string().contains("dhow image prune"), "{error}");
        assert!(store.names("layers/sha256").is_empty());
    }
    drop(small_disk);
}

/// A tmpfs of a given size, unmounted when dropped.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(path: &std::path::Path, size: &str) -> Self {
        fs::create_dir_all(path).unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(options.as_c_str())).unwrap();
        Self(path.to_owned())
    }

    fn used_bytes(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.0).unwrap();
        (found.f_blocks - found.f_bavail) * found.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[tokio::test]
async fn without_root_it_is_said_at_once() {
    if rustix::process::geteuid().is_root() {
        let why = "it needs a user that is not root";
        writeln!(
            std::io::stderr(),
            "\nSKIPPED without_root_it_is_said_at_once: {why}"
        )
        .unwrap();
        return;
    }
    let store = TestStore::new();
    let mut options = store.options();
    options.privilege = Privilege::Root;
    let error = pull(&Images::open(options).unwrap(), "nginx:1.27")
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::NotRoot { .. }), "{error:?}");
}

#[tokio::test]
async fn layers_that_do_not_fit_the_disk() {
    if !is_root("layers_that_do_not_fit_the_disk") {
        return;
    }
    let registry = TestRegistry::start().await;
    let store = TestStore::new();
    let disk = SmallDisk::mount(&store.path(), "16m");
    // 64 MiB that were compressed to almost nothing, and a layer that is too large as it is.
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(64 << 20);
    header.set_mode(0o644);
    tar.append_data(&mut header, "zeros", std::io::repeat(0).take(64 << 20))
        .unwrap();
    let bomb = TestImage::new(vec![packed(tar.into_inner().unwrap(), Compression::Gzip)]);
    let large = TestImage::new(vec![large_layer("random", 20 << 20)]);
    registry.push("bomb", "1", &bomb);
    registry.push("large", "1", &large);
    for name in ["bomb", "large"] {
        let error = failure(&store, &format!("{}/{name}:1", registry.host)).await;
        let ImageError::NoRoom {
            needed_bytes,
            spare_bytes,
            ..
        } = error
        else {
            panic!("{name}: {error:?}")
        };
        assert!(needed_bytes > spare_bytes && spare_bytes > 10 << 20, "{name}");
        assert!(
            disk.used_bytes() < 1 << 20,
            "{name} left {} bytes",
            disk.used_bytes()
        );
    }
    assert_eq!(
        registry.requests("GET /v2/large/blobs").len(),
        1,
        "only its configuration is fetched"
    );
    registry.push("small", "1", &small());
    pull(&store.open(), &format!("{}/small:1", registry.host))
        .await
        .unwrap();
}
