//! What cannot work says why in words, and leaves nothing.

use std::sync::Arc;

use dhow_core::spec::{ImageSpec, PullPolicy, ServiceSpec};
use dhow_driver::container::{ContainerConfig, ContainerDriver};
use dhow_driver::driver::{Driver, Preparation, Progress, ReplicaStart, error_chain};

use crate::test_host::{Groups, TestHost, busybox_image, is_installed, name};

crate::tests! {
    images_that_are_not_there: Groups::Any,
    images_that_are_damaged: Groups::Any,
    programs_that_are_not_there: Groups::Any,
    programs_that_are_not_there_for_runc: Groups::Named("runc"),
    users_and_fields: Groups::Any,
    runtimes_that_are_not_there: Groups::Any,
    prepared_with_progress: Groups::Any,
}

/// The start is refused with all of these in its words, and nothing is left.
async fn refused(host: &TestHost, spec: ServiceSpec, words: &[&str], permanent: bool) {
    let driver = host.driver();
    let error = driver
        .start(&ReplicaStart::new(name(0), Arc::new(spec)))
        .await
        .unwrap_err();
    let text = error_chain(&error);
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    assert_eq!(error.is_permanent(), permanent, "{text}");
    assert!(driver.list().await.unwrap().is_empty());
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

async fn images_that_are_not_there(host: Arc<TestHost>) {
    let with = |image: ImageSpec| ServiceSpec {
        image: Some(image),
        ..host.spec(&["true"])
    };
    let layout = host.dir.join("layout").display().to_string();
    let named = |name: &str| with(ImageSpec::named(name));
    refused(
        &host,
        named(&format!("oci:{layout}:other")),
        &["other", "does not exist"],
        false,
    )
    .await;
    refused(
        &host,
        named("docker-archive:/no/such/file.tar"),
        &["/no/such/file.tar", "does not exist on this node"],
        false,
    )
    .await;
    // A port that nobody listens on: bound and let go again.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    refused(
        &host,
        named(&format!("localhost:{port}/a:1")),
        &["refused the connection"],
        false,
    )
    .await;
    refused(&host, named("Not An Image"), &["Not An Image"], true).await;
    let never = ImageSpec {
        pull_policy: PullPolicy::Never,
        ..host.image()
    };
    refused(&host, with(never), &["there is no image"], true).await;
    // Another digest than the layout holds.
    let digest = format!("sha256:{}", "7".repeat(64));
    let pinned = ImageSpec {
        digest: Some(digest.clone()),
        ..host.image()
    };
    refused(&host, with(pinned), &[&digest[..19]], false).await;
    let right = ImageSpec {
        digest: Some(busybox_image().digest().to_string()),
        ..host.image()
    };
    assert_eq!(host.output(with(right)).await, Vec::<String>::new());
}

/// Bytes that are not what the manifest says are not used.
async fn images_that_are_damaged(host: Arc<TestHost>) {
    let blob = host
        .dir
        .join("layout/blobs/sha256")
        .join(busybox_image().layers[0].digest().hex());
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    refused(
        &host,
        host.spec(&["true"]),
        &["has the digest", "should have"],
        false,
    )
    .await;
}

async fn programs_that_are_not_there(host: Arc<TestHost>) {
    refused(
        &host,
        host.spec(&["no-such"]),
        &["no program `no-such`", "/bin"],
        true,
    )
    .await;
    refused(
        &host,
        host.spec(&["/no/such"]),
        &["the program `/no/such` does not exist"],
        true,
    )
    .await;
    refused(
        &host,
        host.spec(&["/etc/plain"]),
        &["`/etc/plain` cannot be executed"],
        true,
    )
    .await;
}

async fn programs_that_are_not_there_for_runc(host: Arc<TestHost>) {
    if is_installed("runc") {
        programs_that_are_not_there(host).await;
    } else {
        println!("SKIPPED: runc is not installed");
    }
}

async fn users_and_fields(host: Arc<TestHost>) {
    let mut spec = host.spec(&["true"]);
    spec.user = Some("nobody-here".into());
    refused(
        &host,
        spec,
        &["its image has no user or group `nobody-here`"],
        true,
    )
    .await;
    let mut spec = host.spec(&["true"]);
    spec.image = None;
    refused(&host, spec, &["`runtime` cannot be carried out"], true).await;
}

async fn runtimes_that_are_not_there(host: Arc<TestHost>) {
    for (runtime, words) in [
        ("no-such-runtime", "is not installed"),
        ("/bin/false", "does not work here"),
    ] {
        let config = ContainerConfig {
            runtime: Some(runtime.to_owned()),
            ..host.config()
        };
        let driver = ContainerDriver::open(config).unwrap();
        let found = driver.probe().await;
        assert!(!found.available);
        let notice = found.notices.last().unwrap();
        assert!(
            notice.contains(words) && notice.contains("install crun or runc"),
            "{notice}"
        );
        let start = ReplicaStart::new(name(0), Arc::new(host.spec(&["true"])));
        let error = driver.start(&start).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    let found = host.driver().probe().await;
    assert!(found.available, "{:?}", found.notices);
    assert_eq!(host.leftovers(), Vec::<String>::new());
}

async fn prepared_with_progress(host: Arc<TestHost>) {
    let driver = host.driver();
    let what = Preparation {
        spec: Arc::new(host.spec(&["true"])),
    };
    let seen = std::sync::Mutex::new(Vec::new());
    let sink = |progress: Progress| seen.lock().unwrap().push(progress);
    let prepared = driver.prepare(&what, &sink).await.unwrap();
    assert_eq!(prepared.image_digest, Some(busybox_image().digest().to_string()));
    assert_eq!(seen.lock().unwrap().last(), Some(&Progress::Ready));
    // From now on the layout is not needed.
    std::fs::remove_dir_all(host.dir.join("layout")).unwrap();
    assert_eq!(host.output(host.shell("echo ran")).await, ["ran"]);
    assert!(driver.images_in_use().await.unwrap().is_empty());
}
