//! The stream of an open page.

use axum::body::Body;
use axum::http::Method;
use futures_util::StreamExt;
use serde_json::Value;

use super::support::{Browser, token, with_page};
use crate::api::tests::support::World;

/// Reads events off a stream.
struct Reader {
    pieces: axum::body::BodyDataStream,
    text: String,
}

impl Reader {
    async fn of(browser: &Browser, place: &str, have: &str) -> Self {
        let at = super::super::format::escaped(place);
        let asked = browser.request(Method::GET, &format!("/ui/live?at={at}&have={have}"));
        let response = browser.open(asked.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 200);
        Self {
            pieces: response.into_body().into_data_stream(),
            text: String::new(),
        }
    }

    /// The name and the data of the next event; none at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let line = |name: &str| {
                    event
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .map(str::to_owned)
                };
                if let (Some(name), Some(data)) = (line("event: "), line("data: ")) {
                    return Some((name, serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let piece = self.pieces.next().await?;
            self.text.push_str(std::str::from_utf8(&piece.ok()?).unwrap());
        }
    }

    async fn block(&mut self, id: &str) -> Value {
        loop {
            let (name, data) = self.next().await.expect("the stream goes on");
            if name == "block" && data["id"] == id {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn only_what_looks_different_is_sent() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let browser = Browser::of_root(&with_page(&world));
    let page = browser.page("/ui/nodes/1").await;
    let mark = |id: &str| {
        let (_, rest) = page.split_once(&format!("id=\"b-{id}\"")).unwrap();
        let (_, rest) = rest.split_once("data-mark=\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    };
    let have = format!(
        "leader:{},head:{},replicas:{}",
        mark("leader"),
        mark("head"),
        mark("replicas")
    );
    let mut stream = Reader::of(&browser, "/ui/nodes/1", &have).await;
    // The browser did not say to have this one.
    let (name, data) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), data["id"].as_str()), ("block", Some("actions")));
    assert_eq!(
        data["mark"].as_str().unwrap(),
        mark("actions"),
        "the same as in the document"
    );
    browser.act("/ui/nodes/1/drain", "").await;
    let head = stream.block("head").await;
    assert!(head["html"].as_str().unwrap().contains("draining"), "{head}");
}

#[tokio::test]
async fn a_log_is_followed_as_text() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.writes("web-default-0", 1_800_000_000_000_000, "first");
    let browser = Browser::of_root(&with_page(&world));
    let mut stream = Reader::of(&browser, "/ui/deployments/shop/replicas/web-default-0", "").await;
    let mut lines = Vec::new();
    let mut begun = false;
    while lines.len() < 2 {
        let (name, data) = stream.next().await.unwrap();
        match name.as_str() {
            "log-begin" => begun = true,
            "log" => {
                assert!(begun);
                lines.extend(data.as_array().unwrap().iter().map(|line| line["text"].clone()));
                if lines.len() == 1 {
                    world.writes("web-default-0", 1_800_000_001_000_000, "<b>second</b>");
                }
            }
            "block" => {}
            other => panic!("{other}: {data}"),
        }
    }
    assert_eq!(lines, ["first", "<b>second</b>"]);
}

#[tokio::test]
async fn a_stream_ends_with_its_session_and_its_token() {
    let world = World::new().await;
    let router = with_page(&world);
    let admin = token(&world, "admin").await;
    let mut browser = Browser::on_loopback(&router);
    browser.sign_in(&admin.token).await;
    let mut stream = Reader::of(&browser, "/ui/", "").await;
    assert_eq!(stream.next().await.unwrap().0, "block");
    browser.act("/ui/logout", "").await;
    world.register(2).await;
    let mut names = Vec::new();
    while let Some((name, _)) = stream.next().await {
        names.push(name);
    }
    assert_eq!(names.last().map(String::as_str), Some("over"));

    browser.sign_in(&admin.token).await;
    let mut stream = Reader::of(&browser, "/ui/", "").await;
    assert_eq!(stream.next().await.unwrap().0, "block");
    let path = format!("/api/v1/tokens/{}", admin.id);
    assert_eq!(world.call(Method::DELETE, &path, "").await.status, 200);
    while stream.next().await.is_some() {}
}
