//! Images through the door, and secrets that only come in.

use axum::body::Body;
use axum::http::Method;
use dhow_wire::Problem;
use dhow_wire::api::{
    ImageInfo, ImageName, ImagesRemoved, PullProgress, PullState, RegistryInfo, SecretInfo, WriteDone,
};

use super::support::{World, digest, request};
use crate::plane::secrets::unseal_all;

fn image(name: &str, in_use: bool) -> ImageInfo {
    ImageInfo {
        name: name.into(),
        digest: digest('a'),
        size_bytes: 1_000,
        last_used_unix_secs: None,
        in_use,
    }
}

#[tokio::test]
async fn images_of_the_node() {
    let world = World::new().await;
    world.door.add_image(image("nginx:1.27", true));
    world.door.add_image(image("old:1", false));
    world.door.add_image(image("old:2", false));
    let images: Vec<ImageInfo> = world.get("/api/v1/images").await.json();
    assert_eq!(images.len(), 3);
    let remove = |name: &str| format!("/api/v1/images?name={name}");
    world
        .call(Method::DELETE, &remove("nginx:1.27"), "")
        .await
        .problem(409);
    world.call(Method::DELETE, &remove("none"), "").await.problem(404);
    world.call(Method::DELETE, &remove(""), "").await.problem(422);
    world
        .call(Method::DELETE, "/api/v1/images", "")
        .await
        .problem(400);
    let removed: ImagesRemoved = world.call(Method::DELETE, &remove("old:1"), "").await.json();
    assert_eq!(
        (removed.removed[0].as_str(), removed.freed_bytes),
        ("old:1", 1_000)
    );
    let pruned: ImagesRemoved = world.post("/api/v1/images/prune", "").await.json();
    assert_eq!(pruned.removed, ["old:2"]);
    let import = r#"{"path":"/srv/app.tar","name":"app:1"}"#;
    assert_eq!(
        world
            .post("/api/v1/images/import", import)
            .await
            .json::<ImageName>()
            .name,
        "app:1"
    );
    world
        .post("/api/v1/images/import", r#"{"path":"app.tar"}"#)
        .await
        .problem(422);
    world.door.cut_off(dhow_core::ids::NodeId(1));
    assert_eq!(
        world.get("/api/v1/images").await.problem(502).code,
        "node_unreachable"
    );
}

#[tokio::test]
async fn a_pull_tells_how_far_it_is_and_how_it_ended() {
    let world = World::new().await;
    let pull = |image: &str| {
        let body = format!(r#"{{"image":"{image}"}}"#);
        request(Method::POST, "/api/v1/images/pull")
            .header("content-type", "application/json")
            .body(Body::from(body))
            .unwrap()
    };
    let events = world.open(pull("nginx:1.27")).await.rest().await;
    let names: Vec<&str> = events.iter().map(|sent| sent.event.as_str()).collect();
    assert_eq!(names, ["progress", "progress", "result"]);
    let progress: PullProgress = events[1].json();
    assert_eq!(
        (progress.state, progress.total_bytes),
        (PullState::Pulling, Some(10))
    );
    assert_eq!(events[2].json::<ImageName>().digest, digest('1'));
    let events = world.open(pull("none:1")).await.rest().await;
    assert_eq!(events.last().unwrap().event, "error");
    assert_eq!(events.last().unwrap().json::<Problem>().code, "not_found");
    world
        .post("/api/v1/images/pull", r#"{"image":"a b"}"#)
        .await
        .problem(422);
    world.post("/api/v1/images/pull", r#"{}"#).await.problem(422);
}

#[tokio::test]
async fn secrets_come_in_and_only_names_go_out() {
    let world = World::new().await;
    let value = vec![0, 159, 146, 150];
    let set = |name: &str, key: &str, value: &[u8]| {
        let builder = request(Method::PUT, &format!("/api/v1/secrets/{name}"))
            .header("content-type", "application/octet-stream")
            .header("idempotency-key", key);
        builder.body(Body::from(value.to_vec())).unwrap()
    };
    world
        .send(set("db-password", "k1", &value))
        .await
        .json::<WriteDone>();
    world
        .send(set("db-password", "k1", &value))
        .await
        .json::<WriteDone>();
    let list: Vec<SecretInfo> = world.get("/api/v1/secrets").await.json();
    assert_eq!(
        (list[0].name.as_str(), list[0].revision),
        ("db-password", 1),
        "the retry set nothing"
    );
    assert_eq!(
        world
            .send(set("db-password", "k1", b"other"))
            .await
            .problem(409)
            .code,
        "idempotency_mismatch"
    );
    let state = world.state();
    let found = unseal_all(&world.api.secrets, &state, ["db-password"]).unwrap();
    assert_eq!(found.0["db-password"], value);
    let written = format!("{state:?}");
    assert!(
        !written.contains("[0, 159, 146, 150]"),
        "the value is in the state in clear"
    );
    let hash = blake3::hash(&value);
    let unkeyed = state
        .requests
        .values()
        .any(|record| record.body_hash == *hash.as_bytes());
    assert!(!unkeyed, "a hash that anybody can make of the value");

    world.send(set("a%20b", "k2", b"x")).await.problem(422);
    world.send(set("-a", "k3", b"x")).await.problem(422);
    let remove = |name: &str| format!("/api/v1/secrets/{name}");
    world
        .call(Method::DELETE, &remove("db-password"), "")
        .await
        .json::<WriteDone>();
    world
        .call(Method::DELETE, &remove("db-password"), "")
        .await
        .problem(404);
    world
        .call(Method::DELETE, &remove("a%20b"), "")
        .await
        .problem(404);
    world
        .call(Method::GET, &remove("db-password"), "")
        .await
        .problem(405);
}

#[tokio::test]
async fn logins_come_in_and_only_registries_go_out() {
    let world = World::new().await;
    let put = |host: &str, body: &str| {
        let builder = request(Method::PUT, &format!("/api/v1/registries/{host}"));
        let builder = builder.header("content-type", "application/json");
        builder.body(Body::from(body.to_owned())).unwrap()
    };
    let login = r#"{"user":"me","password":"hunter2"}"#;
    world.send(put("ghcr.io", login)).await.json::<WriteDone>();
    // Docker Hub is one registry, by whichever name.
    world
        .send(put("index.docker.io", login))
        .await
        .json::<WriteDone>();
    world.send(put("docker.io", login)).await.json::<WriteDone>();
    for (host, body) in [
        ("a%20b", login),
        ("ghcr.io", r#"{"user":"","password":"x"}"#),
        ("ghcr.io", r#"{"user":"a:b","password":"x"}"#),
    ] {
        world.send(put(host, body)).await.problem(422);
    }
    let list: Vec<RegistryInfo> = world.get("/api/v1/registries").await.json();
    let known: Vec<(&str, u64)> = list
        .iter()
        .map(|info| (info.registry.as_str(), info.revision))
        .collect();
    assert_eq!(known, [("docker.io", 2), ("ghcr.io", 1)]);
    // They are no secrets of people, and nobody can set them as such.
    assert!(
        world
            .get("/api/v1/secrets")
            .await
            .json::<Vec<SecretInfo>>()
            .is_empty()
    );
    let state = world.state();
    let kept = unseal_all(&world.api.secrets, &state, ["registry/ghcr.io"]).unwrap();
    assert_eq!(kept.0["registry/ghcr.io"], login.as_bytes());
    let sealed = &state.secrets["registry/ghcr.io"].sealed;
    assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
    world
        .call(Method::DELETE, "/api/v1/registries/ghcr.io", "")
        .await
        .json::<WriteDone>();
    world
        .call(Method::DELETE, "/api/v1/registries/ghcr.io", "")
        .await
        .problem(404);
}
