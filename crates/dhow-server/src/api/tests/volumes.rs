//! Volumes through the door, and who uses them by the state.

use axum::body::Body;
use axum::http::Method;
use dhow_core::ids::NodeId;
use dhow_wire::api::{VolumeHome, VolumeListing, VolumeRemoved};

use super::support::{World, request};

const FILE: &str = r#"{"version":"v1","deployment":"disk","services":{"db":{"image":"nginx:1.27","storage":[{"type":"named","name":"data","target":"/d"}]}}}"#;

fn put(path: &str, content: &'static [u8]) -> axum::http::Request<Body> {
    request(Method::PUT, path)
        .header("content-type", "application/x-tar")
        .body(Body::from(content))
        .unwrap()
}

#[tokio::test]
async fn volumes_are_listed_with_their_users_and_removed_without() {
    let world = World::new().await;
    world.door.set_volume("disk", "data", b"123");
    world.door.set_volume("gone", "old", b"12345");
    let reply = world.post("/api/v1/deployments", FILE).await;
    assert!(reply.status.is_success(), "{}", reply.text());
    world.wait_for_replicas(1).await;
    let listing: VolumeListing = world.get("/api/v1/volumes").await.json();
    let [data, old] = &listing.volumes[..] else {
        panic!("{listing:?}");
    };
    assert_eq!(
        (data.replicas.as_slice(), data.is_named),
        (&["db-default-0".to_owned()][..], true)
    );
    assert_eq!(
        (data.services.as_slice(), data.unused_since_unix_secs),
        (&["db".to_owned()][..], None)
    );
    assert_eq!((old.is_named, old.unused_since_unix_secs), (false, Some(60)));
    let only: VolumeListing = world.get("/api/v1/volumes?deployment=gone").await.json();
    assert_eq!(only.volumes.len(), 1);

    let remove = |path: &'static str| world.call(Method::DELETE, path, "");
    let refused = remove("/api/v1/volumes/disk/data").await.problem(409);
    assert!(refused.detail.contains("db-default-0"), "{refused:?}");
    let named = remove("/api/v1/volumes/disk/data?unnamed=true")
        .await
        .problem(409);
    assert!(named.detail.contains("kept revision"), "{named:?}");
    remove("/api/v1/volumes/disk/none").await.problem(404);
    let removed: VolumeRemoved = remove("/api/v1/volumes/gone/old?unnamed=true").await.json();
    assert_eq!((removed.node_id, removed.freed_bytes), (1, 5));

    // What is in use is copied, and not put back.
    assert_eq!(world.get("/api/v1/volumes/disk/data/content").await.text(), "123");
    let refused = world
        .send(put("/api/v1/volumes/disk/data/content?node=1", b"new"))
        .await;
    refused.problem(409);
    world
        .post("/api/v1/volumes/disk/data/home", "")
        .await
        .problem(409);

    world.door.cut_off(NodeId(1));
    let listing: VolumeListing = world.get("/api/v1/volumes").await.json();
    assert_eq!((listing.volumes.len(), listing.silent[0].node_id), (0, 1));
}

#[tokio::test]
async fn a_volume_gets_a_home_and_then_its_content() {
    let world = World::new().await;
    let none = FILE.replace(
        r#""image":"nginx:1.27","#,
        r#""image":"nginx:1.27","scale":{"mode":"manual"},"#,
    );
    world
        .post("/api/v1/volumes/disk/data/home", "")
        .await
        .problem(404);
    let reply = world.post("/api/v1/deployments", &none).await;
    assert!(reply.status.is_success(), "{}", reply.text());
    world
        .post("/api/v1/volumes/disk/other/home", "")
        .await
        .problem(404);
    world
        .post("/api/v1/volumes/disk/data/home", r#"{"node_id":9}"#)
        .await
        .problem(404);
    let home: VolumeHome = world.post("/api/v1/volumes/disk/data/home", "").await.json();
    assert_eq!(home.node_id, 1);
    let service = world.state();
    let service = service.services.values().next().unwrap();
    assert_eq!(service.volumes.values().collect::<Vec<_>>(), [&NodeId(1)]);
    world
        .send(put("/api/v1/volumes/disk/data/content", b"new"))
        .await
        .problem(400);
    let restored: VolumeHome = world
        .send(put("/api/v1/volumes/disk/data/content?node=1", b"new"))
        .await
        .json();
    assert_eq!(restored.node_id, 1);
    assert_eq!(world.get("/api/v1/volumes/disk/data/content").await.text(), "new");
}
