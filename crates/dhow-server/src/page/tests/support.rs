//! A daemon with its page, and a browser without a screen.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, header};
use axum::response::Response;
use dhow_wire::api::TokenCreated;
use tower::ServiceExt;

use crate::api::tests::support::{Reply, World, request};
use crate::api::{Access, Beside, router_with};
use crate::net::identity::Peer;

/// The world with the page beside its API.
pub(super) fn with_page(world: &World) -> Router {
    let beside = Beside {
        page: Some(crate::page::routes),
        ..Beside::default()
    };
    router_with(
        world.api.clone(),
        beside,
        Access::new(&world.api, None),
        world.end.clone(),
    )
}

/// Somebody with a browser on loopback, or whoever runs `dhow dashboard`.
pub(super) struct Browser {
    pub router: Router,
    pub peer: Peer,
    pub cookie: Option<String>,
    pub host: &'static str,
}

impl Browser {
    pub fn on_loopback(router: &Router) -> Self {
        Self {
            router: router.clone(),
            peer: Peer::Tcp(([127, 0, 0, 1], 5_000).into()),
            cookie: None,
            host: "127.0.0.1:3669",
        }
    }

    pub fn of_root(router: &Router) -> Self {
        Self {
            peer: Peer::Unix { uid: 0 },
            ..Self::on_loopback(router)
        }
    }

    pub fn request(&self, method: Method, place: &str) -> axum::http::request::Builder {
        let asked = Request::builder()
            .extension(self.peer)
            .method(method)
            .uri(place)
            .header("host", self.host);
        match &self.cookie {
            Some(cookie) => asked.header("cookie", cookie),
            None => asked,
        }
    }

    pub async fn open(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    pub async fn send(&self, request: Request<Body>) -> Reply {
        let (parts, body) = self.open(request).await.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Reply {
            status: parts.status,
            headers: parts.headers,
            body: body.to_vec(),
        }
    }

    pub async fn get(&self, place: &str) -> Reply {
        self.send(self.request(Method::GET, place).body(Body::empty()).unwrap())
            .await
    }

    /// A page that is there.
    pub async fn page(&self, place: &str) -> String {
        let reply = self.get(place).await;
        assert_eq!(reply.status, 200, "{place}: {}", reply.text());
        reply.text()
    }

    /// Sends a form as it is.
    pub async fn post(&self, place: &str, form: &str) -> Reply {
        let asked = self
            .request(Method::POST, place)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", format!("http://{}", self.host))
            .header("sec-fetch-site", "same-origin");
        self.send(asked.body(Body::from(form.to_owned())).unwrap()).await
    }

    /// The word that the forms of its pages carry.
    pub async fn form_word(&self) -> String {
        let page = self.page("/ui/plan").await;
        let (_, rest) = page.split_once("name=\"form_word\" value=\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    }

    /// Fills a form in and sends it.
    pub async fn act(&self, place: &str, fields: &str) -> Reply {
        let word = self.form_word().await;
        self.post(place, &format!("form_word={word}&{fields}")).await
    }

    /// Shows a token and keeps the cookie.
    pub async fn sign_in(&mut self, token: &str) -> Reply {
        let reply = self.post("/ui/login", &format!("token={token}")).await;
        self.cookie = reply.headers.get(header::SET_COOKIE).map(|cookie| {
            let cookie = cookie.to_str().unwrap();
            cookie.split(';').next().unwrap().to_owned()
        });
        reply
    }
}

pub(super) async fn token(world: &World, role: &str) -> TokenCreated {
    let asked = request(Method::POST, "/api/v1/tokens").header("content-type", "application/json");
    let body = format!(r#"{{"role":"{role}","name":"{role}-of-test"}}"#);
    world.send(asked.body(Body::from(body)).unwrap()).await.json()
}

/// Where an answer leads.
pub(super) fn location(reply: &Reply) -> &str {
    assert_eq!(reply.status, 303, "{}", reply.text());
    reply.headers[header::LOCATION].to_str().unwrap()
}
