//! What pages show.

use super::support::{Browser, location, with_page};
use crate::api::tests::support::{SHOP, World, start_events};
use dhow_core::replica::{Exit, ReplicaEvent};

#[tokio::test]
async fn an_empty_cluster_says_how_to_begin() {
    let world = World::new().await;
    let browser = Browser::of_root(&with_page(&world));
    let page = browser.page("/ui/").await;
    assert!(page.contains("Nothing is wrong") && page.contains("Nothing is deployed yet."));
    assert!(browser.page("/ui/nodes").await.contains("href=\"/ui/nodes/1\""));
    assert!(browser.page("/ui/events").await.contains("node joined"));
}

#[tokio::test]
async fn what_is_not_well_comes_first_with_its_reason() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let browser = Browser::of_root(&with_page(&world));
    assert!(browser.page("/ui/").await.contains("Everything is well"));
    assert!(
        browser
            .page("/ui/deployments/shop/services/web?ill=1")
            .await
            .contains("Every replica is well.")
    );
    let ended = ReplicaEvent::Ended {
        exit: Exit::Code(3),
        oom: false,
    };
    world.happens(|name| name.index == 0, &[ended]).await;
    world.clock.advance(2_000);
    // A page of its own has not looked yet.
    let browser = Browser::of_root(&with_page(&world));
    let page = browser.page("/ui/").await;
    assert!(page.contains("1 thing is not well"), "{page}");
    assert!(
        page.contains("web-default-0"),
        "the reason names the replica: {page}"
    );
    let page = browser.page("/ui/deployments/shop/services/web?ill=1").await;
    assert!(page.contains("web-default-0") && !page.contains("replicas/web-default-1\""));
    let page = browser.page("/ui/deployments/shop/replicas/web-default-0").await;
    assert!(page.contains("replica ended"), "its story: {page}");
}

#[tokio::test]
async fn a_rollout_shows_both_sides_and_its_history() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let browser = Browser::of_root(&with_page(&world));
    let newer = SHOP.replace("1.27", "1.28");
    let form: String = newer
        .replace('\n', "%0D%0A")
        .replace(' ', "+")
        .replace('&', "%26");
    let planned = browser.act("/ui/plan", &format!("file={form}")).await;
    assert_eq!(planned.status, 200, "{}", planned.text());
    assert!(planned.text().contains("rolls") && planned.text().contains("Deploy this"));
    let before = world.state().deployments.len();
    let deployed = browser.act("/ui/deploy", &format!("file={form}")).await;
    assert_eq!(location(&deployed), "/ui/deployments/shop?done=deploy");
    assert_eq!(world.state().deployments.len(), before);
    world.wait_for(|state| state.replicas.len() > 2).await;
    let page = browser.page("/ui/deployments/shop").await;
    assert!(page.contains("Rollout of web"), "{page}");
    assert!(
        page.contains("Old · revision 1") && page.contains("New · revision 2"),
        "{page}"
    );
    assert!(page.contains("nginx:1.27") && page.contains("nginx:1.28"));
    let page = browser.page("/ui/deployments/shop/diff?from=1&to=2").await;
    assert!(page.contains("changed") && page.contains("nginx:1.28"), "{page}");
    assert_eq!(
        browser.get("/ui/deployments/shop/diff?from=1&to=9").await.status,
        404
    );
    let back = browser
        .act(
            "/ui/deployments/shop/rollback",
            "to=1&back=%2Fui%2Fdeployments%2Fshop",
        )
        .await;
    assert_eq!(location(&back), "/ui/deployments/shop?done=rollback");
    assert!(
        browser
            .page("/ui/deployments/shop")
            .await
            .contains("brings back 1")
    );
}

#[tokio::test]
async fn a_file_with_a_slip_is_refused_with_its_place() {
    let world = World::new().await;
    let browser = Browser::of_root(&with_page(&world));
    let refused = browser
        .act(
            "/ui/plan",
            "file=version%3A+v1%0D%0Adeployment%3A+shop%0D%0Aservises%3A+%7B%7D",
        )
        .await;
    assert!(refused.status.is_client_error());
    assert!(refused.text().contains("pasted.yaml:3"), "{}", refused.text());
    assert!(refused.text().contains("servises: {}"), "what was pasted stays");
}

#[tokio::test]
async fn nodes_are_found_sorted_and_paged() {
    let world = World::new().await;
    for node in 2..=250 {
        world.register(node).await;
    }
    let browser = Browser::of_root(&with_page(&world));
    let first = browser.page("/ui/nodes").await;
    assert!(first.contains("data-key=\"100\"") && !first.contains("data-key=\"101\""));
    assert!(first.contains("of 250") && first.contains("page=2"));
    let last = browser.page("/ui/nodes?page=3").await;
    assert!(last.contains("data-key=\"250\"") && !last.contains("data-key=\"200\""));
    let one = browser.page("/ui/nodes?q=249").await;
    assert!(one.contains("data-key=\"249\"") && !one.contains("data-key=\"24\""));
    assert!(
        browser
            .page("/ui/nodes?q=zone%3Da+linux")
            .await
            .contains("of 250")
    );
    assert!(
        browser
            .page("/ui/nodes?q=zone%3Db")
            .await
            .contains("No node is like this.")
    );
    assert!(
        browser
            .page("/ui/nodes?page=99999999999")
            .await
            .contains("No node is like this.")
    );
}

#[tokio::test]
async fn a_replica_shows_its_log() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    world.writes("web-default-0", 1_800_000_000_000_000, "listens on 8080");
    let browser = Browser::of_root(&with_page(&world));
    let page = browser.page("/ui/deployments/shop/replicas/web-default-0").await;
    assert!(page.contains("listens on 8080"), "{page}");
    assert!(page.contains("data-log"));
    world.happens(|name| name.index == 1, &start_events()[..0]).await;
    assert_eq!(
        browser
            .get("/ui/deployments/shop/replicas/web-default-9")
            .await
            .status,
        404
    );
}
