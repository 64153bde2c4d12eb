//! Coming and going: a token is shown once and a session takes its place.

use axum::Extension;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use dhow_wire::AccessToken;
use maud::{Markup, html};
use serde::Deserialize;

use super::calls::Call;
use super::context::Page;
use super::door::{is_own_place, read_form, with_cookie};
use super::viewer::{Viewer, is_tls};
use super::{cookie, document};
use crate::api::Principal;
use crate::net::identity::Peer;
use crate::net::lobby::Visit;

/// The query of the login: where it leads to.
#[derive(Default, Deserialize)]
pub(super) struct Next {
    next: Option<String>,
}

pub(super) async fn show(uri: Uri) -> Response {
    let query = Query::<Next>::try_from_uri(&uri).ok();
    let next = query.and_then(|Query(query)| query.next);
    document::bare(200, "Sign in", &form(next.as_deref(), None)).into_response()
}

fn form(next: Option<&str>, wrong: Option<&str>) -> Markup {
    let next = next.filter(|next| is_own_place(next)).unwrap_or("/ui/");
    html! {
        form.login method="post" action="/ui/login" {
            h1 { "Sign in to Dhow" }
            @if let Some(wrong) = wrong {
                p.refused role="alert" { (wrong) }
            }
            input type="hidden" name="next" value=(next);
            label for="token" { "Token" }
            input id="token" name="token" type="password" autocomplete="current-password" required autofocus
                spellcheck="false" aria-describedby="token-help";
            p.hint id="token-help" {
                code { "dhow token create" } " on a server makes one: with " code { "--role read" }
                " to look, with " code { "--role admin" } " to act. The session ends with the browser, after twelve hours, "
                "or with the token."
            }
            button.primary type="submit" { "Sign in" }
        }
    }
}

/// Shows the token to the API: what it says is what counts.
pub(super) async fn enter(State(page): State<Page>, mut request: Request) -> Response {
    let fields = match read_form(&mut request).await {
        Ok(fields) => fields,
        Err(problem) => return document::refusal(&problem).into_response(),
    };
    let extensions = request.extensions();
    let peer = extensions.get::<Peer>().copied();
    let token = fields.get("token").unwrap_or_default().trim().to_owned();
    let again = |detail: &str| {
        let form = form(fields.get("next"), Some(detail));
        document::bare(401, "Sign in", &form).into_response()
    };
    let (Ok(known), Ok(authorization)) = (
        AccessToken::parse(&token),
        HeaderValue::from_str(&format!("Bearer {token}")),
    ) else {
        return again("This is no token: paste the whole word that `dhow token create` printed.");
    };
    let caller = Viewer {
        principal: Principal::Unknown,
        name: String::new(),
        session: None,
        form_word: String::new(),
        // A token counts here whatever else the caller is.
        peer: peer.map(without_identity),
        visit: extensions.get::<Visit>().cloned(),
        authorization: Some(authorization),
    };
    if let Err(problem) = page.ask(&caller, Call::get("cluster".into())).await {
        return again(&problem.detail);
    }
    let word = page.sessions.open(known.id().into(), page.now_unix_secs());
    let next = fields.get("next").filter(|next| is_own_place(next));
    let response = Redirect::to(next.unwrap_or("/ui/")).into_response();
    with_cookie(response, &cookie::set(&word, is_tls(peer)))
}

/// Whoever comes by the socket is known by it; for the look at the token it is somebody on loopback.
fn without_identity(peer: Peer) -> Peer {
    match peer {
        Peer::Tls { addr, .. } => Peer::Tls { addr, identity: None },
        Peer::Tcp(addr) => Peer::Tcp(addr),
        Peer::Unix { .. } | Peer::OwnAgent(_) => Peer::Tcp(([127, 0, 0, 1], 0).into()),
    }
}

pub(super) async fn leave(State(page): State<Page>, Extension(viewer): Extension<Viewer>) -> Response {
    if let Some((key, _)) = &viewer.session {
        page.sessions.close(key);
    }
    let response = Redirect::to("/ui/login").into_response();
    with_cookie(response, &cookie::clear(is_tls(viewer.peer)))
}
