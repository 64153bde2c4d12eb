//! Coming, going, and what may be done meanwhile.

use axum::body::Body;
use axum::http::{Method, header};

use super::support::{Browser, location, token, with_page};
use crate::api::tests::support::World;
use crate::page::limits::SESSION_SECS;

#[tokio::test]
async fn a_token_opens_a_session_which_ends() {
    let world = World::new().await;
    let router = with_page(&world);
    let admin = token(&world, "admin").await;
    let mut browser = Browser::on_loopback(&router);
    assert_eq!(location(&browser.get("/").await), "/ui/");
    assert_eq!(location(&browser.get("/ui/").await), "/ui/login");
    assert_eq!(
        location(&browser.get("/ui/nodes?q=a").await),
        "/ui/login?next=%2Fui%2Fnodes%3Fq%3Da"
    );
    assert_eq!(browser.get("/ui/live?at=/ui/").await.status, 401);

    let reply = browser.sign_in(&admin.token).await;
    assert_eq!(location(&reply), "/ui/");
    let cookie = reply.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    assert!(
        !cookie.contains(admin.token.split('.').nth(2).unwrap()),
        "the token is not in it"
    );
    assert!(browser.page("/ui/").await.contains("token admin-of-test"));

    let stolen = browser.cookie.clone();
    assert_eq!(location(&browser.act("/ui/logout", "").await), "/ui/login");
    assert_eq!(browser.cookie, stolen);
    assert_eq!(
        location(&browser.get("/ui/").await),
        "/ui/login",
        "the old cookie is good for nothing"
    );

    browser.sign_in(&admin.token).await;
    world.clock.advance(u64::try_from(SESSION_SECS).unwrap() * 1_000);
    assert_eq!(
        location(&browser.get("/ui/").await),
        "/ui/login",
        "its time is over"
    );

    browser.sign_in(&admin.token).await;
    assert_eq!(browser.get("/ui/").await.status, 200);
    let path = format!("/api/v1/tokens/{}", admin.id);
    assert_eq!(world.call(Method::DELETE, &path, "").await.status, 200);
    assert_eq!(
        location(&browser.get("/ui/").await),
        "/ui/login",
        "its token is gone"
    );
}

#[tokio::test]
async fn a_wrong_token_opens_nothing() {
    let world = World::new().await;
    let router = with_page(&world);
    let revoked = token(&world, "admin").await;
    let path = format!("/api/v1/tokens/{}", revoked.id);
    assert_eq!(world.call(Method::DELETE, &path, "").await.status, 200);
    // Nor does it help to come by the socket.
    for mut browser in [Browser::on_loopback(&router), Browser::of_root(&router)] {
        for word in ["", "nonsense", "a%0D%0Aset-cookie:b", revoked.token.as_str()] {
            let reply = browser.sign_in(word).await;
            assert_eq!((reply.status.as_u16(), &browser.cookie), (401, &None), "{word}");
            assert!(reply.text().contains("role=\"alert\""));
        }
    }
    let elsewhere = token(&world, "admin").await;
    let browser = Browser::on_loopback(&router);
    let form = format!("token={}&next=%2F%2Fevil.example%2Fui%2F", elsewhere.token);
    assert_eq!(location(&browser.post("/ui/login", &form).await), "/ui/");
}

#[tokio::test]
async fn who_may_only_read_sees_and_does_nothing() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let router = with_page(&world);
    let read = token(&world, "read").await;
    let mut browser = Browser::on_loopback(&router);
    browser.sign_in(&read.token).await;
    let page = browser.page("/ui/deployments/shop").await;
    assert!(
        page.contains("read only") && !page.contains("/restart"),
        "nothing is offered"
    );
    for (place, fields) in [
        ("/ui/deployments/shop/restart", ""),
        ("/ui/deployments/shop/scale", "service=web&replicas=7"),
        ("/ui/deployments/shop/rollback", "to=1"),
        ("/ui/nodes/1/drain", ""),
        ("/ui/deploy", "file=version%3A+v1"),
    ] {
        let before = world.state().revision;
        let reply = browser.act(place, fields).await;
        assert_eq!(reply.status, 403, "{place}: {}", reply.text());
        assert!(reply.text().contains("this token may only read"), "{place}");
        assert_eq!(world.state().revision, before, "{place}");
    }
    // A plan changes nothing, and who did what is not told.
    let file = "version%3A+v1%0D%0Adeployment%3A+shop%0D%0Aservices%3A+%7B%7D";
    let planned = browser.act("/ui/plan", &format!("file={file}")).await;
    assert_ne!(planned.status, 403, "{}", planned.text());
    assert!(!browser.page("/ui/events?audit=1").await.contains("Asked by"));
}

