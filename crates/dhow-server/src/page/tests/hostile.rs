//! What replicas, nodes and people write is shown as text, wherever it is shown.

use std::collections::BTreeMap;

use super::support::{Browser, with_page};
use crate::api::tests::support::{SHOP, World};
use dhow_core::command::{Command, NodeCommand};
use dhow_core::ids::NodeId;
use dhow_core::replica::ReplicaEvent;

const SCRIPT: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'";

#[track_caller]
fn is_text(page: &str, place: &str) {
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
        "{place}: it is shown"
    );
    for tag in ["<script>", "<img", "onerror=alert(2)>\"'"] {
        assert!(!page.contains(tag), "{place}: {tag}");
    }
}

#[tokio::test]
async fn scripts_in_messages_labels_logs_and_searches_are_text() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let labels = NodeCommand::Label {
        node: NodeId(1),
        set: BTreeMap::from([("note".into(), SCRIPT.into())]),
        unset: Vec::new(),
    };
    // A label that the API would refuse may still come from a node itself.
    world
        .handle
        .input()
        .write(Command::Node(labels), None)
        .await
        .unwrap();
    let failed = ReplicaEvent::BecameUnhealthy {
        message: SCRIPT.into(),
    };
    world.happens(|name| name.index == 0, &[failed]).await;
    world.writes("web-default-0", 1_800_000_000_000_000, SCRIPT);
    let browser = Browser::of_root(&with_page(&world));
    for place in [
        "/ui/nodes",
        "/ui/nodes/1",
        "/ui/deployments/shop/replicas/web-default-0",
        "/ui/deployments/shop/services/web",
        "/ui/events",
    ] {
        is_text(&browser.page(place).await, place);
    }
    let search = crate::page::format::escaped(SCRIPT);
    for place in ["/ui/", "/ui/nodes", "/ui/events"] {
        let page = browser.page(&format!("{place}?q={search}")).await;
        is_text(&page, place);
    }
    let lost = browser.get(&format!("/ui/deployments/{search}")).await;
    assert_eq!(lost.status, 404);
    assert!(!lost.text().contains("<script>"), "{}", lost.text());
}

#[tokio::test]
async fn a_hostile_file_is_shown_as_text() {
    let world = World::new().await;
    let browser = Browser::of_root(&with_page(&world));
    let file = SHOP.replace("nginx:1.27", "\"</textarea><script>alert(1)</script>\"");
    let form = crate::page::format::escaped(&file);
    let refused = browser.act("/ui/plan", &format!("file={form}")).await;
    let page = refused.text();
    assert!(page.contains("&lt;/textarea&gt;&lt;script&gt;"), "{page}");
    assert!(!page.contains("<script>alert"), "{page}");
}