#[tokio::test]
async fn what_is_done_is_done_in_the_name_of_the_session() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let router = with_page(&world);
    let admin = token(&world, "admin").await;
    let mut browser = Browser::on_loopback(&router);
    browser.sign_in(&admin.token).await;
    let back = "%2Fui%2Fdeployments%2Fshop%2Fservices%2Fweb";
    let scaled = browser
        .act(
            "/ui/deployments/shop/scale",
            &format!("service=web&replicas=3&back={back}"),
        )
        .await;
    assert_eq!(location(&scaled), "/ui/deployments/shop/services/web?done=scale");
    world.wait_for_replicas(3).await;
    assert!(browser.page(location(&scaled)).await.contains("Scaled."));
    let drained = browser
        .act("/ui/nodes/1/drain", "back=https%3A%2F%2Fevil.example")
        .await;
    assert_eq!(location(&drained), "/ui/?done=drain", "no answer leads elsewhere");
    let asked = browser.page("/ui/events?audit=1").await;
    assert!(
        asked.contains(&format!("token admin-of-test ({})", admin.id)),
        "{asked}"
    );
    let refused = browser
        .act("/ui/deployments/shop/scale", "service=nothing&replicas=3")
        .await;
    assert!(refused.status.is_client_error() && refused.text().contains("nothing"));
    assert_eq!(
        browser
            .act("/ui/deployments/shop/scale", "service=web&replicas=x")
            .await
            .status,
        400
    );
    assert_eq!(
        browser
            .act("/ui/deployments/shop/rollback", "to=the-last")
            .await
            .status,
        400
    );
}

#[tokio::test]
async fn other_pages_can_neither_ask_nor_do() {
    let mut world = World::new().await;
    world.deploy_shop().await;
    let router = with_page(&world);
    let admin = token(&world, "admin").await;
    let mut browser = Browser::on_loopback(&router);
    browser.sign_in(&admin.token).await;
    let word = browser.form_word().await;
    let post = |origin: &'static str, site: &'static str, kind: &'static str, word: String| {
        let asked = browser
            .request(Method::POST, "/ui/deployments/shop/restart")
            .header("content-type", kind)
            .header("origin", origin)
            .header("sec-fetch-site", site);
        browser.send(asked.body(Body::from(format!("form_word={word}"))).unwrap())
    };
    const FORM: &str = "application/x-www-form-urlencoded";
    const OWN: &str = "http://127.0.0.1:3669";
    let before = world.state().revision;
    for (origin, site, kind, word, status) in [
        ("https://evil.example", "cross-site", FORM, word.as_str(), 403),
        ("https://evil.example", "same-origin", FORM, &word, 403),
        (OWN, "same-site", FORM, &word, 403),
        ("null", "same-origin", FORM, &word, 403),
        (OWN, "same-origin", FORM, "", 403),
        (OWN, "same-origin", FORM, "guess", 403),
        (OWN, "same-origin", "text/plain", &word, 415),
    ] {
        let reply = post(origin, site, kind, word.to_owned()).await;
        assert_eq!(reply.status, status, "{origin} {site} {kind}");
    }
    assert_eq!(world.state().revision, before);
    assert_eq!(post(OWN, "same-origin", FORM, word.clone()).await.status, 303);
    // The word of one session is none of another.
    let mut other = Browser::on_loopback(&router);
    other.sign_in(&admin.token).await;
    assert_ne!(other.form_word().await, word);
    // A frame, a script and an image of another site get nothing; a link shows the page.
    let get = |mode: &'static str, dest: &'static str| {
        let asked = browser
            .request(Method::GET, "/ui/")
            .header("sec-fetch-site", "cross-site");
        let asked = asked
            .header("sec-fetch-mode", mode)
            .header("sec-fetch-dest", dest);
        browser.send(asked.body(Body::empty()).unwrap())
    };
    assert_eq!(get("navigate", "document").await.status, 200);
    assert_eq!(get("navigate", "iframe").await.status, 403);
    assert_eq!(get("no-cors", "script").await.status, 403);
    // A name that was led here by somebody else's name server.
    let rebound = Browser {
        host: "evil.example",
        cookie: browser.cookie.clone(),
        ..Browser::on_loopback(&router)
    };
    assert_eq!(rebound.get("/ui/").await.status, 403);
    assert_eq!(rebound.get("/ui/login").await.status, 403);
}

#[tokio::test]
async fn every_answer_says_what_it_may_do() {
    let world = World::new().await;
    let router = with_page(&world);
    let browser = Browser::of_root(&router);
    for place in [
        "/",
        "/ui/",
        "/ui/login",
        "/ui/page.js",
        "/ui/nothing",
        "/ui/live?at=/ui/x",
    ] {
        let reply = browser.get(place).await;
        let policy = reply.headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none';") && !policy.contains("unsafe"),
            "{place}"
        );
        assert_eq!(reply.headers["x-content-type-options"], "nosniff", "{place}");
        assert_eq!(reply.headers["referrer-policy"], "same-origin", "{place}");
    }
    let page = browser.page("/ui/").await;
    assert!(!page.contains(" style=") && !page.contains("<script>") && !page.contains(" onclick"));
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "nothing from elsewhere"
    );
    assert_eq!(browser.get("/ui/nothing").await.status, 404);
    assert_eq!(browser.get("/ui/deployments/none").await.status, 404);
}
